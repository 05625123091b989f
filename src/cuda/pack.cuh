/**
 * @file
 * Packing of weights: kernels that pack those of many plans in one launch.
 */
#ifndef COD_CUDA_PACK_CUH
#define COD_CUDA_PACK_CUH

#include "cuda/warp.cuh"

/**
 * Plans whose weights one launch packs. Number i has the blocks from first[i] on. The list travels with the launch, whose parameters may
 * take 4 KB.
 */
enum { CUDA_PACK_PLANS = 256 };
struct cuda_pack_list {
    const void *packings[CUDA_PACK_PLANS]; /**< in the device's memory: what the kernel reads of each plan */
    unsigned first[CUDA_PACK_PLANS];
    int count;
};

/** The number in the list of the plan that this block is for. */
static __device__ __forceinline__ int pack_number(const cuda_pack_list &list)
{
    int at = 0, end = list.count;
    while (end - at > 1) {
        const int middle = (at + end) / 2;
        if (list.first[middle] <= blockIdx.x)
            at = middle;
        else
            end = middle;
    }
    return at;
}

#endif
