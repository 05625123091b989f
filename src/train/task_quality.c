#include "train/task.h"

#include <math.h>

cod_task_quality cod_task_quality_unknown(void)
{
    cod_task_quality quality;
    for (int i = 0; i < COD_TASK_MAX_FIGURES; i++)
        quality.values[i] = NAN;
    return quality;
}

double cod_task_compare(const cod_train_task_kind *kind, const cod_task_quality *a, const cod_task_quality *b)
{
    const double sign = kind->figures[0].less_is_better ? -1 : 1;
    const double first = isnan(a->values[0]) ? -INFINITY : sign * a->values[0];
    const double second = isnan(b->values[0]) ? -INFINITY : sign * b->values[0];
    return first == second ? 0 : first - second;
}

cod_task_results cod_task_results_unknown(void)
{
    cod_task_results results = {.held_out = cod_task_quality_unknown()};
    for (size_t i = 0; i < COD_DATA_MAX_SETS; i++)
        results.sets[i] = cod_task_quality_unknown();
    return results;
}

const cod_task_quality *cod_task_judged(const cod_train_task *task, const cod_task_results *results)
{
    return task->judge > 0 ? &results->sets[task->judge - 1] : &results->held_out;
}
