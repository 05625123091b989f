/**
 * @file
 * What kernels ask of the hardware beyond plain C++: threads of a block and of a warp together, asynchronous copies,
 * matrix products.
 *
 * Kernels include this header alone. It has two implementations: CUDA's, here, and one for the host
 * (tests/cuda/emulated), where every kernel runs in tests on machines without a GPU. So kernels use nothing of CUDA but
 * `__global__`, `__device__`, `__launch_bounds__`, threadIdx, blockIdx, blockDim, gridDim, mathematical functions of
 * f32, and what stands here.
 *
 * Functions on warps are called by all 32 threads of a warp together, and blocks are whole warps.
 */
#ifndef COD_CUDA_WARP_CUH
#define COD_CUDA_WARP_CUH

#include <cstddef>
#include <cstdint>

#define WARP_LANES 32
#define LINE_BYTES 128 /* of L2 */

#ifdef COD_CUDA_EMULATED
#include "cuda_runtime.h"
#else
#include <cuda_bf16.h>
#endif

/** 16 bytes of one access. */
struct __align__(16) bytes16
{
    uint32_t words[4];
};

/**
 * Rows of A and columns of B that mma_bf16() multiplies: mma_rows_of(), mma_columns_of(). Where several products have
 * one of them, it is prepared once.
 */
struct mma_rows {
    uint32_t words[4], factors; /**< two powers of two in bf16, of warp_older.cuh */
};

struct mma_columns {
    uint32_t words[2], factors;
};

static __device__ __forceinline__ float f32_from_word(uint32_t word)
{
    union {
        uint32_t word;
        float value;
    } bits;
    bits.word = word;
    return bits.value;
}

static __device__ __forceinline__ uint32_t word_from_f32(float value)
{
    union {
        uint32_t word;
        float value;
    } bits;
    bits.value = value;
    return bits.word;
}

static __device__ __forceinline__ float f32_from_bf16(uint16_t value)
{
    return f32_from_word((uint32_t)value << 16);
}

#ifdef COD_CUDA_EMULATED
#include "emulated_warp.h"
#else

/** The block's dynamic shared memory, at a 128-byte boundary. */
template <typename T> static __device__ __forceinline__ T *shared_memory()
{
    extern __shared__ __align__(128) unsigned char shared_bytes[];
    return reinterpret_cast<T *>(shared_bytes);
}

/** All threads of the block have come here, and see each other's writes. */
static __device__ __forceinline__ void block_sync()
{
    __syncthreads();
}

/**
 * The same for `threads` threads of the block, whole warps, that all give the same `part` (0 … 2); parts do not wait
 * for each other. The barriers' numbers are constants, because ptxas reserves all 16 for one that it does not know.
 */
static __device__ __forceinline__ void part_sync(unsigned part, unsigned threads)
{
    if (part == 0)
        asm volatile("bar.sync 1, %0;" ::"r"(threads) : "memory");
    else if (part == 1)
        asm volatile("bar.sync 2, %0;" ::"r"(threads) : "memory");
    else
        asm volatile("bar.sync 3, %0;" ::"r"(threads) : "memory");
}

static __device__ __forceinline__ void warp_sync()
{
    __syncwarp();
}

/** The value of the lane whose number differs in the bits of `mask`. */
static __device__ __forceinline__ float shuffle_xor(float value, unsigned mask)
{
    return __shfl_xor_sync(0xFFFFFFFFu, value, (int)mask);
}

/** The value of lane `lane`. */
static __device__ __forceinline__ float shuffle(float value, unsigned lane)
{
    return __shfl_sync(0xFFFFFFFFu, value, (int)lane);
}

static __device__ __forceinline__ uint32_t shuffle(uint32_t value, unsigned lane)
{
    return __shfl_sync(0xFFFFFFFFu, value, (int)lane);
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#define WARP_OLDER          1
#define WARP_LOADS_MATRICES (__CUDA_ARCH__ >= 750)
/**
 * For warp_older.cuh. Four times D += A·B of fp16 with A 8x4 by columns and B 4x8 by rows, D 8x8 of f32: PTX's
 * mma.m8n8k4.
 */
static __device__ __forceinline__ void mma_f16_8x8x4(float (&d)[8], const uint32_t (&a)[2], const uint32_t (&b)[2])
{
    asm("mma.sync.aligned.m8n8k4.col.row.f32.f16.f16.f32 {%0,%1,%2,%3,%4,%5,%6,%7},{%8,%9},{%10,%11},"
        "{%0,%1,%2,%3,%4,%5,%6,%7};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
        : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(b[1]));
}

/**
 * For it, too, from compute capability 7.5 on. D += A·B with A 16x8 by rows and B 8x8 by columns of fp16, D 16x8 of
 * f32: PTX's mma.m16n8k8.
 */
static __device__ __forceinline__ void mma_f16_16x8x8(float (&d)[4], const uint32_t (&a)[2], uint32_t b)
{
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5},{%6},{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(b));
}

#include "cuda/warp_older.cuh"
#else
#define WARP_OLDER          0
#define WARP_LOADS_MATRICES 1
#endif

/** A, 16x16 of bf16 by rows, as PTX's mma.m16n8k16 has it. */
static __device__ __forceinline__ mma_rows mma_rows_of(const uint32_t (&a)[4])
{
#if WARP_OLDER
    return older_rows_of(a);
#else
    return {{a[0], a[1], a[2], a[3]}, {}};
#endif
}

/** B, 16x8 of bf16 by columns: its two words. */
static __device__ __forceinline__ mma_columns mma_columns_of(uint32_t first, uint32_t second)
{
#if WARP_OLDER
    return older_columns_of(first, second);
#else
    return {{first, second}, {}};
#endif
}

/** D += A·B, D 16x8 of f32: PTX's mma.m16n8k16. */
static __device__ __forceinline__ void mma_bf16(float (&d)[4], const mma_rows &a, const mma_columns &b)
{
#if WARP_OLDER
    older_mma_bf16(d, a, b);
#else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a.words[0]), "r"(a.words[1]), "r"(a.words[2]), "r"(a.words[3]), "r"(b.words[0]), "r"(b.words[1]));
#endif
}

/** D += A·B with A 16x32 by rows and B 32x8 by columns of s8, D 16x8 of s32: PTX's mma.m16n8k32. */
static __device__ __forceinline__ void mma_s8(int32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
#if WARP_OLDER
    older_mma_s8(d, a, b);
#else
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

/**
 * Four 8x8 matrices of 16-bit elements; lane i gives row i mod 8 of matrix i / 8, in shared memory at a 16-byte
 * boundary.
 */
static __device__ __forceinline__ void load_matrix4(uint32_t (&r)[4], const void *row)
{
#if !WARP_LOADS_MATRICES
    older_load_matrix4(r, row);
#else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3},[%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(row))
                 : "memory");
#endif
}

/** The same, each matrix transposed. */
static __device__ __forceinline__ void load_matrix4_transposed(uint32_t (&r)[4], const void *row)
{
#if !WARP_LOADS_MATRICES
    older_load_matrix4_transposed(r, row);
#else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3},[%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(row))
                 : "memory");
#endif
}

/**
 * Starts copying 16 bytes from global to shared memory, both at 16-byte boundaries: the first `bytes` (0 or 16) of
 * them, the rest becomes zeros. `source` must be readable memory also where `bytes` is 0, though nothing of it is read.
 */
static __device__ __forceinline__ void copy16_start(void *target, const void *source, unsigned bytes)
{
#if WARP_OLDER
    older_copy16(target, source, bytes);
#else
    asm volatile("cp.async.cg.shared.global [%0],[%1],16,%2;" ::"r"((uint32_t)__cvta_generic_to_shared(target)),
                 "l"(source), "r"(bytes)
                 : "memory");
#endif
}

/** The same of memory that no kernel of the chain writes, such as packed weights: it may start before chain_wait(). */
static __device__ __forceinline__ void copy16_ahead_start(void *target, const void *source, unsigned bytes)
{
    copy16_start(target, source, bytes);
}

/** Reads 16 bytes of such memory, at a 16-byte boundary. */
static __device__ __forceinline__ bytes16 load16_ahead(const bytes16 *source)
{
    return *source;
}

/** Ends a group of copies of this thread. */
static __device__ __forceinline__ void copy_commit()
{
#if !WARP_OLDER
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/**
 * This thread's copies are there, but for those of the last `under_way` groups. Other threads see them after
 * block_sync().
 */
template <int under_way> static __device__ __forceinline__ void copy_wait()
{
#if !WARP_OLDER
    asm volatile("cp.async.wait_group %0;" ::"n"(under_way) : "memory");
#endif
}

static __device__ __forceinline__ void atomic_add(float *target, float value)
{
    atomicAdd(target, value);
}

static __device__ __forceinline__ void atomic_add(unsigned long long *target, unsigned long long value)
{
    atomicAdd(target, value);
}

static __device__ __forceinline__ void atomic_add(uint32_t *target, uint32_t value)
{
    atomicAdd(target, value);
}

/**
 * The block that comes last gets `blocks` - 1, and sees what the others wrote before they came. One thread of a block
 * calls it.
 */
static __device__ __forceinline__ unsigned ticket_take(unsigned *ticket)
{
    __threadfence();
    const unsigned before = atomicAdd(ticket, 1u);
    __threadfence();
    return before;
}

/**
 * In a chain of launches with programmatic edges (cuda_launch_chained()). chain_release(): the next launch may start;
 * called behind a kernel's products, since earlier its blocks would crowd this kernel's out. chain_wait(): all launches
 * before this one have ended; every thread calls it, before it reads or writes memory that other kernels use. Without
 * such an edge both do nothing.
 */
static __device__ __forceinline__ void chain_release()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

static __device__ __forceinline__ void chain_wait()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/**
 * Asks L2 for the line of global memory that an address lies in. It changes no result and orders nothing, so it may
 * come before chain_wait(): what another kernel writes afterwards goes through the same L2.
 */
static __device__ __forceinline__ void prefetch_line(const void *address)
{
    asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

static __device__ __forceinline__ uint16_t bf16_from_f32(float value)
{
    return __bfloat16_as_ushort(__float2bfloat16_rn(value));
}

/** Rounded by themselves: never one half of a fused multiplication and addition. */
static __device__ __forceinline__ float exact_product(float a, float b)
{
    return __fmul_rn(a, b);
}

static __device__ __forceinline__ float exact_sum(float a, float b)
{
    return __fadd_rn(a, b);
}

static __device__ __forceinline__ double exact_product(double a, double b)
{
    return __dmul_rn(a, b);
}

static __device__ __forceinline__ double exact_sum(double a, double b)
{
    return __dadd_rn(a, b);
}

#endif

static __device__ __forceinline__ void mma_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    mma_bf16(d, mma_rows_of(a), mma_columns_of(b[0], b[1]));
}

/** Two values in one word, the first in its low half. */
static __device__ __forceinline__ uint32_t bf16_pair(float low, float high)
{
#if defined(COD_CUDA_EMULATED) || WARP_OLDER
    return (uint32_t)bf16_from_f32(low) | (uint32_t)bf16_from_f32(high) << 16;
#else
    uint32_t pair; /* one instruction, the first operand of which becomes the high half */
    asm("cvt.rn.bf16x2.f32 %0,%1,%2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
#endif
}

/** The sum over the warp, in every lane. The order of additions is fixed. */
static __device__ __forceinline__ float warp_sum(float value)
{
    for (unsigned mask = WARP_LANES / 2; mask > 0; mask /= 2)
        value += shuffle_xor(value, mask);
    return value;
}

static __device__ __forceinline__ float warp_max(float value)
{
    for (unsigned mask = WARP_LANES / 2; mask > 0; mask /= 2)
        value = fmaxf(value, shuffle_xor(value, mask));
    return value;
}

#endif
