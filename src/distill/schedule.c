#include "distill/schedule.h"

#include <math.h>

enum { DEFAULT_STALENESS_PERIODS = 20 };

static double clamp01(double x)
{
    return x < 0 ? 0 : x > 1 ? 1 : x;
}

/** Falls from 1 at `limit` to 0 at 1.25 times that. */
static double below(double age, double limit)
{
    return clamp01((1.25 * limit - age) / (0.25 * limit));
}

double cod_teacher_freshness(const cod_exchange_options *exchange, const cod_teacher_age *age, int64_t step)
{
    const int64_t steps = exchange->max_staleness_steps;
    const double limit = (double)(steps > 0 ? steps : DEFAULT_STALENESS_PERIODS * exchange->period);
    const double by_steps = below((double)(step - age->step), limit);
    if (exchange->max_staleness_s == 0 || isnan(age->age_s))
        return by_steps;
    return fmin(by_steps, below(age->age_s, exchange->max_staleness_s));
}

void cod_teacher_age_renew(cod_teacher_age *age, const cod_exchange_options *exchange, int64_t peer_step, int64_t step)
{
    if (age->since < 0 || cod_teacher_freshness(exchange, age, step) == 0)
        age->since = step;
    age->step = peer_step;
}

double cod_teacher_weight(const cod_distill_options *distill, const cod_exchange_options *exchange,
                          const cod_teacher_age *age, int64_t step, double rate_factor)
{
    if (age->since < 0 || step < distill->burn_in)
        return 0;
    const int64_t from = age->since > distill->burn_in ? age->since : distill->burn_in;
    double weight = distill->weight * cod_teacher_freshness(exchange, age, step);
    if (distill->ramp > 0)
        weight *= clamp01((double)(step - from + 1) / (double)distill->ramp);
    return distill->fade ? weight * rate_factor : weight;
}
