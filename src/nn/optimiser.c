#include "nn/optimiser.h"

#include "core/queue.h"

#include <math.h>
#include <stdlib.h>

const char *const cod_optimiser_names[] = {
    [COD_OPT_SGD] = "sgd", [COD_OPT_ADAM] = "adam", [COD_OPT_ADAMW] = "adamw", NULL};

enum { MAX_PLANS = 2 };

struct cod_optimiser {
    cod_weights *weights;
    int set;
    cod_set_range range; /**< of the set */
    cod_optimiser_options options;
    cod_buffer *m, *v, *ema;
    cod_buffer *norm; /**< of the gradient, {1} */
    cod_scalars *scalars;
    bool own_scalars;
    size_t rates; /**< scalars: {rate, 1-β1ᵗ, 1-β2ᵗ, the EMA's decay} */
    cod_plan *plans[MAX_PLANS];
    size_t plan_count;
    cod_replay replay; /**< of the plans alone */
    cod_sequel sequel; /**< the plans behind a program */
    bool ema_started;
};

enum { RATES = 4 };

static cod_view vector_view(cod_buffer *buffer, size_t offset, cod_dtype dtype, size_t count)
{
    return buffer ? cod_view_dense(buffer, offset, dtype, (cod_shape){1, 1, 1, (int64_t)count}) : (cod_view){0};
}

static cod_status add_plan(cod_optimiser *optimiser, const cod_op *op)
{
    const cod_weights *weights = optimiser->weights;
    COD_TRY(weights->backend->plan_create(weights->device, op, &optimiser->plans[optimiser->plan_count]));
    optimiser->plan_count++;
    return COD_OK;
}

/** Of the set's values and states. */
static size_t all_bytes(const cod_optimiser *optimiser)
{
    return (optimiser->range.count + optimiser->range.state_count) * cod_dtype_bytes(optimiser->weights->dtype);
}

static cod_status make_scalars(cod_optimiser *optimiser)
{
    const cod_weights *weights = optimiser->weights;
    optimiser->scalars = optimiser->options.scalars;
    optimiser->own_scalars = optimiser->scalars == NULL;
    if (optimiser->own_scalars)
        COD_TRY(cod_scalars_create(weights->backend, weights->device, &optimiser->scalars));
    COD_TRY(cod_scalars_reserve(optimiser->scalars, RATES, &optimiser->rates));
    return weights->backend->buffer_create(weights->device, cod_dtype_bytes(weights->dtype), &optimiser->norm);
}

/** As many buffers of the part's size: Adam's two, or the momentum of SGD, if any. */
static size_t moment_count(const cod_optimiser_options *options)
{
    return options->kind != COD_OPT_SGD ? 2 : options->momentum != 0;
}

void cod_optimiser_memory(const cod_set_range *range, const cod_optimiser_options *options, size_t *moments,
                          size_t *average)
{
    const size_t element = sizeof(float);
    const size_t count = options->only_part ? options->part_count : range->count;
    *moments = moment_count(options) * count * element;
    *average = options->ema_decay > 0 && options->average == NULL && count > 0
                   ? (range->count + range->state_count) * element
                   : 0;
}

static cod_status make_buffers(cod_optimiser *optimiser)
{
    const cod_weights *weights = optimiser->weights;
    const cod_optimiser_options *options = &optimiser->options;
    const size_t bytes = options->part_count * cod_dtype_bytes(weights->dtype), moments = moment_count(options);
    if (options->part_count == 0)
        return COD_OK;
    if (moments > 0)
        COD_TRY(weights->backend->buffer_create(weights->device, bytes, &optimiser->m));
    if (moments > 1)
        COD_TRY(weights->backend->buffer_create(weights->device, bytes, &optimiser->v));
    if (options->ema_decay > 0 && options->average != NULL)
        optimiser->ema = options->average;
    else if (options->ema_decay > 0)
        COD_TRY(weights->backend->buffer_create(weights->device, all_bytes(optimiser), &optimiser->ema));
    return COD_OK;
}

/** Whether the moving average covers states. */
static bool has_states(const cod_optimiser *optimiser)
{
    return optimiser->ema->bytes >= all_bytes(optimiser);
}

static cod_status make_plans(cod_optimiser *optimiser)
{
    const cod_weights *weights = optimiser->weights;
    const cod_optimiser_options *options = &optimiser->options;
    const cod_dtype dtype = weights->dtype;
    const cod_set_range *range = &optimiser->range;
    size_t first = range->first, count = range->count;
    const size_t element = cod_dtype_bytes(dtype);
    const cod_view all = vector_view(weights->grads, first * element, dtype, count);
    const size_t end = first + count, part_end = options->part_first + options->part_count;
    first = first > options->part_first ? first : options->part_first;
    if ((end < part_end ? end : part_end) <= first)
        return COD_OK;
    count = (end < part_end ? end : part_end) - first;
    const size_t offset = first * element, moment = (first - options->part_first) * element;
    const cod_view grad = vector_view(weights->grads, offset, dtype, count);
    const cod_view norm = vector_view(optimiser->norm, 0, dtype, 1);
    if (options->clip_norm > 0)
        COD_TRY(add_plan(optimiser, &(cod_op){.kind = COD_OP_GRAD_NORM,
                                              .inputs = {options->sum_squares != NULL ? grad : all},
                                              .outputs = {norm},
                                              .name = "grad_norm"}));
    cod_op op = {.kind = COD_OP_OPTIMISER,
                 .attr = {.optimiser = options->kind,
                          .momentum = (float)options->momentum,
                          .nesterov = options->nesterov,
                          .beta1 = (float)options->beta1,
                          .beta2 = (float)options->beta2,
                          .epsilon = (float)options->epsilon,
                          .weight_decay = (float)options->weight_decay,
                          .max_norm = (float)options->clip_norm},
                 .inputs = {grad, cod_scalars_view(optimiser->scalars, optimiser->rates, RATES),
                            options->clip_norm > 0 ? norm : (cod_view){0}},
                 .outputs = {vector_view(weights->values, offset, dtype, count),
                             vector_view(optimiser->m, moment, dtype, count),
                             vector_view(optimiser->v, moment, dtype, count),
                             vector_view(optimiser->ema, offset - range->first * element, dtype, count)},
                 .name = "optimiser"};
    if (optimiser->ema != NULL && range->state_count > 0 && has_states(optimiser)) {
        size_t from;
        cod_buffer *states = cod_weights_states(weights, optimiser->set, &from);
        op.inputs[3] = vector_view(states, from, dtype, range->state_count);
        op.outputs[4] = vector_view(optimiser->ema, range->count * element, dtype, range->state_count);
    }
    return add_plan(optimiser, &op);
}

cod_status cod_optimiser_create(cod_weights *weights, int set, const cod_optimiser_options *options,
                                cod_optimiser **out)
{
    COD_REQUIRE(weights->grads != NULL, "an optimiser needs weights with gradients");
    COD_REQUIRE(set >= 0 && set < COD_GRAPH_MAX_SETS && weights->sets[set].range.count > 0,
                "there is nothing to train: the parameter set is empty");
    cod_optimiser *optimiser = calloc(1, sizeof *optimiser);
    COD_REQUIRE_MEMORY(optimiser);
    optimiser->weights = weights;
    optimiser->set = set;
    optimiser->range = weights->sets[set].range;
    optimiser->options = *options;
    if (!options->only_part) {
        optimiser->options.part_first = optimiser->range.first;
        optimiser->options.part_count = optimiser->range.count;
    }
    cod_status status = make_scalars(optimiser);
    COD_THEN(status, make_buffers(optimiser));
    COD_THEN(status, make_plans(optimiser));
    if (status != COD_OK) {
        cod_optimiser_destroy(optimiser);
        return status;
    }
    *out = optimiser;
    return COD_OK;
}

void cod_optimiser_destroy(cod_optimiser *optimiser)
{
    if (optimiser == NULL)
        return;
    const cod_weights *weights = optimiser->weights;
    cod_replay_clear(weights->backend, &optimiser->replay);
    cod_recordings_clear(weights->backend, &optimiser->sequel.recordings);
    for (size_t i = 0; i < optimiser->plan_count; i++)
        weights->backend->plan_destroy(optimiser->plans[i]);
    cod_buffer *const own = optimiser->options.average != NULL ? NULL : optimiser->ema;
    cod_buffer *const buffers[] = {optimiser->m, optimiser->v, own, optimiser->norm};
    for (size_t i = 0; i < 4; i++)
        if (buffers[i] != NULL)
            weights->backend->buffer_destroy(weights->device, buffers[i]);
    if (optimiser->own_scalars)
        cod_scalars_destroy(optimiser->scalars);
    free(optimiser);
}

/**
 * Makes the norm of the part's gradients that of all parts. Waits for the device: other ranks need the number before
 * they update.
 */
static cod_status sum_norm(cod_optimiser *optimiser)
{
    const cod_weights *weights = optimiser->weights;
    const cod_backend *backend = weights->backend;
    float norm;
    COD_REQUIRE(weights->dtype == COD_F32, "norms are summed over parts in f32 only");
    COD_TRY(backend->download(weights->device, NULL, &norm, optimiser->norm, 0, sizeof norm));
    double squares = (double)norm * norm;
    COD_TRY(optimiser->options.sum_squares(optimiser->options.sum_context, &squares));
    norm = (float)sqrt(squares);
    return backend->upload(weights->device, NULL, optimiser->norm, 0, &norm, sizeof norm);
}

void cod_optimiser_set_rate(cod_optimiser *optimiser, double rate, int64_t step)
{
    const cod_optimiser_options *options = &optimiser->options;
    /* From the rounded decays that the op uses: 1 - 0.999 in f32 is off by 1e-5, and would not cancel. SGD reads no
     * corrections: they stay 1, so that nothing is copied to the device while the rate is the same. */
    const bool corrects = options->kind != COD_OPT_SGD;
    const double beta1 = corrects ? (float)options->beta1 : 0, beta2 = corrects ? (float)options->beta2 : 0;
    cod_scalars_set(optimiser->scalars, optimiser->rates, (float)rate);
    cod_scalars_set(optimiser->scalars, optimiser->rates + 1, (float)(1 - pow(beta1, (double)step)));
    cod_scalars_set(optimiser->scalars, optimiser->rates + 2, (float)(1 - pow(beta2, (double)step)));
    /* A decay of 0 makes the first average a copy of the weights. */
    cod_scalars_set(optimiser->scalars, optimiser->rates + 3, optimiser->ema_started ? (float)options->ema_decay : 0);
}

/** Queues the plans. Where norms are summed over parts the host acts between them, and this may not be recorded. */
static cod_status run_plans(void *context)
{
    cod_optimiser *optimiser = context;
    const cod_optimiser_options *options = &optimiser->options;
    for (size_t i = 0; i < optimiser->plan_count; i++) {
        COD_TRY(optimiser->weights->backend->plan_run(optimiser->plans[i], NULL));
        if (i == 0 && options->clip_norm > 0 && options->sum_squares != NULL)
            COD_TRY(sum_norm(optimiser));
    }
    return COD_OK;
}

/**
 * Queues the plans by their recording. One plan has none, as it would save nothing; nor where the host acts between
 * them.
 */
static cod_status queue_plans(cod_optimiser *optimiser)
{
    const cod_weights *weights = optimiser->weights;
    if (optimiser->plan_count < 2 || optimiser->options.sum_squares != NULL)
        return run_plans(optimiser);
    return cod_queue_replay(weights->backend, weights->device, NULL, run_plans, optimiser, &optimiser->replay);
}

/** Before the plans are queued. */
static cod_status begin_step(cod_optimiser *optimiser, double rate, int64_t step)
{
    cod_optimiser_set_rate(optimiser, rate, step);
    optimiser->ema_started = optimiser->ema_started || optimiser->ema != NULL;
    return cod_scalars_flush(optimiser->scalars, NULL);
}

/** The plans are queued. */
static void end_step(const cod_optimiser *optimiser)
{
    cod_weights *weights = optimiser->weights;
    cod_weights_changed(weights, cod_set_of(optimiser->set));
    if (!optimiser->options.only_part) /* else somebody writes the other parts */
        weights->sets[optimiser->set].updated = weights->sets[optimiser->set].version;
}

cod_status cod_optimiser_step(cod_optimiser *optimiser, double rate, int64_t step)
{
    COD_TRY(begin_step(optimiser, rate, step));
    COD_TRY(queue_plans(optimiser));
    end_step(optimiser);
    return COD_OK;
}

cod_status cod_optimiser_run(cod_optimiser *optimiser, cod_program *program, double rate, int64_t step)
{
    if (optimiser->options.sum_squares != NULL || cod_program_queue(program) != NULL) {
        COD_TRY(cod_program_run(program, NULL, NULL));
        return cod_optimiser_step(optimiser, rate, step);
    }
    optimiser->sequel.work = run_plans;
    optimiser->sequel.context = optimiser;
    COD_TRY(begin_step(optimiser, rate, step));
    COD_TRY(cod_program_run_followed(program, &optimiser->sequel));
    end_step(optimiser);
    return COD_OK;
}

bool cod_optimiser_state(cod_optimiser *optimiser, size_t index, const char **name, cod_buffer **buffer, size_t *bytes)
{
    const cod_weights *weights = optimiser->weights;
    const bool adam = optimiser->options.kind != COD_OPT_SGD;
    const size_t all = all_bytes(optimiser), moments = optimiser->options.part_count * cod_dtype_bytes(weights->dtype);
    const struct {
        const char *name;
        cod_buffer *buffer;
        size_t bytes;
    } states[] = {{adam ? "adam_m" : "momentum", optimiser->m, moments},
                  {"adam_v", optimiser->v, moments},
                  {"ema", optimiser->ema != NULL && has_states(optimiser) ? optimiser->ema : NULL, all}};
    for (size_t i = 0; i < 3; i++) {
        if (states[i].buffer == NULL || index-- > 0)
            continue;
        *name = states[i].name;
        *buffer = states[i].buffer;
        *bytes = states[i].bytes;
        return true;
    }
    return false;
}

cod_buffer *cod_optimiser_ema(cod_optimiser *optimiser)
{
    return optimiser->ema;
}

void cod_optimiser_mark_restored(cod_optimiser *optimiser)
{
    optimiser->ema_started = true;
}
