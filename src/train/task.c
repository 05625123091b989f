#include "train/task_internal.h"

#include <math.h>

const cod_train_task_kind *cod_train_task_find(cod_task task)
{
    return task == COD_TASK_CLASSIFICATION ? &cod_task_classification : &cod_task_super_resolution;
}

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

cod_loss_spec cod_train_loss(const cod_run_config *config, cod_task task)
{
    static const cod_loss_kind kinds[] = {
        [COD_TRAIN_LOSS_L1] = COD_LOSS_L1,
        [COD_TRAIN_LOSS_MSE] = COD_LOSS_MSE,
        [COD_TRAIN_LOSS_CHARBONNIER] = COD_LOSS_CHARBONNIER,
        [COD_TRAIN_LOSS_CROSS_ENTROPY] = COD_LOSS_CROSS_ENTROPY,
    };
    const int choice = config->train.loss;
    const cod_loss_kind kind = choice == COD_TRAIN_LOSS_AUTO ? cod_train_task_find(task)->loss : kinds[choice];
    return (cod_loss_spec){.kind = kind,
                           .smoothing = kind == COD_LOSS_CROSS_ENTROPY ? (float)config->train.label_smoothing : 0};
}
