/**
 * @file
 * Cutting a network into stages of about equal cost.
 */
#ifndef COD_STRATEGIES_PARTITION_H
#define COD_STRATEGIES_PARTITION_H

#include "train/session.h"

/**
 * A layer: the nodes from one operation with weights to the next. The first layer also has all nodes before it. Stages
 * consist of layers.
 */
typedef struct cod_layer {
    size_t node; /**< node that it begins with */
    const char *name;
    double cost; /**< of its forward and backward passes; seconds or floating-point operations */
} cod_layer;

/**
 * Finds the layers of a graph. Layers that share weights, and all layers between them, form one. @param[out] layers in
 * `arena`
 */
COD_MUST_CHECK cod_status cod_layers_find(const cod_graph *graph, cod_arena *arena, cod_layer **layers, size_t *count);

/**
 * Measures the cost of each layer on one mini-batch, with a training program of the whole graph that is made for this.
 *
 * @param timed  true: by running it. false: by counting floating-point operations, which gives the same result on every
 *               machine
 */
COD_MUST_CHECK cod_status cod_layers_measure(const cod_train_session *session, bool timed, cod_layer *layers,
                                             size_t count);

/**
 * The contiguous division of `count` costs into parts whose greatest sum is least, by dynamic programming.
 *
 * @param costs  [count] not negative
 * @param parts  from 1 to count
 * @param[out] first  [parts + 1] index of each part's first cost, and count
 * @return COD_ERR_MEMORY
 */
COD_MUST_CHECK cod_status cod_partition(const double *costs, size_t count, size_t parts, size_t *first);

#endif
