/**
 * @file
 * Vectors of L floats in the widest registers of the instruction set that this file is being compiled for.
 */
#ifndef COD_CPU_KERNELS_SIMD_H
#define COD_CPU_KERNELS_SIMD_H

#include "cpu/kernels_internal.h"

#include <string.h>
#if defined(__AVX2__)
#include <immintrin.h>
#endif
#if defined(__AVX512F__)
#define L 16
#elif defined(__AVX2__)
#define L 8
#else
#define L 4
#endif

#define INLINE static inline __attribute__((always_inline))

typedef float vf __attribute__((vector_size(4 * L)));
typedef int32_t vi __attribute__((vector_size(4 * L)));
typedef uint32_t vu __attribute__((vector_size(4 * L)));
typedef uint16_t vh __attribute__((vector_size(2 * L)));

/** Lanes of the vector at `i` that are below `count`. */
INLINE int64_t lanes_left(int64_t i, int64_t count)
{
    return count - i < L ? count - i : L;
}

INLINE vf v_set(float value)
{
    return (vf){0} + value;
}

INLINE vf v_select(vi mask, vf yes, vf no)
{
#if defined(__AVX512F__)
    return (vf)_mm512_mask_mov_ps((__m512)no, _mm512_movepi32_mask((__m512i)mask), (__m512)yes);
#else
    return (vf)((mask & (vi)yes) | (~mask & (vi)no));
#endif
}

/** x > 0 ? yes : no; compilers do not see that v_select() of a comparison needs no vector of its mask. */
INLINE vf v_where_positive(vf x, vf yes, vf no)
{
#if defined(__AVX512F__)
    return (vf)_mm512_mask_mov_ps((__m512)no, _mm512_cmp_ps_mask((__m512)x, _mm512_setzero_ps(), _CMP_GT_OQ),
                                  (__m512)yes);
#else
    return v_select(x > 0.0f, yes, no);
#endif
}

INLINE vf v_max(vf a, vf b)
{
    return v_select(a > b, a, b);
}

INLINE vf v_abs(vf a)
{
    return (vf)((vi)a & 0x7FFFFFFF);
}

INLINE float v_sum(vf a)
{
    float sum = 0;
    for (int i = 0; i < L; i++)
        sum += a[i];
    return sum;
}

INLINE vf v_sqrt(vf a)
{
#if defined(__AVX512F__)
    return (vf)_mm512_sqrt_ps((__m512)a);
#else
    for (int i = 0; i < L; i++)
        a[i] = __builtin_sqrtf(a[i]);
    return a;
#endif
}

/** e^x by range reduction and Cephes' polynomial; relative error below 2e-7, clamped to finite results. */
INLINE vf v_exp(vf x)
{
    const vf nan = x;
    x = v_select(x < 88.0f, x, v_set(88.0f));
    x = v_select(x > -87.0f, x, v_set(-87.0f));
    const vf rounder = v_set(12582912.0f); /* 1.5 * 2^23: adding it rounds to an integer */
    const vf n = (x * 1.44269504088896341f + rounder) - rounder;
    const vf r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    vf p = v_set(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    const vf power = (vf)((__builtin_convertvector(n, vi) + 127) << 23);
    return v_select(nan == nan, p * power, nan);
}

INLINE vf v_sigmoid(vf x)
{
    return 1.0f / (1.0f + v_exp(-x));
}

/** The series near zero keeps the relative error small where 1 - 2 / (e^2x + 1) cancels. */
INLINE vf v_tanh(vf x)
{
    const vf s = x * x;
    const vf series = x * (1.0f + s * (-1.0f / 3 + s * (2.0f / 15 - s * (17.0f / 315))));
    return v_select(v_abs(x) < 0.1f, series, 1.0f - 2.0f / (v_exp(2.0f * x) + 1.0f));
}

/** Loads `n` <= L floats, zeros behind them. */
INLINE vf v_load(const float *p, int64_t n)
{
    vf v = {0};
    if (n == L) {
        memcpy(&v, p, sizeof v);
        return v;
    }
#if defined(__AVX512F__)
    return (vf)_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
#else
    for (int64_t i = 0; i < n; i++)
        v[i] = p[i];
    return v;
#endif
}

INLINE void v_store(float *p, vf v, int64_t n)
{
    if (n == L) {
        memcpy(p, &v, sizeof v);
        return;
    }
#if defined(__AVX512F__)
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), (__m512)v);
#else
    for (int64_t i = 0; i < n; i++)
        p[i] = v[i];
#endif
}

/** Of bf16's bits; for convertvector GCC 12 makes halves and joins them again, four shuffles instead of one. */
INLINE vf v_from_bf16(vh h)
{
#if defined(__AVX512F__)
    return (vf)((vu)_mm512_cvtepu16_epi32((__m256i)h) << 16);
#elif defined(__AVX2__)
    return (vf)((vu)_mm256_cvtepu16_epi32((__m128i)h) << 16);
#else
    return (vf)(__builtin_convertvector(h, vu) << 16);
#endif
}

INLINE vf v_load_bf16(const uint16_t *p, int64_t n)
{
    vh h = {0};
    if (n == L)
        memcpy(&h, p, sizeof h);
    else
#if defined(__AVX512F__)
        h = (vh)_mm256_maskz_loadu_epi16((__mmask16)((1u << n) - 1), p);
#else
        for (int64_t i = 0; i < n; i++)
            h[i] = p[i];
#endif
    return v_from_bf16(h);
}

/**
 * Rounds to nearest even, as cod_bf16_from_f32(); the AVX512-BF16 instruction also flushes subnormal numbers to zero.
 */
INLINE vh v_to_bf16(vf v)
{
#if defined(__AVX512BF16__)
    return (vh)_mm512_cvtneps_pbh((__m512)v);
#else
    const vu bits = (vu)v;
    const vu rounded = bits + 0x7FFFu + ((bits >> 16) & 1u);
    const vu quiet = bits | 0x400000u;
    return __builtin_convertvector((vu)v_select(v == v, (vf)rounded, (vf)quiet) >> 16, vh);
#endif
}

INLINE void v_store_bf16(uint16_t *p, vf v, int64_t n)
{
    const vh h = v_to_bf16(v);
    if (n == L) {
        memcpy(p, &h, sizeof h);
        return;
    }
#if defined(__AVX512F__)
    _mm256_mask_storeu_epi16(p, (__mmask16)((1u << n) - 1), (__m256i)h);
#else
    for (int64_t i = 0; i < n; i++)
        p[i] = h[i];
#endif
}

/**
 * Which element types a loop is compiled for. Loops over rows exist for "all f32", "all bf16" and, testing each
 * row's flag as they go, for mixtures.
 */
enum { ALL_F32, ALL_BF16, MIXED };

INLINE bool is_bf16(cpu_rows rows, int types)
{
    return types == MIXED ? rows.bf16 : types == ALL_BF16;
}

INLINE vf r_load(cpu_rows rows, int types, int64_t element, int64_t n)
{
    return is_bf16(rows, types) ? v_load_bf16((const uint16_t *)(const void *)rows.data + element, n)
                                : v_load((const float *)(const void *)rows.data + element, n);
}

INLINE void r_store(cpu_rows rows, int types, int64_t element, vf v, int64_t n)
{
    if (is_bf16(rows, types))
        v_store_bf16((uint16_t *)(void *)rows.data + element, v, n);
    else
        v_store((float *)(void *)rows.data + element, v, n);
}

static inline int types_of(cpu_rows a, cpu_rows b, cpu_rows c)
{
    const int present = (a.data != NULL) + (b.data != NULL) + (c.data != NULL);
    const int bf16 = (a.data && a.bf16) + (b.data && b.bf16) + (c.data && c.bf16);
    return bf16 == 0 ? ALL_F32 : bf16 == present ? ALL_BF16 : MIXED;
}

/**
 * Runs `body(first channel, vectors, lanes of each, types)` over all channels, in blocks of four vectors, then of
 * one, then of part of one. The body is inlined three times for each kind of types.
 */
#define FOR_CHANNELS_OF(channels, body, types)                                                                         \
    do {                                                                                                               \
        int64_t c_ = 0;                                                                                                \
        for (; c_ + 4 * L <= (channels); c_ += 4 * L)                                                                  \
            body(c_, 4, L, types);                                                                                     \
        for (; c_ + L <= (channels); c_ += L)                                                                          \
            body(c_, 1, L, types);                                                                                     \
        if (c_ < (channels))                                                                                           \
            body(c_, 1, (channels)-c_, types);                                                                         \
    } while (0)

#define FOR_CHANNELS(types, channels, body)                                                                            \
    do {                                                                                                               \
        if ((types) == ALL_BF16)                                                                                       \
            FOR_CHANNELS_OF(channels, body, ALL_BF16);                                                                 \
        else if ((types) == ALL_F32)                                                                                   \
            FOR_CHANNELS_OF(channels, body, ALL_F32);                                                                  \
        else                                                                                                           \
            FOR_CHANNELS_OF(channels, body, MIXED);                                                                    \
    } while (0)

#endif
