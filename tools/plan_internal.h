/**
 * @file
 * What measuring and printing a group's plan share.
 */
#ifndef COD_TOOLS_PLAN_INTERNAL_H
#define COD_TOOLS_PLAN_INTERNAL_H

#include "distill/codistill.h"
#include "exchange/exchange.h"
#include "tools/plan.h"
#include "train/session.h"
#include "train/strategy.h"

/** What the peers of a group mean for one of its ranks. */
typedef struct plan_teachers {
    int count;
    double bytes, ms; /**< ms: of one, in the mean */
} plan_teachers;

/** What is planned of a group, and was measured of it. */
typedef struct planned {
    const cod_run_config *config;
    const cod_group_config *group;
    const cod_backend *backend;
    cod_device *device;
    int ranks; /**< of the group; 0 = the launcher decides */
    cod_strategy *strategy;
    cod_train_session session;
    double step_ms;
    const cod_plan_load *load;
    plan_teachers teachers;
    const cod_exchange_options *exchange; /**< `exchange_options`; NULL = there is none */
    cod_exchange_options exchange_options;
    const cod_distill_options *distill;
    cod_exchange_sizes sizes;
    cod_strategy_plan meetings; /**< of groups that wait for each other */
    cod_strategy_stage *stages; /**< of a network that ranks hold together */
    size_t stage_count;
    float *priors; /**< [groups, classes]; NULL = not corrected for */
} planned;

/** Builds and times what group `index` trains. @param[out] p  to be cleared, on failure, too */
COD_MUST_CHECK cod_status plan_measure(planned *p, const cod_run_config *config, int index,
                                       const cod_plan_device *device, const cod_plan_load *load);
void plan_clear(planned *p);

/** Whether groups publish. */
bool plan_exchanges(const planned *p);
/** What a batch is of: crops, or examples of the classifier's size. */
cod_shape plan_input_shape(const cod_run_config *config, const cod_group_config *group, int64_t batch);

#endif
