/**
 * @file
 * The caller's tensors as one row of f32 values: weights in the order in which they were given, behind them statistics.
 * That row is what the exchange knows; ranges of it are counted in values.
 */
#ifndef COD_LIBRARY_TENSORS_INTERNAL_H
#define COD_LIBRARY_TENSORS_INTERNAL_H

#include "core/status.h"
#include "library/codistill.h"

typedef struct library_tensor {
    char *name;
    codistill_type type;
    void *data;
    uint64_t first, count; /**< values of the row */
} library_tensor;

typedef struct library_tensors {
    library_tensor *items; /**< [count] in the caller's order */
    size_t count;
    uint64_t weights, states; /**< values: of weights, and of the statistics behind them */
    uint64_t hash;            /**< of names, types of use, shapes and order */
} library_tensors;

/** Copies the caller's list; refuses what is no list of tensors, by name. Clear it after a failure, too. */
COD_MUST_CHECK cod_status library_tensors_init(library_tensors *all, const codistill_tensor *tensors, size_t count);
void library_tensors_clear(library_tensors *all);

/** Copies values [first, first + count) of the row to `out`. */
void library_tensors_read(const library_tensors *all, uint64_t first, uint64_t count, float *out);

/**
 * Copies values of the row to arrays like the tensors.
 *
 * @param values   [count]
 * @param targets  [all->count]; NULL = left out
 */
void library_tensors_write(const library_tensors *all, uint64_t first, uint64_t count, const float *values,
                           void *const *targets);

/** A peer's version of a range, and how it is merged. */
typedef struct library_merge {
    uint64_t first, count;
    const float *peer; /**< [count] */
    const float *own;  /**< [count] what weights are measured from; NULL = the tensors themselves */
    double alpha, share;
} library_merge;

/** w += alpha·share·(peer - own) for weights; statistics move by `share` toward the peer's. */
void library_tensors_merge(const library_tensors *all, const library_merge *merge);

#endif
