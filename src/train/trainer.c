/* The step loop. */
#include "train/trainer_internal.h"

#include "core/log.h"
#include "core/statistics.h"
#include "core/trace.h"
#include "nn/schedule.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static cod_status bucket_ready(void *context, size_t index)
{
    trainer *t = context;
    return STRATEGY(t, gradient_ready, &t->context, cod_program_bucket(t->running, index));
}

static cod_status load_batch(trainer *t)
{
    cod_train_context *context = &t->context;
    cod_batch batch;
    COD_TRY(cod_loader_next(context->loader, &batch));
    COD_TRY(context->backend->upload(context->device, NULL, context->input.buffer, context->input.offset,
                                     cod_view_host(&batch.input), cod_view_span_bytes(&context->input)));
    return context->backend->upload(context->device, NULL, context->truth.buffer, context->truth.offset,
                                    cod_view_host(&batch.target), cod_view_span_bytes(&context->truth));
}

/** Forward and backward over all mini-batches of a step; the mean task loss. */
static cod_status compute_gradients(trainer *t, double *task_loss)
{
    cod_train_context *context = &t->context;
    const int64_t batches = t->config->train.accumulate;
    const char *name = COD_PROGRAM_PLAIN;
    if (t->strategy->ops->compute != NULL)
        return t->strategy->ops->compute(t->strategy, context, task_loss);
    COD_TRY(STRATEGY(t, before_step, context, &name));
    *task_loss = 0;
    for (int64_t i = 0; i < batches && trainer_trains(t); i++) {
        char program[80];
        float loss;
        snprintf(program, sizeof program, "%s%s", name, i > 0 ? COD_PROGRAM_ACCUMULATE : "");
        t->running = cod_executable_program(context->executable, program);
        COD_REQUIRE(t->running != NULL, "strategy '%s' chose the program '%s', which does not exist",
                    t->config->strategy->name, program);
        COD_TRY(load_batch(t));
        COD_TRY(STRATEGY(t, before_batch, context));
        const bool last = i == batches - 1;
        COD_TRY(cod_program_run(t->running, last ? bucket_ready : NULL, t));
        COD_TRY(cod_executable_loss(context->executable, context->task_loss, &loss));
        *task_loss += loss / (double)batches;
    }
    return COD_OK;
}

/** The first tensor with a value that is no number, for the message. */
static const char *find_bad_tensor(trainer *t, bool gradients)
{
    const char *name = NULL;
    const size_t count = gradients ? t->weights.layout.trainable : cod_weights_count(&t->weights);
    float *values = malloc(count * sizeof *values);
    if (values == NULL)
        return NULL;
    if ((gradients ? t->context.backend->download(t->context.device, NULL, values, t->weights.grads, 0,
                                                  count * sizeof *values)
                   : cod_weights_download(&t->weights, values)) == COD_OK) {
        for (size_t p = 0; p < cod_graph_param_count(t->model.graph) && name == NULL; p++) {
            const cod_param *param = cod_graph_param(t->model.graph, p);
            for (size_t i = 0; i < (size_t)cod_shape_count(param->shape) && param->offset + i < count && name == NULL;
                 i++)
                if (!isfinite(values[param->offset + i]))
                    name = param->name;
        }
    }
    free(values);
    return name;
}

cod_status trainer_report_not_finite(trainer *t, const char *what, int64_t step)
{
    const char *weight = find_bad_tensor(t, false);
    const char *grad = find_bad_tensor(t, true);
    char good[80];
    cod_train_describe_checkpoint(t->config, cod_group_index(t->group), step, good);
    return cod_fail(COD_ERR_NUMERIC,
                    "the %s became NaN or infinite at step %lld (first bad weight: %s; first bad gradient: %s); %s; "
                    "try a lower train.rate, train.clip_norm, or train.warmup",
                    what, (long long)step, weight ? weight : "none", grad ? grad : "none", good);
}

/** Steps from one word of all groups on whether to stop to the next; 0 = each group stops by itself. */
static int64_t in_step_every(const trainer *t)
{
    if (cod_group_count(t->group) == 1)
        return 0;
    return t->config->train.deterministic ? 1 : t->context.in_step_every;
}

bool trainer_in_step(const trainer *t)
{
    return in_step_every(t) > 0;
}

/** Acts on what the group's ranks said about the step before the last; sets *stop when one was asked to. */
static cod_status agree(trainer *t, agreement *slot, int64_t step, bool *stop)
{
    if (!slot->pending)
        return COD_OK;
    slot->pending = false;
    const double begin = cod_clock_s();
    COD_TRY(cod_request_wait(&slot->request, INFINITY));
    const double size = trainer_replicas(t);
    if (slot->values[1] > 0) {
        const cod_status status = trainer_report_not_finite(t, "loss", step);
        return t->leader ? status : cod_fail_said_elsewhere(status);
    }
    if (trainer_in_step(t)) {
        COD_TRY(cod_request_wait(&slot->world_request, INFINITY));
        slot->values[2] = slot->world_stop;
    }
    t->agreeing_s += cod_clock_s() - begin;
    *stop = *stop || slot->values[2] > 0;
    t->task_loss_sum += slot->values[0] / size;
    t->loss_steps++;
    return STRATEGY(t, flags_in, &t->context, slot->values + 3);
}

/** Tells the group about this step; done in the background. */
static cod_status tell(trainer *t, agreement *slot, double task_loss)
{
    const volatile int *signal = t->request->stop_signal;
    const bool late = t->config->max_time_s > 0 && cod_clock_s() - t->start_s > t->config->max_time_s;
    memset(slot->values, 0, sizeof slot->values);
    slot->pending = true;
    slot->values[0] = isfinite(task_loss) ? task_loss : 0;
    slot->values[1] = !isfinite(task_loss);
    slot->values[2] = late || (signal != NULL && *signal != 0);
    if (t->strategy->ops->flags_out != NULL)
        t->strategy->ops->flags_out(t->strategy, slot->values + 3);
    const int64_t every = in_step_every(t);
    const bool together = every > 0 && (t->context.step + 1) % every == 0;
    slot->world_stop = together ? slot->values[2] : 0;
    if (together)
        COD_TRY(cod_group_reduce_start(cod_comm_world(t->context.comm), &slot->world_stop, 1, COD_REDUCE_MAX,
                                       &slot->world_request));
    if (cod_group_size(t->group) == 1)
        return COD_OK;
    return cod_group_reduce_start(t->group, slot->values, AGREEMENT_VALUES, COD_REDUCE_SUM, &slot->request);
}

double trainer_median_ms(const trainer *t, size_t last)
{
    const size_t kept = t->step_count < STEP_TIMES ? t->step_count : STEP_TIMES, count = kept < last ? kept : last;
    double sorted[STEP_TIMES];
    for (size_t i = 0; i < count; i++)
        sorted[i] = t->step_ms[(t->step_count - count + i) % STEP_TIMES];
    return cod_median(sorted, count);
}

double trainer_exchange_share(const trainer *t, const cod_strategy_stats *stats)
{
    return t->step_count > 0 ? 1e-3 * stats->exchange_ms * (double)t->step_count / t->steps_s : NAN;
}

/** Of the group so far, as its leader sees it: its ranks move about as much as each other. */
static double group_bytes(const trainer *t, const double totals[TRAINER_TOTALS], int which)
{
    return t->earlier[which] + (totals[which] - t->earlier[which]) * cod_group_size(t->group);
}

static cod_metrics_line make_line(const trainer *t)
{
    const cod_train_context *context = &t->context;
    cod_metrics_line line = {.step = context->step,
                             .task_loss = t->loss_steps ? t->task_loss_sum / (double)t->loss_steps : NAN,
                             .rate = context->rate,
                             .step_ms = trainer_median_ms(t, (size_t)t->config->log.every),
                             .task = t->task->kind,
                             .quality = t->last_quality};
    double totals[TRAINER_TOTALS];
    trainer_read_stats(t, &line.strategy);
    trainer_read_totals(t, totals);
    line.trained_s = totals[TOTAL_STEPS_S];
    line.between_bytes = group_bytes(t, totals, TOTAL_INTERGROUP_BYTES);
    line.inside_bytes = group_bytes(t, totals, TOTAL_INTRAGROUP_BYTES);
    line.exchange_share = trainer_exchange_share(t, &line.strategy);
    line.loss = line.task_loss +
                (isnan(line.strategy.distill_loss) ? 0 : line.strategy.distill_weight * line.strategy.distill_loss);
    const double images = (double)(context->batch * t->config->train.accumulate * trainer_replicas(t));
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
                                         .eta_s = (t->last_report_s - t->start_s) / done *
                                                  (double)(context->steps - context->step),
                                         .line = line};
    if (t->request->report != NULL)
        t->request->report(t->request->report_context, &progress);
}

/** What the strategy says of each peer. @param[out] peers  new; free() */
static cod_status read_peers(const trainer *t, cod_peer_stats **peers, size_t *count)
{
    *count = 0;
    *peers = calloc((size_t)cod_group_count(t->group), sizeof **peers);
    COD_REQUIRE_MEMORY(*peers);
    while (t->strategy->ops->peer_stats != NULL &&
           t->strategy->ops->peer_stats(t->strategy, (int)*count, &(*peers)[*count]))
        ++*count;
    return COD_OK;
}

cod_status trainer_log_line(trainer *t)
{
    cod_metrics_line line = make_line(t);
    cod_peer_stats *peers;
    t->task_loss_sum = 0;
    t->loss_steps = 0;
    if (!t->leader)
        return COD_OK;
    COD_TRY(read_peers(t, &peers, &line.peer_count));
    line.peers = peers;
    const cod_status status = cod_metrics_write(t->metrics, &line);
    free(peers);
    line.peers = NULL;
    line.peer_count = 0;
    COD_TRY(status);
    t->last_quality = cod_task_quality_unknown();
    report(t, &line, false);
    return COD_OK;
}

/** For who watches a terminal, while no line of metrics is due. */
static void report_between(trainer *t)
{
    if (!t->leader || t->request->between_s == 0 || cod_clock_s() - t->last_report_s < t->request->between_s)
        return;
    const cod_metrics_line line = make_line(t);
    report(t, &line, true);
}

static bool is_due(int64_t step, int64_t every)
{
    return every > 0 && step % every == 0;
}

cod_status trainer_gather(trainer *t, float *const *moments)
{
    return STRATEGY(t, gather, &t->context, moments);
}

/** What happens between steps: figures, evaluation, checkpoint. context->step steps are done. */
static cod_status after_step(trainer *t)
{
    const cod_train_context *context = &t->context;
    const bool last = context->step == context->steps;
    const bool evaluates = is_due(context->step, t->config->eval.every) && !last;
    if (evaluates)
        COD_TRY(trainer_gather(t, NULL));
    if (evaluates && t->leader) {
        const int64_t wanted = t->config->eval.images;
        cod_task_quality mean;
        COD_TRY(trainer_validate(t, wanted > 0 ? wanted : t->task->kind->eval_items, &mean));
        COD_TRY(STRATEGY(t, validated, &t->context, mean.values[0]));
    }
    /* The last line waits for the final evaluation. */
    if (is_due(context->step, t->config->log.every) && !last)
        COD_TRY(trainer_log_line(t));
    else
        report_between(t);
    if (is_due(context->step, t->config->checkpoint.every) || last)
        COD_TRY(trainer_save_checkpoint(t));
    return COD_OK;
}

static cod_status one_step(trainer *t, agreement *slot, bool *stop)
{
    cod_train_context *context = &t->context;
    const cod_train_options *train = &t->config->train;
    const cod_schedule schedule = {.kind = (cod_schedule_kind)train->schedule,
                                   .rate = train->rate,
                                   .steps = train->steps,
                                   .warmup_steps = train->warmup,
                                   .milestones = train->milestones,
                                   .gamma = train->gamma,
                                   .final_factor = train->final_factor};
    const double begin = cod_clock_s();
    double task_loss;
    context->rate = cod_schedule_rate(&schedule, context->step);
    COD_TRY(agree(t, slot, context->step - t->agreement_delay, stop));
    COD_TRY(compute_gradients(t, &task_loss));
    COD_TRY(STRATEGY(t, before_update, context));
    if (!context->updates_itself && (context->servers == 0 || !trainer_trains(t)))
        COD_TRY(cod_optimiser_step(context->optimiser, context->rate, context->step + 1));
    COD_TRY(STRATEGY(t, after_update, context));
    COD_TRY(tell(t, slot, task_loss));
    context->step++;
    const double step_s = cod_clock_s() - begin;
    t->steps_s += step_s;
    t->step_ms[t->step_count++ % STEP_TIMES] = (float)(1e3 * step_s);
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
    return COD_OK;
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
    *ending = COD_TRAIN_FINISHED;
    if (!t->finished_before)
        COD_TRY(step_loop(t, ending));
    if (!t->finished_before && *ending == COD_TRAIN_FINISHED)
        COD_TRY(trainer_finish(t));
    return STRATEGY(t, finish, &t->context);
}

/** Adds to a failure's message what is left of the work. */
static cod_status add_checkpoint(const trainer *t, cod_status status)
{
    char reason[4096], good[80];
    if (t->start_s == 0 || status == COD_ERR_NUMERIC) /* which says so itself */
        return status;
    snprintf(reason, sizeof reason, "%s", cod_error_message());
    cod_train_describe_checkpoint(t->config, cod_group_index(t->group), INT64_MAX, good);
    return cod_fail(status, "%s; %s", reason, good);
}

cod_status cod_train_run(const cod_train_request *request, cod_train_ending *ending)
{
    trainer *t = calloc(1, sizeof *t);
    COD_REQUIRE_MEMORY(t);
    t->request = request;
    t->config = request->config;
    const cod_status status = run(t, ending);
    if (status != COD_OK) {
        /* Peers may be anywhere: nothing collective, and the process is about to end. */
        cod_metrics_close(t->metrics);
        return add_checkpoint(t, status);
    }
    trainer_clear(t);
    free(t);
    return COD_OK;
}
