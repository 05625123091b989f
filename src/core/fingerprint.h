/**
 * @file
 * 64 bits that tell f32 values apart by their bits and places: what a delta's checksum says of the values that it is against.
 *
 * It is a sum over the pairs of values, so that the threads of a device find it in any order, which they cannot with XXH3.
 * Against faults, not against people who mean harm.
 */
#ifndef COD_CORE_FINGERPRINT_H
#define COD_CORE_FINGERPRINT_H

#include <stddef.h>
#include <stdint.h>

/** The odd number nearest to 2^64 divided by the golden ratio. */
#define COD_FINGERPRINT_STRIDE UINT64_C(0x9E3779B97F4A7C15)

/** The fingerprint that no values have: whoever computed it met a value that is not finite. */
#define COD_FINGERPRINT_NONE UINT64_C(0)

/**
 * One pair's part of the sum: the generator SplitMix64's mixing function (Steele, Lea & Flood 2014, figure 16, with Stafford's
 * variant 13) of the pair's bits and place.
 *
 * @param bits  of the first value in the low half, of the second in the high half; of a last value alone, 0 in the high half
 * @param pair  0 = the first pair
 */
static inline uint64_t cod_fingerprint_part(uint64_t bits, uint64_t pair)
{
    bits += (pair + 1) * COD_FINGERPRINT_STRIDE;
    bits = (bits ^ (bits >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    bits = (bits ^ (bits >> 27)) * UINT64_C(0x94D049BB133111EB);
    return bits ^ (bits >> 31);
}

/** Makes the fingerprint of the parts' sum, modulo 2^64. */
static inline uint64_t cod_fingerprint_of_sum(uint64_t sum)
{
    return sum != COD_FINGERPRINT_NONE ? sum : 1;
}

/** Of `count` values. */
uint64_t cod_fingerprint(const float *values, size_t count);

#endif
