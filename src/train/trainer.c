/* The step loop. */
#include "train/memory_plan.h"
#include "train/not_finite_internal.h"
#include "train/trainer_internal.h"

#include "core/log.h"
#include "core/trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** A failure of the whole group, which its first rank words. */
static cod_status fail_by_leader(const trainer *t, cod_status status)
{
    return t->leader ? status : cod_fail_said_elsewhere(status);
}

/** Records the losses of step `step`, summed over the group; NaN where one was not finite on one of the ranks. */
static cod_status take_losses(trainer *t, const double *sums, int64_t step)
{
    const trainer_loss *bad =
        step < t->first_step ? NULL : trainer_losses_add(&t->losses, step, sums, trainer_replicas(t));
    char what[80] = "loss";
    if (bad == NULL)
        return COD_OK;
    if (t->losses.count > 1)
        snprintf(what, sizeof what, "%s '%s'", bad->is_figure ? "figure" : "loss", bad->name);
    return fail_by_leader(t, trainer_report_not_finite(&t->session, what, step));
}

/** Acts on what the group's ranks said about step `step`; sets *stop when one was asked to. */
static cod_status agree(trainer *t, int64_t step, bool *stop)
{
    trainer_agreement *agreement;
    if (step < t->first_step)
        return COD_OK;
    const double begin = cod_clock_s();
    COD_TRY(trainer_agreement_wait(&t->agreements, step, &agreement));
    COD_TRY(take_losses(t, agreement->losses, step - t->losses.delay));
    COD_TRY(trainer_agreement_read_stop(&t->agreements, agreement, stop));
    t->measures.agreeing_s += cod_clock_s() - begin;
    return STRATEGY_PART(t, peers, flags_in, &t->context, agreement->flags);
}

/** This rank's losses of a step. @param[in,out] losses  zeros, which stay where there are none */
static cod_status tell_losses(const trainer *t, int64_t step, double *losses)
{
    return step >= t->first_step && trainer_trains(t) ? trainer_losses_read(&t->losses, step, losses) : COD_OK;
}

/** Whether train.max_time is over. */
static bool is_late(const trainer *t)
{
    return t->config->max_time_s > 0 && trainer_measures_elapsed_s(&t->measures) > t->config->max_time_s;
}

/** Tells the group about this step; done in the background. */
static cod_status tell(trainer *t)
{
    const atomic_int *signal = t->request->stop_signal;
    const cod_strategy_peers *peers = t->strategy->ops->peers;
    trainer_agreement *agreement = trainer_agreement_begin(&t->agreements, t->context.step);
    COD_TRY(tell_losses(t, t->context.step - t->losses.delay, agreement->losses));
    *agreement->stop = is_late(t) || (signal != NULL && *signal != 0);
    if (peers != NULL && peers->flags_out != NULL)
        peers->flags_out(t->strategy, agreement->flags);
    return trainer_agreement_start(&t->agreements, t->context.step);
}

static bool is_due(int64_t step, int64_t every)
{
    return every > 0 && step % every == 0;
}

static void look_at_guards(trainer *t)
{
    cod_guards_look(&t->guards, t->context.step, t->leader ? cod_group_index(t->group) : -1,
                    trainer_losses_mean_by_name, &t->losses);
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
    return fail_by_leader(
        t, cod_fail(COD_ERR_NUMERIC, "the model has diverged and is neither saved nor exported: %s; %s", why, good));
}

/** The leader's part of an evaluation. */
static cod_status evaluate(trainer *t)
{
    const int64_t wanted = t->config->eval.images, limit = wanted > 0 ? wanted : t->task->kind->eval_items;
    const bool usable = cod_guards_spoilt(&t->guards) == NULL;
    cod_task_results results;
    COD_TRY(trainer_check_owner(t));
    COD_TRY(trainer_validate(&t->evaluator, &t->context, limit, usable, &results));
    t->without_best = t->evaluator.improved ? 0 : t->without_best + 1;
    return STRATEGY_PART(t, peers, validated, &t->context, cod_task_judged(t->task, &results)->values[0]);
}

/** Does the work between steps: figures, evaluation, checkpoint. context->step steps are done. */
static cod_status after_step(trainer *t)
{
    const cod_train_context *context = &t->context;
    const bool evaluates = is_due(context->step, t->config->eval.every) && context->step < context->steps;
    if (evaluates) {
        look_at_guards(t);
        COD_TRY(trainer_gather(t, NULL));
        if (t->leader)
            COD_TRY(evaluate(t));
        COD_TRY(trainer_end_early(t));
    }
    const bool last = context->step == context->steps; /* the last line waits for the final evaluation */
    const bool logs = (evaluates || is_due(context->step, t->config->log.every)) && !last;
    const bool saves = is_due(context->step, t->config->checkpoint.every) || last;
    if (!evaluates && (logs || saves))
        look_at_guards(t);
    if (last && cod_group_count(t->group) == 1) /* else once the others have what they need of this group */
        COD_TRY(refuse_spoilt(t));
    if (logs)
        COD_TRY(trainer_log_line(t));
    else
        trainer_report_between(t);
    if (saves && cod_guards_spoilt(&t->guards) == NULL)
        COD_TRY(trainer_save_checkpoint(t));
    return COD_OK;
}

static cod_status one_step(trainer *t, bool *stop)
{
    cod_train_context *context = &t->context;
    const double begin = cod_clock_s(), processor = cod_clock_process_s();
    COD_TRY(agree(t, context->step - t->agreements.delay, stop));
    COD_TRY(cod_memory_plan_explain(&t->session, trainer_run_sub_steps(t)));
    COD_TRY(STRATEGY(t, after_step, context));
    COD_TRY(tell(t));
    context->step++;
    trainer_measures_add_step(&t->measures, begin, processor);
    return COD_OK;
}

/** Takes the losses that no later step has told, as a device's come late. Collective on the group. */
static cod_status settle_losses(trainer *t)
{
    for (int64_t step = t->context.step - t->losses.delay; step < t->context.step; step++) {
        double *const losses = trainer_agreement_begin(&t->agreements, 0)->losses; /* as none is under way any more */
        COD_TRY(tell_losses(t, step, losses));
        COD_TRY(cod_group_reduce(t->group, losses, t->losses.count, COD_REDUCE_SUM));
        COD_TRY(take_losses(t, losses, step));
    }
    return COD_OK;
}

/** Ends what is still under way, so that a stop or the end leaves nothing behind. */
static cod_status drain(trainer *t, bool *stop)
{
    for (int64_t step = t->context.step - t->agreements.delay; step < t->context.step; step++)
        COD_TRY(agree(t, step, stop));
    return settle_losses(t);
}

/** Why this rank stops, as far as it knows. */
static void describe_stop(const trainer *t, char text[80])
{
    const atomic_int *signal = t->request->stop_signal;
    const int number = signal != NULL ? *signal : 0;
    if (number != 0)
        snprintf(text, 80, "signal %d (%s)", number, strsignal(number));
    else
        snprintf(text, 80, "%s", is_late(t) ? "train.max_time is over" : "another rank was asked to stop");
}

static cod_status step_loop(trainer *t, cod_train_ending *ending)
{
    bool stop = false, late = false;
    char why[80];
    while (t->context.step < t->context.steps && !stop) {
        COD_TRY(one_step(t, &stop));
        trainer_watchdog_note_step(t->watchdog);
        COD_TRY(after_step(t));
    }
    COD_TRY(drain(t, &late));
    *ending = t->context.step < t->context.steps ? COD_TRAIN_STOPPED : COD_TRAIN_FINISHED;
    if (*ending == COD_TRAIN_STOPPED) {
        look_at_guards(t); /* the last look may be many steps ago */
        COD_TRY(refuse_spoilt(t));
        COD_TRY(trainer_save_checkpoint(t));
        describe_stop(t, why);
        if (t->leader)
            cod_log_info("group %d: stopped and saved at step %lld of %lld: %s", cod_group_index(t->group),
                         (long long)t->context.step, (long long)t->context.steps, why);
        COD_TRY(trainer_meet_stopped(t));
    }
    return COD_OK;
}

static cod_status run(trainer *t, cod_train_ending *ending)
{
    cod_train_ending own = COD_TRAIN_FINISHED;
    COD_TRY(trainer_set_up(t));
    t->measures.start_s = cod_clock_s();
    trainer_watchdog_note_start(t->watchdog, t->context.step);
    if (t->finished_before || t->context.step == t->context.steps)
        trainer_watchdog_note_step(t->watchdog);
    if (!t->finished_before)
        COD_TRY(step_loop(t, &own));
    if (!t->finished_before && own == COD_TRAIN_FINISHED)
        COD_TRY(trainer_finish(t, &own));
    *ending = own;
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
    if (t->measures.start_s == 0 || status == COD_ERR_NUMERIC) /* which has its own message */
        return status;
    const bool said_elsewhere = cod_error_said_elsewhere();
    snprintf(reason, sizeof reason, "%s", cod_error_message());
    if (trainer_check_owner(t) == COD_OK) {
        cod_train_describe_checkpoint(t->config, cod_group_index(t->group), INT64_MAX, good);
        status = cod_fail(status, "%s; %s", reason, good);
    } else { /* what is in the folder is another job's */
        status = cod_fail(status, "%s", reason);
    }
    return said_elsewhere ? cod_fail_said_elsewhere(status) : status;
}

cod_status cod_train_run(const cod_train_request *request, cod_train_ending *ending)
{
    trainer *t = calloc(1, sizeof *t);
    COD_REQUIRE_MEMORY(t);
    t->request = request;
    t->config = request->config;
    *ending = COD_TRAIN_STOPPED; /* until all is written */
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
