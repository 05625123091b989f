/**
 * @file
 * A 64-bit hash of f32 values and their positions. A delta's checksum includes the fingerprint of the values that it
 * refers to.
 *
 * The hash is a sum over pairs of values, so that the threads of a device can add the parts in any order, which XXH3
 * does not allow. It protects against faults, not against attackers.
 */
#ifndef COD_CORE_FINGERPRINT_H
#define COD_CORE_FINGERPRINT_H

#include <stddef.h>
#include <stdint.h>

/** No values have this fingerprint. It means that a value is not finite. */
#define COD_FINGERPRINT_NONE UINT64_C(0)

/** Keys of pair p are p·STRIDE + FIRST modulo 2^32, with xxHash's primes. */
#define COD_FINGERPRINT_LOW_STRIDE  UINT32_C(0x9E3779B1)
#define COD_FINGERPRINT_LOW_FIRST   UINT32_C(0x85EBCA77)
#define COD_FINGERPRINT_HIGH_STRIDE UINT32_C(0xC2B2AE3D)
#define COD_FINGERPRINT_HIGH_FIRST  UINT32_C(0x27D4EB2F)

/**
 * One pair's part of the sum: the product of its values' bits, each combined with a key of its place (the hash NH:
 * Black et al. 1999, "UMAC", section 4, by exclusive or as XXH3 has it), plus the bits themselves, which still count if
 * the product is 0.
 *
 * @param bits  of the first value in the low half, of the second in the high half; of a last value alone, 0 in the high
 *   half
 * @param pair  0 = the first pair
 */
static inline uint64_t cod_fingerprint_part(uint64_t bits, uint32_t pair)
{
    const uint32_t low = (uint32_t)bits ^ (pair * COD_FINGERPRINT_LOW_STRIDE + COD_FINGERPRINT_LOW_FIRST),
                   high = (uint32_t)(bits >> 32) ^ (pair * COD_FINGERPRINT_HIGH_STRIDE + COD_FINGERPRINT_HIGH_FIRST);
    return (uint64_t)low * high + bits;
}

/** Makes the fingerprint of the parts' sum, modulo 2^64. */
static inline uint64_t cod_fingerprint_of_sum(uint64_t sum)
{
    return sum != COD_FINGERPRINT_NONE ? sum : 1;
}

/** Of `count` values. */
uint64_t cod_fingerprint(const float *values, size_t count);

#endif
