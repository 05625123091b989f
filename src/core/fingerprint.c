#include "core/fingerprint.h"

#include <string.h>

/* Both values of a pair are read as one word, whose low half is the first. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "put the pair together by shifts on a big-endian machine");

#ifdef __SSE2__
#include <emmintrin.h>

/**
 * The sum over the first `pairs` pairs, two by two; *done: how many that were. Compilers make three products of each.
 */
static uint64_t sum_of_vectors(const float *values, size_t pairs, size_t *done)
{
    __m128i keys = _mm_setr_epi32((int)COD_FINGERPRINT_LOW_FIRST, (int)COD_FINGERPRINT_HIGH_FIRST,
                                  (int)(COD_FINGERPRINT_LOW_FIRST + COD_FINGERPRINT_LOW_STRIDE),
                                  (int)(COD_FINGERPRINT_HIGH_FIRST + COD_FINGERPRINT_HIGH_STRIDE));
    const __m128i stride = _mm_set_epi32((int)(2 * COD_FINGERPRINT_HIGH_STRIDE), (int)(2 * COD_FINGERPRINT_LOW_STRIDE),
                                         (int)(2 * COD_FINGERPRINT_HIGH_STRIDE), (int)(2 * COD_FINGERPRINT_LOW_STRIDE));
    __m128i sum = _mm_setzero_si128();
    uint64_t lanes[2];
    for (*done = 0; *done + 2 <= pairs; *done += 2) {
        const __m128i bits = _mm_loadu_si128((const __m128i *)(const void *)(values + 2 * *done));
        const __m128i keyed = _mm_xor_si128(bits, keys);
        sum = _mm_add_epi64(sum, _mm_add_epi64(_mm_mul_epu32(keyed, _mm_srli_epi64(keyed, 32)), bits));
        keys = _mm_add_epi32(keys, stride);
    }
    _mm_storeu_si128((__m128i *)(void *)lanes, sum);
    return lanes[0] + lanes[1];
}
#else
static uint64_t sum_of_vectors(const float *values, size_t pairs, size_t *done)
{
    (void)values, (void)pairs;
    *done = 0;
    return 0;
}
#endif

uint64_t cod_fingerprint(const float *values, size_t count)
{
    size_t pair;
    uint64_t sum = sum_of_vectors(values, count / 2, &pair);
    for (; 2 * pair < count; pair++) {
        uint64_t bits = 0;
        memcpy(&bits, values + 2 * pair, 2 * pair + 1 < count ? sizeof bits : sizeof *values);
        sum += cod_fingerprint_part(bits, (uint32_t)pair);
    }
    return cod_fingerprint_of_sum(sum);
}
