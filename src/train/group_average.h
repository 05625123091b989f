/**
 * @file
 * Averaging gradients over a group while backward runs: what every data-parallel strategy does inside its group.
 */
#ifndef COD_TRAIN_GROUP_AVERAGE_H
#define COD_TRAIN_GROUP_AVERAGE_H

#include "train/strategy.h"

/** Reductions under way. Zeroed = none. */
typedef struct cod_group_average {
    cod_reduction **reductions; /**< [count] */
    size_t count, capacity;
    double waited_s; /**< in cod_group_average_wait(), all together */
} cod_group_average;

/**
 * Starts averaging a complete bucket; does nothing in a group of one.
 *
 * @param ready  the bucket is complete once it is reached; NULL = it is. Borrowed for this call.
 */
COD_MUST_CHECK cod_status cod_group_average_start(cod_group_average *average, cod_train_context *context,
                                                  cod_bucket bucket, cod_event *ready);
/** Frees its memory; reductions that a failed step left outstanding are lost. */
void cod_group_average_clear(cod_group_average *average);
/** Waits for all that were started; on a device, what the default queue gets later comes after the averages. */
COD_MUST_CHECK cod_status cod_group_average_wait(cod_group_average *average, cod_train_context *context);

#endif
