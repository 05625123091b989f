/**
 * @file
 * src/cuda/warp.cuh on the host. A thread of a block is a fibre that runs until it waits for others, or until chance
 * lets others go on; in which order fibres and blocks run follows from a seed. Instructions of a whole warp wait until
 * all its threads have come to the same one. An asynchronous copy poisons its target when it starts, and lands when its
 * thread waits for it, not before; it reads its source when it starts or when it lands, as chance has it. That
 * instructions of a warp wait orders more than a GPU does; libraries with COD_CUDA_RACES find what relies on it
 * (races.cpp).
 */
#ifndef COD_TESTS_CUDA_EMULATED_WARP_H
#define COD_TESTS_CUDA_EMULATED_WARP_H

#include "cuda_runtime.h"

#include "emulated.h"

#include <cstring>

void *cod_emulated_shared();
void cod_emulated_block_sync();
void cod_emulated_part_sync(unsigned part, unsigned threads);
/** Of PTX instruction `name`: `act` gets the operands of all lanes, [lane][in_bytes], and gives their results. */
void cod_emulated_together(const char *name, const void *in, size_t in_bytes, void *out, size_t out_bytes,
                           void (*act)(const unsigned char *in, unsigned char *out));
void cod_emulated_copy_start(void *target, const void *source, unsigned bytes, bool ahead);
void cod_emulated_chain_wait();
/** Reads memory, though it may be forbidden before chain_wait(). */
void cod_emulated_read_ahead(void *to, const void *from, size_t bytes);
void cod_emulated_chain_release();
/** Now and then, other threads and blocks go on before the one that runs does; of the second, every other time. */
void cod_emulated_turn();
void cod_emulated_likely_turn();
void cod_emulated_copy_commit();
void cod_emulated_copy_wait(int under_way);
void cod_emulated_aligned(const void *address, size_t boundary, const char *what);
/**
 * Of the GPU that is played, 10·major + minor. From 8.0 on it has all instructions, at 7.5 those that load matrices.
 */
int cod_emulated_capability();
/** Of this thread, which products of its warpgroup may have among their operands. */
void cod_emulated_wgmma_registers_written();

struct cod_emulated_mma {
    float d[4];
    uint32_t a[4], b[2];
};
struct cod_emulated_mma_8x8x4 {
    float d[8];
    uint32_t a[2], b[2];
};
struct cod_emulated_mma_16x8x8 {
    float d[4];
    uint32_t a[2], b;
};
struct cod_emulated_mma_s8 {
    int32_t d[4];
    uint32_t a[4], b[2];
};
struct cod_emulated_shuffle {
    float value;
    unsigned lane;
};
void cod_emulated_act_sync(const unsigned char *in, unsigned char *out);
void cod_emulated_act_shuffle(const unsigned char *in, unsigned char *out);
void cod_emulated_act_mma(const unsigned char *in, unsigned char *out);
void cod_emulated_act_mma_8x8x4(const unsigned char *in, unsigned char *out);
void cod_emulated_act_mma_16x8x8(const unsigned char *in, unsigned char *out);
void cod_emulated_act_mma_s8(const unsigned char *in, unsigned char *out);
void cod_emulated_act_load(const unsigned char *in, unsigned char *out);
void cod_emulated_act_load_transposed(const unsigned char *in, unsigned char *out);

template <typename T> static inline T *shared_memory()
{
    return static_cast<T *>(cod_emulated_shared());
}

static inline void block_sync()
{
    cod_emulated_block_sync();
}

static inline void part_sync(unsigned part, unsigned threads)
{
    cod_emulated_part_sync(part, threads);
}

static inline void warp_sync()
{
    char nothing = 0;
    cod_emulated_together("warp_sync", &nothing, 1, &nothing, 1, cod_emulated_act_sync);
}

static inline float shuffle(float value, unsigned lane)
{
    const cod_emulated_shuffle in = {value, lane % 32};
    float out;
    cod_emulated_together("shuffle", &in, sizeof in, &out, sizeof out, cod_emulated_act_shuffle);
    return out;
}

static inline uint32_t shuffle(uint32_t value, unsigned lane)
{
    float bits;
    memcpy(&bits, &value, sizeof bits);
    bits = shuffle(bits, lane);
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline void mma_f16_8x8x4(float (&d)[8], const uint32_t (&a)[2], const uint32_t (&b)[2])
{
    cod_emulated_mma_8x8x4 in;
    memcpy(in.d, d, sizeof d);
    memcpy(in.a, a, sizeof a);
    memcpy(in.b, b, sizeof b);
    cod_emulated_together("mma_f16_8x8x4", &in, sizeof in, d, sizeof d, cod_emulated_act_mma_8x8x4);
}

static inline void mma_f16_16x8x8(float (&d)[4], const uint32_t (&a)[2], uint32_t b)
{
    cod_emulated_mma_16x8x8 in;
    memcpy(in.d, d, sizeof d);
    memcpy(in.a, a, sizeof a);
    in.b = b;
    cod_emulated_together("mma_f16_16x8x8", &in, sizeof in, d, sizeof d, cod_emulated_act_mma_16x8x8);
}

#include "cuda/warp_older.cuh"

static inline float shuffle_xor(float value, unsigned mask)
{
    return shuffle(value, (threadIdx.x ^ mask) % 32);
}

static inline mma_rows mma_rows_of(const uint32_t (&a)[4])
{
    if (cod_emulated_capability() < 80)
        return older_rows_of(a);
    return {{a[0], a[1], a[2], a[3]}, {}};
}

static inline mma_columns mma_columns_of(uint32_t first, uint32_t second)
{
    if (cod_emulated_capability() < 80)
        return older_columns_of(first, second);
    return {{first, second}, {}};
}

static inline void mma_bf16(float (&d)[4], const mma_rows &a, const mma_columns &b)
{
    if (cod_emulated_capability() < 80)
        return older_mma_bf16(d, a, b);
    cod_emulated_mma in;
    memcpy(in.d, d, sizeof d);
    memcpy(in.a, a.words, sizeof in.a);
    memcpy(in.b, b.words, sizeof in.b);
    cod_emulated_together("mma_bf16", &in, sizeof in, d, sizeof d, cod_emulated_act_mma);
}

static inline void mma_s8(int32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    if (cod_emulated_capability() < 80)
        return older_mma_s8(d, a, b);
    cod_emulated_mma_s8 in;
    memcpy(in.d, d, sizeof d);
    memcpy(in.a, a, sizeof a);
    memcpy(in.b, b, sizeof b);
    cod_emulated_together("mma_s8", &in, sizeof in, d, sizeof d, cod_emulated_act_mma_s8);
}

static inline void load_matrix4(uint32_t (&r)[4], const void *row)
{
    cod_emulated_aligned(row, 16, "load_matrix4");
    if (cod_emulated_capability() < 75)
        return older_load_matrix4(r, row);
    cod_emulated_wgmma_registers_written();
    cod_emulated_together("load_matrix4", &row, sizeof row, r, sizeof r, cod_emulated_act_load);
}

static inline void load_matrix4_transposed(uint32_t (&r)[4], const void *row)
{
    cod_emulated_aligned(row, 16, "load_matrix4_transposed");
    if (cod_emulated_capability() < 75)
        return older_load_matrix4_transposed(r, row);
    cod_emulated_wgmma_registers_written();
    cod_emulated_together("load_matrix4_transposed", &row, sizeof row, r, sizeof r, cod_emulated_act_load_transposed);
}

static inline void copy16_start(void *target, const void *source, unsigned bytes)
{
    if (cod_emulated_capability() < 80)
        return older_copy16(target, source, bytes);
    cod_emulated_copy_start(target, source, bytes, false);
}

static inline void copy16_ahead_start(void *target, const void *source, unsigned bytes)
{
    if (cod_emulated_capability() < 80)
        return older_copy16(target, source, bytes);
    cod_emulated_copy_start(target, source, bytes, true);
}

static inline bytes16 load16_ahead(const bytes16 *source)
{
    bytes16 value;
    cod_emulated_read_ahead(&value, source, sizeof value);
    return value;
}

static inline void copy_commit()
{
    cod_emulated_copy_commit();
}

template <int under_way> static inline void copy_wait()
{
    cod_emulated_copy_wait(under_way);
}

/* Atomic, so that only a plain access of the same memory races with it. */
#ifdef COD_CUDA_RACES
void cod_emulated_atomic(const void *target, size_t bytes);
#define COD_EMULATED_ATOMIC(target) cod_emulated_atomic(target, sizeof *(target))
#else
#define COD_EMULATED_ATOMIC(target) (void)0
#endif

__attribute__((no_sanitize("thread"))) static inline void atomic_add(float *target, float value)
{
    cod_emulated_turn();
    COD_EMULATED_ATOMIC(target);
    *target += value;
}

__attribute__((no_sanitize("thread"))) static inline void atomic_add(unsigned long long *target,
                                                                     unsigned long long value)
{
    cod_emulated_turn();
    COD_EMULATED_ATOMIC(target);
    *target += value;
}

__attribute__((no_sanitize("thread"))) static inline void atomic_add(uint32_t *target, uint32_t value)
{
    cod_emulated_turn();
    COD_EMULATED_ATOMIC(target);
    *target += value;
}

__attribute__((no_sanitize("thread"))) static inline unsigned ticket_take(unsigned *ticket)
{
    cod_emulated_likely_turn();
    COD_EMULATED_ATOMIC(ticket);
    const unsigned before = (*ticket)++;
    cod_emulated_likely_turn();
    return before;
}

static inline void chain_release()
{
    cod_emulated_chain_release();
}

static inline void chain_wait()
{
    cod_emulated_chain_wait();
}

static inline void prefetch_line(const void *) {}

static inline uint16_t bf16_from_f32(float value)
{
    uint32_t word;
    memcpy(&word, &value, sizeof word);
    if ((word & 0x7FFFFFFFu) > 0x7F800000u)
        return 0x7FFF;
    return (uint16_t)((word + 0x7FFFu + (word >> 16 & 1u)) >> 16);
}

/* Never part of a fused multiply-add, whatever the compiler contracts (COD_CUDA_FMA): its result is opaque. */
static inline float exact_product(float a, float b)
{
    float product = a * b;
    asm("" : "+x"(product));
    return product;
}

static inline float exact_sum(float a, float b)
{
    asm("" : "+x"(a), "+x"(b));
    return a + b;
}

static inline double exact_product(double a, double b)
{
    double product = a * b;
    asm("" : "+x"(product));
    return product;
}

static inline double exact_sum(double a, double b)
{
    asm("" : "+x"(a), "+x"(b));
    return a + b;
}

#endif
