/* Ma's score: statistics of a steerable pyramid's bands, divisively normalised as in DIIVINE (Moorthy & Bovik 2011). */
#include "data/ma_internal.h"
#include "data/metrics.h"
#include "data/resize.h"
#include "data/symmetric_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    LEVELS = COD_STEERABLE_LEVELS,
    BANDS = COD_STEERABLE_BANDS,
    SPATIAL = 9,
    NEIGHBOURS = SPATIAL + 1 + BANDS - 1, /**< 3x3 of the band itself, its parent, the other orientations */
    GUARD = 16 /**< values that are left out at each border, half of it at the second level */
};

/** Planes of neighbours: values[row][column] of each is a neighbour of the band's value at row + 1, column + 1. */
typedef struct neighbourhood {
    int count;
    int64_t height, width;            /**< of the values that have all neighbours */
    const double *values[NEIGHBOURS]; /**< of row 0 */
    int64_t strides[NEIGHBOURS];
    double inverse[NEIGHBOURS * NEIGHBOURS]; /**< of their covariance, without directions in which there is nothing */
} neighbourhood;

static void add_neighbour(neighbourhood *n, const cod_plane *plane, int64_t down, int64_t right)
{
    n->values[n->count] = plane->values + down * plane->width + right;
    n->strides[n->count++] = plane->width;
}

static void row_of(const neighbourhood *n, int64_t y, const double *row[NEIGHBOURS])
{
    for (int i = 0; i < n->count; i++)
        row[i] = n->values[i] + y * n->strides[i];
}

/**
 * The pseudo-inverse of the neighbours' second moments. Negative eigenvalues, which only rounding makes, count as 0;
 * the others are scaled so that the sum of all remains.
 */
static void invert_covariance(neighbourhood *n)
{
    const int count = n->count;
    double moments[NEIGHBOURS * NEIGHBOURS] = {0}, vectors[NEIGHBOURS * NEIGHBOURS];
    const double *row[NEIGHBOURS];
    for (int64_t y = 0; y < n->height; y++) {
        row_of(n, y, row);
        for (int i = 0; i < count; i++)
            for (int j = 0; j <= i; j++)
                for (int64_t x = 0; x < n->width; x++)
                    moments[i * count + j] += row[i][x] * row[j][x];
    }
    for (int i = 0; i < count; i++)
        for (int j = 0; j <= i; j++)
            moments[i * count + j] = moments[j * count + i] = moments[i * count + j] / (double)(n->height * n->width);
    cod_diagonalise(count, moments, vectors);
    double sum = 0, positive = 0, largest = 0;
    for (int k = 0; k < count; k++) {
        const double value = moments[k * count + k];
        sum += value;
        positive += fmax(value, 0);
        largest = fmax(largest, value);
    }
    const double scale = positive > 0 ? sum / positive : 0, least = cod_pinv_tolerance(count, largest * scale);
    memset(n->inverse, 0, sizeof n->inverse);
    for (int k = 0; k < count; k++) {
        const double value = moments[k * count + k] * scale;
        for (int i = 0; value > least && i < count; i++)
            for (int j = 0; j < count; j++)
                n->inverse[i * count + j] += vectors[i * count + k] * vectors[j * count + k] / value;
    }
}

/** The energy of the neighbourhood of each value of a row: y' inverse y. */
static void row_energy(const neighbourhood *n, int64_t y, double *energy)
{
    const double *row[NEIGHBOURS];
    row_of(n, y, row);
    memset(energy, 0, (size_t)n->width * sizeof *energy);
    for (int i = 0; i < n->count; i++)
        for (int j = 0; j <= i; j++) {
            const double factor = n->inverse[i * n->count + j] * (i == j ? 1 : 2);
            for (int64_t x = 0; x < n->width; x++)
                energy[x] += factor * row[i][x] * row[j][x];
        }
}

/** Divides the values inside the guard by the deviation of their neighbourhood; those of `out` have mean 0. */
static cod_status divide(const neighbourhood *n, const cod_plane *band, int64_t guard, int divisor, cod_plane *out)
{
    double mean = 0, own_mean = 0, *energy = malloc((size_t)n->width * sizeof *energy);
    COD_REQUIRE_MEMORY(energy);
    bool empty = false;
    for (int64_t y = 0; y < n->height; y++)
        for (int64_t x = 0; x < n->width; x++)
            mean += band->values[(y + 1) * band->width + x + 1];
    mean /= (double)(n->height * n->width);
    for (int64_t y = 0; y < n->height; y++) {
        row_energy(n, y, energy);
        for (int64_t x = 0; x < n->width; x++)
            empty = empty || !(energy[x] > 0);
        if (y < guard || y >= n->height - guard)
            continue;
        for (int64_t x = 0; x < out->width; x++) {
            const double value = band->values[(y + 1) * band->width + x + guard + 1] - mean;
            own_mean += out->values[(y - guard) * out->width + x] = value / sqrt(energy[x + guard] / divisor);
        }
    }
    free(energy);
    if (empty)
        return cod_fail(COD_ERR_ARGUMENT,
                        "a picture has no score by Ma where a band of its pyramid is 0 around a pixel");
    own_mean /= (double)(out->height * out->width);
    for (int64_t i = 0; i < out->height * out->width; i++)
        out->values[i] -= own_mean;
    return COD_OK;
}

/** @param[in] parent  the band of the same orientation at the next level, resized to twice its size; NULL = none */
static cod_status normalise_beside(const cod_steerable *pyramid, int level, int band, const cod_plane *parent,
                                   cod_plane *out)
{
    const cod_plane *own = &pyramid->band[level][band];
    const int64_t guard = GUARD >> level;
    neighbourhood n = {.height = own->height - 2, .width = own->width - 2};
    for (int i = 0; i < SPATIAL; i++)
        add_neighbour(&n, own, i / 3, i % 3);
    if (parent != NULL)
        add_neighbour(&n, parent, 1, 1);
    const int divisor = n.count;
    for (int other = 0; other < BANDS; other++)
        if (other != band)
            add_neighbour(&n, &pyramid->band[level][other], 1, 1);
    invert_covariance(&n);
    COD_TRY(cod_plane_init(n.height - 2 * guard, n.width - 2 * guard, out));
    return divide(&n, own, guard, divisor, out);
}

/** Normalises a band divisively. Those of the first level have parents, but for the last one (data/ma.h says why). */
static cod_status normalise(const cod_steerable *pyramid, int level, int band, cod_plane *out)
{
    if (level + 1 == LEVELS || band + 1 == BANDS)
        return normalise_beside(pyramid, level, band, NULL, out);
    const cod_plane *small = &pyramid->band[level + 1][band];
    cod_plane parent;
    COD_TRY(cod_plane_init(2 * small->height, 2 * small->width, &parent));
    cod_status status = cod_resize_f64(small->values, small->height, small->width, 1, 2, parent.values);
    COD_THEN(status, normalise_beside(pyramid, level, band, &parent, out));
    cod_plane_clear(&parent);
    return status;
}

static cod_status shape_features(cod_plane normal[LEVELS][BANDS], double *features)
{
    for (int level = 0; level < LEVELS; level++)
        for (int band = 0; band < BANDS; band++) {
            const cod_plane *p = &normal[level][band];
            *features++ = cod_ma_shape(p->values, (size_t)(p->height * p->width));
        }
    for (int band = 0; band < BANDS; band++) {
        const cod_plane *a = &normal[0][band], *b = &normal[1][band];
        const size_t count_a = (size_t)(a->height * a->width), count_b = (size_t)(b->height * b->width);
        double *both = malloc((count_a + count_b) * sizeof *both);
        COD_REQUIRE_MEMORY(both);
        memcpy(both, a->values, count_a * sizeof *both);
        memcpy(both + count_a, b->values, count_b * sizeof *both);
        *features++ = cod_ma_shape(both, count_a + count_b);
        free(both);
    }
    return COD_OK;
}

static cod_status structure_features(const cod_steerable *pyramid, cod_plane normal[LEVELS][BANDS], double *features)
{
    const cod_plane *high = &pyramid->high;
    cod_plane large = {0};
    cod_status status = cod_plane_init(high->height, high->width, &large);
    for (int i = 0; status == COD_OK && i < LEVELS * BANDS; i++) {
        const cod_plane *band = &pyramid->band[i / BANDS][i % BANDS];
        status = cod_resize_f64_to(band->values, band->height, band->width, 1, high->height, high->width, large.values);
        COD_THEN(status, cod_ssim_structure(large.values, high->values, high->height, high->width, features++));
    }
    cod_plane_clear(&large);
    for (int i = 0; i < BANDS; i++)
        for (int j = i + 1; status == COD_OK && j < BANDS; j++)
            status = cod_ssim_structure(normal[0][i].values, normal[0][j].values, normal[0][i].height,
                                        normal[0][i].width, features++);
    return status;
}

cod_status cod_ma_band_features(const cod_plane *gray, double features[COD_MA_BAND_FEATURES])
{
    cod_steerable pyramid;
    cod_plane normal[LEVELS][BANDS] = {{{0}}};
    cod_status status = cod_steerable_init(gray, &pyramid);
    for (int i = 0; status == COD_OK && i < LEVELS * BANDS; i++)
        status = normalise(&pyramid, i / BANDS, i % BANDS, &normal[i / BANDS][i % BANDS]);
    COD_THEN(status, shape_features(normal, features));
    COD_THEN(status, structure_features(&pyramid, normal, features + LEVELS * BANDS + BANDS));
    for (int i = 0; i < LEVELS * BANDS; i++)
        cod_plane_clear(&normal[i / BANDS][i % BANDS]);
    cod_steerable_clear(&pyramid);
    return status;
}
