/**
 * @file
 * Batches of aligned random crops, made ahead of time by threads.
 *
 * The batch of step s is a pure function of (seed, group, s) and the data set: nothing is saved for a resume, and a
 * restart at step s replays it. The ranks of a group divide one batch of ranks * batch crops, whose content does not
 * depend on how many ranks divide it: 2 ranks of 8 see in one step what 1 rank of 16 sees, or of 8 in two. An epoch
 * is a permutation of the group's samples, and each sample is used once in it; a batch may reach from one epoch into the next.
 */
#ifndef COD_DATA_LOADER_H
#define COD_DATA_LOADER_H

#include "core/tensor.h"
#include "data/dataset.h"

typedef struct cod_loader cod_loader;

typedef struct cod_loader_options {
    int64_t batch; /**< crops of this rank and step */
    int64_t patch; /**< side of the low-resolution crop, pixels */
    uint64_t seed;
    int group, rank, ranks; /**< rank within the group of `ranks` */
    int threads;            /**< 0 = made within cod_loader_next() */
    int prefetch;           /**< batches held ready beside the one in use, at least 1 */
    bool augment;           /**< one of the 8 flips, rotations and transposes for each crop */
} cod_loader_options;

/** One batch, f32 NHWC RGB in 0 … 1, at 64-byte boundaries. */
typedef struct cod_batch {
    uint64_t step;
    uint64_t epoch;     /**< of the batch's first crop */
    cod_view low, high; /**< [batch, patch, patch, 3] and [batch, scale*patch, scale*patch, 3], host memory */
} cod_batch;

/**
 * Starts making batches from `first_step` on.
 *
 * @param dataset  borrowed until cod_loader_destroy()
 * @param options  copied
 * @param[out] out  new; cod_loader_destroy() ends it
 */
COD_MUST_CHECK cod_status cod_loader_create(const cod_dataset *dataset, const cod_loader_options *options,
                                            uint64_t first_step, cod_loader **out);

/**
 * Gives the batch of the next step, waiting for it where necessary; one thread only.
 *
 * A file that has gone bad since it was found is replaced by the next readable sample, with a warning.
 *
 * @param[out] batch  valid until the next call
 * @return COD_ERR_IO or COD_ERR_FORMAT when no sample can be read any more
 */
COD_MUST_CHECK cod_status cod_loader_next(cod_loader *loader, cod_batch *batch);

/** Stops the threads and frees the batches; NULL is fine. */
void cod_loader_destroy(cod_loader *loader);

/** Seconds that cod_loader_next() has waited so far: above zero each step means that loading limits training. */
double cod_loader_waited_s(const cod_loader *loader);

#endif
