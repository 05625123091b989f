/**
 * @file
 * Which layers are which stage's.
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
    size_t *first;                /**< [count + 1] of each stage's layers the first, and layer_count */
    cod_stage *nodes;             /**< [count] */
    cod_stage_range (*ranges)[2]; /**< [count]: its trainable elements, its states */
    double *shares;               /**< [count] of the cost */
    bool timed;                   /**< cost is time, not operations */
} cod_stages;

/**
 * Divides the session's network: by the names of the layers that stages but the first begin with, or, where there are none,
 * so that the most costly stage costs least.
 *
 * @param group  whose first rank measures and tells the others; collective on it. NULL = this rank is alone
 * @param cuts   none, or one less than stages
 * @param[out] out  cod_stages_clear() ends it, also on failure
 * @return COD_ERR_ARGUMENT where the network cannot be divided so
 */
COD_MUST_CHECK cod_status cod_stages_divide(const cod_train_session *session, cod_group *group, int count,
                                            const cod_string_list *cuts, cod_stages *out);
void cod_stages_clear(cod_stages *stages);

#endif
