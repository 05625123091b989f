#include "data/niqe.h"

#include "data/gaussian_internal.h"
#include "data/plane_internal.h"
#include "data/resize.h"
#include "data/symmetric_internal.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW = 7, SCALES = 2, OF_SCALE = COD_NIQE_FEATURES / SCALES };

/**
 * The shapes among which one is chosen: 0.2, 0.201, … 10, each with the ratio of moments that a generalised Gaussian of
 * it has.
 */
enum { SHAPES = 9801 };
typedef struct shape_table {
    double ratio[SHAPES]; /**< Γ(2/s)² / (Γ(1/s) Γ(3/s)), which grows with s */
} shape_table;

static double shape_of(int i)
{
    return 0.2 + 0.001 * i;
}

static shape_table all_shapes;
static pthread_once_t all_shapes_once = PTHREAD_ONCE_INIT;

static void fill_shapes(void)
{
    for (int i = 0; i < SHAPES; i++) {
        const double s = shape_of(i);
        all_shapes.ratio[i] = exp(2 * lgamma(2 / s) - lgamma(1 / s) - lgamma(3 / s));
    }
}

static const shape_table *get_shapes(void)
{
    pthread_once(&all_shapes_once, fill_shapes);
    return &all_shapes;
}

/** The shape whose ratio is nearest; the smaller one of two that are equally near. */
static double nearest_shape(const shape_table *shapes, double ratio)
{
    int below = 0, above = SHAPES - 1;
    while (above - below > 1) {
        const int middle = (below + above) / 2;
        if (shapes->ratio[middle] <= ratio)
            below = middle;
        else
            above = middle;
    }
    const double to_below = ratio - shapes->ratio[below], to_above = shapes->ratio[above] - ratio;
    return shape_of(to_above * to_above < to_below * to_below ? above : below);
}

/** Sums over values, of which an asymmetric generalised Gaussian follows. */
typedef struct moments {
    double absolute, left, right; /**< |v|; v² of negative ones, and of positive ones */
    double left_count, right_count;
} moments;

static inline void add_value(moments *m, double v)
{
    const double square = v * v;
    m->absolute += fabs(v);
    m->left += v < 0 ? square : 0;
    m->right += v > 0 ? square : 0;
    m->left_count += v < 0;
    m->right_count += v > 0;
}

/** An asymmetric generalised Gaussian (Lasmar, Stitou & Berthoumieu 2009), fitted by moments. */
typedef struct gaussian {
    double shape, left, right; /**< the widths beta of both sides */
} gaussian;

/** NaN where there are no values of one sign, as in flat blocks. */
static gaussian fit(const shape_table *shapes, const moments *m, double count)
{
    const double left = sqrt(m->left / m->left_count), right = sqrt(m->right / m->right_count), g = left / right;
    const double mean = m->absolute / count, r = mean * mean / ((m->left + m->right) / count);
    const double ratio = r * (g * g * g + 1) * (g + 1) / ((g * g + 1) * (g * g + 1));
    if (isnan(ratio))
        return (gaussian){NAN, NAN, NAN};
    const double shape = nearest_shape(shapes, ratio);
    const double width = exp((lgamma(1 / shape) - lgamma(3 / shape)) / 2);
    return (gaussian){shape, left * width, right * width};
}

/** The 18 features of one block, [size, size] of a plane; neighbours beyond an edge are those at the opposite one. */
static void block_features(const shape_table *shapes, const cod_plane *p, int64_t top, int64_t left, int64_t size,
                           double features[OF_SCALE])
{
    enum { NEIGHBOURS = 4 };
    static const int down[NEIGHBOURS] = {0, 1, 1, 1}, aside[NEIGHBOURS] = {1, 0, 1, -1};
    moments own = {0}, pairs[NEIGHBOURS] = {{0}};
    for (int64_t y = 0; y < size; y++) {
        const double *row = p->values + (top + y) * p->width + left;
        for (int64_t x = 0; x < size; x++)
            add_value(&own, row[x]);
        for (int k = 0; k < NEIGHBOURS; k++) {
            const double *other = p->values + (top + (y + size - down[k]) % size) * p->width + left;
            const int64_t first = aside[k] > 0, end = aside[k] < 0 ? size - 1 : size;
            for (int64_t x = first; x < end; x++)
                add_value(&pairs[k], row[x] * other[x - aside[k]]);
            if (aside[k] > 0)
                add_value(&pairs[k], row[0] * other[size - 1]);
            if (aside[k] < 0)
                add_value(&pairs[k], row[size - 1] * other[0]);
        }
    }
    const double count = (double)(size * size);
    gaussian g = fit(shapes, &own, count);
    *features++ = g.shape;
    *features++ = (g.left + g.right) / 2;
    for (int k = 0; k < NEIGHBOURS; k++) {
        g = fit(shapes, &pairs[k], count);
        *features++ = g.shape;
        *features++ = (g.right - g.left) * exp(lgamma(2 / g.shape) - lgamma(1 / g.shape));
        *features++ = g.left;
        *features++ = g.right;
    }
}

static int64_t inside(int64_t at, int64_t size)
{
    return at < 0 ? 0 : at >= size ? size - 1 : at;
}

enum { EDGE = WINDOW / 2 };

/**
 * Row y's windows, filtered down the columns: of values and of their squares, [EDGE + width + EDGE]. Borders are
 * repeated.
 */
static void filter_columns(const cod_plane *p, int64_t y, const double weights[WINDOW], double *values, double *squares)
{
    const int64_t width = p->width;
    memset(values, 0, (size_t)(width + 2 * EDGE) * sizeof *values);
    memset(squares, 0, (size_t)(width + 2 * EDGE) * sizeof *squares);
    for (int t = 0; t < WINDOW; t++) {
        const double w = weights[t], *row = p->values + inside(y + t - EDGE, p->height) * width;
        for (int64_t x = 0; x < width; x++) {
            values[EDGE + x] += w * row[x];
            squares[EDGE + x] += w * row[x] * row[x];
        }
    }
    for (int i = 0; i < EDGE; i++) {
        values[i] = values[EDGE];
        squares[i] = squares[EDGE];
        values[EDGE + width + i] = values[EDGE + width - 1];
        squares[EDGE + width + i] = squares[EDGE + width - 1];
    }
}

static double filter_row(const double *from, const double weights[WINDOW])
{
    double sum = 0;
    for (int t = 0; t < WINDOW; t++)
        sum += weights[t] * from[t];
    return sum;
}

/**
 * (v - mean) / (deviation + 1) of each pixel, by its window (equation 1). Where a window is flat only rounding is left
 * of the difference: such values count as 0, because their signs would be counted otherwise.
 */
static cod_status normalise(const cod_plane *p, double *out)
{
    const double rounding = 1e-9;
    const size_t padded = (size_t)p->width + 2 * EDGE;
    double weights[WINDOW];
    double *values = malloc(2 * padded * sizeof *values);
    COD_REQUIRE_MEMORY(values);
    double *squares = values + padded;
    cod_gaussian_weights(WINDOW, 7.0 / 6, weights);
    for (int64_t y = 0; y < p->height; y++) {
        filter_columns(p, y, weights, values, squares);
        for (int64_t x = 0; x < p->width; x++) {
            const double mean = filter_row(values + x, weights);
            const double deviation = sqrt(fabs(filter_row(squares + x, weights) - mean * mean));
            const double v = (p->values[y * p->width + x] - mean) / (deviation + 1);
            out[y * p->width + x] = fabs(v) < rounding ? 0 : v;
        }
    }
    free(values);
    return COD_OK;
}

/** What is left inside the border, cut to whole blocks. */
static cod_status take_gray(const cod_image *image, int64_t crop, cod_plane *p)
{
    COD_REQUIRE(image->bits == 8, "NIQE is of 8-bit pictures");
    COD_REQUIRE(crop >= 0, "a border of %lld pixels cannot be left out", (long long)crop);
    const int64_t rows = (image->height - 2 * crop) / COD_NIQE_BLOCK,
                  columns = (image->width - 2 * crop) / COD_NIQE_BLOCK;
    COD_REQUIRE(rows > 0 && columns > 0 && rows * columns > 1,
                "%lldx%lld pixels are too few for NIQE: %dx%d must remain inside a border of %lld",
                (long long)image->width, (long long)image->height, 2 * COD_NIQE_BLOCK, COD_NIQE_BLOCK, (long long)crop);
    return cod_plane_init_gray(image, crop, rows * COD_NIQE_BLOCK, columns * COD_NIQE_BLOCK, p);
}

/** Replaces a plane by one of half its size. */
static cod_status halve(cod_plane *p)
{
    cod_plane half;
    COD_TRY(cod_plane_init(p->height / 2, p->width / 2, &half));
    const cod_status status = cod_resize_f64(p->values, p->height, p->width, 1, 0.5, half.values);
    cod_plane_clear(p);
    *p = half;
    return status;
}

/** Features of all blocks: [blocks][COD_NIQE_FEATURES]; halves the plane. */
static cod_status all_features(cod_plane *p, size_t blocks, double *features)
{
    const int64_t columns = p->width / COD_NIQE_BLOCK;
    const shape_table *shapes = get_shapes();
    cod_plane normal;
    cod_status status = cod_plane_init(p->height, p->width, &normal);
    for (int scale = 0; status == COD_OK && scale < SCALES; scale++) {
        const int64_t size = COD_NIQE_BLOCK >> scale;
        if (scale > 0)
            status = halve(p);
        COD_THEN(status, normalise(p, normal.values));
        normal.height = p->height;
        normal.width = p->width;
        for (size_t b = 0; status == COD_OK && b < blocks; b++)
            block_features(shapes, &normal, (int64_t)b / columns * size, (int64_t)b % columns * size, size,
                           features + b * COD_NIQE_FEATURES + scale * OF_SCALE);
    }
    cod_plane_clear(&normal);
    return status;
}

static bool has_nan(const double *features)
{
    for (int i = 0; i < COD_NIQE_FEATURES; i++)
        if (isnan(features[i]))
            return true;
    return false;
}

/** Means of what is not NaN, as nanmean; the covariance of the blocks without any NaN, as nancov. */
static cod_status summarise(const double *features, size_t blocks, cod_niqe_model *out)
{
    enum { F = COD_NIQE_FEATURES };
    double centre[F] = {0};
    size_t whole = 0;
    *out = (cod_niqe_model){0};
    for (size_t b = 0; b < blocks; b++) {
        whole += !has_nan(features + b * F);
        for (size_t i = 0; !has_nan(features + b * F) && i < F; i++)
            centre[i] += features[b * F + i];
    }
    if (whole < 2)
        return cod_fail(COD_ERR_ARGUMENT, "NIQE needs two blocks of %dx%d pixels that are not flat; %zu of %zu are not",
                        COD_NIQE_BLOCK, COD_NIQE_BLOCK, whole, blocks);
    for (size_t i = 0; i < F; i++) {
        size_t count = 0;
        for (size_t b = 0; b < blocks; b++) {
            const double v = features[b * F + i];
            count += isnan(v) ? 0 : 1;
            out->mean[i] += isnan(v) ? 0 : v;
        }
        out->mean[i] /= (double)count;
        centre[i] /= (double)whole;
    }
    for (size_t b = 0; b < blocks; b++) {
        const double *v = features + b * F;
        for (int i = 0; !has_nan(v) && i < F; i++)
            for (int j = 0; j < F; j++)
                out->covariance[i * F + j] += (v[i] - centre[i]) * (v[j] - centre[j]) / (double)(whole - 1);
    }
    return COD_OK;
}

cod_status cod_niqe_features(const cod_image *image, int64_t crop, cod_niqe_model *features)
{
    cod_plane p = {0};
    COD_TRY(take_gray(image, crop, &p));
    const size_t blocks = (size_t)(p.height / COD_NIQE_BLOCK * (p.width / COD_NIQE_BLOCK));
    double *of_blocks = malloc(blocks * COD_NIQE_FEATURES * sizeof *of_blocks);
    cod_status status =
        of_blocks != NULL ? all_features(&p, blocks, of_blocks) : cod_fail(COD_ERR_MEMORY, "out of memory");
    COD_THEN(status, summarise(of_blocks, blocks, features));
    free(of_blocks);
    cod_plane_clear(&p);
    return status;
}

cod_status cod_niqe(const cod_image *image, int64_t crop, const cod_niqe_model *model, double *niqe)
{
    enum { F = COD_NIQE_FEATURES };
    cod_niqe_model own;
    double sum[F * F], vectors[F * F], largest = 0, square = 0;
    COD_TRY(cod_niqe_features(image, crop, &own));
    for (int i = 0; i < F * F; i++)
        sum[i] = (model->covariance[i] + own.covariance[i]) / 2;
    cod_diagonalise(F, sum, vectors);
    for (int i = 0; i < F; i++)
        largest = fmax(largest, fabs(sum[i * F + i]));
    /*
     * The pseudo-inverse: eigenvalues below MATLAB's tolerance of pinv() count as 0, and their directions are left out.
     */
    const double least = cod_pinv_tolerance(F, largest);
    for (int k = 0; k < F; k++) {
        double along = 0;
        for (int i = 0; i < F; i++)
            along += (model->mean[i] - own.mean[i]) * vectors[i * F + k];
        if (fabs(sum[k * F + k]) > least)
            square += along * along / sum[k * F + k];
    }
    *niqe = sqrt(square);
    return COD_OK;
}
