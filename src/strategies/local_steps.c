#include "strategies/local_steps.h"

#include "core/queue.h"
#include "core/trace.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

cod_status cod_local_steps_start(cod_strategy *strategy, cod_train_context *context)
{
    cod_local_steps *local = (cod_local_steps *)strategy;
    const cod_train_session *session = context->session;
    local->comm = context->comm;
    local->base.in_step_every = local->period;
    local->sets = cod_recipe_travelling(&session->recipe);
    local->layout = cod_weights_layout_of(&session->weights, local->sets);
    const cod_status status = cod_aligned_alloc((void **)&local->values, cod_local_steps_count(local) * sizeof(float));
    COD_TRY(cod_group_agree(cod_comm_world(context->comm), status, NULL));
    return cod_between_init(&local->between, context->comm, context->group);
}

cod_status cod_local_steps_gradient_ready(cod_strategy *strategy, cod_train_context *context, int set,
                                          cod_bucket bucket, cod_event *complete)
{
    (void)set;
    return cod_group_average_start(&((cod_local_steps *)strategy)->average, context, bucket, complete);
}

cod_status cod_local_steps_before_update(cod_strategy *strategy, cod_train_context *context, int set)
{
    (void)set;
    return cod_group_average_wait(&((cod_local_steps *)strategy)->average, context);
}

/** Statistics are of each rank's own pictures: a group's are the mean of its ranks'. */
static cod_status average_statistics(const cod_train_context *context, float *state, size_t count)
{
    cod_collective *collective = cod_group_collective(context->group);
    cod_buffer buffer = {.host = state, .bytes = count * sizeof *state};
    cod_reduction *reduction = NULL;
    if (count == 0 || collective->size == 1)
        return COD_OK;
    COD_TRY(collective->ops->average_start(collective, &buffer, 0, count, NULL, &reduction));
    return collective->ops->wait(reduction, NULL);
}

/** Waits for the device: groups meet through MPI, and go on only with what comes of it. */
static cod_status meet(cod_local_steps *local, cod_train_context *context)
{
    cod_weights *weights = &context->session->weights;
    COD_TRY(cod_weights_download_sets(weights, local->sets, local->values));
    COD_TRY(average_statistics(context, local->values + local->layout.trainable, local->layout.state));
    COD_TRY(local->meet(local, context, local->values));
    local->meetings++;
    return cod_weights_upload_sets(weights, local->sets, local->values);
}

cod_status cod_local_steps_meet(cod_local_steps *local, cod_train_context *context, uint64_t meeting)
{
    COD_TRY(cod_queue_finish(context->session->backend, context->session->device, NULL)); /* not the meeting's time */
    const double begin = cod_clock_s(), trace = cod_trace_begin();
    COD_TRY(meet(local, context));
    cod_trace_end(trace, "exchange", "meet");
    local->met_s += cod_clock_s() - begin;
    const cod_train_event event = {.kind = "average",
                                   .peer = cod_group_index(context->group),
                                   .version = meeting,
                                   .peer_step = context->step + 1,
                                   .alpha = NAN};
    return cod_train_tell(context, &event);
}

cod_status cod_local_steps_after_step(cod_strategy *strategy, cod_train_context *context)
{
    cod_local_steps *local = (cod_local_steps *)strategy;
    const int64_t done = context->step + 1;
    local->steps++;
    if (cod_group_count(context->group) == 1 || (done % local->period != 0 && done != context->steps))
        return COD_OK;
    return cod_local_steps_meet(local, context, (uint64_t)((done + local->period - 1) / local->period));
}

void cod_local_steps_stats(cod_strategy *strategy, cod_strategy_stats *out)
{
    const cod_local_steps *local = (cod_local_steps *)strategy;
    cod_comm_counters counters;
    cod_comm_read_counters(local->comm, &counters);
    out->pulled_bytes = out->published_bytes = counters.across_bytes;
    out->merges = local->meetings;
    out->waited_s = local->average.waited_s;
    out->exchange_ms = local->steps > 0 ? 1e3 * local->met_s / (double)local->steps : 0;
}

void cod_local_steps_clear(cod_local_steps *local)
{
    cod_between_clear(&local->between);
    cod_group_average_clear(&local->average);
    cod_aligned_free(local->values);
}

void cod_local_steps_check(const cod_run_config *run)
{
    const char *name = run->strategy->name;
    if (strcmp(run->whole.model.init, "own") == 0)
        cod_config_problem_key(run->config, "model.init",
                               "strategy '%s' averages weights, which needs a common start: `shared` or a file", name);
    for (size_t g = 0; g < run->group_count; g++) {
        char key[64];
        snprintf(key, sizeof key, "cluster.groups.%zu.model", g);
        if (run->groups[g].architecture != run->whole.architecture)
            cod_config_problem(run->config, cod_config_find(run->config, key),
                               "strategy '%s' averages weights: all groups train the run's model, none has one of its "
                               "own",
                               name);
    }
}
