/* Lines of metrics, and the progress reports made from them. */
#include "train/trainer_internal.h"

#include "core/trace.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/** The rate of the last step. */
static double last_rate(const trainer *t, int set)
{
    return t->context.step > 0 ? cod_train_session_rate(&t->session, set, t->context.step - 1) : 0;
}

static cod_metrics_line make_line(const trainer *t)
{
    const cod_train_context *context = &t->context;
    const trainer_measures *measures = &t->measures;
    const int ranks = cod_group_size(t->group);
    cod_metrics_line line = {.step = context->step,
                             .task_loss = trainer_losses_mean_of(&t->losses, t->session.recipe.task_loss),
                             .rate = last_rate(t, 0),
                             .step_ms = trainer_measures_median_ms(measures, (size_t)t->config->log.every),
                             .task = t->task->kind,
                             .quality = t->evaluator.last.held_out};
    double totals[TRAINER_TOTALS];
    trainer_measures_read_stats(measures, t->strategy, &line.strategy);
    trainer_measures_read_totals(measures, context, &line.strategy, totals);
    line.trained_s = totals[TOTAL_STEPS_S];
    line.processor_s = measures->processor_s;
    line.between_bytes = trainer_measures_group_total(measures, totals, TOTAL_INTERGROUP_BYTES, ranks);
    line.inside_bytes = trainer_measures_group_total(measures, totals, TOTAL_INTRAGROUP_BYTES, ranks);
    line.exchange_share = trainer_measures_exchange_share(measures, &line.strategy);
    line.loss = line.task_loss +
                (isnan(line.strategy.distill_loss) ? 0 : line.strategy.distill_weight * line.strategy.distill_loss);
    const double images = (double)(t->session.sample.n * t->config->train.accumulate * trainer_replicas(t));
    line.images_per_s = images / line.step_ms * 1e3;
    return line;
}

static void report(trainer *t, const cod_metrics_line *line, bool between)
{
    const cod_train_context *context = &t->context;
    const double done = fmax(1, (double)(context->step - t->first_step));
    t->last_report_s = cod_clock_s();
    const cod_train_progress progress = {.group = cod_group_index(t->group),
                                         .groups = cod_group_count(t->group),
                                         .between = between,
                                         .steps = context->steps,
                                         .eta_s = (t->last_report_s - t->measures.start_s) / done *
                                                  (double)(context->steps - context->step),
                                         .line = line};
    if (t->request->report != NULL)
        t->request->report(t->request->report_context, &progress);
}

/** Reads the strategy's figures of each peer. @param[out] peers new; free() */
static cod_status read_peers(const trainer *t, cod_peer_stats **peers, size_t *count)
{
    const cod_strategy_peers *hooks = t->strategy->ops->peers;
    *count = 0;
    *peers = calloc((size_t)cod_group_count(t->group), sizeof **peers);
    COD_REQUIRE_MEMORY(*peers);
    while (hooks != NULL && hooks->stats != NULL && hooks->stats(t->strategy, (int)*count, &(*peers)[*count]))
        ++*count;
    return COD_OK;
}

/** The trivial baseline's figures, such as bicubic_psnr_y, on the items that the model is evaluated on at this step. */
static void add_baselines(const trainer_evaluator *evaluator, cod_metrics_number *more, size_t *count)
{
    const cod_train_task_kind *kind = evaluator->task->kind;
    for (int i = 0; i < kind->figure_count && evaluator->baseline_count > 0; i++) {
        if (isnan(evaluator->last.held_out.values[i]) || isnan(evaluator->baseline.values[i]))
            continue;
        cod_metrics_number *number = &more[(*count)++];
        snprintf(number->key, sizeof number->key, "%s", kind->figures[i].baseline);
        number->value = evaluator->baseline.values[i];
    }
}

/**
 * The losses, figures and rates of a recipe of several, each by its name, which guards are out, and figures of sets.
 *
 * @param[out] more  new; free()
 */
static cod_status more_numbers(const trainer *t, cod_metrics_number **more, size_t *count)
{
    const cod_recipe *recipe = &t->session.recipe;
    *count = 0;
    const size_t figures = (t->task->set_count + 1) * COD_TASK_MAX_FIGURES;
    *more = calloc(t->losses.count + COD_GRAPH_MAX_SETS + recipe->guard_count + figures, sizeof **more);
    COD_REQUIRE_MEMORY(*more);
    for (size_t i = 0; i < t->losses.count && t->losses.count > 1; i++) {
        const trainer_loss *loss = &t->losses.items[i];
        cod_metrics_number *number = &(*more)[(*count)++];
        snprintf(number->key, sizeof number->key, "%s%s", loss->is_figure ? "" : "loss.", loss->name);
        number->value = trainer_loss_mean(loss);
    }
    for (int s = 1; s < COD_GRAPH_MAX_SETS; s++) {
        if (!recipe->sets[s].trained)
            continue;
        cod_metrics_number *number = &(*more)[(*count)++];
        snprintf(number->key, sizeof number->key, "lr.%s", recipe->sets[s].name);
        number->value = last_rate(t, s);
    }
    for (size_t i = 0; i < recipe->guard_count; i++) {
        cod_metrics_number *number = &(*more)[(*count)++];
        snprintf(number->key, sizeof number->key, "guard.%s", recipe->guards[i].name);
        number->value = t->guards.since[i] > 0;
    }
    add_baselines(&t->evaluator, *more, count);
    for (size_t set = 1; set <= t->task->set_count; set++)
        for (int i = 0; i < t->task->kind->figure_count; i++) {
            cod_metrics_number *number = &(*more)[(*count)++];
            cod_task_set_key(t->task, set, i, number->key);
            number->value = t->evaluator.last.sets[set - 1].values[i];
        }
    return COD_OK;
}

static cod_status write_line(trainer *t)
{
    cod_metrics_line line = make_line(t);
    cod_metrics_number *more = NULL;
    cod_peer_stats *peers = NULL;
    cod_status status = more_numbers(t, &more, &line.more_count);
    COD_THEN(status, read_peers(t, &peers, &line.peer_count));
    line.more = more;
    line.peers = peers;
    COD_THEN(status, cod_metrics_write(t->metrics, &line));
    free(more);
    free(peers);
    line.more = NULL;
    line.peers = NULL;
    line.more_count = line.peer_count = 0;
    if (status == COD_OK)
        report(t, &line, false);
    return status;
}

cod_status trainer_log_line(trainer *t)
{
    if (t->leader)
        COD_TRY(write_line(t));
    trainer_losses_restart(&t->losses);
    t->evaluator.last = cod_task_results_unknown();
    return COD_OK;
}

void trainer_report_between(trainer *t)
{
    if (!t->leader || t->request->between_s == 0 || cod_clock_s() - t->last_report_s < t->request->between_s)
        return;
    const cod_metrics_line line = make_line(t);
    report(t, &line, true);
}
