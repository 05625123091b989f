#include "strategies/async_parameter_server.h"

#include "core/hash.h"
#include "core/trace.h"
#include "strategies/async_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_DELAY = 1000 };

static const char *const codecs[] = {"none", "int8", "topk", "onebit", NULL};
#define FIELD(name) offsetof(cod_async_options, name)
static const cod_option option_list[] = {
    {"servers", COD_OPTION_INT, FIELD(servers), "1", 1, 4096, NULL,
     "Number of ranks, counted from the first, that each hold a part of the weights and do not train."},
    {"max_delay", COD_OPTION_INT, FIELD(max_delay), "4", 0, MOST_DELAY, NULL,
     "Number of updates that a worker may be ahead of the slowest one before it waits."},
    {"staleness_aware", COD_OPTION_BOOL, FIELD(staleness_aware), "true", 0, 0, NULL,
     "Divide the learning rate of an update by the number of updates that others made since its worker pulled."},
    {"push_codec", COD_OPTION_CHOICE, FIELD(push_codec), "none", 0, 0, codecs,
     "Coding of gradients, with error feedback. none: exact. int8: a quarter of the bytes. topk: only the largest "
     "values. onebit: only signs."},
    {"pull_codec", COD_OPTION_CHOICE, FIELD(pull_codec), "none", 0, 0, codecs,
     "Coding of the weights' change since the worker last pulled. none: exact."},
    {"topk_fraction", COD_OPTION_FLOAT, FIELD(topk_fraction), "0.01", 1e-6, 1, NULL,
     "topk: share of the values that is sent. Each takes 8 bytes."},
};
#undef FIELD
static const cod_option_table table = {
    "async_parameter_server",
    "Strategy async_parameter_server: servers that do not wait for workers (Dean et al. 2012, Ho et al. 2013, "
    "Zhang et al. 2016).",
    option_list, sizeof option_list / sizeof option_list[0], sizeof(cod_async_options)};

static cod_status check_ranks(const async_strategy *a, int size)
{
    COD_REQUIRE(a->servers < size,
                "%d of async_parameter_server.servers and one rank at least that trains need %d ranks, but the job has "
                "%d; set cluster.ranks_per_group",
                a->servers, a->servers + 1, size);
    return COD_OK;
}

static cod_status place(cod_strategy *strategy, cod_train_context *context, cod_division *division)
{
    async_strategy *a = (async_strategy *)strategy;
    const int rank = cod_group_rank(context->group), size = cod_group_size(context->group);
    COD_TRY(cod_group_agree(context->group, check_ranks(a, size), NULL));
    a->serves = rank < a->servers;
    a->workers = size - a->servers;
    a->server = rank;
    division->only_part = true;
    if (a->serves)
        async_part(context->session->weights.layout.trainable, a->servers, rank, &a->first, &a->count);
    division->first = a->first;
    division->count = a->count;
    return COD_OK;
}

static cod_status make_codecs(const async_strategy *a, size_t count, cod_gradient_codec *push, cod_gradient_codec *pull)
{
    const cod_root_options *root = &a->context->config->root;
    const uint64_t run = cod_hash(root->name, strlen(root->name), (uint64_t)root->seed);
    const double fraction = a->options.topk_fraction;
    COD_TRY(cod_gradient_codec_init(push, (cod_gradient_coding)a->options.push_codec, fraction, count, run));
    return cod_gradient_codec_init(pull, (cod_gradient_coding)a->options.pull_codec, fraction, count, run);
}

static cod_status make_message(async_link *link, uint64_t push_bytes, uint64_t pull_bytes)
{
    link->message = malloc((size_t)(push_bytes > pull_bytes ? push_bytes : pull_bytes) + 1);
    COD_REQUIRE_MEMORY(link->message);
    return COD_OK;
}

static cod_status make_server(async_strategy *a)
{
    const bool coded = a->options.pull_codec != COD_GRADIENT_NONE;
    const float *values = a->values.host + a->first;
    const size_t bytes = a->count * sizeof(float);
    COD_TRY(make_codecs(a, a->count, &a->push, &a->pull));
    if (a->server == 0)
        COD_TRY(cod_aligned_alloc((void **)&a->statistics,
                                  (a->context->session->weights.layout.state + 1) * sizeof(float)));
    if (coded)
        COD_TRY(cod_aligned_alloc((void **)&a->change, bytes));
    for (size_t w = 0; w < a->link_count; w++) {
        async_link *link = &a->links[w];
        COD_TRY(make_message(link, a->push.bytes, a->pull.bytes));
        if (!coded)
            continue;
        COD_TRY(cod_aligned_alloc((void **)&link->known, bytes));
        memcpy(link->known, values, bytes);
    }
    return COD_OK;
}

static cod_status make_worker(async_strategy *a)
{
    const size_t trainable = a->context->session->weights.layout.trainable;
    if (a->options.push_codec != COD_GRADIENT_NONE)
        COD_TRY(cod_aligned_alloc((void **)&a->residual, trainable * sizeof(float)));
    for (int s = 0; s < a->servers; s++) {
        async_link *link = &a->links[s];
        async_part(trainable, a->servers, s, &link->first, &link->count);
        COD_TRY(make_codecs(a, link->count, &link->push, &link->pull));
        COD_TRY(make_message(link, link->push.bytes, link->pull.bytes));
    }
    return COD_OK;
}

/** Coded pulls read the initial weights from these mirrors before the first update. */
static cod_status make_mirrors(async_strategy *a)
{
    cod_train_session *session = a->context->session;
    const cod_weights *weights = &session->weights;
    cod_buffer *average = a->serves ? cod_optimiser_ema(session->optimisers[0]) : NULL;
    COD_TRY(cod_mirror_init(&a->values, weights->backend, weights->device, weights->values));
    COD_TRY(cod_mirror_init(&a->gradients, weights->backend, weights->device, weights->grads));
    if (average != NULL)
        COD_TRY(cod_mirror_init(&a->average, weights->backend, weights->device, average));
    return cod_mirror_fetch(&a->values, 0, weights->layout.trainable);
}

static cod_status make(async_strategy *a)
{
    const cod_train_context *context = a->context;
    COD_TRY(make_mirrors(a));
    a->link_count = (size_t)(a->serves ? a->workers : a->servers);
    a->links = calloc(a->link_count, sizeof *a->links);
    COD_REQUIRE_MEMORY(a->links);
    for (size_t i = 0; i < a->link_count; i++)
        a->links[i].world_rank = cod_group_world_rank(context->group, cod_group_index(context->group),
                                                      (int)i + (a->serves ? a->servers : 0));
    return a->serves ? make_server(a) : make_worker(a);
}

static cod_status start(cod_strategy *strategy, cod_train_context *context)
{
    async_strategy *a = (async_strategy *)strategy;
    a->context = context;
    strategy->agree_within = a->options.max_delay + 1;
    return cod_group_agree(context->group, make(a), NULL);
}

/** A server applies what has come; a worker pushes. */
static cod_status update(cod_strategy *strategy, cod_train_context *context)
{
    async_strategy *a = (async_strategy *)strategy;
    (void)context;
    if (!a->serves)
        COD_TRY(async_fetch(a)); /* what computes is not the exchange's time */
    const double begin = cod_clock_s(), trace = cod_trace_begin();
    COD_TRY(a->serves ? async_serve(a) : async_push(a));
    cod_trace_end(trace, "exchange", a->serves ? "serve" : "push");
    a->waited_s += cod_clock_s() - begin;
    return COD_OK;
}

static cod_status after_step(cod_strategy *strategy, cod_train_context *context)
{
    async_strategy *a = (async_strategy *)strategy;
    const int64_t every = context->config->eval.every, done = context->step + 1;
    const double begin = cod_clock_s(), trace = cod_trace_begin();
    if (!a->serves) {
        COD_TRY(async_pull(a));
        cod_trace_end(trace, "exchange", "pull");
    } else if (every > 0 && done % every == 0) {
        COD_TRY(async_gather(a));
    }
    a->waited_s += cod_clock_s() - begin;
    a->steps++;
    return COD_OK;
}

static cod_status save_server(async_strategy *a, cod_checkpoint *checkpoint)
{
    COD_TRY(async_gather(a));
    COD_TRY(cod_checkpoint_add_number(checkpoint, "version", (double)a->version));
    for (size_t w = 0; w < a->link_count; w++) {
        char name[32];
        snprintf(name, sizeof name, "known.%zu", w);
        if (a->links[w].known != NULL)
            COD_TRY(cod_checkpoint_add_f32(checkpoint, name, a->links[w].known, a->count));
    }
    return COD_OK;
}

static cod_status save(cod_strategy *strategy, cod_checkpoint *checkpoint)
{
    async_strategy *a = (async_strategy *)strategy;
    const cod_weights *weights = &a->context->session->weights;
    COD_TRY(cod_checkpoint_add_number(checkpoint, "servers", a->servers));
    if (a->serves)
        return save_server(a, checkpoint);
    for (int s = 0; s < a->servers; s++) {
        char name[32];
        snprintf(name, sizeof name, "version.%d", s);
        COD_TRY(cod_checkpoint_add_number(checkpoint, name, (double)a->links[s].version));
    }
    if (a->residual != NULL)
        COD_TRY(cod_checkpoint_add_f32(checkpoint, "residual", a->residual, weights->layout.trainable));
    return cod_checkpoint_add_f32(checkpoint, "weights", a->values.host, weights->layout.trainable);
}

static cod_status load_server(async_strategy *a, const cod_st_file *file)
{
    int64_t version;
    COD_TRY(cod_checkpoint_whole(file, "version", 0, &version));
    a->version = a->first_version = (uint64_t)version;
    for (size_t w = 0; w < a->link_count; w++) {
        char name[32];
        snprintf(name, sizeof name, "known.%zu", w);
        if (a->links[w].known != NULL)
            COD_TRY(cod_checkpoint_read(file, name, a->links[w].known, a->count * sizeof(float)));
    }
    return COD_OK;
}

static cod_status load(cod_strategy *strategy, cod_train_context *context, const cod_st_file *file)
{
    async_strategy *a = (async_strategy *)strategy;
    cod_weights *weights = &context->session->weights;
    const size_t bytes = weights->layout.trainable * sizeof(float);
    int64_t servers, version;
    COD_TRY(cod_checkpoint_whole(file, "servers", 1, &servers));
    if (servers != a->servers)
        return cod_fail(COD_ERR_ARGUMENT,
                        "it was written by %lld servers, not %d; set async_parameter_server.servers as it was",
                        (long long)servers, a->servers);
    if (a->serves)
        return load_server(a, file);
    for (int s = 0; s < a->servers; s++) {
        char name[32];
        snprintf(name, sizeof name, "version.%d", s);
        COD_TRY(cod_checkpoint_whole(file, name, 0, &version));
        a->links[s].version = (uint64_t)version;
    }
    if (a->residual != NULL)
        COD_TRY(cod_checkpoint_read(file, "residual", a->residual, bytes));
    COD_TRY(cod_checkpoint_read(file, "weights", a->values.host, bytes));
    cod_weights_changed(weights, COD_ALL_SETS);
    return cod_mirror_return(&a->values, 0, weights->layout.trainable);
}

static cod_status finish(cod_strategy *strategy, cod_train_context *context)
{
    async_strategy *a = (async_strategy *)strategy;
    (void)context;
    return a->serves ? async_flush(a) : COD_OK;
}

static void stats(cod_strategy *strategy, cod_strategy_stats *out)
{
    const async_strategy *a = (const async_strategy *)strategy;
    out->exchange_ms = a->steps > 0 ? 1e3 * a->waited_s / (double)a->steps : 0;
    out->pushes = a->version - a->first_version;
    out->push_staleness = a->staleness;
    out->push_staleness_max = a->staleness_max;
}

static void destroy(cod_strategy *strategy)
{
    async_strategy *a = (async_strategy *)strategy;
    for (size_t i = 0; i < a->link_count; i++) {
        async_link *link = &a->links[i];
        free(link->message);
        cod_aligned_free(link->known);
        cod_transfers_clear(&link->moving);
        cod_gradient_codec_clear(&link->push);
        cod_gradient_codec_clear(&link->pull);
    }
    free(a->links);
    cod_gradient_codec_clear(&a->push);
    cod_gradient_codec_clear(&a->pull);
    cod_mirror_clear(&a->values);
    cod_mirror_clear(&a->gradients);
    cod_mirror_clear(&a->average);
    cod_aligned_free(a->change);
    cod_aligned_free(a->statistics);
    cod_aligned_free(a->residual);
    free(a);
}

static const cod_strategy_division division_ops = {.place = place, .update = update};

static const cod_strategy_ops ops = {
    .division = &division_ops,
    .start = start,
    .after_step = after_step,
    .save = save,
    .load = load,
    .finish = finish,
    .stats = stats,
    .destroy = destroy,
};

static cod_status create(const cod_run_config *run, cod_strategy **out)
{
    const cod_async_options *options = cod_run_config_section(run, &table);
    async_strategy *a = calloc(1, sizeof *a);
    COD_REQUIRE_MEMORY(a);
    a->base.ops = &ops;
    a->options = *options;
    a->servers = (int)options->servers;
    *out = &a->base;
    return COD_OK;
}

static int count_servers(const cod_run_config *run)
{
    const cod_async_options *options = cod_run_config_section(run, &table);
    return (int)options->servers;
}

static void check(const cod_run_config *run)
{
    const cod_async_options *options = cod_run_config_section(run, &table);
    const char *servers = "async_parameter_server.servers";
    if (cod_config_has_problem(run->config, servers))
        return;
    if (run->group_count > 0 && options->servers >= cod_run_config_ranks(run))
        cod_config_problem_key(run->config, servers,
                               "%lld server%s and one rank at least that trains are more than the %d rank%s of the "
                               "job; lower it, or raise cluster.ranks_per_group",
                               (long long)options->servers, options->servers == 1 ? "" : "s", cod_run_config_ranks(run),
                               cod_run_config_ranks(run) == 1 ? "" : "s");
    if (options->servers > 1 && run->train.clip_norm > 0)
        cod_config_problem_key(run->config, "train.clip_norm",
                               "no one of several servers knows the norm of a whole gradient; clip with "
                               "async_parameter_server.servers: 1");
}

/** Bytes of a worker's messages to, or from, all servers. */
static double message_bytes(const cod_async_options *options, int codec, size_t trainable)
{
    uint64_t bytes = 0;
    for (int s = 0; s < (int)options->servers; s++) {
        size_t first, count;
        async_part(trainable, (int)options->servers, s, &first, &count);
        bytes += cod_gradient_codec_bytes((cod_gradient_coding)codec, options->topk_fraction, count);
    }
    return (double)bytes;
}

static void plan(const cod_run_config *run, size_t values, size_t state, cod_strategy_plan *out)
{
    const cod_async_options *options = cod_run_config_section(run, &table);
    const size_t trainable = values - state;
    const double f32 = (double)trainable * sizeof(float), servers = (double)options->servers;
    const double workers = fmax(1, cod_run_config_ranks(run) - servers);
    const double push = message_bytes(options, options->push_codec, trainable),
                 pull = message_bytes(options, options->pull_codec, trainable);
    const double known = options->pull_codec != COD_GRADIENT_NONE ? (workers + 1) * f32 / servers : 0;
    const double served = workers * fmax(push, pull) / servers + known;
    const size_t averages = run->train.ema > 0 ? values : 0;
    size_t first, part;
    async_part(trainable, (int)options->servers, 0, &first, &part);
    const double worked = (options->push_codec != COD_GRADIENT_NONE ? f32 : 0) + fmax(push, pull);
    *out = (cod_strategy_plan){.every_steps = 1,
                               .in_group = true,
                               .sent_bytes = push,
                               .received_bytes = pull,
                               .memory_bytes = worked,
                               .server_bytes = served,
                               .host_bytes = (double)(values + trainable + averages) * sizeof(float),
                               .part = part};
    snprintf(out->what, sizeof out->what, "gradients to %lld server%s (%s), weights back (%s)",
             (long long)options->servers, options->servers == 1 ? "" : "s", codecs[options->push_codec],
             codecs[options->pull_codec]);
}

void cod_strategy_register_async_parameter_server(void)
{
    static const cod_option_table *const tables[] = {&table};
    static const cod_strategy_kind kind = {
        .name = "async_parameter_server",
        .help = "the first ranks hold the main network and do not train; the others push gradients and pull weights "
                "without waiting for each other",
        .one_group = true,
        .keeps_state = true,
        .tables = tables,
        .table_count = 1,
        .one_set = true,
        .servers = count_servers,
        .check = check,
        .plan = plan,
        .create = create};
    cod_strategy_register(&kind);
}
