#include "cuda/sums.cuh"

/* MEAN: at each pixel its channel's mean over N, H, W. */

enum { IN_FLIGHT = 4 };

struct mean_work {
    cuda_walk walk, sums_walk;
    cuda_view x, y;
    cuda_sums sums;
    bool accumulate;
};

template <cuda_lanes L> __global__ void __launch_bounds__(CUDA_THREADS, CUDA_BLOCKS) mean_sums_kernel(mean_work work)
{
    chain_wait();
    const cuda_walk &walk = work.sums_walk;
    const walk_part part = walk_begin<L>(walk, blockIdx.x);
    const int step = walk.rows;
    float sums[1][lanes_width<L>] = {};
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
#pragma unroll
            for (int i = 0; i < lanes_width<L>; i++)
                sums[0][i] += x[i];
        }
    }
    chain_release();
    write_columns<1, lanes_width<L>>(work.sums, walk, block_columns(sums, walk));
    if (block_is_last(work.sums.ticket))
        grid_totals(work.sums, gridDim.x);
}

template <cuda_lanes L> __global__ void __launch_bounds__(CUDA_THREADS, CUDA_BLOCKS) mean_write_kernel(mean_work work)
{
    chain_wait();
    const walk_part part = walk_begin<L>(work.walk, blockIdx.x);
    const float count = (float)work.walk.pixels;
    for (int64_t pixel = part.first; pixel < part.end; pixel += work.walk.rows) {
        float mean[lanes_width<L>];
#pragma unroll
        for (int i = 0; i < lanes_width<L>; i++)
            mean[i] = work.sums.totals[part.channel + i] / count;
        lanes_put<L>(work.y, pixel, part.channel, mean, work.accumulate);
    }
}

static void (*const sums_kernels[LANES_COUNT])(mean_work) = {mean_sums_kernel<LANES_ANY>, mean_sums_kernel<LANES_F32>,
                                                             mean_sums_kernel<LANES_BF16>, NULL};
static void (*const write_kernels[LANES_COUNT])(mean_work) = {
    mean_write_kernel<LANES_ANY>, mean_write_kernel<LANES_F32>, mean_write_kernel<LANES_BF16>, NULL};

static cod_status mean_run(const cod_plan *plan, cudaStream_t stream)
{
    const mean_work *work = static_cast<const mean_work *>(plan->state);
    COD_TRY(cuda_launch_chained(plan->device, stream, sums_kernels[work->sums_walk.lanes],
                                cuda_walk_grid(work->sums_walk), CUDA_THREADS, cuda_sums_shared(work->sums_walk, 1),
                                *work));
    return cuda_launch_chained(plan->device, stream, write_kernels[work->walk.lanes], cuda_walk_grid(work->walk),
                               CUDA_THREADS, 0, *work);
}

cod_status cuda_make_mean(cod_plan *plan)
{
    COD_TRY(cuda_plan_state(plan, sizeof(mean_work)));
    mean_work *work = static_cast<mean_work *>(plan->state);
    work->x = cuda_view_of(&plan->ops[0].inputs[0]);
    work->y = cuda_view_of(&plan->ops[0].outputs[0]);
    work->accumulate = plan->ops[0].accumulate;
    cuda_view absent = {};
    work->walk = cuda_walk_of(plan->device, {&work->y, &absent, &absent, &absent}, {.by_channel = true});
    work->sums_walk =
        cuda_walk_of(plan->device, {&work->x, &absent, &absent, &absent}, {.by_channel = true, .sums = true});
    plan->run = mean_run;
    return cuda_sums_create(plan, work->sums_walk.channels, work->sums_walk.blocks, &work->sums);
}
