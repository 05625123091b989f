/* Which of several implementations a convolution gets, and what they share. */
#include "cpu/cpu_internal.h"

#include <stdlib.h>
#include <string.h>

static bool always(const cod_device *device, const cod_op *op)
{
    (void)device, (void)op;
    return true;
}

/** In the order of what is best where nothing was timed. */
static const cpu_candidate candidates[] = {
    {"narrow", cpu_narrow_fits, cpu_plan_narrow},
    {"winograd", cpu_winograd_fits, cpu_plan_winograd},
    {"onednn", always, cpu_plan_conv},
};
enum { CANDIDATES = sizeof candidates / sizeof candidates[0] };

cod_status cpu_convolution_force(cod_device *device)
{
    const char *name = getenv("COD_CPU_CONVOLUTION");
    if (name == NULL || strcmp(name, "auto") == 0)
        return COD_OK;
    for (size_t i = 0; i < CANDIDATES; i++)
        if (strcmp(name, candidates[i].name) == 0)
            device->forced = &candidates[i];
    device->no_autotune = true;
    return device->forced != NULL || strcmp(name, "fixed") == 0
               ? COD_OK
               : cod_fail(COD_ERR_ARGUMENT,
                          "COD_CPU_CONVOLUTION is '%s'; it must be auto, fixed, narrow, winograd or onednn", name);
}

cod_status cpu_plan_convolution(cod_plan *plan)
{
    cod_device *device = plan->device;
    const cpu_candidate *fitting[CANDIDATES], *chosen;
    size_t count = 0;
    if (plan->op.kind == COD_OP_CONV2D && plan->op.attr.int8_range > 0)
        return cpu_plan_conv(plan);
    for (size_t i = 0; i < CANDIDATES; i++)
        if (candidates[i].fits(device, &plan->op))
            fitting[count++] = &candidates[i];
    if (device->forced != NULL)
        chosen = device->forced->fits(device, &plan->op) ? device->forced : &candidates[CANDIDATES - 1];
    else if (count == 1 || device->no_autotune || plan->op.deterministic)
        chosen = fitting[0];
    else
        COD_TRY(cpu_tune(device, &plan->op, fitting, count, &chosen));
    return chosen->create(plan);
}

void cpu_bias_gradient(const cod_plan *plan)
{
    const cod_view *dy = &plan->op.inputs[1];
    const int64_t channels = dy->shape.c, padded = cpu_padded(channels);
    const cpu_chunks chunks = cpu_chunks_of(cpu_pixels(dy), channels);
    float *shift = (float *)(void *)plan->device->scratch, *sums = shift + padded;
    float *db = cod_view_host(&plan->op.outputs[1]);
    memset(shift, 0, (size_t)padded * sizeof *shift);
    if (!plan->op.accumulate)
        memset(db, 0, (size_t)channels * sizeof *db);
    for (int64_t i = 0; i < chunks.count; i++) {
        plan->device->kernels->moments(cpu_rows_from(cpu_rows_of(dy), i * chunks.size), cpu_chunk_length(&chunks, i),
                                       channels, shift, sums);
        for (int64_t c = 0; c < channels; c++)
            db[c] += sums[c];
    }
}
