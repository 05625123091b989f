/* The step loop. */
#include "train/memory_plan.h"
#include "train/trainer_internal.h"

#include "core/log.h"
#include "core/trace.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** Records a loss of step `step`, summed over the group; NaN if it was not finite on one of the ranks. */
static cod_status take_loss(trainer *t, trainer_loss *loss, double sum, int64_t step)
{
    char what[80] = "loss";
    if (step < t->first_step || !cod_sub_step_is_due(loss->sub_step, step))
        return COD_OK;
    if (t->loss_count > 1)
        snprintf(what, sizeof what, "%s '%s'", loss->is_figure ? "figure" : "loss", loss->name);
    if (!isfinite(sum)) {
        const cod_status status = trainer_report_not_finite(t, what, step);
        return t->leader ? status : cod_fail_said_elsewhere(status);
    }
    loss->sum += sum / trainer_replicas(t);
    loss->steps++;
    return COD_OK;
}

static cod_status take_losses(trainer *t, const double *sums, int64_t step)
{
    for (size_t i = 0; i < t->loss_count; i++)
        COD_TRY(take_loss(t, &t->losses[i], sums[i], step));
    return COD_OK;
}

/** Acts on what the group's ranks said about the step before the last; sets *stop when one was asked to. */
static cod_status agree(trainer *t, agreement *slot, int64_t step, bool *stop)
{
    if (!slot->pending)
        return COD_OK;
    slot->pending = false;
    const double begin = cod_clock_s();
    COD_TRY(cod_request_wait(&slot->request, INFINITY));
    double *const asked_to_stop = &slot->values[t->loss_count];
    COD_TRY(take_losses(t, slot->values, step - t->loss_delay));
    if (trainer_in_step(t)) {
        COD_TRY(cod_request_wait(&slot->world_request, INFINITY));
        *asked_to_stop = slot->world_stop;
    }
    t->agreeing_s += cod_clock_s() - begin;
    *stop = *stop || *asked_to_stop > 0;
    return STRATEGY_PART(t, peers, flags_in, &t->context, asked_to_stop + 1);
}

/** This rank's losses of a step, NaN where one is not finite: no sum of infinities then makes it so. */
static cod_status tell_losses(trainer *t, int64_t step, double *losses)
{
    if (step < t->first_step)
        return COD_OK;
    COD_TRY(trainer_get_losses(t, step, losses));
    for (size_t i = 0; i < t->loss_count; i++)
        losses[i] = isfinite(losses[i]) ? losses[i] : NAN;
    return COD_OK;
}

/** Tells the group about this step; done in the background. */
static cod_status tell(trainer *t, agreement *slot)
{
    const atomic_int *signal = t->request->stop_signal;
    const bool late = t->config->max_time_s > 0 && cod_clock_s() - t->start_s > t->config->max_time_s;
    const cod_strategy_peers *peers = t->strategy->ops->peers;
    double *const asked_to_stop = &slot->values[t->loss_count];
    memset(slot->values, 0, t->agreement_count * sizeof *slot->values);
    slot->pending = true;
    COD_TRY(tell_losses(t, t->context.step - t->loss_delay, slot->values));
    *asked_to_stop = late || (signal != NULL && *signal != 0);
    if (peers != NULL && peers->flags_out != NULL)
        peers->flags_out(t->strategy, asked_to_stop + 1);
    const int64_t every = trainer_in_step_every(t);
    const bool together = every > 0 && (t->context.step + 1) % every == 0;
    slot->world_stop = together ? *asked_to_stop : 0;
    if (together)
        COD_TRY(cod_group_reduce_start(cod_comm_world(t->context.comm), &slot->world_stop, 1, COD_REDUCE_MAX,
                                       &slot->world_request));
    if (cod_group_size(t->group) == 1)
        return COD_OK;
    return cod_group_reduce_start(t->group, slot->values, t->agreement_count, COD_REDUCE_SUM, &slot->request);
}

static bool is_due(int64_t step, int64_t every)
{
    return every > 0 && step % every == 0;
}

static void look_at_guards(trainer *t)
{
    cod_guards_look(&t->guards, t->context.step, t->leader ? cod_group_index(t->group) : -1, trainer_mean_by_name, t);
}

/** Ends a run whose model has diverged by the recipe's guards, so that it is not taken for a good one. */
static cod_status refuse_spoilt(trainer *t)
{
    const cod_recipe_guard *guard = cod_guards_spoilt(&t->guards);
    char why[1024], good[80];
    if (guard == NULL)
        return COD_OK;
    cod_guards_describe(&t->guards, guard, why, sizeof why);
    cod_train_describe_checkpoint(t->config, cod_group_index(t->group),
                                  t->guards.since[guard - t->session.recipe.guards], good);
    const cod_status status =
        cod_fail(COD_ERR_NUMERIC, "the model has diverged and is neither saved nor exported: %s; %s", why, good);
    return t->leader ? status : cod_fail_said_elsewhere(status);
}

/** Does the work between steps: figures, evaluation, checkpoint. context->step steps are done. */
static cod_status after_step(trainer *t)
{
    const cod_train_context *context = &t->context;
    const bool last = context->step == context->steps;
    const bool evaluates = is_due(context->step, t->config->eval.every) && !last;
    const bool logs = is_due(context->step, t->config->log.every) && !last;
    const bool saves = is_due(context->step, t->config->checkpoint.every) || last;
    if (evaluates || logs || saves)
        look_at_guards(t);
    if (last && cod_group_count(t->group) == 1) /* else once the others have what they need of this group */
        COD_TRY(refuse_spoilt(t));
    if (evaluates)
        COD_TRY(trainer_gather(t, NULL));
    if (evaluates && t->leader) {
        const int64_t wanted = t->config->eval.images;
        cod_task_quality mean;
        COD_TRY(trainer_validate(t, wanted > 0 ? wanted : t->task->kind->eval_items, &mean));
        COD_TRY(STRATEGY_PART(t, peers, validated, &t->context, mean.values[0]));
    }
    /* The last line waits for the final evaluation. */
    if (logs)
        COD_TRY(trainer_log_line(t));
    else
        trainer_report_between(t);
    if (saves && cod_guards_spoilt(&t->guards) == NULL)
        COD_TRY(trainer_save_checkpoint(t));
    return COD_OK;
}

static cod_status one_step(trainer *t, agreement *slot, bool *stop)
{
    cod_train_context *context = &t->context;
    const double begin = cod_clock_s(), processor = cod_clock_process_s();
    COD_TRY(agree(t, slot, context->step - t->agreement_delay, stop));
    COD_TRY(cod_memory_plan_explain(&t->session, trainer_run_sub_steps(t)));
    COD_TRY(STRATEGY(t, after_step, context));
    COD_TRY(tell(t, slot));
    context->step++;
    const double step_s = cod_clock_s() - begin;
    t->steps_s += step_s;
    t->processor_s += cod_clock_process_s() - processor;
    t->step_ms[t->step_count++ % STEP_TIMES] = (float)(1e3 * step_s);
    return COD_OK;
}

/** Takes the losses that no later step has told, as a device's come late. Collective on the group. */
static cod_status settle_losses(trainer *t)
{
    double *const losses = t->agreements[0].values; /* nothing is under way any more */
    for (int64_t step = t->context.step - t->loss_delay; step < t->context.step; step++) {
        memset(losses, 0, t->loss_count * sizeof *losses);
        COD_TRY(tell_losses(t, step, losses));
        COD_TRY(cod_group_reduce(t->group, losses, t->loss_count, COD_REDUCE_SUM));
        COD_TRY(take_losses(t, losses, step));
    }
    return COD_OK;
}

/** Ends what is still under way, so that a stop or the end leaves nothing behind. */
static cod_status drain(trainer *t, bool *stop)
{
    for (int64_t i = 0; i < t->agreement_delay; i++) {
        const int64_t step = t->context.step - t->agreement_delay + i;
        if (step >= t->first_step)
            COD_TRY(agree(t, &t->agreements[step % t->agreement_delay], step, stop));
    }
    return settle_losses(t);
}

static cod_status step_loop(trainer *t, cod_train_ending *ending)
{
    bool stop = false, late = false;
    while (t->context.step < t->context.steps && !stop) {
        COD_TRY(one_step(t, &t->agreements[t->context.step % t->agreement_delay], &stop));
        COD_TRY(after_step(t));
    }
    COD_TRY(drain(t, &late));
    *ending = t->context.step < t->context.steps ? COD_TRAIN_STOPPED : COD_TRAIN_FINISHED;
    if (*ending == COD_TRAIN_STOPPED) {
        look_at_guards(t); /* the last look may be many steps ago */
        COD_TRY(refuse_spoilt(t));
        COD_TRY(trainer_save_checkpoint(t));
        if (t->leader)
            cod_log_info("group %d: stopped and saved at step %lld of %lld", cod_group_index(t->group),
                         (long long)t->context.step, (long long)t->context.steps);
    }
    return COD_OK;
}

static cod_status run(trainer *t, cod_train_ending *ending)
{
    COD_TRY(trainer_set_up(t));
    t->start_s = cod_clock_s();
    trainer_watchdog_note_start(t->watchdog, t->context.step);
    *ending = COD_TRAIN_FINISHED;
    if (!t->finished_before)
        COD_TRY(step_loop(t, ending));
    if (!t->finished_before && *ending == COD_TRAIN_FINISHED)
        COD_TRY(trainer_finish(t));
    COD_TRY(STRATEGY(t, finish, &t->context));
    if (t->others_diverged) /* the job must not pass for one that went well */
        return cod_fail_said_elsewhere(
            cod_fail(COD_ERR_PEER, "the model of another group has diverged; this group's is saved"));
    return t->finished_before ? COD_OK : refuse_spoilt(t);
}

/** Adds to a failure's message what is left of the work. */
static cod_status add_checkpoint(const trainer *t, cod_status status)
{
    char reason[4096], good[80];
    if (t->start_s == 0 || status == COD_ERR_NUMERIC) /* which has its own message */
        return status;
    const bool said_elsewhere = cod_error_said_elsewhere();
    snprintf(reason, sizeof reason, "%s", cod_error_message());
    cod_train_describe_checkpoint(t->config, cod_group_index(t->group), INT64_MAX, good);
    status = cod_fail(status, "%s; %s", reason, good);
    return said_elsewhere ? cod_fail_said_elsewhere(status) : status;
}

cod_status cod_train_run(const cod_train_request *request, cod_train_ending *ending)
{
    trainer *t = calloc(1, sizeof *t);
    COD_REQUIRE_MEMORY(t);
    t->request = request;
    t->config = request->config;
    cod_status status = trainer_watchdog_begin(request, &t->watchdog);
    COD_THEN(status, run(t, ending));
    if (status == COD_OK) {
        trainer_clear(t);
    } else {
        /* Peers may be anywhere: nothing collective, and the process is about to end. */
        cod_metrics_close(t->metrics);
        status = add_checkpoint(t, status);
    }
    trainer_watchdog_end(t->watchdog);
    if (status == COD_OK)
        free(t);
    return status;
}
