/* Ends a run in which eval.patience evaluations in a row had no new best. */
#include "train/trainer_internal.h"

#include "core/log.h"

#include <math.h>
#include <stdio.h>

/**
 * Whether patience is used up in this group, or in each group where groups wait for each other.
 *
 * @param used  in this group, on its leader
 */
static cod_status agree_on_end(const trainer *t, bool used, bool *ends)
{
    double patient = t->leader && !used;
    COD_TRY(
        cod_group_reduce(trainer_in_step(t) ? cod_comm_world(t->context.comm) : t->group, &patient, 1, COD_REDUCE_MAX));
    *ends = patient == 0;
    return COD_OK;
}

bool trainer_ends_early(const trainer *t)
{
    return t->context.steps < t->config->train.steps;
}

static void tell_early_end(const trainer *t)
{
    const cod_task_figure *figure = &t->task->kind->figures[0];
    const double best = t->evaluator.best.values[0];
    char than[64] = "";
    if (!isnan(best))
        snprintf(than, sizeof than, " than %.*f%s%s", figure->digits, best, cod_task_figure_gap(figure), figure->unit);
    const size_t judge = t->task->judge;
    cod_log_info("group %d: ends early, at step %lld of %lld: %lld evaluations in a row had no better %s%s%s%s "
                 "(eval.patience)",
                 cod_group_index(t->group), (long long)t->context.steps, (long long)t->config->train.steps,
                 (long long)t->without_best, figure->label, judge > 0 ? " of " : "",
                 judge > 0 ? t->task->sets[judge - 1].name : "", than);
}

cod_status trainer_end_early(trainer *t)
{
    cod_train_context *context = &t->context;
    const int64_t patience = t->config->eval.patience;
    bool ends;
    if (patience == 0 || trainer_ends_early(t))
        return COD_OK;
    COD_TRY(agree_on_end(t, t->without_best >= patience, &ends));
    if (!ends)
        return COD_OK;
    context->steps = context->step + trainer_in_step(t);
    if (t->leader && trainer_ends_early(t))
        tell_early_end(t);
    return COD_OK;
}

cod_status trainer_restore_early_end(trainer *t)
{
    const int64_t patience = t->config->eval.patience;
    const bool used = t->ended_at > 0 && t->ended_at < t->context.steps && t->without_best >= patience;
    bool ends = false;
    if (patience > 0)
        COD_TRY(agree_on_end(t, used, &ends));
    if (ends)
        t->context.steps = t->ended_at;
    /* A group that goes on has not ended, whatever it was told before. */
    return t->leader && t->context.step < t->context.steps
               ? cod_checkpoint_discard(t->checkpoints, t->closing_part, t->context.step - 1)
               : COD_OK;
}
