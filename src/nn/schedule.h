/**
 * @file
 * Learning-rate schedules.
 */
#ifndef COD_NN_SCHEDULE_H
#define COD_NN_SCHEDULE_H

#include "core/option.h"

typedef enum cod_schedule_kind { COD_SCHEDULE_CONSTANT, COD_SCHEDULE_STEP, COD_SCHEDULE_COSINE } cod_schedule_kind;

typedef struct cod_schedule {
    cod_schedule_kind kind;
    double rate;             /**< the base rate */
    int64_t steps;           /**< length of training */
    int64_t warmup_steps;    /**< linear from rate/warmup to rate */
    cod_int_list milestones; /**< STEP: the rate is multiplied by gamma at each of these steps */
    double gamma;
    double final_factor; /**< COSINE ends at rate·final_factor (Loshchilov & Hutter 2017, without restarts) */
} cod_schedule;

/** Learning rate of step 0, 1, …. */
double cod_schedule_rate(const cod_schedule *schedule, int64_t step);

#endif
