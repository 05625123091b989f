#include "cuda/walk.cuh"

/** Reads under way at a time, of each view. */
template <cuda_lanes L> constexpr int in_flight = L == LANES_MIXED ? 2 : 4;

struct add_work {
    cuda_walk walk;
    cuda_view a, b, y;
    float alpha, beta;
    bool accumulate;
};

template <cuda_lanes L>
static __device__ __forceinline__ void add_pixel(const add_work &work, int64_t pixel, int channel,
                                                 const lanes_raw<L> &raw_a, const lanes_raw<L> &raw_b,
                                                 const lanes_raw<L> &before)
{
    float a[lanes_width<L>], b[lanes_width<L>];
    lanes_open<L>(work.a, raw_a, a);
#pragma unroll
    for (int i = 0; i < lanes_width<L>; i++)
        a[i] *= work.alpha;
    if (work.b.data != NULL) {
        lanes_open<L>(work.b, raw_b, b);
#pragma unroll
        for (int i = 0; i < lanes_width<L>; i++)
            a[i] += work.beta * b[i];
    }
    lanes_put_on<L>(work.y, pixel, channel, a, before, work.accumulate);
}

template <cuda_lanes L> __global__ void __launch_bounds__(CUDA_THREADS, CUDA_BLOCKS) add_kernel(add_work work)
{
    chain_wait();
    const walk_part part = walk_begin<L>(work.walk, blockIdx.x);
    const int step = work.walk.rows;
    for (int64_t first = part.first; first < part.end; first += in_flight<L> * step) {
        lanes_raw<L> a[in_flight<L>], b[in_flight<L>], before[in_flight<L>];
#pragma unroll
        for (int u = 0; u < in_flight<L>; u++) {
            if (first + u * step >= part.end)
                break;
            a[u] = lanes_fetch<L>(work.a, first + u * step, part.channel);
            if (work.b.data != NULL)
                b[u] = lanes_fetch<L>(work.b, first + u * step, part.channel);
            if (work.accumulate)
                before[u] = lanes_fetch<L>(work.y, first + u * step, part.channel);
        }
#pragma unroll
        for (int u = 0; u < in_flight<L>; u++)
            if (first + u * step < part.end)
                add_pixel<L>(work, first + u * step, part.channel, a[u], b[u], before[u]);
    }
}

static void (*const add_kernels[LANES_COUNT])(add_work) = {add_kernel<LANES_ANY>, add_kernel<LANES_F32>,
                                                           add_kernel<LANES_BF16>, add_kernel<LANES_MIXED>};

static cod_status add_run(const cod_plan *plan, cudaStream_t stream)
{
    const add_work *work = static_cast<const add_work *>(plan->state);
    return cuda_launch_chained(plan->device, stream, add_kernels[work->walk.lanes], cuda_walk_grid(work->walk),
                               CUDA_THREADS, 0, *work);
}

cod_status cuda_make_add(cod_plan *plan)
{
    const cod_op *op = plan->ops;
    COD_TRY(cuda_plan_state(plan, sizeof(add_work)));
    add_work *work = static_cast<add_work *>(plan->state);
    work->a = cuda_view_of(&op->inputs[0]);
    work->b = cuda_view_of(&op->inputs[1]);
    work->y = cuda_view_of(&op->outputs[0]);
    work->alpha = op->attr.alpha;
    work->beta = op->attr.beta;
    work->accumulate = op->accumulate;
    cuda_view absent = {};
    work->walk = cuda_walk_of(plan->device, {&work->a, &work->b, &work->y, &absent}, {.mixed = true});
    plan->run = add_run;
    return COD_OK;
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

static void (*const fill_kernels[LANES_COUNT])(fill_work) = {fill_kernel<LANES_ANY>, fill_kernel<LANES_F32>,
                                                             fill_kernel<LANES_BF16>, NULL};

static cod_status fill_run(const cod_plan *plan, cudaStream_t stream)
{
    const fill_work *work = static_cast<const fill_work *>(plan->state);
    return cuda_launch_chained(plan->device, stream, fill_kernels[work->walk.lanes], cuda_walk_grid(work->walk),
                               CUDA_THREADS, 0, *work);
}

cod_status cuda_make_fill(cod_plan *plan)
{
    COD_TRY(cuda_plan_state(plan, sizeof(fill_work)));
    fill_work *work = static_cast<fill_work *>(plan->state);
    work->y = cuda_view_of(&plan->ops[0].outputs[0]);
    work->value = plan->ops[0].attr.alpha;
    cuda_view absent = {};
    work->walk = cuda_walk_of(plan->device, {&work->y, &absent, &absent, &absent}, {});
    plan->run = fill_run;
    return COD_OK;
}
