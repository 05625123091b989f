#include "cuda/activation.cuh"

#include "cuda/sums.cuh"

/** Reads under way at a time, of each view. */
enum { IN_FLIGHT = 4 };

struct activation_work {
    cuda_walk walk;
    cuda_view x, dy, y; /**< x: y for the gradients of most kinds; dy: of gradients alone; y: the output, or dx */
    cuda_activation activation;
    cuda_sums sums; /**< of the slopes' gradient */
    float *dslope;
    bool accumulate, dslope_by_channel;
};

template <cuda_lanes L>
__global__ void __launch_bounds__(CUDA_THREADS, CUDA_BLOCKS) activation_kernel(activation_work work)
{
    chain_wait();
    const walk_part part = walk_begin<L>(work.walk, blockIdx.x);
    float slope[lanes_width<L>];
    if (part.first < part.end)
        activation_slopes(work.activation, part.channel, slope);
    walk_pixels<IN_FLIGHT>(
        work.walk, part, [&](int64_t pixel) { return lanes_fetch<L>(work.x, pixel, part.channel); },
        [&](int64_t pixel, const lanes_raw<L> &raw) {
            float x[lanes_width<L>];
            lanes_open<L>(work.x, raw, x);
            activate_lanes(work.activation, slope, x);
            lanes_store<L>(work.y, pixel, part.channel, x);
        });
}

cod_status cuda_make_activation(cod_plan *plan)
{
    const cod_op *op = plan->ops;
    activation_work work = {};
    work.x = cuda_view_of(&op->inputs[0]);
    work.y = cuda_view_of(&op->outputs[0]);
    work.activation = cuda_activation_of(&op->attr, &op->inputs[1]);
    cuda_view absent = {};
    work.walk = cuda_walk_of(plan->device, {&work.x, &work.y, &absent, &absent},
                             {.by_channel = work.activation.slope_by_channel});
    return cuda_plan_launches(plan, work,
                              {cuda_walk_kernel(CUDA_LANES_KERNEL(activation_kernel, work.walk.lanes), work.walk, 0)});
}

template <cuda_lanes L>
__global__ void __launch_bounds__(CUDA_THREADS, CUDA_BLOCKS) activation_backward_kernel(activation_work work)
{
    chain_wait();
    const walk_part part = walk_begin<L>(work.walk, blockIdx.x);
    float slope[lanes_width<L>], dslope[1][lanes_width<L>] = {};
    if (part.first < part.end)
        activation_slopes(work.activation, part.channel, slope);
    walk_pixels<IN_FLIGHT>(
        work.walk, part,
        [&](int64_t pixel) { return gradient_fetch<L>(work.x, work.dy, work.y, pixel, part.channel, work.accumulate); },
        [&](int64_t pixel, const gradient_raw<L> &raw) {
            float x[lanes_width<L>], gradient[lanes_width<L>];
            lanes_open<L>(work.x, raw.x, x);
            lanes_open<L>(work.dy, raw.dy, gradient);
#pragma unroll
            for (int i = 0; i < lanes_width<L>; i++)
                if (!(x[i] > 0))
                    dslope[0][i] += gradient[i] * x[i];
            activation_gradients(work.activation, slope, x, gradient);
            lanes_put_on<L>(work.y, pixel, part.channel, gradient, raw.before, work.accumulate);
        });
    if (work.dslope == NULL)
        return;
    write_columns<1, lanes_width<L>>(work.sums, work.walk, block_columns(dslope, work.walk));
    if (!block_is_last(work.sums.ticket))
        return;
    grid_totals(work.sums, gridDim.x);
    dslopes_put(work.sums.totals, work.sums.lists, work.dslope, work.dslope_by_channel, work.accumulate);
}

cod_status cuda_make_activation_backward(cod_plan *plan)
{
    const cod_op *op = plan->ops;
    activation_work work = {};
    work.x = cuda_view_of(&op->inputs[0]);
    work.dy = cuda_view_of(&op->inputs[1]);
    work.y = cuda_view_of(&op->outputs[0]);
    work.activation = cuda_activation_of(&op->attr, &op->inputs[2]);
    work.dslope = cuda_floats_of(&op->outputs[1]);
    work.dslope_by_channel = work.dslope != nullptr && cod_shape_count(op->outputs[1].shape) > 1;
    work.accumulate = op->accumulate;
    cuda_view absent = {};
    work.walk = cuda_walk_of(plan->device, {&work.x, &work.dy, &work.y, &absent},
                             {.by_channel = work.activation.slope_by_channel, .sums = work.dslope != nullptr});
    size_t shared = 0;
    if (work.dslope != nullptr) {
        COD_TRY(cuda_sums_create(plan, work.walk.channels, work.walk.blocks, &work.sums));
        shared = cuda_sums_shared(work.walk, 1);
    }
    return cuda_plan_launches(
        plan, work,
        {cuda_walk_kernel(CUDA_LANES_KERNEL(activation_backward_kernel, work.walk.lanes), work.walk, shared)});
}
