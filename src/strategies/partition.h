/**
 * @file
 * Cutting a network into stages of about equal cost.
 */
#ifndef COD_STRATEGIES_PARTITION_H
#define COD_STRATEGIES_PARTITION_H

#include "train/session.h"

/** Nodes from one layer with weights to the next; the first has all that comes before it, too. What stages are made of. */
typedef struct cod_layer {
    size_t node; /**< that it begins with */
    const char *name;
    double cost; /**< of its forward and backward passes; seconds or floating-point operations */
} cod_layer;

/** The layers of a graph; those that share weights, and all between them, are one. @param[out] layers  in `arena` */
COD_MUST_CHECK cod_status cod_layers_find(const cod_graph *graph, cod_arena *arena, cod_layer **layers, size_t *count);

/**
 * Finds what each layer costs on one mini-batch, by a training program of the whole graph made for this alone.
 *
 * @param timed  by running it; otherwise floating-point operations are counted, which is the same on every machine
 */
COD_MUST_CHECK cod_status cod_layers_measure(const cod_train_session *session, bool timed, cod_layer *layers,
                                             size_t count);

/**
 * The contiguous division of `count` costs into parts whose greatest sum is least, by dynamic programming.
 *
 * @param costs  [count] not negative
 * @param parts  from 1 to count
 * @param[out] first  [parts + 1] of each part's costs the first, and count
 * @return COD_ERR_MEMORY
 */
COD_MUST_CHECK cod_status cod_partition(const double *costs, size_t count, size_t parts, size_t *first);

#endif
