/**
 * @file
 * Products of a warpgroup, four warps of consecutive numbers from a multiple of four on: PTX's wgmma, which GPUs of
 * compute capability 9.0 (Hopper) have, and of their code that for sm_90a alone: WGMMA_HERE.
 *
 * Such a product is *under way* from its instruction until wgmma_wait(). Meanwhile it reads B in shared memory and the
 * registers of A, and its sums may not be looked at; a further product may be added to the same sums. It reads shared
 * memory by another way (PTX: the async proxy) than other instructions write it. So those who wrote B call
 * wgmma_writes_fence() and then block_sync(). All 128 threads call the functions together, with the same B.
 */
#ifndef COD_CUDA_WGMMA_CUH
#define COD_CUDA_WGMMA_CUH

#include "cuda/warp.cuh"

static constexpr int WGMMA_THREADS = 128;

/**
 * Shared memory as PTX's "matrix descriptor" says it, without swizzling: 8x8 elements of 16 bits are 128 consecutive
 * bytes, a row of 16 bytes for each column of B. `leading_bytes` (PTX: leading dimension byte offset) lead from eight
 * rows of B to the next eight, `stride_bytes` (stride dimension byte offset) from eight columns to the next eight. All
 * three are multiples of 16, and the descriptor has them without their last four bits: the address in bits 0 … 13, the
 * offsets from bits 16 and 32 on. A descriptor of what lies n bytes further is this one plus n / 16.
 */
static __device__ __forceinline__ uint64_t wgmma_descriptor(uint32_t address, unsigned leading_bytes,
                                                            unsigned stride_bytes)
{
    return (uint64_t)(address >> 4 & 0x3FFFu) | (uint64_t)(leading_bytes >> 4) << 16 |
           (uint64_t)(stride_bytes >> 4) << 32;
}

#ifdef COD_CUDA_EMULATED
#define WGMMA_HERE 1
#include "emulated_wgmma.h"
#else
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define WGMMA_HERE     1
#define WGMMA_ASM(...) asm volatile(__VA_ARGS__)
#else
#define WGMMA_HERE     0
#define WGMMA_ASM(...) __trap()
#endif

/** Ends the kernel with an error: of code that only WGMMA_HERE can run. */
static __device__ __forceinline__ void wgmma_missing()
{
    __trap();
}

/** The descriptor of what begins at an address of shared memory. */
static __device__ __forceinline__ uint64_t wgmma_matrix(const void *first, unsigned leading_bytes,
                                                        unsigned stride_bytes)
{
    return wgmma_descriptor((uint32_t)__cvta_generic_to_shared(first), leading_bytes, stride_bytes);
}

/** What this thread has written to shared memory can be seen by products that are started after the next barrier. */
static __device__ __forceinline__ void wgmma_writes_fence()
{
    WGMMA_ASM("fence.proxy.async.shared::cta;" ::: "memory");
}

/** Before the first product, and after registers of A or sums were written by other instructions. */
static __device__ __forceinline__ void wgmma_fence()
{
    WGMMA_ASM("wgmma.fence.sync.aligned;" ::: "memory");
}

/** Ends a group of products. */
static __device__ __forceinline__ void wgmma_commit()
{
    WGMMA_ASM("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/** Products are done, but for those of the last `under_way` groups. */
template <int under_way> static __device__ __forceinline__ void wgmma_wait()
{
    WGMMA_ASM("wgmma.wait_group.sync.aligned %0;" ::"n"(under_way) : "memory");
}

#define WGMMA_SUMS4(i) "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])

/**
 * Starts D += A·B with A 64x16 by rows and B 16x64 of bf16, D 64x64 of f32: PTX's wgmma.m64n64k16. Each warp has 16 of
 * the rows, as it has those of mma_bf16(), and d[j] of its sums are columns 8·j …
 */
static __device__ __forceinline__ void wgmma_bf16(float (&d)[8][4], const uint32_t (&a)[4], uint64_t b)
{
    WGMMA_ASM("{\n.reg .pred add;\nsetp.eq.u32 add, 0, 0;\n"
              "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
              "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
              "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31},"
              "{%32,%33,%34,%35}, %36, add, 1, 1, 0;\n}"
              : WGMMA_SUMS4(0), WGMMA_SUMS4(1), WGMMA_SUMS4(2), WGMMA_SUMS4(3), WGMMA_SUMS4(4), WGMMA_SUMS4(5),
                WGMMA_SUMS4(6), WGMMA_SUMS4(7)
              : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

/** The same with 128 columns: PTX's wgmma.m64n128k16. */
static __device__ __forceinline__ void wgmma_bf16(float (&d)[16][4], const uint32_t (&a)[4], uint64_t b)
{
    WGMMA_ASM("{\n.reg .pred add;\nsetp.eq.u32 add, 0, 0;\n"
              "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
              "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
              "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
              "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"
              "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63},"
              "{%64,%65,%66,%67}, %68, add, 1, 1, 0;\n}"
              : WGMMA_SUMS4(0), WGMMA_SUMS4(1), WGMMA_SUMS4(2), WGMMA_SUMS4(3), WGMMA_SUMS4(4), WGMMA_SUMS4(5),
                WGMMA_SUMS4(6), WGMMA_SUMS4(7), WGMMA_SUMS4(8), WGMMA_SUMS4(9), WGMMA_SUMS4(10), WGMMA_SUMS4(11),
                WGMMA_SUMS4(12), WGMMA_SUMS4(13), WGMMA_SUMS4(14), WGMMA_SUMS4(15)
              : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

/**
 * The compiler moves no use of these registers over this place: between their last use and wgmma_fence(), and behind
 * wgmma_wait(), which it does not know to be about them.
 */
template <int EIGHTS> static __device__ __forceinline__ void wgmma_hold(float (&d)[EIGHTS][4])
{
#pragma unroll
    for (int j = 0; j < EIGHTS; j++)
        asm volatile("" : "+f"(d[j][0]), "+f"(d[j][1]), "+f"(d[j][2]), "+f"(d[j][3])::"memory");
}

#undef WGMMA_SUMS4
#undef WGMMA_ASM
#endif

#endif
