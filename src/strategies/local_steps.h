/**
 * @file
 * The base of strategies whose groups train alone and meet every so many steps: `local_sgd`, `diloco`, `noloco`.
 *
 * Inside a group gradients are averaged every step. Every `period` steps, and after the last, groups wait for each other and
 * meet(): from the weights and normalisation statistics of the sets that travel come those that all go on with. Optimisers' moments,
 * moving averages and all other sets stay the group's own.
 */
#ifndef COD_STRATEGIES_LOCAL_STEPS_H
#define COD_STRATEGIES_LOCAL_STEPS_H

#include "strategies/between.h"
#include "train/group_average.h"

typedef struct cod_local_steps cod_local_steps;

/** Strategies put this first in their own struct, and set the first members in create(). */
struct cod_local_steps {
    cod_strategy base;
    int64_t period;
    /**
     * Makes of `values` [cod_local_steps_count()], the group's, those that it goes on with; the same bits on all ranks of the group.
     * Every rank calls it at the same steps.
     */
    cod_status (*meet)(cod_local_steps *local, cod_train_context *context, float *values);

    cod_group_average average;
    cod_between between;
    cod_sets sets;     /**< that travel between groups */
    cod_layout layout; /**< of their values */
    float *values;     /**< [trainable + state] of these */
    double met_s;
    uint64_t steps, meetings;
    cod_comm *comm;
};

/** Values that groups meet with: trainable ones and states; after cod_local_steps_start(). */
static inline size_t cod_local_steps_count(const cod_local_steps *local)
{
    return local->layout.trainable + local->layout.state;
}

/** Hooks of cod_strategy_ops. */
COD_MUST_CHECK cod_status cod_local_steps_start(cod_strategy *strategy, cod_train_context *context);
COD_MUST_CHECK cod_status cod_local_steps_gradient_ready(cod_strategy *strategy, cod_train_context *context, int set,
                                                         cod_bucket bucket, cod_event *complete);
COD_MUST_CHECK cod_status cod_local_steps_before_update(cod_strategy *strategy, cod_train_context *context, int set);
COD_MUST_CHECK cod_status cod_local_steps_after_step(cod_strategy *strategy, cod_train_context *context);
/**
 * For strategies that meet at steps of their own: one meeting of cod_local_steps_after_step(). Brings the group's weights to
 * local->values, statistics averaged over its ranks; calls meet(); writes the weights back; counts, and tells the event.
 */
COD_MUST_CHECK cod_status cod_local_steps_meet(cod_local_steps *local, cod_train_context *context, uint64_t meeting);
void cod_local_steps_stats(cod_strategy *strategy, cod_strategy_stats *out);
/** Frees what cod_local_steps_start() made, not the strategy. */
void cod_local_steps_clear(cod_local_steps *local);

/** Weights can be averaged only where all groups train one model from a common start; adds problems to run->config. */
void cod_local_steps_check(const cod_run_config *run);

#endif
