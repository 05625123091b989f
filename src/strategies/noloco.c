#include "strategies/noloco.h"

#include "core/memory.h"
#include "core/rng.h"
#include "strategies/local_steps.h"
#include "strategies/transfers.h"
#include "train/checkpoint_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TAG_OUTER, TAG_VALUES };

#define FIELD(name) offsetof(cod_noloco_options, name)
static const cod_option option_list[] = {
    {"period", COD_OPTION_INT, FIELD(period), "50", 1, 1e9, NULL,
     "Steps that groups train alone between two outer steps. At an outer step, each group waits for one other group."},
    {"outer_rate", COD_OPTION_FLOAT, FIELD(outer_rate), "0.7", 1e-6, 10, NULL,
     "Learning rate of the outer optimiser. The paper calls it beta."},
    {"outer_momentum", COD_OPTION_FLOAT, FIELD(outer_momentum), "0.5", 0, 0.9999, NULL,
     "Momentum of the outer optimiser. The paper calls it alpha."},
    {"pull", COD_OPTION_FLOAT, FIELD(pull), "1", 0, 2, NULL,
     "How far the outer weights of two groups that meet move to their mean: 0 = not at all, 1 = to the mean. The "
     "paper calls it gamma."},
};
#undef FIELD
static const cod_option_table table = {
    "noloco", "Strategy noloco: outer optimiser steps with one random group at a time (Kolehmainen et al. 2025).",
    option_list, sizeof option_list / sizeof option_list[0], sizeof(cod_noloco_options)};

typedef struct noloco {
    cod_local_steps local;
    const cod_noloco_options *options;
    cod_transfers transfers;
    size_t trainable;
    float *outer, *momentum; /**< [trainable] */
    float *their_outer;      /**< [trainable] of the partner */
    float *theirs;           /**< [trainable + state] of the partner */
    uint32_t *order;         /**< [groups] */
    uint64_t sent_bytes, received_bytes;
} noloco;

int cod_noloco_partner(uint64_t seed, int64_t step, int groups, int group, uint32_t *order)
{
    cod_rng rng = cod_rng_open(seed, 0, 0, (uint64_t)step, COD_RNG_PEER, 0);
    cod_rng_permutation(&rng, order, (size_t)groups);
    for (int i = 0; i + 1 < groups; i += 2) {
        const int a = (int)order[i], b = (int)order[i + 1];
        if (a == group || b == group)
            return a == group ? b : a;
    }
    return group;
}

void cod_noloco_step(const cod_noloco_options *options, float *outer, float *momentum, const float *values,
                     const float *their_outer, const float *theirs, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const double mean = 0.5 * ((double)outer[i] + (double)their_outer[i]);
        const double change = mean - 0.5 * ((double)values[i] + (double)theirs[i]);
        const double delta = options->outer_momentum * (double)momentum[i] - options->outer_rate * change -
                             options->pull * ((double)outer[i] - mean);
        momentum[i] = (float)delta;
        outer[i] = (float)((double)outer[i] + delta);
    }
}

static cod_status make(noloco *n, cod_train_context *context)
{
    const size_t count = cod_local_steps_count(&n->local), bytes = n->trainable * sizeof(float);
    COD_TRY(cod_aligned_alloc((void **)&n->outer, bytes));
    COD_TRY(cod_aligned_alloc((void **)&n->momentum, bytes));
    COD_TRY(cod_aligned_alloc((void **)&n->their_outer, bytes));
    COD_TRY(cod_aligned_alloc((void **)&n->theirs, count * sizeof(float)));
    n->order = calloc((size_t)cod_group_count(context->group), sizeof *n->order);
    COD_REQUIRE_MEMORY(n->order);
    memset(n->momentum, 0, bytes);
    COD_TRY(cod_weights_download_sets(&context->session->weights, n->local.sets, n->local.values));
    memcpy(n->outer, n->local.values, bytes);
    return COD_OK;
}

static cod_status start(cod_strategy *strategy, cod_train_context *context)
{
    noloco *n = (noloco *)strategy;
    COD_TRY(cod_local_steps_start(strategy, context));
    n->trainable = n->local.layout.trainable;
    return cod_group_agree(cod_comm_world(context->comm), make(n, context), NULL);
}

/** Starts to swap this rank's part of `own` [count] for that of its place in group `peer`. */
static cod_status swap_start(noloco *n, cod_train_context *context, int peer, int tag, const float *own, float *theirs,
                             size_t count)
{
    size_t first, part;
    if (!cod_between_part(&n->local.between, count, &first, &part))
        return COD_OK;
    const int rank = cod_group_world_rank(context->group, peer, cod_group_rank(context->group));
    const size_t bytes = part * sizeof(float);
    COD_TRY(cod_transfers_receive(&n->transfers, context->comm, rank, tag, theirs + first, bytes));
    COD_TRY(cod_transfers_send(&n->transfers, context->comm, rank, tag, own + first, bytes));
    n->sent_bytes += bytes;
    n->received_bytes += bytes;
    return COD_OK;
}

/** Brings the partner's φ and θ to all ranks of the group. */
static cod_status swap(noloco *n, cod_train_context *context, int peer, const float *values)
{
    const size_t count = cod_local_steps_count(&n->local);
    COD_TRY(swap_start(n, context, peer, TAG_OUTER, n->outer, n->their_outer, n->trainable));
    COD_TRY(swap_start(n, context, peer, TAG_VALUES, values, n->theirs, count));
    COD_TRY(cod_transfers_wait(&n->transfers));
    COD_TRY(cod_between_share(&n->local.between, n->their_outer, n->trainable));
    return cod_between_share(&n->local.between, n->theirs, count);
}

static cod_status meet(cod_local_steps *local, cod_train_context *context, float *values)
{
    noloco *n = (noloco *)local;
    const uint64_t seed = (uint64_t)context->config->root.seed;
    const int group = cod_group_index(context->group), groups = cod_group_count(context->group);
    const int peer = cod_noloco_partner(seed, context->step + 1, groups, group, n->order);
    const bool alone = peer == group;
    if (!alone)
        COD_TRY(swap(n, context, peer, values));
    cod_noloco_step(n->options, n->outer, n->momentum, values, alone ? n->outer : n->their_outer,
                    alone ? values : n->theirs, n->trainable);
    memcpy(values, n->outer, n->trainable * sizeof *values);
    for (size_t i = n->trainable; i < cod_local_steps_count(local) && !alone; i++)
        values[i] = (float)(0.5 * ((double)values[i] + (double)n->theirs[i]));
    return COD_OK;
}

static cod_status save(cod_strategy *strategy, cod_checkpoint *checkpoint)
{
    const noloco *n = (const noloco *)strategy;
    const size_t bytes = n->trainable * sizeof(float);
    COD_TRY(cod_checkpoint_add_part(checkpoint, n->local.between.group, "outer", n->outer, bytes));
    return cod_checkpoint_add_part(checkpoint, n->local.between.group, "outer_momentum", n->momentum, bytes);
}

static cod_status load(cod_strategy *strategy, cod_train_context *context, const cod_st_file *file)
{
    noloco *n = (noloco *)strategy;
    const size_t bytes = n->trainable * sizeof(float);
    cod_status status = cod_checkpoint_read_part(file, context->group, "outer", n->outer, bytes);
    COD_THEN(status, cod_checkpoint_read_part(file, context->group, "outer_momentum", n->momentum, bytes));
    COD_TRY(cod_group_agree(context->group, status, NULL));
    COD_TRY(cod_group_complete(context->group, n->outer, bytes));
    return cod_group_complete(context->group, n->momentum, bytes);
}

static void stats(cod_strategy *strategy, cod_strategy_stats *out)
{
    const noloco *n = (const noloco *)strategy;
    cod_local_steps_stats(strategy, out);
    out->published_bytes = n->sent_bytes;
    out->pulled_bytes = n->received_bytes;
}

static void destroy(cod_strategy *strategy)
{
    noloco *n = (noloco *)strategy;
    cod_transfers_clear(&n->transfers);
    cod_local_steps_clear(&n->local);
    cod_aligned_free(n->outer);
    cod_aligned_free(n->momentum);
    cod_aligned_free(n->their_outer);
    cod_aligned_free(n->theirs);
    free(n->order);
    free(n);
}

static const cod_strategy_ops ops = {
    .start = start,
    .gradient_ready = cod_local_steps_gradient_ready,
    .before_update = cod_local_steps_before_update,
    .after_step = cod_local_steps_after_step,
    .save = save,
    .load = load,
    .stats = stats,
    .destroy = destroy,
};

static cod_status create(const cod_run_config *run, cod_strategy **out)
{
    noloco *n = calloc(1, sizeof *n);
    COD_REQUIRE_MEMORY(n);
    n->options = cod_run_config_section(run, &table);
    n->local = (cod_local_steps){.base.ops = &ops, .period = n->options->period, .meet = meet};
    *out = &n->local.base;
    return COD_OK;
}

static void plan(const cod_run_config *run, size_t values, size_t state, cod_strategy_plan *out)
{
    const cod_noloco_options *options = cod_run_config_section(run, &table);
    const size_t trainable = values - state;
    *out = (cod_strategy_plan){.every_steps = options->period,
                               .sent_bytes = run->group_count > 1 ? (double)((values + trainable) * sizeof(float)) : 0,
                               .memory_bytes = (double)((2 * values + 3 * trainable) * sizeof(float))};
    snprintf(out->what, sizeof out->what, "weights swapped with one random group");
}

void cod_strategy_register_noloco(void)
{
    static const cod_option_table *const tables[] = {&table};
    static const cod_strategy_kind kind = {
        .name = "noloco",
        .help = "groups train alone; every so many steps each group meets one random other group, and both take an "
                "outer step that also draws their weights together",
        .keeps_state = true,
        .averages = true,
        .only_averages = true,
        .tables = tables,
        .table_count = 1,
        .check = cod_local_steps_check,
        .plan = plan,
        .create = create};
    cod_strategy_register(&kind);
}
