#include "ref/ref_internal.h"

#include "core/int8_range.h"

#include <math.h>
#include <string.h>

static float element(const cod_view *x, int64_t i)
{
    const int64_t place = i / x->shape.c * x->pixel_stride + i % x->shape.c;
    const char *data = cod_view_host(x);
    if (x->dtype == COD_BF16)
        return cod_f32_from_bf16(((const uint16_t *)(const void *)data)[place]);
    return x->dtype == COD_F32 ? ((const float *)(const void *)data)[place]
                               : (float)((const double *)(const void *)data)[place];
}

void ref_magnitudes(const cod_op *op)
{
    const cod_view *x = &op->inputs[0];
    uint32_t *counts = cod_view_host(&op->outputs[0]);
    if (!op->accumulate)
        memset(counts, 0, COD_MAGNITUDES * sizeof *counts);
    for (int64_t i = 0; i < cod_shape_count(x->shape); i++) {
        const uint16_t magnitude = cod_bf16_from_f32(fabsf(element(x, i)));
        if (magnitude > 0)
            counts[magnitude < COD_MAGNITUDE_INFINITE ? magnitude : COD_MAGNITUDE_INFINITE]++;
    }
}

void ref_ranges(const cod_op *op)
{
    const uint32_t *counts = cod_view_host(&op->inputs[0]);
    float *ranges = cod_view_host(&op->outputs[0]);
    for (int64_t i = 0; i < op->inputs[0].shape.h; i++)
        ranges[i] = cod_int8_range_observed(counts + i * COD_MAGNITUDES);
}
