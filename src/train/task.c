#include "infer/evaluate.h"
#include "train/task_internal.h"

#include <string.h>

const cod_train_task_kind *cod_train_task_find(cod_task task)
{
    return task == COD_TASK_CLASSIFICATION ? &cod_task_classification : &cod_task_super_resolution;
}

/** The metrics of a run; what is wrong with them is a problem of the configuration. */
static unsigned metrics_of(cod_run_config *config)
{
    const cod_eval_options *eval = &config->eval;
    unsigned metrics = 0;
    if (cod_metrics_parse(eval->metrics, &metrics) != COD_OK)
        cod_config_problem_key(config->config, "eval.metrics", "%s", cod_error_message());
    if (eval->best > 0)
        metrics |= 1u << (eval->best - 1);
    if ((metrics & COD_METRICS_OF_NIQE) != 0 && eval->niqe_model[0] == '\0')
        cod_config_problem_key(config->config, eval->best > 0 ? "eval.best" : "eval.metrics",
                               "niqe and pi need a model of natural pictures: name niqe_pris_params.npz, as BasicSR "
                               "has it, in eval.niqe_model");
    if ((metrics & COD_METRIC_LPIPS) != 0 && eval->lpips_network[0] == '\0')
        cod_config_problem_key(config->config, eval->best > 0 ? "eval.best" : "eval.metrics",
                               "lpips needs a network: name a file with SqueezeNet 1.1's features in "
                               "eval.lpips_network");
    return metrics;
}

static unsigned metric_of(const cod_task_figure *figure)
{
    for (const cod_evaluated_figure *f = cod_evaluated_figures; f->key != NULL; f++)
        if (strcmp(f->key, figure->key) == 0)
            return f->metric;
    return 0;
}

const cod_train_task_kind *cod_train_task_of(cod_run_config *config)
{
    const cod_train_task_kind *kind = cod_train_task_find(config->whole.kind->task);
    cod_train_task_kind *own = cod_arena_alloc(cod_config_arena(config->config), sizeof *own);
    if (own == NULL)
        return kind;
    *own = *kind;
    if (kind->task != COD_TASK_SUPER_RESOLUTION) {
        if (config->eval.best > 0)
            cod_config_problem_key(config->config, "eval.best",
                                   "figures of pictures are for super-resolution; of %s "
                                   "the best model is chosen by %s",
                                   cod_task_name(kind->task), kind->figures[0].label);
        return own;
    }
    const unsigned metrics = metrics_of(config);
    const unsigned best = config->eval.best > 0 ? 1u << (config->eval.best - 1) : metrics & (~metrics + 1);
    int judge = 0;
    while (judge < kind->figure_count - 1 && metric_of(&kind->figures[judge]) != best)
        judge++;
    own->figures[0] = kind->figures[judge];
    own->figure_count = 1;
    for (int i = 0; i < kind->figure_count; i++)
        if (i != judge && (metrics & metric_of(&kind->figures[i])) != 0)
            own->figures[own->figure_count++] = kind->figures[i];
    for (int i = 0; i < own->figure_count; i++) {
        if (metric_of(&own->figures[i]) == COD_METRIC_LPIPS && config->eval.lpips_weights[0] == '\0')
            own->figures[i].label = "lpips (unweighted)";
        if (strcmp(own->figures[i].key, "pi") == 0 && config->eval.ma_model[0] == '\0')
            own->figures[i].label = "pi (niqe alone)";
    }
    return own;
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
