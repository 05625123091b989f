#include "strategies/central_storage.h"

#include "comm/node_memory.h"
#include "core/trace.h"
#include "strategies/between.h"
#include "strategies/mirror.h"
#include "train/strategy.h"

#include <stdlib.h>
#include <string.h>

typedef struct central_storage {
    cod_strategy base;
    cod_node_memory *memory;
    cod_group *node; /**< ranks of this one's */
    cod_between between;
    int node_rank, node_size;
    size_t trainable, first, count;        /**< this rank's part */
    cod_buffer values, gradients, average; /**< in the node's memory */
    float **all;                           /**< [node_size] gradients */
    bool on_device; /**< weights are also on each rank's device, which computes and updates there */
    cod_mirror values_here, gradients_here, average_here; /**< on_device: the device's */
    cod_train_context *context;
    double waited_s;
    uint64_t steps;
} central_storage;

/** Floats, padded so that what follows is aligned. */
static size_t room(size_t count)
{
    return cod_align_up(count * sizeof(float));
}

/**
 * The first rank's part: its gradients, weights, and their moving average with the statistics. The others': gradients.
 */
static cod_status share(central_storage *c, cod_train_context *context, cod_division *division)
{
    cod_weights *weights = &context->session->weights;
    const size_t count = cod_weights_count(weights);
    const bool first = c->node_rank == 0, averages = context->config->train.ema > 0;
    const size_t bytes = room(c->trainable) + (first ? room(c->trainable) : 0) + (first && averages ? room(count) : 0);
    c->all = calloc((size_t)c->node_size, sizeof *c->all);
    COD_REQUIRE_MEMORY(c->all);
    COD_TRY(cod_node_memory_create(context->comm, bytes, &c->memory));
    for (int r = 0; r < c->node_size; r++)
        c->all[r] = cod_node_memory_part(c->memory, r);
    char *shared = (char *)c->all[0] + room(c->trainable);
    c->gradients = (cod_buffer){.host = c->all[c->node_rank], .bytes = c->trainable * sizeof(float)};
    c->values = (cod_buffer){.host = shared, .bytes = c->trainable * sizeof(float)};
    /* Statistics differ between ranks; the first rank's go into the moving average. */
    c->average =
        (cod_buffer){.host = shared + room(c->trainable), .bytes = (first ? count : c->trainable) * sizeof(float)};
    c->on_device = weights->values->host == NULL;
    if (c->on_device)
        return COD_OK;
    division->average = averages ? &c->average : NULL;
    return cod_weights_place(weights, &c->values, &c->gradients, first);
}

static cod_status make_mirrors(central_storage *c)
{
    const cod_train_session *session = c->context->session;
    const cod_weights *weights = &session->weights;
    cod_buffer *average = cod_optimiser_ema(session->optimisers[0]);
    if (!c->on_device)
        return COD_OK;
    COD_TRY(cod_mirror_init(&c->values_here, weights->backend, weights->device, weights->values));
    COD_TRY(cod_mirror_init(&c->gradients_here, weights->backend, weights->device, weights->grads));
    return average != NULL ? cod_mirror_init(&c->average_here, weights->backend, weights->device, average) : COD_OK;
}

static cod_status start(cod_strategy *strategy, cod_train_context *context)
{
    central_storage *c = (central_storage *)strategy;
    c->context = context;
    return cod_group_agree(cod_comm_world(context->comm), make_mirrors(c), NULL);
}

/** Brings this rank's gradients to the node's memory. */
static cod_status bring_gradients(central_storage *c)
{
    if (!c->on_device)
        return COD_OK;
    COD_TRY(cod_mirror_fetch(&c->gradients_here, 0, c->trainable));
    memcpy(c->gradients.host, c->gradients_here.host, c->trainable * sizeof(float));
    return COD_OK;
}

/** Gives the device the mean of this rank's part, or of all where the update needs it. */
static cod_status return_mean(central_storage *c, bool whole)
{
    const size_t first = whole ? 0 : c->first, count = whole ? c->trainable : c->count;
    if (!c->on_device)
        return COD_OK;
    memcpy(c->gradients_here.host + first, (float *)c->gradients.host + first, count * sizeof(float));
    return cod_mirror_return(&c->gradients_here, first, count);
}

/** Puts the ranks' parts of what each has on its device together, in the node's memory and then on every device. */
static cod_status put_together(central_storage *c, cod_mirror *here, cod_buffer *shared)
{
    float *all = shared->host;
    COD_TRY(cod_mirror_fetch(here, c->first, c->count));
    if (c->count > 0)
        memcpy(all + c->first, here->host + c->first, c->count * sizeof(float));
    cod_node_memory_barrier(c->memory);
    if (here->host == NULL) /* the moving average, on a rank without a part */
        return COD_OK;
    memcpy(here->host, all, c->trainable * sizeof(float));
    return cod_mirror_return(here, 0, c->trainable);
}

static cod_status place(cod_strategy *strategy, cod_train_context *context, cod_division *division)
{
    central_storage *c = (central_storage *)strategy;
    c->node_rank = cod_comm_node_rank(context->comm);
    c->node_size = cod_comm_node_size(context->comm);
    c->trainable = context->session->weights.layout.trainable;
    COD_TRY(cod_group_create_by_node(context->comm, &c->node));
    COD_TRY(cod_between_init(&c->between, context->comm, c->node));
    if (!cod_between_part(&c->between, c->trainable, &c->first, &c->count))
        c->first = c->count = 0;
    division->only_part = true;
    division->first = c->first;
    division->count = c->count;
    return cod_group_agree(cod_comm_world(context->comm), share(c, context, division), NULL);
}

/** Leaves the mean over all ranks of this rank's part in its gradients. */
static cod_status average_part(central_storage *c, const cod_train_context *context)
{
    float *mean = c->all[c->node_rank] + c->first;
    const int ranks = cod_comm_size(context->comm), nodes = cod_group_count(c->node);
    float scale = (float)(1.0 / ranks);
    for (size_t i = 0; i < c->count; i++) {
        float sum = c->all[0][c->first + i];
        for (int r = 1; r < c->node_size; r++)
            sum += c->all[r][c->first + i];
        mean[i] = sum;
    }
    if (c->between.across != NULL && c->count > 0) {
        cod_collective *collective = cod_group_collective(c->between.across);
        cod_reduction *reduction = NULL;
        scale = (float)((double)nodes / ranks);
        COD_TRY(collective->ops->average_start(collective, &c->gradients, c->first * sizeof(float), c->count, NULL,
                                               &reduction));
        COD_TRY(collective->ops->wait(reduction, NULL));
    }
    for (size_t i = 0; i < c->count; i++)
        mean[i] *= scale;
    return COD_OK;
}

/** Every rank gets the whole mean, of whose norm clipping needs the same bits on all. */
static void complete(central_storage *c)
{
    for (int r = 0; r < c->between.parts; r++) {
        size_t first, count;
        cod_between_part_of(&c->between, c->trainable, r, &first, &count);
        if (r != c->node_rank)
            memcpy(c->all[c->node_rank] + first, c->all[r] + first, count * sizeof(float));
    }
}

static cod_status before_update(cod_strategy *strategy, cod_train_context *context, int set)
{
    (void)set;
    central_storage *c = (central_storage *)strategy;
    const bool clips = context->config->train.clip_norm > 0;
    COD_TRY(bring_gradients(c)); /* waits for what computes, which is not the exchange's time */
    const double begin = cod_clock_s(), trace = cod_trace_begin();
    cod_node_memory_barrier(c->memory);
    COD_TRY(average_part(c, context));
    if (clips) {
        cod_node_memory_barrier(c->memory);
        complete(c);
    }
    COD_TRY(return_mean(c, clips));
    cod_trace_end(trace, "exchange", "average");
    c->waited_s += cod_clock_s() - begin;
    return COD_OK;
}

static cod_status after_update(cod_strategy *strategy, cod_train_context *context, int set)
{
    (void)set;
    central_storage *c = (central_storage *)strategy;
    const double begin = cod_clock_s(), trace = cod_trace_begin();
    (void)context;
    if (c->on_device)
        COD_TRY(put_together(c, &c->values_here, &c->values));
    else
        cod_node_memory_barrier(c->memory);
    cod_trace_end(trace, "exchange", "meet");
    c->waited_s += cod_clock_s() - begin;
    c->steps++;
    return COD_OK;
}

/** Brings the moving average of all parts together, for evaluating and saving. */
static cod_status gather_average(central_storage *c)
{
    if (!c->on_device || c->context->config->train.ema == 0)
        return COD_OK;
    return put_together(c, &c->average_here, &c->average);
}

static cod_status after_step(cod_strategy *strategy, cod_train_context *context)
{
    const int64_t every = context->config->eval.every, done = context->step + 1;
    return every > 0 && done % every == 0 ? gather_average((central_storage *)strategy) : COD_OK;
}

static cod_status save(cod_strategy *strategy, cod_checkpoint *checkpoint)
{
    (void)checkpoint;
    return gather_average((central_storage *)strategy);
}

static void stats(cod_strategy *strategy, cod_strategy_stats *out)
{
    const central_storage *c = (const central_storage *)strategy;
    out->exchange_ms = c->steps > 0 ? 1e3 * c->waited_s / (double)c->steps : 0;
}

static void destroy(cod_strategy *strategy)
{
    central_storage *c = (central_storage *)strategy;
    cod_mirror_clear(&c->values_here);
    cod_mirror_clear(&c->gradients_here);
    cod_mirror_clear(&c->average_here);
    cod_between_clear(&c->between);
    cod_group_destroy(c->node);
    cod_node_memory_destroy(c->memory);
    free(c->all);
    free(c);
}

static const cod_strategy_division division_ops = {.place = place};

static const cod_strategy_ops ops = {
    .division = &division_ops,
    .start = start,
    .before_update = before_update,
    .after_update = after_update,
    .after_step = after_step,
    .save = save,
    .stats = stats,
    .destroy = destroy,
};

static cod_status create(const cod_run_config *run, cod_strategy **out)
{
    (void)run;
    central_storage *c = calloc(1, sizeof *c);
    COD_REQUIRE_MEMORY(c);
    c->base.ops = &ops;
    *out = &c->base;
    return COD_OK;
}

static void plan(const cod_run_config *run, size_t values, size_t state, cod_strategy_plan *out)
{
    const size_t trainable = values - state, averages = run->train.ema > 0 ? values : 0;
    const int ranks = cod_run_config_ranks(run) > 1 ? cod_run_config_ranks(run) : 1;
    const double pinned = (double)(values + trainable + averages),
                 shared = (double)trainable + (double)(trainable + averages) / ranks;
    *out = (cod_strategy_plan){.what = "gradients summed in each node's memory, then between nodes",
                               .in_group = true,
                               .every_steps = 1,
                               .sent_bytes = 2.0 * (double)trainable * sizeof(float),
                               .host_bytes = (pinned + shared) * sizeof(float),
                               .part = trainable / (size_t)ranks + (trainable % (size_t)ranks > 0),
                               .once_a_node = true};
}

void cod_strategy_register_central_storage(void)
{
    static const cod_strategy_kind kind = {.name = "central_storage",
                                           .help = "all ranks are one group; weights and moments are kept once on each "
                                                   "node, in shared memory, and each rank updates a part of them",
                                           .one_group = true,
                                           .keeps_state = true,
                                           .one_set = true,
                                           .plan = plan,
                                           .create = create};
    cod_strategy_register(&kind);
}
