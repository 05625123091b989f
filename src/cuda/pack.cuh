/**
 * @file
 * Packing of weights: kernels that pack those of many plans in one launch.
 */
#ifndef COD_CUDA_PACK_CUH
#define COD_CUDA_PACK_CUH

#include "cuda/view.cuh"

/**
 * Plans whose weights one launch packs. Number i has the blocks from first[i] on. The list travels with the launch,
 * whose parameters may take 4 KB.
 */
enum { CUDA_PACK_PLANS = 256 };
struct cuda_pack_list {
    const void *packings[CUDA_PACK_PLANS]; /**< in the device's memory: what the kernel reads of each plan */
    unsigned first[CUDA_PACK_PLANS];
    int count;
};

/** A plan of the list, and which of the items of its packing, or of its blocks. */
template <typename T> struct pack_place {
    const T *how; /**< what the plan's packing points at */
    int64_t item; /**< of this thread, where a block has CUDA_THREADS of them */
    int block;
};

/** What this thread packs. Threads past the plan's last item have nothing to do. */
template <typename T> static __device__ __forceinline__ pack_place<T> pack_place_of(const cuda_pack_list &list)
{
    int at = 0, end = list.count;
    while (end - at > 1) {
        const int middle = (at + end) / 2;
        if (list.first[middle] <= blockIdx.x)
            at = middle;
        else
            end = middle;
    }
    const int block = (int)(blockIdx.x - list.first[at]);
    return {static_cast<const T *>(list.packings[at]), (int64_t)block * CUDA_THREADS + threadIdx.x, block};
}

#endif
