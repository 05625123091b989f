/**
 * @file
 * Assigns the layers of a network to stages.
 */
#ifndef COD_STRATEGIES_STAGES_H
#define COD_STRATEGIES_STAGES_H

#include "comm/group.h"
#include "strategies/partition.h"

/** A network divided into stages. Zeroed = none. */
typedef struct cod_stages {
    cod_arena arena;
    int count;
    cod_layer *layers;
    size_t layer_count;
    size_t *first;                /**< [count + 1] index of each stage's first layer, and layer_count */
    cod_stage *nodes;             /**< [count] */
    cod_stage_range (*ranges)[2]; /**< [count]: its trainable elements, its states */
    double *shares;               /**< [count] of the cost */
    bool timed;                   /**< cost is time, not operations */
} cod_stages;

/**
 * Divides the session's network: at the layers named in `cuts`, with which all stages but the first begin; without
 * `cuts`, so that the most costly stage costs as little as possible.
 *
 * @param group  its first rank measures and sends the result to the others; collective on it. NULL = only this rank
 * @param cuts   none, or one less than stages
 * @param[out] out  cod_stages_clear() ends it, also on failure
 * @return COD_ERR_ARGUMENT if the network cannot be divided in this way
 */
COD_MUST_CHECK cod_status cod_stages_divide(const cod_train_session *session, cod_group *group, int count,
                                            const cod_string_list *cuts, cod_stages *out);
void cod_stages_clear(cod_stages *stages);

#endif
