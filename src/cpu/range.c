/* What the ranges of convolutions on 8-bit integers are chosen by: how often each magnitude occurs. */
#include "cpu/cpu_internal.h"

#include "core/int8_range.h"

#include <string.h>

typedef struct count_run {
    const cod_plan *plan;
    cpu_chunks chunks;
    cpu_rows x;
    int64_t channels;
} count_run;

/** [COD_MAGNITUDES] of a thread. */
static uint32_t *counts_of(const cod_plan *plan, int64_t thread)
{
    return (uint32_t *)(void *)cpu_thread_scratch(plan, 0, COD_MAGNITUDES * sizeof(uint32_t), (int)thread);
}

static void count_chunk(void *context, int64_t i, int thread)
{
    const count_run *run = context;
    uint32_t *counts = counts_of(run->plan, thread);
    const cpu_rows rows = cpu_rows_from(run->x, i * run->chunks.size);
    for (int64_t p = 0; p < cpu_chunk_length(&run->chunks, i); p++) {
        const cpu_rows row = cpu_rows_from(rows, p);
        for (int64_t c = 0; c < run->channels; c++) {
            const uint16_t bits = row.bf16 ? ((const uint16_t *)(const void *)row.data)[c]
                                           : cod_bf16_from_f32(((const float *)(const void *)row.data)[c]);
            counts[bits & 0x7FFF]++;
        }
    }
}

static cod_status magnitudes_run(cod_plan *plan)
{
    const cod_view *x = &plan->op.inputs[0];
    const int64_t threads = plan->device->threads;
    uint32_t *total = cod_view_host(&plan->op.outputs[0]);
    count_run run = {
        .plan = plan, .chunks = cpu_chunks_of(cpu_pixels(x), x->shape.c), .x = cpu_rows_of(x), .channels = x->shape.c};
    memset(counts_of(plan, 0), 0, (size_t)threads * COD_MAGNITUDES * sizeof *total);
    cpu_parallel_for(plan->device, run.chunks.count, count_chunk, &run);
    if (!plan->op.accumulate)
        memset(total, 0, COD_MAGNITUDES * sizeof *total);
    for (int64_t t = 0; t < threads; t++) {
        const uint32_t *counts = counts_of(plan, t);
        for (int m = 1; m < COD_MAGNITUDE_INFINITE; m++)
            total[m] += counts[m];
        for (int m = COD_MAGNITUDE_INFINITE; m < COD_MAGNITUDES; m++)
            total[COD_MAGNITUDE_INFINITE] += counts[m];
    }
    return COD_OK;
}

cod_status cpu_plan_magnitudes(cod_plan *plan)
{
    plan->run = magnitudes_run;
    return cpu_plan_need_scratch(plan, (size_t)plan->device->threads * COD_MAGNITUDES * sizeof(uint32_t));
}

static void choose_range(void *context, int64_t i, int thread)
{
    (void)thread;
    const cod_op *op = context;
    const uint32_t *counts = cod_view_host(&op->inputs[0]);
    float *ranges = cod_view_host(&op->outputs[0]);
    ranges[i] = cod_int8_range_observed(counts + i * COD_MAGNITUDES);
}

static cod_status ranges_run(cod_plan *plan)
{
    cpu_parallel_for(plan->device, plan->op.inputs[0].shape.h, choose_range, &plan->op);
    return COD_OK;
}

cod_status cpu_plan_ranges(cod_plan *plan)
{
    plan->run = ranges_run;
    return COD_OK;
}
