/**
 * @file
 * In place of the trial kernels' own common.cuh: what they ask of the hardware, by src/cuda/warp.cuh and wgmma.cuh on
 * the emulated GPU. The trials ran on an H100 and were right, so that they come out right here only where the emulated
 * instructions do what the hardware's do. A shared-memory address is the number of bytes from the block's first.
 */
#ifndef COD_TESTS_CUDA_LAB_COMMON_CUH
#define COD_TESTS_CUDA_LAB_COMMON_CUH

#include "cuda/wgmma.cuh"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

struct bf16 {
    uint16_t bits;
};
struct float2 {
    float x, y;
};
struct alignas(8) uint2 {
    uint32_t x, y;
};
struct alignas(16) uint4 {
    uint32_t x, y, z, w;
};

static inline uint2 make_uint2(uint32_t x, uint32_t y)
{
    return {x, y};
}
static inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w)
{
    return {x, y, z, w};
}
static inline bf16 __float2bfloat16(float value)
{
    return {bf16_from_f32(value)};
}
static inline float rsqrtf(float value)
{
    return 1 / std::sqrt(value);
}
static inline int min(int a, int b)
{
    return a < b ? a : b;
}
/** Only the selection that the trials use: the upper half of `low` and the lower half of `high`. */
static inline uint32_t __byte_perm(uint32_t low, uint32_t high, unsigned selection)
{
    return selection == 0x5432 ? low >> 16 | high << 16 : ~0u;
}

static inline uint32_t smem_addr(const void *p)
{
    return (uint32_t)(static_cast<const char *>(p) - shared_memory<char>());
}
static inline const char *shared_at(uint32_t address)
{
    return shared_memory<char>() + address;
}
static inline void __syncthreads()
{
    block_sync();
}
static inline float __shfl_xor_sync(unsigned, float value, int mask)
{
    return shuffle_xor(value, (unsigned)mask);
}
static inline void atomicAdd(float *target, float value)
{
    atomic_add(target, value);
}
static inline void atomic_add2(float *p, float a, float b)
{
    atomic_add(p, a);
    atomic_add(p + 1, b);
}
static inline void mma16816(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    const uint32_t b[2] = {b0, b1};
    mma_bf16(d, a, b);
}
static inline void ldmatrix4(uint32_t (&r)[4], uint32_t address)
{
    load_matrix4(r, shared_at(address));
}
static inline void ldmatrix4_trans(uint32_t (&r)[4], uint32_t address)
{
    load_matrix4_transposed(r, shared_at(address));
}
static inline void copy16_or_zeros(uint32_t target, const void *source, int bytes)
{
    copy16_start(const_cast<char *>(shared_at(target)), source, (unsigned)bytes);
}
static inline void copy16_async(uint32_t target, const void *source)
{
    copy16_or_zeros(target, source, 16);
}
static inline void wgmma64(float (&d)[8][4], const uint32_t (&a)[4], uint64_t b)
{
    wgmma_bf16(d, a, b);
}
static inline void proxy_fence()
{
    wgmma_writes_fence();
}
template <int under_way> static inline void wgmma_commit_wait()
{
    wgmma_commit();
    wgmma_wait<under_way>();
}
static inline uint32_t pack2(float low, float high)
{
    return bf16_pair(low, high);
}
static inline float2 unpack2(uint32_t pair)
{
    return {f32_from_bf16((uint16_t)pair), f32_from_bf16((uint16_t)(pair >> 16))};
}

#endif
