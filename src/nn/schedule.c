#include "nn/schedule.h"

#include <math.h>

double cod_schedule_rate(const cod_schedule *schedule, int64_t step)
{
    if (step < schedule->warmup_steps)
        return schedule->rate * (double)(step + 1) / (double)schedule->warmup_steps;
    double rate = schedule->rate;
    switch (schedule->kind) {
    case COD_SCHEDULE_CONSTANT:
        break;
    case COD_SCHEDULE_STEP:
        for (size_t i = 0; i < schedule->milestones.count; i++)
            if (step >= schedule->milestones.items[i])
                rate *= schedule->gamma;
        break;
    case COD_SCHEDULE_COSINE: {
        const int64_t length = schedule->steps - schedule->warmup_steps;
        double done = length > 0 ? (double)(step - schedule->warmup_steps) / (double)length : 1;
        done = done > 1 ? 1 : done;
        rate *= schedule->final_factor + (1 - schedule->final_factor) * 0.5 * (1 + cos(3.14159265358979323846 * done));
        break;
    }
    }
    return rate;
}
