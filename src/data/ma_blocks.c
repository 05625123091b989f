/* Ma's score: statistics of the DCT of 7x7 windows, and singular values of 5x5 patches. */
#include "data/ma_internal.h"
#include "data/symmetric_internal.h"

#include <math.h>
#include <stdlib.h>

enum { WINDOW = 7, STEP = 3, BORDER = 2, COEFFICIENTS = WINDOW * WINDOW - 1, ORIENTATIONS = 3, PATCH = 25, SIDE = 5 };

/** The orientation to which each coefficient belongs; each has 16 of them. */
static const unsigned char orientation_of[WINDOW][WINDOW] = {
    {0, 1, 1, 1, 1, 1, 1}, {3, 2, 1, 1, 1, 1, 1}, {3, 3, 2, 2, 1, 1, 1}, {3, 3, 2, 2, 2, 1, 1},
    {3, 3, 3, 2, 2, 2, 2}, {3, 3, 3, 3, 2, 2, 2}, {3, 3, 3, 3, 2, 2, 2},
};

typedef struct window_matrix {
    double at[WINDOW][WINDOW];
} window_matrix;

static window_matrix dct_matrix(void)
{
    window_matrix dct;
    const double pi = 3.14159265358979323846;
    for (int k = 0; k < WINDOW; k++)
        for (int i = 0; i < WINDOW; i++)
            dct.at[k][i] = sqrt((k == 0 ? 1.0 : 2.0) / WINDOW) * cos(pi * (2 * i + 1) * k / (2 * WINDOW));
    return dct;
}

/** MATLAB's dct2 of the window whose upper left corner is at (top, left); beyond the plane there are zeros. */
static window_matrix transform(const window_matrix *dct, const cod_plane *plane, int64_t top, int64_t left)
{
    window_matrix out = {{{0}}};
    double rows[WINDOW][WINDOW] = {{0}};
    for (int i = 0; i < WINDOW; i++) {
        const int64_t y = top + i;
        if (y < 0 || y >= plane->height)
            continue;
        for (int j = 0; j < WINDOW; j++) {
            const int64_t x = left + j;
            const double value = x < 0 || x >= plane->width ? 0 : plane->values[y * plane->width + x];
            for (int k = 0; k < WINDOW; k++)
                rows[i][k] += dct->at[k][j] * value;
        }
    }
    for (int k = 0; k < WINDOW; k++)
        for (int l = 0; l < WINDOW; l++)
            for (int i = 0; i < WINDOW; i++)
                out.at[k][l] += dct->at[k][i] * rows[i][l];
    return out;
}

static double variance(const double *values, int count)
{
    double mean = 0, sum = 0;
    for (int i = 0; i < count; i++)
        mean += values[i] / count;
    for (int i = 0; i < count; i++)
        sum += (values[i] - mean) * (values[i] - mean);
    return sum / (count - 1);
}

/** Standard deviation of values that are not negative, by their mean. */
static double variation(const double *values, int count, double least)
{
    double mean = 0;
    for (int i = 0; i < count; i++)
        mean += values[i] / count;
    return sqrt(variance(values, count)) / (mean + least);
}

/** Statistics of windows; each array is [windows]. */
typedef struct statistics {
    size_t windows;
    double *shape, *variation, *orientation;
} statistics;

static void window_statistics(const window_matrix *coefficients, const statistics *s, size_t window)
{
    double values[COEFFICIENTS], sizes[COEFFICIENTS], of_orientation[ORIENTATIONS][COEFFICIENTS];
    double variations[ORIENTATIONS];
    int count = 0, counts[ORIENTATIONS] = {0};
    for (int k = 0; k < WINDOW; k++)
        for (int l = k == 0 ? 1 : 0; l < WINDOW; l++) {
            const int o = orientation_of[k][l] - 1;
            values[count] = coefficients->at[k][l];
            sizes[count++] = of_orientation[o][counts[o]++] = fabs(coefficients->at[k][l]);
        }
    for (int o = 0; o < ORIENTATIONS; o++)
        variations[o] = variation(of_orientation[o], counts[o], 1e-8);
    s->shape[window] = cod_ma_shape(values, COEFFICIENTS);
    s->variation[window] = variation(sizes, COEFFICIENTS, 1e-7);
    s->orientation[window] = variance(variations, ORIENTATIONS);
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double mean_between(const double *values, size_t from, size_t end)
{
    double sum = 0;
    for (size_t i = from; i < end; i++)
        sum += values[i];
    return sum / (double)(end - from);
}

/**
 * Means of the least or greatest tenth, and of all. The greatest begins at MATLAB's element fix(0.9 count), from 1 on.
 */
static void pool(double *values, size_t count, bool least, double out[2])
{
    qsort(values, count, sizeof *values, compare);
    out[0] = least ? mean_between(values, 0, (size_t)ceil((double)count * 0.1))
                   : mean_between(values, (size_t)((double)count * 0.9) - 1, count);
    out[1] = mean_between(values, 0, count);
}

static void scale_features(const window_matrix *dct, const cod_plane *plane, statistics *s, double features[6])
{
    s->windows = 0;
    for (int64_t top = -BORDER; top + BORDER < plane->height; top += STEP)
        for (int64_t left = -BORDER; left + BORDER < plane->width; left += STEP) {
            const window_matrix coefficients = transform(dct, plane, top, left);
            window_statistics(&coefficients, s, s->windows++);
        }
    pool(s->shape, s->windows, true, features);
    pool(s->variation, s->windows, false, features + 2);
    pool(s->orientation, s->windows, false, features + 4);
}

cod_status cod_ma_block_features(const cod_plane gray[COD_MA_SCALES], double features[COD_MA_BLOCK_FEATURES])
{
    const size_t most = (size_t)(((gray->height + STEP - 1) / STEP) * ((gray->width + STEP - 1) / STEP));
    const window_matrix dct = dct_matrix();
    double *values = malloc(3 * most * sizeof *values);
    COD_REQUIRE_MEMORY(values);
    statistics s = {0, values, values + most, values + 2 * most};
    for (int scale = 0; scale < COD_MA_SCALES; scale++)
        scale_features(&dct, &gray[scale], &s, features + 6 * scale);
    free(values);
    return COD_OK;
}

/** Adds a patch to the sum of outer products; where it reaches over the border it has zeros. */
static void add_patch(const cod_plane *plane, int64_t top, int64_t left, double sums[PATCH * PATCH])
{
    double patch[PATCH];
    for (int i = 0; i < PATCH; i++) {
        const int64_t y = top + i / SIDE, x = left + i % SIDE;
        patch[i] = y < plane->height && x < plane->width ? plane->values[y * plane->width + x] : 0;
    }
    for (int i = 0; i < PATCH; i++)
        for (int j = 0; j < PATCH; j++)
            sums[i * PATCH + j] += patch[i] * patch[j];
}

cod_status cod_ma_patch_features(const cod_plane gray[COD_MA_SCALES], double features[COD_MA_PATCH_FEATURES])
{
    for (int scale = 0; scale < COD_MA_SCALES; scale++) {
        double sums[PATCH * PATCH] = {0}, vectors[PATCH * PATCH], falling[PATCH];
        for (int64_t top = 0; top < gray[scale].height; top += SIDE)
            for (int64_t left = 0; left < gray[scale].width; left += SIDE)
                add_patch(&gray[scale], top, left, sums);
        cod_diagonalise(PATCH, sums, vectors);
        for (int i = 0; i < PATCH; i++)
            falling[i] = sqrt(fmax(sums[i * PATCH + i], 0));
        qsort(falling, PATCH, sizeof *falling, compare);
        for (int i = 0; i < PATCH; i++)
            features[PATCH * scale + i] = falling[PATCH - 1 - i];
    }
    return COD_OK;
}
