#include "cuda/walk.cuh"

/** Reads under way at a time, of each view. */
template <cuda_lanes L> constexpr int in_flight = L == LANES_MIXED ? 2 : 4;

struct add_work {
    cuda_walk walk;
    cuda_view a, b, y;
    float alpha, beta;
    bool accumulate;
};

template <cuda_lanes L> struct add_raw {
    lanes_raw<L> a, b, before;
};

template <cuda_lanes L> __global__ void __launch_bounds__(CUDA_THREADS, CUDA_BLOCKS) add_kernel(add_work work)
{
    chain_wait();
    const walk_part part = walk_begin<L>(work.walk, blockIdx.x);
    walk_pixels<in_flight<L>>(
        work.walk, part,
        [&](int64_t pixel) {
            add_raw<L> raw;
            raw.a = lanes_fetch<L>(work.a, pixel, part.channel);
            if (work.b.data != NULL)
                raw.b = lanes_fetch<L>(work.b, pixel, part.channel);
            if (work.accumulate)
                raw.before = lanes_fetch<L>(work.y, pixel, part.channel);
            return raw;
        },
        [&](int64_t pixel, const add_raw<L> &raw) {
            float a[lanes_width<L>], b[lanes_width<L>];
            lanes_open<L>(work.a, raw.a, a);
#pragma unroll
            for (int i = 0; i < lanes_width<L>; i++)
                a[i] *= work.alpha;
            if (work.b.data != NULL) {
                lanes_open<L>(work.b, raw.b, b);
#pragma unroll
                for (int i = 0; i < lanes_width<L>; i++)
                    a[i] += work.beta * b[i];
            }
            lanes_put_on<L>(work.y, pixel, part.channel, a, raw.before, work.accumulate);
        });
}

cod_status cuda_make_add(cod_plan *plan)
{
    const cod_op *op = plan->ops;
    add_work work = {};
    work.a = cuda_view_of(&op->inputs[0]);
    work.b = cuda_view_of(&op->inputs[1]);
    work.y = cuda_view_of(&op->outputs[0]);
    work.alpha = op->attr.alpha;
    work.beta = op->attr.beta;
    work.accumulate = op->accumulate;
    cuda_view absent = {};
    work.walk = cuda_walk_of(plan->device, {&work.a, &work.b, &work.y, &absent}, {.mixed = true});
    return cuda_plan_launches(plan, work,
                              {cuda_walk_kernel(CUDA_MIXED_KERNEL(add_kernel, work.walk.lanes), work.walk, 0)});
}

struct fill_work {
    cuda_walk walk;
    cuda_view y;
    float value;
};

template <cuda_lanes L> __global__ void __launch_bounds__(CUDA_THREADS, CUDA_BLOCKS) fill_kernel(fill_work work)
{
    chain_wait();
    const walk_part part = walk_begin<L>(work.walk, blockIdx.x);
    float values[lanes_width<L>];
#pragma unroll
    for (int i = 0; i < lanes_width<L>; i++)
        values[i] = work.value;
    for (int64_t pixel = part.first; pixel < part.end; pixel += work.walk.rows)
        lanes_store<L>(work.y, pixel, part.channel, values);
}

cod_status cuda_make_fill(cod_plan *plan)
{
    fill_work work = {};
    work.y = cuda_view_of(&plan->ops[0].outputs[0]);
    work.value = plan->ops[0].attr.alpha;
    cuda_view absent = {};
    work.walk = cuda_walk_of(plan->device, {&work.y, &absent, &absent, &absent}, {});
    return cuda_plan_launches(plan, work,
                              {cuda_walk_kernel(CUDA_LANES_KERNEL(fill_kernel, work.walk.lanes), work.walk, 0)});
}
