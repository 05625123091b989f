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
    float sums[1][lanes_width<L>] = {};
    walk_pixels<IN_FLIGHT>(
        walk, part, [&](int64_t pixel) { return lanes_fetch<L>(work.x, pixel, part.channel); },
        [&](int64_t, const lanes_raw<L> &raw) {
            float x[lanes_width<L>];
            lanes_open<L>(work.x, raw, x);
#pragma unroll
            for (int i = 0; i < lanes_width<L>; i++)
                sums[0][i] += x[i];
        });
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

cod_status cuda_make_mean(cod_plan *plan)
{
    mean_work work = {};
    work.x = cuda_view_of(&plan->ops[0].inputs[0]);
    work.y = cuda_view_of(&plan->ops[0].outputs[0]);
    work.accumulate = plan->ops[0].accumulate;
    cuda_view absent = {};
    work.walk = cuda_walk_of(plan->device, {&work.y, &absent, &absent, &absent}, {.by_channel = true});
    work.sums_walk =
        cuda_walk_of(plan->device, {&work.x, &absent, &absent, &absent}, {.by_channel = true, .sums = true});
    COD_TRY(cuda_sums_create(plan, work.sums_walk.channels, work.sums_walk.blocks, &work.sums));
    return cuda_plan_launches(plan, work,
                              {cuda_walk_kernel(CUDA_LANES_KERNEL(mean_sums_kernel, work.sums_walk.lanes),
                                                work.sums_walk, cuda_sums_shared(work.sums_walk, 1)),
                               cuda_walk_kernel(CUDA_LANES_KERNEL(mean_write_kernel, work.walk.lanes), work.walk, 0)});
}
