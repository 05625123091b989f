/* Resampling by area, bilinear and bicubic: rows first, then columns, row by row. */
#include "data/degrade_internal.h"

#include <math.h>
#include <string.h>

/** Four floats of a row; the fourth belongs to the next pixel and is overwritten by it. */
typedef float quad __attribute__((vector_size(16), aligned(4), may_alias));

/** Taps of output position o: input index[o·taps + t] with weight[o·taps + t]. */
typedef struct axis {
    int64_t size, taps;
    int32_t *index;
    float *weight;
} axis;

/** Most inputs of an output position. */
static int64_t most_taps(cod_interpolation mode, int64_t in, int64_t out)
{
    if (mode == COD_AREA)
        return (in + out - 1) / out + 1;
    return mode == COD_BILINEAR ? 2 : 4;
}

/** Keys' cubic convolution with PyTorch's a. */
static double cubic(double x)
{
    const double a = -0.75, d = fabs(x);
    if (d <= 1)
        return ((a + 2) * d - (a + 3)) * d * d + 1;
    return d < 2 ? ((a * d - 5 * a) * d + 8 * a) * d - 4 * a : 0;
}

static void set_area(axis *t, int64_t in)
{
    for (int64_t o = 0; o < t->size; o++) {
        const int64_t begin = o * in / t->size, end = ((o + 1) * in + t->size - 1) / t->size;
        for (int64_t i = 0; i < t->taps; i++) {
            t->index[o * t->taps + i] = (int32_t)(begin + i < end ? begin + i : begin);
            t->weight[o * t->taps + i] = begin + i < end ? (float)(1.0 / (double)(end - begin)) : 0;
        }
    }
}

static void set_kernel(axis *t, cod_interpolation mode, int64_t in)
{
    const double ratio = (double)in / (double)t->size;
    for (int64_t o = 0; o < t->size; o++) {
        double center = ((double)o + 0.5) * ratio - 0.5;
        if (mode == COD_BILINEAR && center < 0)
            center = 0;
        const int64_t left = (int64_t)floor(center) - (mode == COD_BICUBIC);
        for (int64_t i = 0; i < t->taps; i++) {
            const int64_t at = left + i;
            const double distance = center - (double)at;
            t->index[o * t->taps + i] = (int32_t)(at < 0 ? 0 : at >= in ? in - 1 : at);
            t->weight[o * t->taps + i] = (float)(mode == COD_BILINEAR ? 1 - fabs(distance) : cubic(distance));
        }
    }
}

/** row = Σ weight · rows of the input. */
COD_WIDE static void mix_rows(float *restrict row, const float *restrict in, int64_t count, const int32_t *index,
                              const float *weight, int64_t taps)
{
    const float first = weight[0], *restrict from = in + index[0] * count;
    for (int64_t i = 0; i < count; i++)
        row[i] = first * from[i];
    for (int64_t t = 1; t < taps; t++) {
        const float w = weight[t], *restrict next = in + index[t] * count;
        for (int64_t i = 0; w != 0 && i < count; i++)
            row[i] += w * next[i];
    }
}

/** Writes `columns->size` pixels, and one float behind them. */
static void mix_columns(float *out, const float *row, const axis *columns)
{
    const int32_t *index = columns->index;
    const float *weight = columns->weight;
    for (int64_t x = 0; x < columns->size; x++, out += COD_RGB, index += columns->taps, weight += columns->taps) {
        quad sum = {0};
        for (int64_t t = 0; t < columns->taps; t++)
            sum += weight[t] * *(const quad *)(row + index[t] * COD_RGB);
        *(quad *)out = sum;
    }
}

cod_status cod_interpolate(const cod_floats *in, cod_interpolation mode, int64_t width, int64_t height,
                           cod_grown *scratch, cod_floats *out)
{
    axis down = {.size = height, .taps = most_taps(mode, in->height, height)};
    axis across = {.size = width, .taps = most_taps(mode, in->width, width)};
    const int64_t count = in->width * COD_RGB, downs = down.size * down.taps, acrosses = across.size * across.taps;
    COD_TRY(cod_grow(scratch, (size_t)(count + COD_FLOATS_SLACK + 2 * (downs + acrosses)) * sizeof(float)));
    COD_TRY(cod_floats_resize(out, width, height));
    float *row = scratch->memory;
    memset(row + count, 0, COD_FLOATS_SLACK * sizeof *row);
    down.weight = row + count + COD_FLOATS_SLACK;
    across.weight = down.weight + downs;
    down.index = (int32_t *)(void *)(across.weight + acrosses);
    across.index = down.index + downs;
    if (mode == COD_AREA) {
        set_area(&down, in->height);
        set_area(&across, in->width);
    } else {
        set_kernel(&down, mode, in->height);
        set_kernel(&across, mode, in->width);
    }
    for (int64_t y = 0; y < height; y++) {
        mix_rows(row, in->pixels, count, down.index + y * down.taps, down.weight + y * down.taps, down.taps);
        mix_columns(out->pixels + y * width * COD_RGB, row, &across);
    }
    return COD_OK;
}
