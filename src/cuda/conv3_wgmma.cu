/* 3x3 convolutions of 64 channels by products of warpgroups, which Hopper alone has. */
#include "cuda/conv3_kernel.cuh"

/** WARPS warps of MT·16 pixels x NT·8 columns each are a group; four of them multiply together. */
template <int STORE, int MT, int NT, int WARPS, int MOST_GROUPS>
__global__ void __launch_bounds__(WARPS *WARP_LANES *MOST_GROUPS, 1) conv3_wgmma_kernel(const conv3_work work)
{
    if constexpr (WGMMA_HERE)
        run_tiles<STORE, true, MT, NT, WARPS, 1, 64>(work);
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
            {GROUPS, GROUPS, REDUCING_GROUPS, 0},
            speed,
            true,
            {conv3_wgmma_kernel<CONV3_STORE, MT, 8, WARPS, GROUPS>,
             conv3_wgmma_kernel<CONV3_STATISTICS, MT, 8, WARPS, GROUPS>,
             conv3_wgmma_kernel<CONV3_REDUCE, MT, 8, WARPS, REDUCING_GROUPS>, NULL}};
}

/**
 * That shuffles pixels: 128 columns, so that a product reads half as much of shared memory as one of 64, in four groups
 * of one warpgroup, of which some multiply while others store. Two fragments of pixels a warp would leave ptxas too few
 * registers to have products under way.
 */
static conv3_kernel shuffle_kernel()
{
    constexpr int GROUPS = 4, WARPS = WGMMA_THREADS / WARP_LANES;
    return {WARPS * 16,    128,   64,
            WGMMA_THREADS, WARPS, {0, 0, 0, GROUPS},
            1.55f,         true,  {NULL, NULL, NULL, conv3_wgmma_kernel<CONV3_SHUFFLE, 1, 16, WARPS, GROUPS>}};
}

const conv3_kernel *conv3_kernels_of_wgmma()
{
    /* The speed is such that the cost model has what was measured on an H100 by trials: 10.5 us in place of 16.4 for a
     * batch of 64, and 30 in place of 43 for one of 256. */
    static const conv3_kernel kernels[] = {
#if defined(COD_CUDA_EMULATED) || defined(COD_CUDA_HOPPER)
        wgmma_kernel_of<3, 4, 3, 2>(1.55f),
        shuffle_kernel(),
#endif
        {},
    };
    return kernels;
}
