/**
 * @file
 * How kernels of optimisers, moving averages and gradient norms go over flat f32 buffers (update.cu).
 */
#ifndef COD_CUDA_UPDATE_CUH
#define COD_CUDA_UPDATE_CUH

#include "cuda/vectors.cuh"

/** Threads of a block; elements of a vector; arrays that a kernel walks over together. */
enum { UPDATE_THREADS = 512, UPDATE_LANES = 4, UPDATE_ARRAYS = 5 };

/**
 * How a grid goes over arrays of `count` f32 that lie equally far from 16-byte boundaries: `head` elements before the
 * first boundary, vectors of four, and a tail. Arrays that do not are all tail.
 */
struct update_walk {
    int64_t count, head, vectors;
    unsigned blocks;
};

/** The walk over these arrays, with at most `most_blocks` blocks. Arrays may be NULL, except the first. */
update_walk cuda_update_walk_of(const float *const (&arrays)[UPDATE_ARRAYS], int64_t count, int64_t most_blocks);

/** Index of the i-th element that no vector holds; `count` or more past the last. */
static __device__ __forceinline__ int64_t lone_element(const update_walk &walk, int64_t i)
{
    return i < walk.head ? i : i + walk.vectors * UPDATE_LANES;
}

#endif
