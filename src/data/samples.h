/**
 * @file
 * What a loader makes batches of: numbered training samples, each a pair of f32 tensors of one shape.
 */
#ifndef COD_DATA_SAMPLES_H
#define COD_DATA_SAMPLES_H

#include "core/rng.h"
#include "core/tensor.h"

/** Where in the endless sequence of a group's samples one is drawn: all that its randomness may depend on. */
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
     * @return COD_ERR_IO or COD_ERR_FORMAT when its file has gone bad: another is then used instead
     */
    cod_status (*draw)(const void *context, size_t index, const cod_sample_place *place, float *input, float *target);
} cod_samples;

#endif
