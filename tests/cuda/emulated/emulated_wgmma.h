/**
 * @file
 * src/cuda/wgmma.cuh on the host (wgmma.cpp). An address of shared memory is the number of bytes from the block's
 * first.
 */
#ifndef COD_TESTS_CUDA_EMULATED_WGMMA_H
#define COD_TESTS_CUDA_EMULATED_WGMMA_H

#include "emulated_warp.h"

void cod_emulated_wgmma_writes_fence();
void cod_emulated_wgmma_fence();
void cod_emulated_wgmma_commit();
void cod_emulated_wgmma_wait(int under_way);
void cod_emulated_wgmma_start(float *d, unsigned columns, const uint32_t *a, uint64_t b);

static inline void wgmma_missing() {}

static inline uint64_t wgmma_matrix(const void *first, unsigned leading_bytes, unsigned stride_bytes)
{
    const unsigned char *at = static_cast<const unsigned char *>(first);
    return wgmma_descriptor((uint32_t)(at - shared_memory<unsigned char>()), leading_bytes, stride_bytes);
}

static inline void wgmma_writes_fence()
{
    cod_emulated_wgmma_writes_fence();
}

static inline void wgmma_fence()
{
    cod_emulated_wgmma_fence();
}

static inline void wgmma_commit()
{
    cod_emulated_wgmma_commit();
}

template <int under_way> static inline void wgmma_wait()
{
    cod_emulated_wgmma_wait(under_way);
}

template <int EIGHTS> static inline void wgmma_hold(float (&)[EIGHTS][4]) {}

template <int EIGHTS> static inline void wgmma_bf16(float (&d)[EIGHTS][4], const uint32_t (&a)[4], uint64_t b)
{
    static_assert(EIGHTS == 8 || EIGHTS == 16, "as wgmma.cuh has them");
    cod_emulated_wgmma_start(&d[0][0], EIGHTS * 8, a, b);
}

#endif
