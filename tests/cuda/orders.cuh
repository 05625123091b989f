/**
 * @file
 * Kernels of tests, run on the emulated GPU in several orders of threads and blocks.
 */
#ifndef COD_TESTS_CUDA_ORDERS_CUH
#define COD_TESTS_CUDA_ORDERS_CUH

#include "cuda/cuda_internal.h"
#include "cuda/warp.cuh"

#include <cmath>
#include <cstdio>
#include <cstring>
#include <initializer_list>

extern "C" {
#include "support/test.h" /* last: cmocka defines `fail` */
}

enum { THREADS = 64 };

static float *device_floats(size_t count)
{
    void *memory = nullptr;
    assert_int_equal(cudaMalloc(&memory, count * sizeof(float)), cudaSuccess);
    return static_cast<float *>(memory);
}

/** Runs the kernel in several orders; @return how many of them had a fault, with the last one's message. */
template <typename... P, typename... A>
static int faulty_orders(char *message, size_t shared_bytes, void (*kernel)(P...), const A &...arguments)
{
    int faulty = 0;
    for (uint64_t seed = 0; seed < 8; seed++) {
        char first[256];
        cod_emulated_set_seed(seed);
        cod_status status = cuda_launch(nullptr, kernel, 2, THREADS, shared_bytes, arguments...);
        COD_THEN(status, COD_CUDA(cudaDeviceSynchronize()));
        const size_t faults = cod_emulated_faults(first, sizeof first);
        assert_true((status == COD_OK) == (faults == 0));
        if (faults > 0) {
            snprintf(message, 256, "%s", first);
            faulty++;
        }
    }
    return faulty;
}

/** C = A·B of {16, 16} and {16, 8} numbers through shared memory, as kernels load their fragments. */
[[maybe_unused]] __global__ void product_kernel(const uint16_t *a, const uint16_t *b, float *c)
{
    uint16_t *shared_a = shared_memory<uint16_t>(), *shared_b = shared_a + 256;
    for (unsigned i = threadIdx.x; i < 256; i += blockDim.x)
        shared_a[i] = a[i];
    for (unsigned i = threadIdx.x; i < 128; i += blockDim.x)
        shared_b[i] = b[i];
    block_sync();
    if (threadIdx.x < WARP_LANES) {
        const unsigned lane = threadIdx.x;
        uint32_t fa[4], fb[4];
        float d[4] = {0, 0, 0, 0};
        load_matrix4(fa, shared_a + lane % 16 * 16 + lane / 16 * 8);
        load_matrix4_transposed(fb, shared_b + lane % 16 * 8);
        const uint32_t two[2] = {fb[0], fb[1]};
        mma_bf16(d, fa, two);
        for (unsigned i = 0; i < 4; i++)
            c[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = d[i];
    }
}

#endif
