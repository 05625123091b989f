/**
 * @file
 * The base of strategies whose groups train alone and meet every so many steps: `local_sgd`, `diloco`, `noloco`.
 *
 * Inside a group gradients are averaged every step. Every `period` steps, and after the last, groups wait for each
 * other and call meet(), which computes new weights and normalisation statistics for the sets that travel. Each group
 * keeps its optimisers' moments, its moving averages and all other sets.
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
     * Replaces `values` [cod_local_steps_count()], the group's, by the values with which it continues; the same bits on
     * all ranks of the group. Every rank calls it at the same steps.
     */
    cod_status (*meet)(cod_local_steps *local, cod_train_context *context, float *values);

    cod_group_average average;
    cod_between between;
    cod_sets sets;     /**< that travel between groups */
    cod_layout layout; /**< of their values */
    float *values;     /**< [trainable + state] values of these sets */
    double met_s;
    uint64_t steps, meetings;
    cod_comm *comm;
};

/** Number of values that groups exchange: trainable values and states; after cod_local_steps_start(). */
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
 * Does one meeting, as cod_local_steps_after_step() does; for strategies that choose the steps of their meetings.
 * Copies the group's weights to local->values, with statistics averaged over its ranks; calls meet(); writes the
 * weights back; counts and logs the event.
 */
COD_MUST_CHECK cod_status cod_local_steps_meet(cod_local_steps *local, cod_train_context *context, uint64_t meeting);
void cod_local_steps_stats(cod_strategy *strategy, cod_strategy_stats *out);
/** Frees the members that cod_local_steps_start() made, not the strategy. */
void cod_local_steps_clear(cod_local_steps *local);

/**
 * Checks that all groups train the same model from a common start, without which weights cannot be averaged; adds
 * problems to run->config.
 */
void cod_local_steps_check(const cod_run_config *run);

#endif
