/**
 * @file
 * Numbered training samples, of which a loader makes batches. Each sample is a pair of f32 tensors; all samples have
 * the same shapes. Samples made of 8-bit pixels are also available as bytes, which a device then converts.
 */
#ifndef COD_DATA_SAMPLES_H
#define COD_DATA_SAMPLES_H

#include "core/rng.h"
#include "core/tensor.h"

/**
 * The place of a sample in the endless sequence of a group's samples. A sample's random numbers may depend on nothing
 * else.
 */
typedef struct cod_sample_place {
    uint64_t seed;
    uint32_t group;
    uint64_t position;
} cod_sample_place;

/** Random numbers of a sample for a purpose. */
static inline cod_rng cod_sample_rng(const cod_sample_place *place, cod_rng_purpose purpose)
{
    return cod_rng_open(place->seed, place->group, 0, place->position, purpose, 0);
}

typedef struct cod_samples {
    size_t count;
    cod_shape input, target; /**< of one, n = 1 */
    const void *context;     /**< borrowed; the loader does not outlive it */
    /**
     * Makes sample `index`; any thread.
     *
     * @param[out] input, target  dense, as the shapes say
     * @return COD_ERR_IO or COD_ERR_FORMAT if its file has become unreadable: another sample is then used instead
     */
    cod_status (*draw)(const void *context, size_t index, const cod_sample_place *place, float *input, float *target);
    /**
     * The same sample in 8 bits. It gives the values of draw() to the bit, if each byte b of channel c is replaced by
     * table[b·C + c] and the picture is then turned. NULL = samples are not of 8 bits.
     *
     * @param[out] input   bytes, as the shape says
     * @param[out] target  likewise; f32 as draw() gives it where target_table is NULL
     * @param[out] turn    bits of cod_turn (core/backend.h) for tensors of bytes
     */
    cod_status (*draw_bytes)(const void *context, size_t index, const cod_sample_place *place, uint8_t *input,
                             void *target, int32_t *turn);
    const float *input_table, *target_table; /**< [256, C] of draw_bytes(); borrowed as `context` is. NULL = f32 */
} cod_samples;

#endif
