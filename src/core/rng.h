/**
 * @file
 * Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
 *
 * A stream is named by what it is for, not by how many numbers came before it, so a restart at step s replays
 * exactly the numbers of step s whatever happened earlier.
 */
#ifndef COD_CORE_RNG_H
#define COD_CORE_RNG_H

#include <stddef.h>
#include <stdint.h>

/** What the numbers are for; one more purpose never changes the numbers of the others. */
typedef enum cod_rng_purpose {
    COD_RNG_INIT = 1, /**< initial weights; `item` = tensor index */
    COD_RNG_SHUFFLE,  /**< order of an epoch; step = epoch */
    COD_RNG_CROP,     /**< crop position; item = image within the batch */
    COD_RNG_AUGMENT,  /**< flips, rotations; item = image within the batch */
    COD_RNG_MIXUP,
    COD_RNG_PLACEMENT, /**< which group holds which sample */
    COD_RNG_PEER,      /**< choice of peers */
    COD_RNG_TEST,
    COD_RNG_PICTURE, /**< generated pictures; step = picture */
    COD_RNG_DEGRADE, /**< degradation of a crop; item = what of it, see data/degrade.h */
} cod_rng_purpose;

typedef struct cod_rng {
    uint32_t key[2];
    uint32_t counter[4];
    uint32_t block[4];
    unsigned used; /**< numbers of `block` already given out */
} cod_rng;

/** Opens the stream named by all these values; equal names give equal numbers on every machine. */
cod_rng cod_rng_open(uint64_t seed, uint32_t group, uint32_t rank, uint64_t step, cod_rng_purpose purpose,
                     uint32_t item);

/** The bare Philox4x32-10 block function. */
void cod_philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

uint32_t cod_rng_u32(cod_rng *rng);
/** Fills `numbers` with what `count` calls of cod_rng_u32() would give, faster. */
void cod_rng_fill(cod_rng *rng, uint32_t *numbers, size_t count);
/** Uniform over 0 … bound-1 without bias; bound > 0. */
uint32_t cod_rng_below(cod_rng *rng, uint32_t bound);
/** Uniform over [0, 1) with 53 bits. */
double cod_rng_uniform(cod_rng *rng);
/** Standard normal (Box-Muller). */
double cod_rng_normal(cod_rng *rng);
/**
 * Fills `values` with what `count` times (float)(scale * cod_rng_normal()) would give, to the bit, faster: vectors
 * compute each number with a bound of its error, and what may be rounded either way within it is computed as there.
 */
void cod_rng_fill_normal(cod_rng *rng, double scale, float *values, size_t count);
/** The same with (float)(scale * (2 * cod_rng_uniform() - 1)). */
void cod_rng_fill_uniform(cod_rng *rng, double scale, float *values, size_t count);
/** Fills `order` [count] with a random permutation of 0 … count-1 (Fisher-Yates). */
void cod_rng_permutation(cod_rng *rng, uint32_t *order, size_t count);

#endif
