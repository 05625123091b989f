#include "strategies/parameter_server.h"

#include "core/queue.h"
#include "core/staging.h"
#include "core/trace.h"
#include "strategies/mirror.h"
#include "strategies/transfers.h"
#include "train/strategy.h"

#include <stdlib.h>

enum {
    SERVER = 0,         /**< rank in the group */
    TAG_WEIGHTS = 1,    /**< from server to worker */
    TAG_STATISTICS = 2, /**< from the first worker to the server */
    TAG_GRADIENTS = 3,  /**< and above: of a bucket, from worker to server; buckets come in the order they are ready */
};

/** A bucket of a device's gradients on its way to pinned memory. */
typedef struct bucket_staged {
    int index;
    cod_staged *range;
} bucket_staged;

typedef struct parameter_server {
    cod_strategy base;
    cod_comm *comm;
    bool serves;
    int workers;
    cod_transfers moving;    /**< what the rank sends, and a worker's weights */
    cod_transfers *receives; /**< server: [workers] */
    float *gradients;        /**< server: [workers][trainable] as they came */
    cod_mirror values, mean; /**< weights; server: gradients, too */
    cod_staging *staging;    /**< worker on a device: of gradients, which leave bucket by bucket */
    bucket_staged *staged;   /**< worker on a device: in the order in which they are complete */
    size_t staged_count;
    double waited_s;
    uint64_t steps;
} parameter_server;

static int world_rank(const cod_train_context *context, int rank)
{
    return cod_group_world_rank(context->group, cod_group_index(context->group), rank);
}

/** The program whose buckets the workers send. */
static cod_program *last_program(const cod_train_context *context)
{
    const cod_train_session *session = context->session;
    return cod_train_program(session->executable, session->programs[0].name, context->config->train.accumulate - 1);
}

static cod_status make_worker(parameter_server *p, const cod_train_context *context)
{
    const cod_weights *weights = &context->session->weights;
    if (cod_backend_runs_at_once(weights->backend))
        return COD_OK;
    p->staged = calloc(cod_program_bucket_count(last_program(context)), sizeof *p->staged);
    COD_REQUIRE_MEMORY(p->staged);
    return cod_staging_create(weights->backend, weights->device, &p->staging);
}

static cod_status make(parameter_server *p, cod_train_context *context)
{
    const cod_weights *weights = &context->session->weights;
    COD_REQUIRE(p->workers > 0,
                "strategy 'parameter_server' needs a rank that serves and one at least that trains, but the job has 1 "
                "rank; set cluster.ranks_per_group to 2 or more");
    COD_TRY(cod_mirror_init(&p->values, weights->backend, weights->device, weights->values));
    if (!p->serves)
        return make_worker(p, context);
    COD_TRY(cod_mirror_init(&p->mean, weights->backend, weights->device, weights->grads));
    p->receives = calloc((size_t)p->workers, sizeof *p->receives);
    COD_REQUIRE_MEMORY(p->receives);
    return cod_aligned_alloc((void **)&p->gradients, (size_t)p->workers * weights->layout.trainable * sizeof(float));
}

static cod_status start(cod_strategy *strategy, cod_train_context *context)
{
    parameter_server *p = (parameter_server *)strategy;
    p->comm = context->comm;
    p->serves = cod_group_rank(context->group) == SERVER;
    p->workers = cod_group_size(context->group) - 1;
    return cod_group_agree(context->group, make(p, context), NULL);
}

/**
 * The server awaits all gradients of the step, which come while workers go on computing, and, from the first worker,
 * the statistics of normalisation, which only training moves.
 */
static cod_status await_gradients(parameter_server *p, cod_train_context *context)
{
    cod_program *program = last_program(context);
    cod_weights *weights = &context->session->weights;
    const size_t trainable = weights->layout.trainable;
    for (int w = 0; w < p->workers; w++) {
        for (size_t b = 0; b < cod_program_bucket_count(program); b++) {
            const cod_bucket bucket = cod_program_bucket(program, b);
            COD_TRY(cod_transfers_receive(&p->receives[w], p->comm, world_rank(context, w + 1), TAG_GRADIENTS + (int)b,
                                          p->gradients + (size_t)w * trainable + bucket.first,
                                          bucket.count * sizeof(float)));
        }
    }
    cod_weights_states_changed(weights, COD_ALL_SETS);
    return cod_transfers_receive(&p->receives[0], p->comm, world_rank(context, 1), TAG_STATISTICS,
                                 p->values.host + trainable, weights->layout.state * sizeof(float));
}

static cod_status before_step(cod_strategy *strategy, cod_train_context *context)
{
    parameter_server *p = (parameter_server *)strategy;
    return p->serves ? await_gradients(p, context) : COD_OK;
}

static cod_status send_bucket(parameter_server *p, const cod_train_context *context, int index, const void *gradients)
{
    const size_t count = cod_program_bucket(last_program(context), (size_t)index).count;
    return cod_transfers_send(&p->moving, p->comm, world_rank(context, SERVER), TAG_GRADIENTS + index, gradients,
                              count * sizeof(float));
}

static cod_status gradient_ready(cod_strategy *strategy, cod_train_context *context, int set, cod_bucket bucket,
                                 cod_event *complete)
{
    (void)set;
    parameter_server *p = (parameter_server *)strategy;
    cod_buffer *gradients = context->session->weights.grads;
    cod_program *program = last_program(context);
    bucket_staged staged = {0};
    while (cod_program_bucket(program, (size_t)staged.index).first != bucket.first)
        staged.index++;
    if (p->staging == NULL)
        return send_bucket(p, context, staged.index, (float *)gradients->host + bucket.first);
    COD_TRY(cod_staging_start(p->staging, gradients, bucket.first * sizeof(float), bucket.count * sizeof(float),
                              complete, &staged.range));
    p->staged[p->staged_count++] = staged;
    return COD_OK;
}

/** The mean of the workers' gradients, added up in their order. */
static cod_status average(parameter_server *p, cod_train_context *context)
{
    const cod_layout *layout = &context->session->weights.layout;
    const size_t trainable = layout->trainable;
    const float scale = (float)(1.0 / p->workers);
    float *mean = p->mean.host;
    for (int w = 0; w < p->workers; w++)
        COD_TRY(cod_transfers_wait(&p->receives[w]));
    for (size_t i = 0; i < trainable; i++) {
        float sum = p->gradients[i];
        for (int w = 1; w < p->workers; w++)
            sum += p->gradients[(size_t)w * trainable + i];
        mean[i] = sum * scale;
    }
    COD_TRY(cod_mirror_return(&p->mean, 0, trainable));
    return cod_mirror_return(&p->values, trainable, layout->state);
}

/** A device's gradients leave as they arrive from it, while it computes those of later buckets. */
static cod_status send_staged(parameter_server *p, const cod_train_context *context)
{
    for (size_t i = 0; i < p->staged_count; i++) {
        COD_TRY(cod_staged_wait(p->staged[i].range));
        COD_TRY(send_bucket(p, context, p->staged[i].index, cod_staged_host(p->staged[i].range)));
    }
    return COD_OK;
}

/** The worker's gradients have left, or do; the first one's statistics follow. */
static cod_status push(parameter_server *p, cod_train_context *context)
{
    const cod_layout *layout = &context->session->weights.layout;
    if (cod_group_rank(context->group) == SERVER + 1) {
        COD_TRY(cod_mirror_fetch(&p->values, layout->trainable, layout->state));
        COD_TRY(cod_transfers_send(&p->moving, p->comm, world_rank(context, SERVER), TAG_STATISTICS,
                                   p->values.host + layout->trainable, layout->state * sizeof(float)));
    }
    COD_TRY(cod_transfers_wait(&p->moving));
    for (; p->staged_count > 0; p->staged_count--)
        cod_staged_drop(p->staged[p->staged_count - 1].range);
    return COD_OK;
}

static cod_status before_update(cod_strategy *strategy, cod_train_context *context, int set)
{
    (void)set;
    parameter_server *p = (parameter_server *)strategy;
    COD_TRY(send_staged(p, context)); /* waits for what computes, which is not the exchange's time */
    const double begin = cod_clock_s();
    COD_TRY(p->serves ? average(p, context) : push(p, context));
    p->waited_s += cod_clock_s() - begin;
    return COD_OK;
}

/** Weights to every worker. */
static cod_status serve(parameter_server *p, cod_train_context *context)
{
    const size_t trainable = context->session->weights.layout.trainable;
    COD_TRY(cod_mirror_fetch(&p->values, 0, trainable));
    for (int w = 1; w <= p->workers; w++)
        COD_TRY(cod_transfers_send(&p->moving, p->comm, world_rank(context, w), TAG_WEIGHTS, p->values.host,
                                   trainable * sizeof(float)));
    return cod_transfers_wait(&p->moving);
}

static cod_status fetch(parameter_server *p, cod_train_context *context)
{
    cod_weights *weights = &context->session->weights;
    const size_t trainable = weights->layout.trainable;
    COD_TRY(cod_mirror_wait(&p->values));
    COD_TRY(cod_transfers_receive(&p->moving, p->comm, world_rank(context, SERVER), TAG_WEIGHTS, p->values.host,
                                  trainable * sizeof(float)));
    COD_TRY(cod_transfers_wait(&p->moving));
    cod_weights_changed(weights, COD_ALL_SETS);
    return cod_mirror_return(&p->values, 0, trainable);
}

static cod_status after_update(cod_strategy *strategy, cod_train_context *context, int set)
{
    (void)set;
    parameter_server *p = (parameter_server *)strategy;
    const double begin = cod_clock_s(), trace = cod_trace_begin();
    COD_TRY(p->serves ? serve(p, context) : fetch(p, context));
    cod_trace_end(trace, "exchange", p->serves ? "serve" : "fetch");
    p->waited_s += cod_clock_s() - begin;
    p->steps++;
    return COD_OK;
}

static void stats(cod_strategy *strategy, cod_strategy_stats *out)
{
    const parameter_server *p = (const parameter_server *)strategy;
    out->exchange_ms = p->steps > 0 ? 1e3 * p->waited_s / (double)p->steps : 0;
}

static void destroy(cod_strategy *strategy)
{
    parameter_server *p = (parameter_server *)strategy;
    for (int w = 0; p->receives != NULL && w < p->workers; w++)
        cod_transfers_clear(&p->receives[w]);
    free(p->receives);
    cod_transfers_clear(&p->moving);
    cod_mirror_clear(&p->values);
    cod_mirror_clear(&p->mean);
    cod_staging_destroy(p->staging);
    free(p->staged);
    cod_aligned_free(p->gradients);
    free(p);
}

static const cod_strategy_ops ops = {
    .start = start,
    .before_step = before_step,
    .gradient_ready = gradient_ready,
    .before_update = before_update,
    .after_update = after_update,
    .stats = stats,
    .destroy = destroy,
};

static cod_status create(const cod_run_config *run, cod_strategy **out)
{
    (void)run;
    parameter_server *p = calloc(1, sizeof *p);
    COD_REQUIRE_MEMORY(p);
    p->base.ops = &ops;
    *out = &p->base;
    return COD_OK;
}

static int count_servers(const cod_run_config *run)
{
    (void)run;
    return 1;
}

static void check(const cod_run_config *run)
{
    if (run->group_count > 0 && cod_run_config_ranks(run) == 1)
        cod_config_problem_key(
            run->config, "cluster.ranks_per_group",
            "strategy 'parameter_server' needs a rank that serves and one at least that trains: 2 or "
            "more");
}

static void plan(const cod_run_config *run, size_t values, size_t state, cod_strategy_plan *out)
{
    const size_t trainable = values - state;
    const int workers = cod_run_config_ranks(run) - 1;
    *out = (cod_strategy_plan){.what = "gradients to rank 0, weights back",
                               .every_steps = 1,
                               .in_group = true,
                               .sent_bytes = (double)trainable * sizeof(float),
                               .host_bytes = (double)(values + trainable) * sizeof(float),
                               .server_bytes = workers > 0 ? (double)workers * (double)trainable * sizeof(float) : 0};
}

void cod_strategy_register_parameter_server(void)
{
    static const cod_strategy_kind kind = {
        .name = "parameter_server",
        .help = "rank 0 holds the main network and does not train; the others send it gradients and get weights back",
        .one_group = true,
        .one_set = true,
        .servers = count_servers,
        .check = check,
        .plan = plan,
        .create = create};
    cod_strategy_register(&kind);
}
