/**
 * @file
 * Averaging gradients over a group during the backward pass, for all data-parallel strategies.
 */
#ifndef COD_TRAIN_GROUP_AVERAGE_H
#define COD_TRAIN_GROUP_AVERAGE_H

#include "train/strategy.h"

/** Reductions in progress. Zeroed = none. */
typedef struct cod_group_average {
    cod_reduction **reductions; /**< [count] */
    size_t count, capacity;
    double waited_s; /**< in cod_group_average_wait(), all together */
} cod_group_average;

/**
 * Starts averaging a complete bucket; does nothing in a group of one.
 *
 * @param ready  event after which the bucket is complete; NULL = it is complete. Borrowed for this call.
 */
COD_MUST_CHECK cod_status cod_group_average_start(cod_group_average *average, cod_train_context *context,
                                                  cod_bucket bucket, cod_event *ready);
/** Frees its memory; reductions that a failed step left outstanding are lost. */
void cod_group_average_clear(cod_group_average *average);
/** Waits for all averages that were started. On a device, later work of the default queue comes after the averages. */
COD_MUST_CHECK cod_status cod_group_average_wait(cod_group_average *average, cod_train_context *context);

#endif
