/* 3x3 convolutions of 64 channels by products of warpgroups, which Hopper alone has. */
#include "cuda/conv3_kernel.cuh"

/** WARPS warps of MT·16 pixels x 64 columns each are a group; four of them multiply together. */
template <int STORE, int MT, int WARPS, int MOST_GROUPS>
__global__ void __launch_bounds__(WARPS *WARP_LANES *MOST_GROUPS, 1) conv3_wgmma_kernel(const conv3_work work)
{
    if constexpr (WGMMA_HERE)
        run_tiles<STORE, true, MT, 8, WARPS, 1, 64>(work);
    else
        wgmma_missing();
}

/** Of most_groups those of its kinds of stores: the last one needs most registers. */
template <int MT, int WARPS, int GROUPS, int REDUCING_GROUPS> static conv3_kernel wgmma_kernel_of(float speed)
{
    static_assert(WARPS * WARP_LANES % WGMMA_THREADS == 0, "whole warpgroups");
    return {WARPS * MT * 16,
            64,
            64,
            WARPS * WARP_LANES,
            WARPS,
            {GROUPS, GROUPS, REDUCING_GROUPS},
            speed,
            true,
            {conv3_wgmma_kernel<CONV3_STORE, MT, WARPS, GROUPS>,
             conv3_wgmma_kernel<CONV3_STATISTICS, MT, WARPS, GROUPS>,
             conv3_wgmma_kernel<CONV3_REDUCE, MT, WARPS, REDUCING_GROUPS>}};
}

const conv3_kernel *conv3_kernels_of_wgmma()
{
    /* The speed is such that the cost model has what was measured on an H100 by trials: 10.5 us in place of 16.4 for a
     * batch of 64, and 30 in place of 43 for one of 256. */
    static const conv3_kernel kernels[] = {
#if defined(COD_CUDA_EMULATED) || defined(COD_CUDA_HOPPER)
        wgmma_kernel_of<3, 4, 3, 2>(1.55f),
#endif
        {},
    };
    return kernels;
}
