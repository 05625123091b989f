#include "strategies/diloco.h"

#include "core/hash.h"
#include "core/log.h"
#include "strategies/coded_average.h"
#include "strategies/local_steps.h"
#include "train/checkpoint_parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CODEC_F32, CODEC_INT8 };

static const char *const codecs[] = {"f32", "int8", NULL};
#define FIELD(name) offsetof(cod_diloco_options, name)
static const cod_option option_list[] = {
    {"period", COD_OPTION_INT, FIELD(period), "500", 1, 1e9, NULL,
     "Steps that groups train alone between two outer steps. All groups wait for each other at an outer step. The "
     "paper calls this number H."},
    {"outer_rate", COD_OPTION_FLOAT, FIELD(outer_rate), "0.7", 1e-6, 10, NULL,
     "Learning rate of the outer optimiser. 1 with outer_momentum: 0 is local_sgd."},
    {"outer_momentum", COD_OPTION_FLOAT, FIELD(outer_momentum), "0.9", 0, 0.9999, NULL,
     "Nesterov momentum of the outer optimiser."},
    {"codec", COD_OPTION_CHOICE, FIELD(codec), "f32", 0, 0, codecs,
     "Coding of the change of the weights. f32: exact. int8: a quarter of the bytes."},
    {"fragments", COD_OPTION_INT, FIELD(fragments), "1", 1, 1e6, NULL,
     "Number of ranges that the weights are cut into. One range is averaged every period/fragments steps (Streaming "
     "DiLoCo, Douillard et al. 2025). It must divide `period`."},
    {"overlap_steps", COD_OPTION_INT, FIELD(overlap_steps), "0", 0, 1e9, NULL,
     "Steps that groups go on training while a fragment is being averaged. Must be below period/fragments. 0 = they "
     "wait."},
    {"keep_local", COD_OPTION_FLOAT, FIELD(keep_local), "auto", 0, 1, cod_option_auto,
     "Share of a group's own fragment that remains when the averaged one arrives. auto: 0.5 if overlap_steps is above "
     "0, otherwise 0."},
};
#undef FIELD
static const cod_option_table table = {
    "diloco", "Strategy diloco: outer optimiser steps on the averaged weights of all groups (Douillard et al. 2023).",
    option_list, sizeof option_list / sizeof option_list[0], sizeof(cod_diloco_options)};

static const cod_codec_options int8 = {
    .coding = COD_CHUNK_INT8, .entropy = COD_CODEC_PLAIN, .bf16_scales = true, .chunk_values = 16384};

/** A range of the trainable values and one of the states, which meet together. */
typedef struct fragment {
    size_t first, count, state_first, state_count;
} fragment;

typedef struct diloco {
    cod_local_steps local;
    const cod_diloco_options *options;
    cod_coded_average *coded; /**< [fragments]; int8 only */
    int64_t spacing;          /**< steps from one fragment's meeting to the next one's */
    float keep_local;
    size_t trainable;
    float *outer;    /**< [trainable] what all groups last went on from */
    float *momentum; /**< [trainable] */
    float *moving;   /**< [largest fragment] on its way to the mean, trainable values and then states */
    /* The fragment that is being averaged while groups continue training: */
    int64_t started; /**< steps done then; -1 = there is none */
    float *sent;     /**< [largest fragment] what the group gave; for checkpoints */
    cod_reduction *reduction;
} diloco;

static fragment fragment_of(const diloco *d, int64_t number)
{
    const size_t p = (size_t)number, parts = (size_t)d->options->fragments, state = d->local.layout.state;
    const size_t first = d->trainable * p / parts, state_first = state * p / parts;
    return (fragment){first, d->trainable * (p + 1) / parts - first, state_first,
                      state * (p + 1) / parts - state_first};
}

static size_t size_of(fragment f)
{
    return f.count + f.state_count;
}

/** The fragment whose meeting begins after `done` steps. */
static int64_t number_at(const diloco *d, int64_t done)
{
    return (done / d->spacing - 1) % d->options->fragments;
}

static size_t largest_fragment(const diloco *d)
{
    size_t largest = 0;
    for (int64_t p = 0; p < d->options->fragments; p++)
        largest = size_of(fragment_of(d, p)) > largest ? size_of(fragment_of(d, p)) : largest;
    return largest;
}

static cod_status make(diloco *d, cod_train_context *context)
{
    const cod_root_options *root = &context->config->root;
    const size_t bytes = d->trainable * sizeof(float), moving = largest_fragment(d) * sizeof(float);
    COD_TRY(cod_aligned_alloc((void **)&d->outer, bytes));
    COD_TRY(cod_aligned_alloc((void **)&d->momentum, bytes));
    COD_TRY(cod_aligned_alloc((void **)&d->moving, moving));
    COD_TRY(cod_aligned_alloc((void **)&d->sent, moving));
    memset(d->momentum, 0, bytes);
    memset(d->sent, 0, moving);
    COD_TRY(cod_weights_download_sets(&context->session->weights, d->local.sets, d->local.values));
    memcpy(d->outer, d->local.values, bytes);
    if (d->options->codec == CODEC_F32)
        return COD_OK;
    const uint64_t run = cod_hash(root->name, strlen(root->name), (uint64_t)root->seed);
    d->coded = calloc((size_t)d->options->fragments, sizeof *d->coded);
    COD_REQUIRE_MEMORY(d->coded);
    for (int64_t p = 0; p < d->options->fragments; p++) {
        const fragment f = fragment_of(d, p);
        COD_TRY(cod_coded_average_init(&d->coded[p], &d->local.between, &int8, size_of(f), f.count, run));
    }
    return COD_OK;
}

static cod_status start(cod_strategy *strategy, cod_train_context *context)
{
    diloco *d = (diloco *)strategy;
    COD_TRY(cod_local_steps_start(strategy, context));
    d->local.base.in_step_every = d->spacing;
    d->trainable = d->local.layout.trainable;
    return cod_group_agree(cod_comm_world(context->comm), make(d, context), NULL);
}

/** Starts averaging what lies in `moving`. */
static cod_status average_start(diloco *d, cod_train_context *context, int64_t number)
{
    const fragment f = fragment_of(d, number);
    float *const values = d->moving;
    const float *outer = d->outer + f.first;
    if (d->options->codec == CODEC_F32)
        return cod_between_start(&d->local.between, values, size_of(f), &d->reduction);
    for (size_t i = 0; i < f.count; i++)
        values[i] = outer[i] - values[i];
    COD_TRY(cod_coded_average_run(&d->coded[number], values, (uint64_t)context->step + 1));
    for (size_t i = 0; i < f.count; i++)
        values[i] = outer[i] - values[i];
    return COD_OK;
}

static cod_status average_wait(diloco *d, int64_t number)
{
    if (d->options->codec != CODEC_F32)
        return COD_OK;
    cod_reduction *const reduction = d->reduction;
    d->reduction = NULL;
    return cod_between_wait(&d->local.between, d->moving, size_of(fragment_of(d, number)), reduction);
}

/** Gives the fragment as it now is. */
static cod_status fragment_start(diloco *d, cod_train_context *context, const float *values, int64_t number)
{
    const fragment f = fragment_of(d, number);
    memcpy(d->moving, values + f.first, f.count * sizeof *values);
    memcpy(d->moving + f.count, values + d->trainable + f.state_first, f.state_count * sizeof *values);
    memcpy(d->sent, d->moving, size_of(f) * sizeof *values);
    return average_start(d, context, number);
}

/** Waits for the mean, takes the outer step, and leaves of the group's own values the part `keep`. */
static cod_status fragment_finish(diloco *d, float *values, int64_t number, double keep)
{
    const fragment f = fragment_of(d, number);
    const double rate = d->options->outer_rate, momentum = d->options->outer_momentum;
    float *const outer = d->outer + f.first, *const momenta = d->momentum + f.first, *const own = values + f.first;
    float *const states = values + d->trainable + f.state_first;
    COD_TRY(average_wait(d, number));
    for (size_t i = 0; i < f.count; i++) {
        const double change = (double)outer[i] - (double)d->moving[i];
        const double u = momentum * (double)momenta[i] + change;
        /* θ - η·(Δ + μ·u), written so that η = 1 and μ = 0 leave the mean's very bits. */
        outer[i] = (float)((double)d->moving[i] + (1 - rate) * change - rate * momentum * u);
        momenta[i] = (float)u;
        own[i] = keep == 0 ? outer[i] : (float)(keep * (double)own[i] + (1 - keep) * (double)outer[i]);
    }
    for (size_t i = 0; i < f.state_count; i++) {
        const double mean = (double)d->moving[f.count + i];
        states[i] = (float)(keep * (double)states[i] + (1 - keep) * mean);
    }
    return COD_OK;
}

/** Ends what is under way, and begins what is due; after the last step, all fragments meet and none is kept. */
static cod_status meet(cod_local_steps *local, cod_train_context *context, float *values)
{
    diloco *d = (diloco *)local;
    const int64_t done = context->step + 1, overlap = d->options->overlap_steps;
    const bool last = done == context->steps;
    int64_t met = -1;
    if (d->started >= 0) {
        met = number_at(d, d->started);
        COD_TRY(fragment_finish(d, values, met, last ? 0 : (double)d->keep_local));
        d->started = -1;
    }
    for (int64_t p = 0; p < d->options->fragments && last; p++) {
        if (p == met)
            continue;
        COD_TRY(fragment_start(d, context, values, p));
        COD_TRY(fragment_finish(d, values, p, 0));
    }
    if (last || done % d->spacing != 0)
        return COD_OK;
    COD_TRY(fragment_start(d, context, values, number_at(d, done)));
    if (overlap > 0)
        d->started = done;
    return overlap > 0 ? COD_OK : fragment_finish(d, values, number_at(d, done), (double)d->keep_local);
}

static cod_status after_step(cod_strategy *strategy, cod_train_context *context)
{
    diloco *d = (diloco *)strategy;
    const int64_t done = context->step + 1;
    const bool ends = d->started >= 0 && done == d->started + d->options->overlap_steps;
    d->local.steps++;
    if (cod_group_count(context->group) == 1 || (done % d->spacing != 0 && !ends && done != context->steps))
        return COD_OK;
    return cod_local_steps_meet(&d->local, context, (uint64_t)((done + d->spacing - 1) / d->spacing));
}

static cod_status save(cod_strategy *strategy, cod_checkpoint *checkpoint)
{
    const diloco *d = (const diloco *)strategy;
    const size_t bytes = d->trainable * sizeof(float);
    COD_TRY(cod_checkpoint_add_part(checkpoint, d->local.between.group, "outer", d->outer, bytes));
    COD_TRY(cod_checkpoint_add_part(checkpoint, d->local.between.group, "outer_momentum", d->momentum, bytes));
    if (d->options->overlap_steps == 0)
        return COD_OK;
    COD_TRY(cod_checkpoint_add_number(checkpoint, "fragment_started", (double)d->started));
    return cod_checkpoint_add_part(checkpoint, d->local.between.group, "fragment", d->sent,
                                   largest_fragment(d) * sizeof(float));
}

/** Gives once more what was under way: all groups stopped, and go on, at one step. */
static cod_status load_started(diloco *d, cod_train_context *context, const cod_st_file *file)
{
    const size_t bytes = largest_fragment(d) * sizeof(float);
    int64_t started = -1;
    cod_status status = cod_checkpoint_whole(file, "fragment_started", -1, &started);
    COD_THEN(status, cod_checkpoint_read_part(file, context->group, "fragment", d->sent, bytes));
    COD_TRY(cod_group_agree(context->group, status, NULL));
    COD_TRY(cod_group_complete(context->group, d->sent, bytes));
    d->started = started;
    if (d->started < 0)
        return COD_OK;
    memcpy(d->moving, d->sent, bytes);
    return average_start(d, context, number_at(d, d->started));
}

static cod_status load(cod_strategy *strategy, cod_train_context *context, const cod_st_file *file)
{
    diloco *d = (diloco *)strategy;
    const size_t bytes = d->trainable * sizeof(float);
    cod_status status = cod_checkpoint_read_part(file, context->group, "outer", d->outer, bytes);
    COD_THEN(status, cod_checkpoint_read_part(file, context->group, "outer_momentum", d->momentum, bytes));
    COD_TRY(cod_group_agree(context->group, status, NULL));
    COD_TRY(cod_group_complete(context->group, d->outer, bytes));
    COD_TRY(cod_group_complete(context->group, d->momentum, bytes));
    return d->options->overlap_steps > 0 ? load_started(d, context, file) : COD_OK;
}

static void destroy(cod_strategy *strategy)
{
    diloco *d = (diloco *)strategy;
    if (d->started >= 0 &&
        average_wait(d, number_at(d, d->started)) != COD_OK) /* a run that stops leaves none behind */
        cod_log_debug("diloco: %s", cod_error_message());
    for (int64_t p = 0; p < d->options->fragments && d->coded != NULL; p++)
        cod_coded_average_clear(&d->coded[p]);
    free(d->coded);
    cod_local_steps_clear(&d->local);
    cod_aligned_free(d->outer);
    cod_aligned_free(d->momentum);
    cod_aligned_free(d->moving);
    cod_aligned_free(d->sent);
    free(d);
}

static const cod_strategy_ops ops = {
    .start = start,
    .gradient_ready = cod_local_steps_gradient_ready,
    .before_update = cod_local_steps_before_update,
    .after_step = after_step,
    .save = save,
    .load = load,
    .stats = cod_local_steps_stats,
    .destroy = destroy,
};

static cod_status create(const cod_run_config *run, cod_strategy **out)
{
    diloco *d = calloc(1, sizeof *d);
    COD_REQUIRE_MEMORY(d);
    d->options = cod_run_config_section(run, &table);
    d->spacing = d->options->period / d->options->fragments;
    d->started = -1;
    d->keep_local =
        isnan(d->options->keep_local) ? d->options->overlap_steps > 0 ? 0.5F : 0 : (float)d->options->keep_local;
    d->local = (cod_local_steps){.base.ops = &ops, .period = d->options->period, .meet = meet};
    *out = &d->local.base;
    return COD_OK;
}

static void check(const cod_run_config *run)
{
    const cod_diloco_options *options = cod_run_config_section(run, &table);
    const int64_t period = options->period, fragments = options->fragments, overlap = options->overlap_steps;
    cod_local_steps_check(run);
    if (period % fragments != 0)
        cod_config_problem_key(run->config, "diloco.fragments", "%lld is no divisor of diloco.period, %lld",
                               (long long)fragments, (long long)period);
    else if (overlap >= period / fragments)
        cod_config_problem_key(run->config, "diloco.overlap_steps",
                               "a fragment must arrive before the next one starts, in %lld steps; set fewer than that",
                               (long long)(period / fragments));
    if (overlap > 0 && options->codec != CODEC_F32)
        cod_config_problem_key(run->config, "diloco.overlap_steps",
                               "coded changes are averaged at once; set diloco.codec=f32 to overlap them");
}

static void plan(const cod_run_config *run, size_t values, size_t state, cod_strategy_plan *out)
{
    const cod_diloco_options *options = cod_run_config_section(run, &table);
    const size_t groups = run->group_count, trainable = values - state, parts = (size_t)options->fragments;
    const double held = sizeof(float) * (double)(values + 2 * trainable + 2 * values / parts);
    const double coded = cod_coded_average_sent_bytes(&int8, values, trainable, groups);
    const double sent = options->codec == CODEC_F32 ? cod_between_sent_bytes(values, groups) : coded;
    *out = (cod_strategy_plan){.every_steps = options->period / options->fragments,
                               .sent_bytes = sent / (double)parts,
                               .memory_bytes = options->codec == CODEC_F32 ? held : held + 2 * coded};
    snprintf(out->what, sizeof out->what, "changes averaged (%s%s)", codecs[options->codec],
             parts > 1 ? ", a fragment" : "");
}

void cod_strategy_register_diloco(void)
{
    static const cod_option_table *const tables[] = {&table};
    static const cod_strategy_kind kind = {
        .name = "diloco",
        .help = "groups train alone; every so many steps they wait for each other, and the average change of their "
                "weights is the gradient of an outer optimiser",
        .keeps_state = true,
        .averages = true,
        .only_averages = true,
        .tables = tables,
        .table_count = 1,
        .check = check,
        .plan = plan,
        .create = create};
    cod_strategy_register(&kind);
}
