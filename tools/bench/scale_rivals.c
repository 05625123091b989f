/* What steps compute, and what training without an exchange makes of them. */
#include "core/rng.h"
#include "tools/bench/scale_model.h"

#include <math.h>

void cod_scale_draw_steps(uint64_t seed, int groups, int64_t steps, double step_s, double drift, double jitter,
                          double *out)
{
    static const double least = 0.1;
    for (int g = 0; g < groups; g++) {
        cod_rng rng = cod_rng_open(seed, (uint32_t)g, 0, 0, COD_RNG_TEST, 0);
        const double pace = fmax(least, 1 + drift * cod_rng_normal(&rng));
        for (int64_t i = 0; i < steps; i++)
            out[g * steps + i] = step_s * fmax(least, pace * (1 + jitter * cod_rng_normal(&rng)));
    }
}

void cod_scale_compare(const cod_scale_setting *s, cod_scale_rivals *out)
{
    const double groups = s->groups, bytes = 2 * (groups - 1) / groups * 4 * (double)s->weights,
                 average_s = bytes / s->link_bytes_s + 2 * (groups - 1) * s->latency_s;
    const int64_t period = s->exchange->period;
    double allreduce = 0, local = 0;
    for (int64_t begin = 0; begin < s->steps; begin += period) {
        double slowest = 0;
        const int64_t end = begin + period < s->steps ? begin + period : s->steps;
        for (int g = 0; g < s->groups; g++) {
            double sum = 0;
            for (int64_t i = begin; i < end; i++)
                sum += s->step_s[g * s->steps + i];
            slowest = fmax(slowest, sum);
        }
        local += slowest + average_s;
    }
    for (int64_t i = 0; i < s->steps; i++) {
        double slowest = 0;
        for (int g = 0; g < s->groups; g++)
            slowest = fmax(slowest, s->step_s[g * s->steps + i]);
        allreduce += fmax(slowest, average_s);
    }
    *out = (cod_scale_rivals){.allreduce_step_s = allreduce / (double)s->steps,
                              .allreduce_bytes = bytes,
                              .local_step_s = local / (double)s->steps,
                              .local_bytes = bytes / (double)period};
}
