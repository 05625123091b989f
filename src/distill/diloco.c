#include "distill/diloco.h"

#include "core/hash.h"
#include "distill/coded_average.h"
#include "train/checkpoint_parts.h"
#include "train/local_steps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CODEC_F32, CODEC_INT8 };

static const char *const codecs[] = {"f32", "int8", NULL};
#define FIELD(name) offsetof(cod_diloco_options, name)
static const cod_option option_list[] = {
    {"period", COD_OPTION_INT, FIELD(period), "500", 1, 1e9, NULL,
     "steps that groups train alone between two outer steps, for which they wait; the paper's H"},
    {"outer_rate", COD_OPTION_FLOAT, FIELD(outer_rate), "0.7", 1e-6, 10, NULL,
     "learning rate of the outer optimiser; 1 without outer_momentum is local_sgd"},
    {"outer_momentum", COD_OPTION_FLOAT, FIELD(outer_momentum), "0.9", 0, 0.9999, NULL,
     "Nesterov momentum of the outer optimiser"},
    {"codec", COD_OPTION_CHOICE, FIELD(codec), "f32", 0, 0, codecs,
     "coding of what weights changed by: f32 exact, int8 a quarter of the bytes"},
};
#undef FIELD
static const cod_option_table table = {"diloco", "Outer steps between groups (Douillard et al. 2023): strategy diloco",
                                       option_list, sizeof option_list / sizeof option_list[0],
                                       sizeof(cod_diloco_options)};

static const cod_codec_options int8 = {
    .coding = COD_CHUNK_INT8, .entropy = COD_CODEC_PLAIN, .bf16_scales = true, .chunk_values = 16384};

typedef struct diloco {
    cod_local_steps local;
    const cod_diloco_options *options;
    cod_coded_average coded; /**< int8 only */
    size_t trainable;
    float *outer;    /**< [trainable] what all groups last went on from */
    float *momentum; /**< [trainable] */
} diloco;

static cod_status make(diloco *d, cod_train_context *context)
{
    const cod_root_options *root = &context->config->root;
    const size_t count = cod_local_steps_count(&d->local), bytes = d->trainable * sizeof(float);
    COD_TRY(cod_aligned_alloc((void **)&d->outer, bytes));
    COD_TRY(cod_aligned_alloc((void **)&d->momentum, bytes));
    memset(d->momentum, 0, bytes);
    COD_TRY(cod_weights_download_sets(&context->session->weights, d->local.sets, d->local.values));
    memcpy(d->outer, d->local.values, bytes);
    if (d->options->codec == CODEC_F32)
        return COD_OK;
    const uint64_t run = cod_hash(root->name, strlen(root->name), (uint64_t)root->seed);
    return cod_coded_average_init(&d->coded, &d->local.between, &int8, count, d->trainable, run);
}

static cod_status start(cod_strategy *strategy, cod_train_context *context)
{
    diloco *d = (diloco *)strategy;
    COD_TRY(cod_local_steps_start(strategy, context));
    d->trainable = d->local.layout.trainable;
    return cod_group_agree(cod_comm_world(context->comm), make(d, context), NULL);
}

/** Leaves the groups' mean in `values`. */
static cod_status average(diloco *d, cod_train_context *context, float *values)
{
    if (d->options->codec == CODEC_F32)
        return cod_between_average(&d->local.between, values, cod_local_steps_count(&d->local));
    for (size_t i = 0; i < d->trainable; i++)
        values[i] = d->outer[i] - values[i];
    COD_TRY(cod_coded_average_run(&d->coded, values, (uint64_t)context->step + 1));
    for (size_t i = 0; i < d->trainable; i++)
        values[i] = d->outer[i] - values[i];
    return COD_OK;
}

static cod_status meet(cod_local_steps *local, cod_train_context *context, float *values)
{
    diloco *d = (diloco *)local;
    const double rate = d->options->outer_rate, momentum = d->options->outer_momentum;
    COD_TRY(average(d, context, values));
    for (size_t i = 0; i < d->trainable; i++) {
        const double change = (double)d->outer[i] - (double)values[i];
        const double u = momentum * (double)d->momentum[i] + change;
        /* θ - η·(Δ + μ·u), written so that η = 1 and μ = 0 leave the mean's very bits. */
        values[i] = (float)((double)values[i] + (1 - rate) * change - rate * momentum * u);
        d->momentum[i] = (float)u;
        d->outer[i] = values[i];
    }
    return COD_OK;
}

static cod_status save(cod_strategy *strategy, cod_checkpoint *checkpoint)
{
    const diloco *d = (const diloco *)strategy;
    const size_t bytes = d->trainable * sizeof(float);
    COD_TRY(cod_checkpoint_add_part(checkpoint, d->local.between.group, "outer", d->outer, bytes));
    return cod_checkpoint_add_part(checkpoint, d->local.between.group, "outer_momentum", d->momentum, bytes);
}

static cod_status load(cod_strategy *strategy, cod_train_context *context, const cod_st_file *file)
{
    diloco *d = (diloco *)strategy;
    const size_t bytes = d->trainable * sizeof(float);
    cod_status status = cod_checkpoint_read_part(file, context->group, "outer", d->outer, bytes);
    if (status == COD_OK)
        status = cod_checkpoint_read_part(file, context->group, "outer_momentum", d->momentum, bytes);
    COD_TRY(cod_group_agree(context->group, status, NULL));
    COD_TRY(cod_checkpoint_complete(context->group, d->outer, bytes));
    return cod_checkpoint_complete(context->group, d->momentum, bytes);
}

static void destroy(cod_strategy *strategy)
{
    diloco *d = (diloco *)strategy;
    cod_coded_average_clear(&d->coded);
    cod_local_steps_clear(&d->local);
    cod_aligned_free(d->outer);
    cod_aligned_free(d->momentum);
    free(d);
}

static const cod_strategy_ops ops = {
    .start = start,
    .gradient_ready = cod_local_steps_gradient_ready,
    .before_update = cod_local_steps_before_update,
    .after_step = cod_local_steps_after_step,
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
    d->local = (cod_local_steps){.base.ops = &ops, .period = d->options->period, .meet = meet};
    *out = &d->local.base;
    return COD_OK;
}

static void plan(const cod_run_config *run, size_t values, size_t state, cod_strategy_plan *out)
{
    const cod_diloco_options *options = cod_run_config_section(run, &table);
    const size_t groups = run->group_count, trainable = values - state;
    const double held = sizeof(float) * (double)(values + 2 * trainable);
    const double coded = cod_coded_average_sent_bytes(&int8, values, trainable, groups);
    *out =
        (cod_strategy_plan){.every_steps = options->period,
                            .sent_bytes = options->codec == CODEC_F32 ? cod_between_sent_bytes(values, groups) : coded,
                            .memory_bytes = options->codec == CODEC_F32 ? held : held + 2 * coded};
    snprintf(out->what, sizeof out->what, "changes averaged (%s)", codecs[options->codec]);
}

void cod_strategy_register_diloco(void)
{
    static const cod_option_table *const tables[] = {&table};
    static const cod_strategy_kind kind = {
        .name = "diloco",
        .help =
            "groups train alone; their weights' averaged change is the gradient of an outer optimiser every so many "
            "steps, for which they wait",
        .keeps_state = true,
        .averages = true,
        .tables = tables,
        .table_count = 1,
        .check = cod_local_steps_check,
        .plan = plan,
        .create = create};
    cod_strategy_register(&kind);
}
