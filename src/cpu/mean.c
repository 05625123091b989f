#include "cpu/cpu_internal.h"

#include <string.h>

typedef struct mean_state {
    cpu_chunks chunks;
    int64_t channels, padded;
} mean_state;

typedef struct mean_run {
    const cod_plan *plan;
    const mean_state *state;
    cpu_rows x, y;
    float *mean, *sums; /**< [padded]; a vector of sums and one of squares for each chunk */
} mean_run;

static void sum_chunk(void *context, int64_t i, int thread)
{
    (void)thread;
    const mean_run *run = context;
    const cpu_chunks *chunks = &run->state->chunks;
    run->plan->device->kernels->moments(cpu_rows_from(run->x, i * chunks->size), cpu_chunk_length(chunks, i),
                                        run->state->channels, run->mean, run->sums + 2 * i * run->state->padded);
}

/** Rows of stride 0 are one row, read for each pixel. */
static void spread_chunk(void *context, int64_t i, int thread)
{
    (void)thread;
    const mean_run *run = context;
    const cpu_chunks *chunks = &run->state->chunks;
    run->plan->device->kernels->add((cpu_rows){(char *)run->mean, 0, false}, (cpu_rows){0},
                                    cpu_rows_from(run->y, i * chunks->size), cpu_chunk_length(chunks, i),
                                    run->state->channels, 1, 0, run->plan->op.accumulate);
}

static cod_status mean_of_batch_run(cod_plan *plan)
{
    const mean_state *state = plan->state;
    mean_run run = {.plan = plan,
                    .state = state,
                    .x = cpu_rows_of(&plan->op.inputs[0]),
                    .y = cpu_rows_of(&plan->op.outputs[0]),
                    .mean = (float *)(void *)plan->device->scratch};
    run.sums = run.mean + state->padded;
    memset(run.mean, 0, (size_t)state->padded * sizeof(float)); /* the moments' shift */
    cpu_parallel_for(plan->device, state->chunks.count, sum_chunk, &run);
    for (int64_t c = 0; c < state->channels; c++) {
        double sum = 0;
        for (int64_t i = 0; i < state->chunks.count; i++)
            sum += (double)run.sums[2 * i * state->padded + c];
        run.mean[c] = (float)(sum / (double)state->chunks.pixels);
    }
    cpu_parallel_for(plan->device, state->chunks.count, spread_chunk, &run);
    return COD_OK;
}

cod_status cpu_plan_mean(cod_plan *plan)
{
    COD_TRY(cpu_plan_alloc_state(plan, sizeof(mean_state)));
    mean_state *state = plan->state;
    const cod_view *x = &plan->op.inputs[0];
    state->channels = x->shape.c;
    state->padded = cpu_padded(state->channels);
    state->chunks = cpu_chunks_of(cpu_pixels(x), state->channels);
    plan->run = mean_of_batch_run;
    return cpu_plan_need_scratch(plan, (size_t)((1 + 2 * state->chunks.count) * state->padded) * sizeof(float));
}
