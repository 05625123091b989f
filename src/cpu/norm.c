#include "cpu/cpu_internal.h"

#include <math.h>
#include <string.h>

/**
 * Scratch of a normalisation: vectors of padded C floats, first the parameters that the kernels read, then
 * SUMS partial sums for each chunk.
 */
enum { MEAN, SCALE, OFFSET, SLOPE, A, B, PARAMETERS, SUMS = 3 };

typedef struct norm_state {
    cpu_chunks chunks;
    int64_t channels, padded;
} norm_state;

typedef struct norm_run {
    const cod_plan *plan;
    const norm_state *state;
    cpu_rows x, dy, residual, y; /**< y: the output, or dx */
    float *parameters, *sums;
    cpu_affine affine;
    bool slopes; /**< backward: their gradient is wanted */
} norm_run;

static cod_status norm_create(cod_plan *plan, cod_status (*run)(cod_plan *plan))
{
    COD_TRY(cpu_plan_alloc_state(plan, sizeof(norm_state)));
    norm_state *state = plan->state;
    const cod_view *x = &plan->op.inputs[0];
    state->channels = x->shape.c;
    state->padded = cpu_padded(state->channels);
    state->chunks = cpu_chunks_of(cpu_pixels(x), state->channels);
    plan->run = run;
    return cpu_plan_need_scratch(plan,
                                 (size_t)((PARAMETERS + SUMS * state->chunks.count) * state->padded) * sizeof(float));
}

static norm_run norm_begin(const cod_plan *plan, const cod_view *slope)
{
    const norm_state *state = plan->state;
    norm_run run = {.plan = plan,
                    .state = state,
                    .x = cpu_rows_of(&plan->op.inputs[0]),
                    .y = cpu_rows_of(&plan->op.outputs[0]),
                    .parameters = (float *)(void *)plan->device->scratch};
    run.sums = run.parameters + PARAMETERS * state->padded;
    run.affine = (cpu_affine){run.parameters + MEAN * state->padded, run.parameters + SCALE * state->padded,
                              run.parameters + OFFSET * state->padded, run.parameters + SLOPE * state->padded};
    cpu_fill_slope(run.parameters + SLOPE * state->padded, state->channels, &plan->op.attr, slope);
    return run;
}

static cpu_activation activation_of(const norm_run *run)
{
    const cod_op_attr *attr = &run->plan->op.attr;
    return attr->activation == COD_ACT_NONE ? CPU_ACT_NONE : cpu_activation_of(attr);
}

static void add_chunks(const norm_run *run, int64_t vector, int64_t channel, double *sum)
{
    *sum = 0;
    for (int64_t i = 0; i < run->state->chunks.count; i++)
        *sum += (double)run->sums[(i * SUMS + vector) * run->state->padded + channel];
}

static void moments_chunk(void *context, int64_t i, int thread)
{
    (void)thread;
    const norm_run *run = context;
    const cpu_chunks *chunks = &run->state->chunks;
    run->plan->device->kernels->moments(cpu_rows_from(run->x, i * chunks->size), cpu_chunk_length(chunks, i),
                                        run->state->channels, run->parameters + A * run->state->padded,
                                        run->sums + i * SUMS * run->state->padded);
}

static void affine_chunk(void *context, int64_t i, int thread)
{
    (void)thread;
    const norm_run *run = context;
    const cpu_chunks *chunks = &run->state->chunks;
    const int64_t first = i * chunks->size, pixels = cpu_chunk_length(chunks, i), channels = run->state->channels;
    const cpu_rows x = cpu_rows_from(run->x, first), y = cpu_rows_from(run->y, first);
    const cpu_activation activation = activation_of(run);
    const cpu_kernels *kernels = run->plan->device->kernels;
    if (run->residual.data != NULL)
        kernels->affine_add(x, cpu_rows_from(run->residual, first), y, pixels, channels, activation, &run->affine);
    else
        kernels->affine(x, y, pixels, channels, activation, &run->affine);
}

/** Sums are taken of x - x[0], so that a mean far from zero does not cancel the variance. */
static cod_status norm_train_run(cod_plan *plan)
{
    const cod_op *op = &plan->op;
    norm_run run = norm_begin(plan, &op->inputs[3]);
    run.residual = cpu_rows_of(&op->inputs[4]);
    const norm_state *state = run.state;
    float *const p = run.parameters, *const shift = p + A * state->padded;
    memset(shift, 0, (size_t)state->padded * sizeof(float));
    plan->device->kernels->add(run.x, (cpu_rows){0}, (cpu_rows){(char *)shift, state->padded, false}, 1,
                               state->channels, 1, 0, false);
    cpu_parallel_for(plan->device, state->chunks.count, moments_chunk, &run);

    float *const mean = cod_view_host(&op->outputs[1]), *const inv_std = cod_view_host(&op->outputs[2]);
    const bool moves = cpu_present(&op->outputs[3]);
    float *const running_mean = moves ? cod_view_host(&op->outputs[3]) : NULL;
    float *const running_var = moves ? cod_view_host(&op->outputs[4]) : NULL;
    const float *const gamma = cod_view_host(&op->inputs[1]);
    const double count = (double)state->chunks.pixels, momentum = (double)op->attr.momentum;
    for (int64_t c = 0; c < state->channels; c++) {
        double sum, squares;
        add_chunks(&run, 0, c, &sum);
        add_chunks(&run, 1, c, &squares);
        const double offset = sum / count, variance = fmax(squares / count - offset * offset, 0);
        const double unbiased = count > 1 ? variance * count / (count - 1) : variance;
        mean[c] = (float)((double)shift[c] + offset);
        inv_std[c] = (float)(1 / sqrt(variance + (double)op->attr.epsilon));
        if (moves) {
            running_mean[c] += (float)(momentum * ((double)mean[c] - (double)running_mean[c]));
            running_var[c] += (float)(momentum * (unbiased - (double)running_var[c]));
        }
        p[SCALE * state->padded + c] = gamma[c] * inv_std[c];
    }
    cpu_fill_vector(p + MEAN * state->padded, state->channels, &op->outputs[1]);
    cpu_fill_vector(p + OFFSET * state->padded, state->channels, &op->inputs[2]);
    cpu_parallel_for(plan->device, state->chunks.count, affine_chunk, &run);
    return COD_OK;
}

cod_status cpu_plan_norm_train(cod_plan *plan)
{
    return norm_create(plan, norm_train_run);
}

/** NORM_APPLY and NORM_INFERENCE, which differ in what their fifth input is: 1 / the deviation, or the variance. */
static cod_status norm_apply_run(cod_plan *plan)
{
    const cod_op *op = &plan->op;
    norm_run run = norm_begin(plan, &op->inputs[5]);
    run.residual = cpu_rows_of(&op->inputs[6]);
    const int64_t padded = run.state->padded;
    const float *gamma = cod_view_host(&op->inputs[1]), *spread = cod_view_host(&op->inputs[4]);
    for (int64_t c = 0; c < run.state->channels; c++)
        run.parameters[SCALE * padded + c] =
            op->kind == COD_OP_NORM_APPLY ? gamma[c] * spread[c] : gamma[c] / sqrtf(spread[c] + op->attr.epsilon);
    cpu_fill_vector(run.parameters + MEAN * padded, run.state->channels, &op->inputs[3]);
    cpu_fill_vector(run.parameters + OFFSET * padded, run.state->channels, &op->inputs[2]);
    cpu_parallel_for(plan->device, run.state->chunks.count, affine_chunk, &run);
    return COD_OK;
}

cod_status cpu_plan_norm_apply(cod_plan *plan)
{
    return norm_create(plan, norm_apply_run);
}

static void backward_sums_chunk(void *context, int64_t i, int thread)
{
    (void)thread;
    const norm_run *run = context;
    const cpu_chunks *chunks = &run->state->chunks;
    const int64_t first = i * chunks->size;
    run->plan->device->kernels->affine_backward_sums(
        cpu_rows_from(run->x, first), cpu_rows_from(run->dy, first), cpu_chunk_length(chunks, i), run->state->channels,
        activation_of(run), run->slopes, &run->affine, run->sums + i * SUMS * run->state->padded);
}

static void backward_chunk(void *context, int64_t i, int thread)
{
    (void)thread;
    const norm_run *run = context;
    const cpu_chunks *chunks = &run->state->chunks;
    const int64_t first = i * chunks->size, padded = run->state->padded;
    run->plan->device->kernels->affine_backward(
        cpu_rows_from(run->x, first), cpu_rows_from(run->dy, first), cpu_rows_from(run->y, first),
        cpu_chunk_length(chunks, i), run->state->channels, activation_of(run), &run->affine,
        run->parameters + A * padded, run->parameters + B * padded, run->plan->op.accumulate);
}

/** norm_begin() of a gradient, with what both kinds read: dy, beta and the mean. */
static norm_run norm_backward_begin(const cod_plan *plan)
{
    const cod_op *op = &plan->op;
    norm_run run = norm_begin(plan, &op->inputs[6]);
    const norm_state *state = run.state;
    run.dy = cpu_rows_of(&op->inputs[1]);
    cpu_fill_vector(run.parameters + OFFSET * state->padded, state->channels, &op->inputs[3]);
    cpu_fill_vector(run.parameters + MEAN * state->padded, state->channels, &op->inputs[4]);
    return run;
}

/**
 * With g the gradient at the normalised value and d = x - mean:
 * dx = gamma·inv_std·(g - mean(g) - d·inv_std²·mean(g·d)), dgamma = inv_std·Σ g·d, dbeta = Σ g.
 */
static cod_status norm_backward_run(cod_plan *plan)
{
    const cod_op *op = &plan->op;
    norm_run run = norm_backward_begin(plan);
    const norm_state *state = run.state;
    const int64_t padded = state->padded;
    float *const p = run.parameters;
    const float *const gamma = cod_view_host(&op->inputs[2]), *const inv_std = cod_view_host(&op->inputs[5]);
    for (int64_t c = 0; c < state->channels; c++)
        p[SCALE * padded + c] = gamma[c] * inv_std[c];
    run.slopes = cpu_present(&op->outputs[3]);
    cpu_parallel_for(plan->device, state->chunks.count, backward_sums_chunk, &run);

    float *const dgamma = cod_view_host(&op->outputs[1]), *const dbeta = cod_view_host(&op->outputs[2]);
    float *const dslope = run.slopes ? cod_view_host(&op->outputs[3]) : NULL;
    const bool one_slope = dslope != NULL && cod_shape_count(op->outputs[3].shape) == 1;
    const double count = (double)state->chunks.pixels;
    double slope_sum = 0;
    for (int64_t c = 0; c < state->channels; c++) {
        double g, gd, s;
        add_chunks(&run, 0, c, &g);
        add_chunks(&run, 1, c, &gd);
        const double scale = (double)inv_std[c];
        p[A * padded + c] = (float)(g / count);
        p[B * padded + c] = (float)(gd * scale * scale / count);
        dgamma[c] = (float)(gd * scale) + (op->accumulate ? dgamma[c] : 0);
        dbeta[c] = (float)g + (op->accumulate ? dbeta[c] : 0);
        if (!run.slopes)
            continue;
        add_chunks(&run, 2, c, &s);
        slope_sum += s;
        if (!one_slope)
            dslope[c] = (float)s + (op->accumulate ? dslope[c] : 0);
    }
    if (one_slope)
        dslope[0] = (float)slope_sum + (op->accumulate ? dslope[0] : 0);
    cpu_parallel_for(plan->device, state->chunks.count, backward_chunk, &run);
    return COD_OK;
}

cod_status cpu_plan_norm_backward(cod_plan *plan)
{
    return norm_create(plan, norm_backward_run);
}

/** As norm_backward_run() with statistics that do not depend on x: both means are zero. */
static cod_status norm_inference_backward_run(cod_plan *plan)
{
    const cod_op *op = &plan->op;
    norm_run run = norm_backward_begin(plan);
    const norm_state *state = run.state;
    const int64_t padded = state->padded;
    float *const p = run.parameters;
    const float *const gamma = cod_view_host(&op->inputs[2]), *const variance = cod_view_host(&op->inputs[5]);
    for (int64_t c = 0; c < state->channels; c++)
        p[SCALE * padded + c] = gamma[c] / sqrtf(variance[c] + op->attr.epsilon);
    memset(p + A * padded, 0, (size_t)padded * sizeof *p);
    memset(p + B * padded, 0, (size_t)padded * sizeof *p);
    cpu_parallel_for(plan->device, state->chunks.count, backward_chunk, &run);
    return COD_OK;
}

cod_status cpu_plan_norm_inference_backward(cod_plan *plan)
{
    return norm_create(plan, norm_inference_backward_run);
}

static cod_status fold_norm_run(cod_plan *plan)
{
    const cod_op *op = &plan->op;
    const float *w = cod_view_host(&op->inputs[0]),
                *b = cpu_present(&op->inputs[1]) ? cod_view_host(&op->inputs[1]) : NULL;
    const float *gamma = cod_view_host(&op->inputs[2]), *beta = cod_view_host(&op->inputs[3]);
    const float *mean = cod_view_host(&op->inputs[4]), *variance = cod_view_host(&op->inputs[5]);
    float *folded = cod_view_host(&op->outputs[0]), *folded_bias = cod_view_host(&op->outputs[1]);
    const cod_shape shape = op->inputs[0].shape;
    const int64_t filter = shape.h * shape.w * shape.c;
    for (int64_t o = 0; o < shape.n; o++) {
        const float scale = gamma[o] / sqrtf(variance[o] + op->attr.epsilon);
        for (int64_t i = 0; i < filter; i++)
            folded[o * filter + i] = w[o * filter + i] * scale;
        folded_bias[o] = ((b ? b[o] : 0) - mean[o]) * scale + beta[o];
    }
    return COD_OK;
}

cod_status cpu_plan_fold_norm(cod_plan *plan)
{
    plan->run = fold_norm_run;
    return COD_OK;
}
