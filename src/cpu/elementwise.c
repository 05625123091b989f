#include "cpu/cpu_internal.h"

/** A pass over up to three views of one shape. */
typedef struct pass_state {
    cpu_grid grid;
    cpu_chunks chunks;
} pass_state;

typedef struct pass_run {
    const cod_plan *plan;
    const cpu_grid *grid;
    const cpu_chunks *chunks;
    cpu_rows a, b, y;
    float *zeros, *ones, *slope, *sums; /**< vectors of padded channels; sums: one for each chunk, or NULL */
} pass_run;

typedef void (*pass_kernel)(const pass_run *run, cpu_rows a, cpu_rows b, cpu_rows y, int64_t pixels, int64_t channels,
                            float *sums);

enum { PASS_VECTORS = 3 };

static cod_status pass_create(cod_plan *plan, const cod_view *second, bool by_channel,
                              cod_status (*run)(cod_plan *plan))
{
    const cod_view *const views[] = {&plan->op.outputs[0], &plan->op.inputs[0], second};
    COD_TRY(cpu_plan_alloc_state(plan, sizeof(pass_state)));
    pass_state *state = plan->state;
    state->grid = cpu_grid_of(views, 3, by_channel);
    state->chunks = cpu_chunks_of(state->grid.pixels, state->grid.channels);
    plan->run = run;
    /* One sum more for the rest of the grid. */
    return cpu_plan_need_scratch(
        plan, (size_t)((PASS_VECTORS + state->chunks.count + 1) * cpu_padded(state->grid.channels)) * sizeof(float));
}

static pass_run pass_begin(const cod_plan *plan, const cod_view *second)
{
    const pass_state *state = plan->state;
    const int64_t padded = cpu_padded(state->grid.channels);
    pass_run run = {.plan = plan, .grid = &state->grid, .chunks = &state->chunks};
    run.a = cpu_grid_rows(run.grid, &plan->op.inputs[0]);
    run.b = cpu_grid_rows(run.grid, second);
    run.y = cpu_grid_rows(run.grid, &plan->op.outputs[0]);
    run.zeros = (float *)(void *)plan->device->scratch;
    run.ones = run.zeros + padded;
    run.slope = run.ones + padded;
    return run;
}

typedef struct pass_call {
    pass_run *run;
    pass_kernel kernel;
} pass_call;

static void pass_chunk(void *context, int64_t i, int thread)
{
    (void)thread;
    const pass_call *call = context;
    const pass_run *run = call->run;
    const int64_t first = i * run->chunks->size;
    call->kernel(run, cpu_rows_from(run->a, first), cpu_rows_from(run->b, first), cpu_rows_from(run->y, first),
                 cpu_chunk_length(run->chunks, i), run->grid->channels,
                 run->sums ? run->sums + i * cpu_padded(run->grid->channels) : NULL);
}

static void pass_over(pass_run *run, pass_kernel kernel)
{
    pass_call call = {run, kernel};
    const int64_t last = run->grid->pixels, count = run->chunks->count;
    cpu_parallel_for(run->plan->device, count, pass_chunk, &call);
    if (run->grid->rest > 0)
        kernel(run, cpu_rows_from(run->a, last), cpu_rows_from(run->b, last), cpu_rows_from(run->y, last), 1,
               run->grid->rest, run->sums ? run->sums + count * cpu_padded(run->grid->channels) : NULL);
}

static void activation_kernel(const pass_run *run, cpu_rows a, cpu_rows b, cpu_rows y, int64_t pixels, int64_t channels,
                              float *sums)
{
    (void)b, (void)sums;
    const cpu_affine identity = {run->zeros, run->ones, run->zeros, run->slope};
    run->plan->device->kernels->affine(a, y, pixels, channels, cpu_activation_of(&run->plan->op.attr), &identity);
}

static cod_status activation_run(cod_plan *plan)
{
    const cod_view none = {0};
    pass_run run = pass_begin(plan, &none);
    for (int64_t c = 0; c < cpu_padded(run.grid->channels); c++) {
        run.zeros[c] = 0;
        run.ones[c] = 1;
    }
    cpu_fill_slope(run.slope, run.grid->channels, &plan->op.attr, &plan->op.inputs[1]);
    pass_over(&run, activation_kernel);
    return COD_OK;
}

static bool slope_by_channel(const cod_view *slope)
{
    return cpu_present(slope) && cod_shape_count(slope->shape) > 1;
}

cod_status cpu_plan_activation(cod_plan *plan)
{
    const cod_view none = {0};
    return pass_create(plan, &none, slope_by_channel(&plan->op.inputs[1]), activation_run);
}

static void activation_backward_kernel(const pass_run *run, cpu_rows a, cpu_rows b, cpu_rows y, int64_t pixels,
                                       int64_t channels, float *sums)
{
    run->plan->device->kernels->activation_backward(a, b, y, pixels, channels, cpu_activation_of(&run->plan->op.attr),
                                                    run->slope, run->plan->op.accumulate, sums);
}

static void add_slope_sums(const pass_run *run, float *dslope, int64_t slopes, bool accumulate)
{
    const int64_t channels = run->grid->channels, padded = cpu_padded(channels);
    const int64_t rest = run->grid->rest, chunks = run->chunks->count;
    double all = 0;
    for (int64_t c = 0; c < channels; c++) {
        double sum = 0;
        for (int64_t i = 0; i < chunks + (c < rest); i++)
            sum += (double)run->sums[i * padded + c];
        all += sum;
        if (slopes > 1)
            dslope[c] = (float)sum + (accumulate ? dslope[c] : 0);
    }
    if (slopes == 1)
        dslope[0] = (float)all + (accumulate ? dslope[0] : 0);
}

static cod_status activation_backward_run(cod_plan *plan)
{
    const cod_op *op = &plan->op;
    const cod_view *dslope = &op->outputs[1];
    pass_run run = pass_begin(plan, &op->inputs[1]);
    if (cpu_present(dslope))
        run.sums = run.slope + cpu_padded(run.grid->channels);
    cpu_fill_slope(run.slope, run.grid->channels, &op->attr, &op->inputs[2]);
    pass_over(&run, activation_backward_kernel);
    if (cpu_present(dslope))
        add_slope_sums(&run, cod_view_host(dslope), cod_shape_count(dslope->shape), op->accumulate);
    return COD_OK;
}

cod_status cpu_plan_activation_backward(cod_plan *plan)
{
    return pass_create(plan, &plan->op.inputs[1], slope_by_channel(&plan->op.inputs[2]), activation_backward_run);
}

static void add_kernel(const pass_run *run, cpu_rows a, cpu_rows b, cpu_rows y, int64_t pixels, int64_t channels,
                       float *sums)
{
    (void)sums;
    const cod_op *op = &run->plan->op;
    run->plan->device->kernels->add(a, b, y, pixels, channels, op->attr.alpha, op->attr.beta, op->accumulate);
}

static cod_status add_run(cod_plan *plan)
{
    pass_run run = pass_begin(plan, &plan->op.inputs[1]);
    pass_over(&run, add_kernel);
    return COD_OK;
}

cod_status cpu_plan_add(cod_plan *plan)
{
    return pass_create(plan, &plan->op.inputs[1], false, add_run);
}

static cod_status fill_run(cod_plan *plan)
{
    const cod_view *y = &plan->op.outputs[0];
    const float value = plan->op.attr.alpha;
    const uint16_t narrow = cod_bf16_from_f32(value);
    const bool dense = cod_view_is_dense(y);
    const int64_t rows = dense ? 1 : cpu_pixels(y), length = dense ? cod_shape_count(y->shape) : y->shape.c;
    for (int64_t p = 0; p < rows; p++) {
        if (y->dtype == COD_BF16) {
            uint16_t *row = (uint16_t *)cod_view_host(y) + p * y->pixel_stride;
            for (int64_t c = 0; c < length; c++)
                row[c] = narrow;
        } else {
            float *row = (float *)cod_view_host(y) + p * y->pixel_stride;
            for (int64_t c = 0; c < length; c++)
                row[c] = value;
        }
    }
    return COD_OK;
}

cod_status cpu_plan_fill(cod_plan *plan)
{
    plan->run = fill_run;
    return COD_OK;
}
