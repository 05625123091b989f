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
    const int step = work.walk.rows;
    float slope[lanes_width<L>];
    if (part.first < part.end)
        activation_slopes(work.activation, part.channel, slope);
    for (int64_t first = part.first; first < part.end; first += IN_FLIGHT * step) {
        lanes_raw<L> raw[IN_FLIGHT];
#pragma unroll
        for (int u = 0; u < IN_FLIGHT; u++)
            if (first + u * step < part.end)
                raw[u] = lanes_fetch<L>(work.x, first + u * step, part.channel);
#pragma unroll
        for (int u = 0; u < IN_FLIGHT; u++) {
            if (first + u * step >= part.end)
                break;
            float x[lanes_width<L>];
            lanes_open<L>(work.x, raw[u], x);
            activate_lanes(work.activation, slope, x);
            lanes_store<L>(work.y, first + u * step, part.channel, x);
        }
    }
}

static void (*const activation_kernels[LANES_COUNT])(activation_work) = {
    activation_kernel<LANES_ANY>, activation_kernel<LANES_F32>, activation_kernel<LANES_BF16>, NULL};

static cod_status activation_run(const cod_plan *plan, cudaStream_t stream)
{
    const activation_work *work = static_cast<const activation_work *>(plan->state);
    return cuda_launch_chained(plan->device, stream, activation_kernels[work->walk.lanes], cuda_walk_grid(work->walk),
                               CUDA_THREADS, 0, *work);
}

cod_status cuda_make_activation(cod_plan *plan)
{
    const cod_op *op = plan->ops;
    COD_TRY(cuda_plan_state(plan, sizeof(activation_work)));
    activation_work *work = static_cast<activation_work *>(plan->state);
    work->x = cuda_view_of(&op->inputs[0]);
    work->y = cuda_view_of(&op->outputs[0]);
    work->activation = cuda_activation_of(&op->attr, &op->inputs[1]);
    cuda_view absent = {};
    work->walk = cuda_walk_of(plan->device, {&work->x, &work->y, &absent, &absent},
                              {.by_channel = work->activation.slope_by_channel});
    plan->run = activation_run;
    return COD_OK;
}

/** dx of one access; adds dy·x where x <= 0 to the slopes' sums. */
template <cuda_lanes L>
static __device__ __forceinline__ void backward_pixel(const activation_work &work, int64_t pixel, int channel,
                                                      const lanes_raw<L> &raw_x, const lanes_raw<L> &raw_dy,
                                                      const lanes_raw<L> &before, const float (&slope)[lanes_width<L>],
                                                      float (&dslope)[1][lanes_width<L>])
{
    float x[lanes_width<L>], gradient[lanes_width<L>];
    lanes_open<L>(work.x, raw_x, x);
    lanes_open<L>(work.dy, raw_dy, gradient);
#pragma unroll
    for (int i = 0; i < lanes_width<L>; i++)
        if (!(x[i] > 0))
            dslope[0][i] += gradient[i] * x[i];
    activation_gradients(work.activation, slope, x, gradient);
    lanes_put_on<L>(work.y, pixel, channel, gradient, before, work.accumulate);
}

/** The last block's part: from sums by channel to the slopes' gradient. */
static __device__ __forceinline__ void finish_slopes(const activation_work &work)
{
    grid_totals(work.sums, gridDim.x);
    float sum = 0;
    for (int i = (int)threadIdx.x; i < work.sums.lists; i += (int)blockDim.x) {
        const float total = work.sums.totals[i];
        if (work.dslope_by_channel)
            work.dslope[i] = work.accumulate ? work.dslope[i] + total : total;
        sum += total;
    }
    if (work.dslope_by_channel)
        return;
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        work.dslope[0] = work.accumulate ? work.dslope[0] + sum : sum;
}

template <cuda_lanes L>
__global__ void __launch_bounds__(CUDA_THREADS, CUDA_BLOCKS) activation_backward_kernel(activation_work work)
{
    chain_wait();
    const walk_part part = walk_begin<L>(work.walk, blockIdx.x);
    const int step = work.walk.rows;
    float slope[lanes_width<L>], dslope[1][lanes_width<L>];
#pragma unroll
    for (int i = 0; i < lanes_width<L>; i++)
        dslope[0][i] = 0;
    if (part.first < part.end)
        activation_slopes(work.activation, part.channel, slope);
    for (int64_t first = part.first; first < part.end; first += IN_FLIGHT * step) {
        lanes_raw<L> x[IN_FLIGHT], dy[IN_FLIGHT], before[IN_FLIGHT];
#pragma unroll
        for (int u = 0; u < IN_FLIGHT; u++) {
            if (first + u * step >= part.end)
                break;
            x[u] = lanes_fetch<L>(work.x, first + u * step, part.channel);
            dy[u] = lanes_fetch<L>(work.dy, first + u * step, part.channel);
            if (work.accumulate)
                before[u] = lanes_fetch<L>(work.y, first + u * step, part.channel);
        }
#pragma unroll
        for (int u = 0; u < IN_FLIGHT; u++)
            if (first + u * step < part.end)
                backward_pixel<L>(work, first + u * step, part.channel, x[u], dy[u], before[u], slope, dslope);
    }
    if (work.dslope == NULL)
        return;
    write_columns<1, lanes_width<L>>(work.sums, work.walk, block_columns(dslope, work.walk));
    if (block_is_last(work.sums.ticket))
        finish_slopes(work);
}

static void (*const backward_kernels[LANES_COUNT])(activation_work) = {activation_backward_kernel<LANES_ANY>,
                                                                       activation_backward_kernel<LANES_F32>,
                                                                       activation_backward_kernel<LANES_BF16>, NULL};

static cod_status backward_run(const cod_plan *plan, cudaStream_t stream)
{
    const activation_work *work = static_cast<const activation_work *>(plan->state);
    return cuda_launch_chained(plan->device, stream, backward_kernels[work->walk.lanes], cuda_walk_grid(work->walk),
                               CUDA_THREADS, work->dslope != nullptr ? cuda_sums_shared(work->walk, 1) : 0, *work);
}

cod_status cuda_make_activation_backward(cod_plan *plan)
{
    const cod_op *op = plan->ops;
    COD_TRY(cuda_plan_state(plan, sizeof(activation_work)));
    activation_work *work = static_cast<activation_work *>(plan->state);
    work->x = cuda_view_of(&op->inputs[0]);
    work->dy = cuda_view_of(&op->inputs[1]);
    work->y = cuda_view_of(&op->outputs[0]);
    work->activation = cuda_activation_of(&op->attr, &op->inputs[2]);
    work->dslope = cuda_floats_of(&op->outputs[1]);
    work->dslope_by_channel = work->dslope != nullptr && cod_shape_count(op->outputs[1].shape) > 1;
    work->accumulate = op->accumulate;
    cuda_view absent = {};
    work->walk = cuda_walk_of(plan->device, {&work->x, &work->dy, &work->y, &absent},
                              {.by_channel = work->activation.slope_by_channel, .sums = work->dslope != nullptr});
    plan->run = backward_run;
    return work->dslope != nullptr ? cuda_sums_create(plan, work->walk.channels, work->walk.blocks, &work->sums)
                                   : COD_OK;
}
