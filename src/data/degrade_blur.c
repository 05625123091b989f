/* Filtering with a blur kernel: rows are sums of shifted rows, a few shifts at a time. */
#include "data/degrade_internal.h"

#include <string.h>

/** row[i] += Σ weights[t] · from[i + t·step] over so many taps, which the compiler knows. */
static inline __attribute__((always_inline)) void add_some(float *restrict row, const float *restrict from,
                                                           int64_t step, const float *weights, int64_t count,
                                                           const int taps)
{
    float w[4];
    for (int t = 0; t < taps; t++)
        w[t] = weights[t];
    for (int64_t i = 0; i < count; i++) {
        float sum = row[i];
        for (int t = 0; t < taps; t++)
            sum += w[t] * from[i + t * step];
        row[i] = sum;
    }
}

/** The same for any odd number of taps. */
COD_WIDE static void add_taps(float *restrict row, const float *restrict from, int64_t step, const float *weights,
                              int64_t count, int taps)
{
    int t = 0;
    for (; t + 4 <= taps; t += 4)
        add_some(row, from + t * step, step, weights + t, count, 4);
    if (taps - t == 3)
        add_some(row, from + t * step, step, weights + t, count, 3);
    else
        add_some(row, from + t * step, step, weights + t, count, 1);
}

COD_WIDE static void add_rows(float *restrict out, const float *restrict a, const float *restrict b, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        out[i] = a[i] + b[i];
}

/** A copy with `radius` reflected pixels on each side. @param stride  floats of a row of it */
static void pad(const cod_floats *in, int radius, int64_t stride, float *out)
{
    const size_t row_bytes = (size_t)(in->width * COD_RGB) * sizeof(float);
    for (int64_t y = -radius; y < in->height + radius; y++, out += stride) {
        const float *row = in->pixels + cod_mirror(y, in->height) * in->width * COD_RGB;
        memcpy(out + radius * COD_RGB, row, row_bytes);
        for (int64_t x = 1; x <= radius; x++) {
            memcpy(out + (radius - x) * COD_RGB, row + cod_mirror(-x, in->width) * COD_RGB, COD_RGB * sizeof(float));
            memcpy(out + (radius + in->width - 1 + x) * COD_RGB,
                   row + cod_mirror(in->width - 1 + x, in->width) * COD_RGB, COD_RGB * sizeof(float));
        }
    }
}

void cod_filter_separable_row(const float *line, int radius, const float *top, int64_t stride, float *spare, float *out,
                              int64_t count)
{
    memset(spare, 0, (size_t)stride * sizeof *spare);
    memset(out, 0, (size_t)count * sizeof *out);
    add_taps(spare, top, stride, line, stride, 2 * radius + 1);
    add_taps(out, spare, COD_RGB, line, count, 2 * radius + 1);
}

/** One row of the result. @param top  the padded row `radius` above; @param spare  [stride] */
static void filter_row(const cod_blur_kernel *kernel, const float *top, int64_t stride, float *spare, float *out,
                       int64_t count)
{
    const int radius = kernel->radius, side = 2 * radius + 1;
    const float *middle = top + radius * stride;
    if (kernel->separable) {
        cod_filter_separable_row(kernel->line, radius, top, stride, spare, out, count);
        return;
    }
    memset(out, 0, (size_t)count * sizeof *out);
    for (int y = 0; !kernel->flips && y < side; y++)
        add_taps(out, top + y * stride, COD_RGB, kernel->weights + y * side, count, side);
    for (int y = 0; kernel->flips && y <= radius; y++) {
        const float *row = middle;
        if (y > 0) {
            add_rows(spare, middle - y * stride, middle + y * stride, stride);
            row = spare;
        }
        add_taps(out, row, COD_RGB, kernel->weights + (radius + y) * side, count, side);
    }
}

cod_status cod_blur_apply(const cod_floats *in, const cod_blur_kernel *kernel, cod_grown *scratch, cod_floats *out)
{
    const int radius = kernel->radius;
    const int64_t stride = (in->width + 2 * radius) * COD_RGB, rows = in->height + 2 * radius;
    const int64_t count = in->width * COD_RGB;
    COD_TRY(cod_grow(scratch, (size_t)(stride * (rows + 1)) * sizeof(float)));
    COD_TRY(cod_floats_resize(out, in->width, in->height));
    float *padded = scratch->memory, *spare = padded + stride * rows;
    pad(in, radius, stride, padded);
    for (int64_t y = 0; y < in->height; y++)
        filter_row(kernel, padded + y * stride, stride, spare, out->pixels + y * count, count);
    return COD_OK;
}
