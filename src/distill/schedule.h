/**
 * @file
 * How much a teacher's prediction weighs at a step: burn-in, ramp, age, and the learning rate's fall.
 */
#ifndef COD_DISTILL_SCHEDULE_H
#define COD_DISTILL_SCHEDULE_H

#include "distill/codistill.h"
#include "distill/exchange.h"

/** When a teacher was made and when it came. */
typedef struct cod_teacher_age {
    int64_t step;  /**< the peer's, of the version that teaches */
    int64_t since; /**< own step from which the weight ramps in; -1 = there is no teacher */
    double age_s;  /**< since the peer copied its weights; NaN = not known, and then no limit */
} cod_teacher_age;

/** 1 for a teacher below its age limits; past one, falling to 0 over a quarter of that age, not by a jump. */
double cod_teacher_freshness(const cod_exchange_options *exchange, const cod_teacher_age *age, int64_t step);

/** A newer version, of the peer's step `peer_step`: one that had faded out comes back by the ramp. */
void cod_teacher_age_renew(cod_teacher_age *age, const cod_exchange_options *exchange, int64_t peer_step, int64_t step);

/** @param rate_factor  the learning rate at this step, over its highest */
double cod_teacher_weight(const cod_distill_options *distill, const cod_exchange_options *exchange,
                          const cod_teacher_age *age, int64_t step, double rate_factor);

#endif
