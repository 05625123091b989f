/**
 * @file
 * The weight of a teacher's prediction at a step, by burn-in, ramp, age, and learning rate.
 */
#ifndef COD_DISTILL_SCHEDULE_H
#define COD_DISTILL_SCHEDULE_H

#include "distill/codistill.h"
#include "exchange/exchange.h"

/** When a teacher's weights were published and when they arrived. */
typedef struct cod_teacher_age {
    int64_t step;  /**< the peer's step at which the version was published */
    int64_t since; /**< own step from which the weight ramps in; -1 = there is no teacher */
    double age_s;  /**< seconds since the peer copied its weights; NaN = unknown, and then there is no limit */
} cod_teacher_age;

/** 1 for a teacher below its age limits. Beyond a limit it falls linearly, and reaches 0 at 1.25 times the limit. */
double cod_teacher_freshness(const cod_exchange_options *exchange, const cod_teacher_age *age, int64_t step);

/** Notes a newer version, of the peer's step `peer_step`. A teacher that had faded out returns with a ramp. */
void cod_teacher_age_renew(cod_teacher_age *age, const cod_exchange_options *exchange, int64_t peer_step, int64_t step);

/** @param rate_factor  the learning rate at this step, over its highest */
double cod_teacher_weight(const cod_distill_options *distill, const cod_exchange_options *exchange,
                          const cod_teacher_age *age, int64_t step, double rate_factor);

#endif
