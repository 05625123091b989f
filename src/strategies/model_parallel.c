#include "strategies/model_parallel.h"

#include "core/log.h"
#include "core/queue.h"
#include "strategies/pipeline.h"
#include "strategies/stages.h"
#include "strategies/transfers.h"
#include "train/group_average.h"

#include <stdlib.h>

enum { TAG_PARTS = 3 /**< of weights and optimiser, to the group's first rank */ };

static const cod_option option_list[] = {
    {"stages", COD_OPTION_INT, offsetof(cod_model_parallel_options, stages), "0", 0, 4096, NULL,
     "Number of ranks that hold one network together, each some of its layers. Must divide the ranks of the group; "
     "the group then trains ranks/stages networks side by side and averages their gradients. 0 = all ranks hold one "
     "network."},
    {"cuts", COD_OPTION_STRING_LIST, offsetof(cod_model_parallel_options, cuts), "", 0, 0, NULL,
     "Names of the layers that start the second and each further stage, such as [body.8.f.0]. Empty = balanced by the "
     "time of each layer, measured at the start; with train.deterministic, or without train.autotune, by its number "
     "of operations."},
};
static const cod_option_table table = {
    "model_parallel",
    "Strategy model_parallel: layers divided over ranks (Narayanan et al. 2021, PipeDream-Flush). "
    "train.accumulate is the number of mini-batches in a step.",
    option_list, sizeof option_list / sizeof option_list[0], sizeof(cod_model_parallel_options)};

typedef struct model_parallel {
    cod_strategy base;
    const cod_model_parallel_options *options;
    cod_stages stages;
    int stage;
    cod_group *group;
    cod_group *peers; /**< ranks with the same stage */
    cod_pipeline pipeline;
    cod_group_average average;
    cod_train_context *context; /**< while a step's passes run */
    cod_program *last;          /**< of the step: its buckets are averaged */
} model_parallel;

static int world_rank(const cod_train_context *context, int rank)
{
    return cod_group_world_rank(context->group, cod_group_index(context->group), rank);
}

static cod_status check_ranks(int ranks, int stages)
{
    COD_REQUIRE(ranks > 1, "strategy 'model_parallel' divides the layers over 2 ranks or more, but the job has 1; set "
                           "cluster.ranks_per_group, or train.strategy=single");
    COD_REQUIRE(ranks % stages == 0,
                "model_parallel.stages: %d ranks are no whole number of networks of %d stages; start a multiple of %d",
                ranks, stages, stages);
    return COD_OK;
}

static void tell_division(const model_parallel *p, const cod_train_context *context)
{
    const cod_stages *s = &p->stages;
    const int networks = cod_group_size(context->group) / s->count;
    const double batches = (double)context->config->train.accumulate, idle = s->count - 1;
    cod_log_info("model_parallel: %d stages, %d network%s, %.0f mini-batch%s a step: with equal stages each idles "
                 "%.1f %% of the time%s",
                 s->count, networks, networks == 1 ? "" : "s", batches, batches > 1 ? "es" : "",
                 100 * idle / (batches + idle), batches < 2 * s->count ? " (a larger train.accumulate helps)" : "");
    for (int k = 0; k < s->count; k++) {
        const cod_layer *first = &s->layers[s->first[k]], *last = &s->layers[s->first[k + 1] - 1];
        cod_log_info("stage %d: layers %s to %s, %zu parameters, %.1f %% of the work (%s)", k, first->name, last->name,
                     s->ranges[k][0].count, 100 * s->shares[k], s->timed ? "timed" : "operations counted");
    }
}

/** Over all ranks that hold a part of the network each. */
static cod_status sum_over_stages(void *context, double *squares)
{
    const model_parallel *p = context;
    double part = 0;
    /* Equal parts of several networks have equal gradients here: the first network's count. */
    if (cod_group_rank(p->group) < p->stages.count)
        part = *squares;
    COD_TRY(cod_group_reduce(p->group, &part, 1, COD_REDUCE_SUM));
    *squares = part;
    return COD_OK;
}

static cod_status place(cod_strategy *strategy, cod_train_context *context, cod_division *division)
{
    model_parallel *p = (model_parallel *)strategy;
    const int ranks = cod_group_size(context->group);
    const int wanted = p->options->stages > 0 ? (int)p->options->stages : ranks;
    COD_TRY(cod_group_agree(context->group, check_ranks(ranks, wanted), NULL));
    COD_TRY(cod_stages_divide(context->session, context->group, wanted, &p->options->cuts, &p->stages));
    p->stage = cod_group_rank(context->group) % wanted;
    p->group = context->group;
    *division = (cod_division){.stage = p->stages.nodes[p->stage],
                               .stages = wanted,
                               .only_part = true,
                               .first = p->stages.ranges[p->stage][0].first,
                               .count = p->stages.ranges[p->stage][0].count,
                               .sum_squares = wanted > 1 ? sum_over_stages : NULL,
                               .sum_context = p};
    if (cod_group_rank(context->group) == 0)
        tell_division(p, context);
    return COD_OK;
}

static cod_status start(cod_strategy *strategy, cod_train_context *context)
{
    model_parallel *p = (model_parallel *)strategy;
    const int rank = cod_group_rank(context->group), last = context->session->division.stages - 1;
    const cod_status status =
        cod_pipeline_init(&p->pipeline, context, p->stage, p->stage > 0 ? world_rank(context, rank - 1) : -1,
                          p->stage < last ? world_rank(context, rank + 1) : -1);
    COD_TRY(cod_group_agree(context->group, status, NULL));
    COD_TRY(cod_group_create_interleaved(context->group, p->stages.count, &p->peers));
    const int by_node = context->config->train.allreduce;
    if (by_node == COD_ALLREDUCE_HIERARCHICAL || (by_node == COD_ALLREDUCE_AUTO && cod_group_gains_by_node(p->peers)))
        COD_TRY(cod_group_average_by_node(p->peers, NULL));
    COD_TRY(cod_group_use_device(p->peers, context->session->backend, context->session->device));
    context->collective = cod_group_collective(p->peers);
    p->last = context->config->train.accumulate > 1 ? p->pipeline.slots[0].later : p->pipeline.slots[0].first;
    return COD_OK;
}

static cod_status bucket_ready(void *context, size_t index, cod_event *complete)
{
    model_parallel *p = context;
    return cod_group_average_start(&p->average, p->context, cod_program_bucket(p->last, index), complete);
}

static cod_status compute(cod_strategy *strategy, cod_train_context *context, double *task_loss)
{
    model_parallel *p = (model_parallel *)strategy;
    p->context = context;
    return cod_pipeline_run(&p->pipeline, context, bucket_ready, p, task_loss);
}

static cod_status before_update(cod_strategy *strategy, cod_train_context *context, int set)
{
    (void)set;
    return cod_group_average_wait(&((model_parallel *)strategy)->average, context);
}

/** Sends a range of a buffer to the group's first rank. */
static cod_status send_range(const cod_train_context *context, cod_buffer *buffer, size_t first, size_t count)
{
    cod_transfers list = {0};
    float *values = malloc(count * sizeof *values + 1);
    COD_REQUIRE_MEMORY(values);
    cod_status status = context->session->backend->download(context->session->device, NULL, values, buffer,
                                                            first * sizeof *values, count * sizeof *values);
    if (status == COD_OK)
        status =
            cod_transfers_send(&list, context->comm, world_rank(context, 0), TAG_PARTS, values, count * sizeof *values);
    COD_THEN(status, cod_transfers_wait(&list));
    cod_transfers_clear(&list);
    free(values);
    return status;
}

/** Receives what send_range() sends on the rank of a stage. @param[out] values  [range->count] */
static cod_status receive_range(const cod_train_context *context, int stage, const cod_stage_range *range,
                                float *values)
{
    cod_transfers list = {0};
    cod_status status = cod_transfers_receive(&list, context->comm, world_rank(context, stage), TAG_PARTS, values,
                                              range->count * sizeof *values);
    COD_THEN(status, cod_transfers_wait(&list));
    cod_transfers_clear(&list);
    return status;
}

/** The same, into a buffer of all values. */
static cod_status receive_into(const cod_train_context *context, int stage, const cod_stage_range *range,
                               cod_buffer *buffer)
{
    float *values = malloc(range->count * sizeof *values + 1);
    COD_REQUIRE_MEMORY(values);
    cod_status status = receive_range(context, stage, range, values);
    if (status == COD_OK)
        status =
            context->session->backend->upload(context->session->device, NULL, buffer, range->first * sizeof *values,
                                              values, range->count * sizeof *values);
    free(values);
    return status;
}

/** Sends what this rank's stage has and the first rank is to have. */
static cod_status send_stage(const model_parallel *p, const cod_train_context *context, bool moments)
{
    const cod_stage_range *ranges = p->stages.ranges[p->stage];
    const char *name;
    cod_buffer *buffer, *average = cod_optimiser_ema(context->session->optimisers[0]);
    size_t bytes;
    for (int state = 0; state < 2; state++) {
        COD_TRY(send_range(context, context->session->weights.values, ranges[state].first, ranges[state].count));
        if (average != NULL)
            COD_TRY(send_range(context, average, ranges[state].first, ranges[state].count));
    }
    for (size_t i = 0; moments && cod_optimiser_state(context->session->optimisers[0], i, &name, &buffer, &bytes); i++)
        if (buffer != average)
            COD_TRY(send_range(context, buffer, 0, ranges[0].count));
    return COD_OK;
}

static cod_status receive_stage(const model_parallel *p, const cod_train_context *context, int stage,
                                float *const *moments)
{
    const cod_stage_range *ranges = p->stages.ranges[stage];
    const char *name;
    cod_buffer *buffer, *average = cod_optimiser_ema(context->session->optimisers[0]);
    size_t bytes;
    for (int state = 0; state < 2; state++) {
        COD_TRY(receive_into(context, stage, &ranges[state], context->session->weights.values));
        if (average != NULL)
            COD_TRY(receive_into(context, stage, &ranges[state], average));
    }
    for (size_t i = 0;
         moments != NULL && cod_optimiser_state(context->session->optimisers[0], i, &name, &buffer, &bytes); i++)
        if (buffer != average)
            COD_TRY(receive_range(context, stage, &ranges[0], moments[i] + ranges[0].first));
    return COD_OK;
}

static cod_status gather(cod_strategy *strategy, cod_train_context *context, float *const *moments)
{
    const model_parallel *p = (const model_parallel *)strategy;
    const int rank = cod_group_rank(context->group);
    const char *name;
    cod_buffer *buffer;
    size_t bytes;
    if (rank > 0) /* further networks are as the first */
        return rank < p->stages.count ? send_stage(p, context, moments != NULL) : COD_OK;
    for (size_t i = 0;
         moments != NULL && cod_optimiser_state(context->session->optimisers[0], i, &name, &buffer, &bytes); i++)
        if (moments[i] != NULL)
            COD_TRY(context->session->backend->download(
                context->session->device, NULL, moments[i] + context->session->division.first, buffer, 0, bytes));
    for (int stage = 1; stage < p->stages.count; stage++)
        COD_TRY(receive_stage(p, context, stage, moments));
    cod_weights_changed(&context->session->weights, COD_ALL_SETS);
    cod_weights_states_changed(&context->session->weights, COD_ALL_SETS);
    return COD_OK;
}

/** Logs the result of the division: each stage's share of the computing time, and its idle time. */
static void tell_balance(const model_parallel *p, double (*times)[2], int ranks)
{
    const int count = p->stages.count;
    double computed = 0, elapsed = 0, *sums = calloc((size_t)count, sizeof *sums);
    for (int r = 0; r < ranks && sums != NULL; r++) {
        sums[r % count] += times[r][0];
        computed += times[r][0];
        elapsed += times[r][1];
    }
    for (int k = 0; k < count && sums != NULL; k++)
        cod_log_info("stage %d: predicted %.1f %% of the work, measured %.1f %%; idle %.1f %% of the passes' time", k,
                     100 * p->stages.shares[k], 100 * sums[k] / computed, 100 * (1 - sums[k] * count / elapsed));
    free(sums);
}

static cod_status finish(cod_strategy *strategy, cod_train_context *context)
{
    model_parallel *p = (model_parallel *)strategy;
    const int ranks = cod_group_size(context->group);
    const double own[2] = {p->pipeline.computed_s, p->pipeline.elapsed_s};
    COD_TRY(cod_pipeline_flush(&p->pipeline));
    double(*times)[2] = calloc((size_t)ranks, sizeof *times);
    cod_status status = times != NULL ? COD_OK : cod_fail(COD_ERR_MEMORY, "out of memory for %d ranks", ranks);
    COD_TRY(cod_group_agree(context->group, status, NULL));
    status = cod_group_gather(context->group, own, sizeof own, times);
    const bool timed = cod_backend_runs_at_once(context->session->backend); /* elsewhere clocks time the queueing */
    if (status == COD_OK && cod_group_rank(context->group) == 0 && p->pipeline.steps > 0 && timed)
        tell_balance(p, times, ranks);
    free(times);
    return status;
}

static void stats(cod_strategy *strategy, cod_strategy_stats *out)
{
    const cod_pipeline *pipeline = &((const model_parallel *)strategy)->pipeline;
    const double waited_s = pipeline->values_in.waited_s + pipeline->values_out.waited_s +
                            pipeline->gradients_in.waited_s + pipeline->gradients_out.waited_s;
    out->exchange_ms = pipeline->steps > 0 ? 1e3 * waited_s / (double)pipeline->steps : 0;
}

static void destroy(cod_strategy *strategy)
{
    model_parallel *p = (model_parallel *)strategy;
    cod_pipeline_clear(&p->pipeline);
    cod_group_average_clear(&p->average);
    cod_group_destroy(p->peers);
    cod_stages_clear(&p->stages);
    free(p);
}

static const cod_strategy_division division_ops = {.place = place, .compute = compute, .gather = gather};

static const cod_strategy_ops ops = {
    .division = &division_ops,
    .start = start,
    .before_update = before_update,
    .finish = finish,
    .stats = stats,
    .destroy = destroy,
};

static cod_status create(const cod_run_config *run, cod_strategy **out)
{
    model_parallel *p = calloc(1, sizeof *p);
    COD_REQUIRE_MEMORY(p);
    p->base.ops = &ops;
    p->options = cod_run_config_section(run, &table);
    *out = &p->base;
    return COD_OK;
}

/** One stage as its rank would compile it. */
static cod_status plan_stage(cod_train_session *session, const cod_stages *s, int stage, cod_strategy_stage *out)
{
    const int64_t batches = session->config->train.accumulate;
    cod_executable *executable;
    size_t count;
    COD_TRY(cod_train_session_compile_apart(session, &session->weights, s->nodes[stage], &executable));
    const cod_program *program = cod_train_program(executable, session->programs[0].name, 0);
    const cod_passing *taken = cod_program_taken(program, &count);
    const size_t back = cod_passing_bytes(taken, count, true), in = cod_passing_bytes(taken, count, false);
    const cod_passing *handed = cod_program_handed(program, &count);
    const size_t on = cod_passing_bytes(handed, count, false), in_back = cod_passing_bytes(handed, count, true);
    const size_t copies = cod_pipeline_in_flight(stage, s->count, batches);
    *out = (cod_strategy_stage){.first = s->layers[s->first[stage]].name,
                                .last = s->layers[s->first[stage + 1] - 1].name,
                                .parameters = s->ranges[stage][0].count,
                                .share = s->shares[stage],
                                .timed = s->timed,
                                .memory_bytes = (double)(copies * cod_executable_bytes(executable) +
                                                         COD_CHANNEL_ROOM * (back + in + on + in_back)),
                                .sent_bytes = (double)batches * (double)(back + on)};
    cod_executable_destroy(executable);
    return COD_OK;
}

static cod_status plan_stages(cod_train_session *session, int ranks, cod_strategy_stage **out, size_t *out_count)
{
    const cod_model_parallel_options *options = cod_run_config_section(session->config, &table);
    const int count = options->stages > 0 ? (int)options->stages : ranks;
    cod_stages s;
    *out_count = 0;
    *out = calloc((size_t)count + 1, sizeof **out);
    COD_REQUIRE_MEMORY(*out);
    cod_status status = cod_stages_divide(session, NULL, count, &options->cuts, &s);
    for (int stage = 0; stage < count && status == COD_OK; stage++, ++*out_count)
        status = plan_stage(session, &s, stage, &(*out)[stage]);
    cod_stages_clear(&s);
    return status;
}

static int count_stages(const cod_run_config *run)
{
    const cod_model_parallel_options *options = cod_run_config_section(run, &table);
    return options->stages > 0 ? (int)options->stages : cod_run_config_ranks(run);
}

static void check(const cod_run_config *run)
{
    const cod_model_parallel_options *options = cod_run_config_section(run, &table);
    const int ranks = run->group_count > 0 ? cod_run_config_ranks(run) : 0, stages = (int)options->stages;
    if (ranks > 0 && check_ranks(ranks, stages > 0 ? stages : ranks) != COD_OK)
        cod_config_problem_key(run->config, ranks > 1 ? "model_parallel.stages" : "cluster.ranks_per_group", "%s",
                               cod_error_message());
    if (run->data.transfer == COD_TRANSFER_MAPPED || run->data.transfer == COD_TRANSFER_UINT8)
        cod_config_problem_key(
            run->config, "data.transfer",
            "%s is not for model_parallel, whose stages bring what they need themselves; set pinned or auto",
            cod_data_transfer_names[run->data.transfer]);
    if (stages == 1)
        cod_config_problem_key(run->config, "model_parallel.stages",
                               "one stage is no division; set 2 or more, or train.strategy=allreduce");
}

void cod_strategy_register_model_parallel(void)
{
    static const cod_option_table *const tables[] = {&table};
    static const cod_strategy_kind kind = {
        .name = "model_parallel",
        .help = "the layers are divided over ranks, which pass activations and gradients to each other (a pipeline)",
        .one_group = true,
        .tables = tables,
        .table_count = 1,
        .one_set = true,
        .stages = count_stages,
        .check = check,
        .plan_stages = plan_stages,
        .create = create};
    cod_strategy_register(&kind);
}
