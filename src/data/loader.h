/**
 * @file
 * Batches of training samples, made ahead of time by threads.
 *
 * The batch of step s is a pure function of (seed, group, s) and the data set: a checkpoint need not save anything, and
 * a restart at step s makes the same batch. The ranks of a group divide one batch of ranks * batch samples, whose
 * content does not depend on how many ranks divide it: 2 ranks with batches of 8 see the same samples in one step as 1
 * rank with batches of 16, or as 1 rank with batches of 8 in two steps. An epoch is a permutation of the group's
 * samples, and each sample is used once in it; a batch may reach from one epoch into the next.
 */
#ifndef COD_DATA_LOADER_H
#define COD_DATA_LOADER_H

#include "data/samples.h"

typedef struct cod_loader cod_loader;

typedef struct cod_loader_options {
    int64_t batch; /**< samples of this rank and step */
    uint64_t seed;
    int group, rank, ranks; /**< rank within the group of `ranks` */
    int threads;            /**< 0 = cod_loader_next() makes the batches */
    int prefetch;           /**< batches held ready beside the one in use, at least 1 */
    bool bytes;             /**< batches hold bytes, as draw_bytes() of the samples gives them */
} cod_loader_options;

/** One batch, NHWC, f32 or, where the options ask for it, bytes (u8), at 64-byte boundaries. */
typedef struct cod_batch {
    uint64_t step;
    uint64_t epoch;         /**< of the batch's first sample */
    cod_view input, target; /**< [batch] samples of the two shapes, host memory */
    const int32_t *turns;   /**< [batch] bits of cod_turn for tensors of bytes; NULL = there are none */
} cod_batch;

/**
 * Starts making batches from `first_step` on.
 *
 * @param samples  copied; its borrowed pointers must stay valid until cod_loader_destroy()
 * @param options  copied
 * @param[out] out  new; cod_loader_destroy() ends it
 */
COD_MUST_CHECK cod_status cod_loader_create(const cod_samples *samples, const cod_loader_options *options,
                                            uint64_t first_step, cod_loader **out);

/**
 * Gives the batch of the next step, waiting for it where necessary; one thread only.
 *
 * If a file has become unreadable since it was found, the next readable sample replaces it, with a warning.
 *
 * @param[out] batch  valid until the next call
 * @return COD_ERR_IO or COD_ERR_FORMAT when no sample can be read any more
 */
COD_MUST_CHECK cod_status cod_loader_next(cod_loader *loader, cod_batch *batch);

/** Stops the threads and frees the batches; NULL is fine. */
void cod_loader_destroy(cod_loader *loader);

#endif
