/* Gradients of biases. */
#include "cpu/cpu_internal.h"

#include <string.h>

/** Adds the sums of some pixels to `sums` [channels]. */
static void add_pixels(const cod_plan *plan, cpu_rows rows, int64_t pixels, int64_t channels, int64_t step, float *sums)
{
    const cpu_chunks chunks = cpu_chunks_of(pixels, channels);
    float *shift = (float *)(void *)plan->device->scratch, *part = shift + cpu_padded(channels);
    memset(shift, 0, (size_t)cpu_padded(channels) * sizeof *shift);
    for (int64_t i = 0; i < chunks.count; i++) {
        plan->device->kernels->moments(cpu_rows_from(rows, i * chunks.size), cpu_chunk_length(&chunks, i), channels,
                                       shift, part);
        for (int64_t c = 0; c < channels; c++)
            sums[c * step] += part[c];
    }
}

void cpu_bias_gradient(const cod_plan *plan)
{
    const cod_view *dy = &plan->op.inputs[1];
    const int64_t channels = dy->shape.c, r = cod_op_shuffle(&plan->op.attr);
    float *db = cod_view_host(&plan->op.outputs[1]);
    if (!plan->op.accumulate)
        memset(db, 0, (size_t)(channels * r * r) * sizeof *db);
    if (r == 1) {
        add_pixels(plan, cpu_rows_of(dy), cpu_pixels(dy), channels, 1, db);
        return;
    }
    /* Every r-th pixel of every r-th line belongs to the same channels. */
    for (int64_t line = 0; line < dy->shape.n * dy->shape.h; line++) {
        for (int64_t j = 0; j < r; j++) {
            cpu_rows rows = cpu_rows_from(cpu_rows_of(dy), line * dy->shape.w + j);
            rows.stride *= r;
            add_pixels(plan, rows, dy->shape.w / r, channels, r * r, db + line % r * r + j);
        }
    }
}
