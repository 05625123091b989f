#include "data/resize.h"

#include "data/transparency.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/** For each output position, the input positions it is made of and their weights: [size][taps]. */
typedef struct filter {
    int64_t size;
    int64_t taps;
    int32_t *index;
    double *weight;
} filter;

/** Keys' cubic convolution kernel, a = -0.5 (Keys 1981, equation 15). */
static double cubic(double x)
{
    const double a = fabs(x), a2 = a * a, a3 = a2 * a;
    if (a <= 1)
        return 1.5 * a3 - 2.5 * a2 + 1;
    return a <= 2 ? -0.5 * a3 + 2.5 * a2 - 4 * a + 2 : 0;
}

/** 0 … n-1, n-1 … 0, and again: the border pixel itself is repeated. */
static int32_t reflect(int64_t i, int64_t n)
{
    int64_t wrapped = i % (2 * n);
    if (wrapped < 0)
        wrapped += 2 * n;
    return (int32_t)(wrapped < n ? wrapped : 2 * n - 1 - wrapped);
}

int64_t cod_resized_size(int64_t size, double scale)
{
    /* 1/scale is rarely exact; a size that should be whole must not be rounded up for its last bit. */
    const int64_t resized = (int64_t)ceil((double)size * scale - 1e-9);
    return resized < 1 ? 1 : resized;
}

static void filter_clear(filter *f)
{
    free(f->index);
    free(f->weight);
    *f = (filter){0};
}

static cod_status filter_init(filter *f, int64_t in_size, int64_t out_size, double scale)
{
    const double stretch = scale < 1 ? scale : 1, width = 4 / stretch;
    f->size = out_size;
    f->taps = (int64_t)ceil(width) + 2;
    const size_t count = (size_t)(f->size * f->taps);
    f->index = malloc(count * sizeof *f->index);
    f->weight = malloc(count * sizeof *f->weight);
    COD_REQUIRE_MEMORY(f->index);
    COD_REQUIRE_MEMORY(f->weight);
    for (int64_t o = 0; o < f->size; o++) {
        int32_t *index = f->index + o * f->taps;
        double *weight = f->weight + o * f->taps, sum = 0;
        const double center = ((double)o + 0.5) / scale - 0.5;
        const int64_t left = (int64_t)floor(center - width / 2);
        for (int64_t t = 0; t < f->taps; t++) {
            weight[t] = stretch * cubic(stretch * (center - (double)(left + t)));
            index[t] = reflect(left + t, in_size);
            sum += weight[t];
        }
        for (int64_t t = 0; t < f->taps; t++)
            weight[t] /= sum;
    }
    return COD_OK;
}

typedef enum sample_type { SAMPLE_U8, SAMPLE_U16, SAMPLE_F64 } sample_type;

#define ADD_ROW(type)                                                                                                  \
    do {                                                                                                               \
        const type *row = (const type *)in + (size_t)y * count;                                                        \
        for (size_t i = 0; i < count; i++)                                                                             \
            sum[i] += weight * row[i];                                                                                 \
    } while (0)

/** sum[count] += weight * row y of `in`. */
static void add_row(sample_type type, const void *in, int64_t y, size_t count, double weight, double *restrict sum)
{
    switch (type) {
    case SAMPLE_U8:
        ADD_ROW(uint8_t);
        break;
    case SAMPLE_U16:
        ADD_ROW(uint16_t);
        break;
    case SAMPLE_F64:
        ADD_ROW(double);
        break;
    }
}

/** The largest integer of a type. */
static double top_of(sample_type type)
{
    return type == SAMPLE_U8 ? UINT8_MAX : UINT16_MAX;
}

/** MATLAB's conversion to an unsigned integer class: nearest, halves up, saturated. */
static double saturate(double value, double top)
{
    const double rounded = floor(value + 0.5);
    return rounded < 0 ? 0 : rounded > top ? top : rounded;
}

static void store_row(sample_type type, const double *row, size_t count, void *out, int64_t y)
{
    for (size_t i = 0; i < count; i++) {
        const size_t at = (size_t)y * count + i;
        if (type == SAMPLE_U8)
            ((uint8_t *)out)[at] = (uint8_t)row[i];
        else if (type == SAMPLE_U16)
            ((uint16_t *)out)[at] = (uint16_t)row[i];
        else
            ((double *)out)[at] = row[i];
    }
}

/** A side before and after, and how much larger it is: MATLAB's own figure where a scale was asked for, not a size. */
typedef struct side {
    int64_t in, out;
    double scale;
} side;

static side scaled_side(int64_t size, double scale)
{
    return (side){size, cod_resized_size(size, scale), scale};
}

/**
 * Weighs colours by the alpha beside them, which is the last of four channels, so that what is transparent does not
 * bleed. Where nothing is visible, colours count alike.
 */
typedef struct mixed_pixel {
    double plain[3], weighed[3], alpha;
} mixed_pixel;

static void mix(mixed_pixel *sum, const double pixel[4], double weight)
{
    for (int c = 0; c < 3; c++) {
        sum->plain[c] += weight * pixel[c];
        sum->weighed[c] += weight * pixel[3] * pixel[c];
    }
    sum->alpha += weight * pixel[3];
}

static void store_mixed(const mixed_pixel *sum, double top, double out[4])
{
    out[3] = saturate(sum->alpha, top);
    for (int c = 0; c < 3; c++)
        out[c] = saturate(out[3] > 0 ? sum->weighed[c] / sum->alpha : sum->plain[c], top);
}

static double sample_of(sample_type type, const void *in, size_t at)
{
    return type == SAMPLE_U8 ? ((const uint8_t *)in)[at] : ((const uint16_t *)in)[at];
}

/** A row between the rows of a picture with alpha. @param[out] tall  [width, 4] */
static void mix_rows(sample_type type, const void *in, int64_t width, const filter *down, int64_t y, double *tall)
{
    for (int64_t x = 0; x < width; x++) {
        mixed_pixel sum = {0};
        for (int64_t t = 0; t < down->taps; t++) {
            double pixel[4];
            const size_t at = ((size_t)down->index[y * down->taps + t] * (size_t)width + (size_t)x) * 4;
            for (size_t c = 0; c < 4; c++)
                pixel[c] = sample_of(type, in, at + c);
            mix(&sum, pixel, down->weight[y * down->taps + t]);
        }
        store_mixed(&sum, top_of(type), tall + x * 4);
    }
}

/** The pixels between those of such a row. @param[out] done  [across->size, 4] */
static void mix_columns(sample_type type, const double *tall, const filter *across, double *done)
{
    for (int64_t x = 0; x < across->size; x++) {
        mixed_pixel sum = {0};
        for (int64_t t = 0; t < across->taps; t++)
            mix(&sum, tall + (size_t)across->index[x * across->taps + t] * 4, across->weight[x * across->taps + t]);
        store_mixed(&sum, top_of(type), done + x * 4);
    }
}

/** A row between the rows of a picture. @param[out] tall  [count] */
static void add_rows(sample_type type, const void *in, size_t count, const filter *down, int64_t y, double *tall)
{
    memset(tall, 0, count * sizeof *tall);
    for (int64_t t = 0; t < down->taps; t++)
        if (down->weight[y * down->taps + t] != 0)
            add_row(type, in, down->index[y * down->taps + t], count, down->weight[y * down->taps + t], tall);
    for (size_t i = 0; type != SAMPLE_F64 && i < count; i++)
        tall[i] = saturate(tall[i], top_of(type));
}

/** The pixels between those of a row. @param[out] done  [across->size, depth] */
static void add_columns(sample_type type, const double *tall, size_t depth, const filter *across, double *done)
{
    for (int64_t x = 0; x < across->size; x++) {
        const int32_t *index = across->index + x * across->taps;
        const double *weight = across->weight + x * across->taps;
        for (size_t c = 0; c < depth; c++) {
            double sum = 0;
            for (int64_t t = 0; t < across->taps; t++)
                sum += weight[t] * tall[(size_t)index[t] * depth + c];
            done[(size_t)x * depth + c] = type != SAMPLE_F64 ? saturate(sum, top_of(type)) : sum;
        }
    }
}

/**
 * Row by row, so that nothing of the picture's size is held between the passes.
 *
 * @param transparent  the last of four channels of integers is alpha
 */
static cod_status resample(sample_type type, const void *in, side height, side width, int channels, bool transparent,
                           void *out)
{
    filter down = {0}, across = {0};
    const size_t depth = (size_t)channels, in_count = (size_t)width.in * depth, out_count = (size_t)width.out * depth;
    double *tall = malloc((in_count + out_count) * sizeof *tall);
    cod_status status = tall ? COD_OK : cod_fail(COD_ERR_MEMORY, "out of memory for a row of %zu samples", in_count);
    COD_THEN(status, filter_init(&down, height.in, height.out, height.scale));
    COD_THEN(status, filter_init(&across, width.in, width.out, width.scale));
    for (int64_t y = 0; status == COD_OK && y < down.size; y++) {
        double *done = tall + in_count;
        if (transparent) {
            mix_rows(type, in, width.in, &down, y, tall);
            mix_columns(type, tall, &across, done);
        } else {
            add_rows(type, in, in_count, &down, y, tall);
            add_columns(type, tall, depth, &across, done);
        }
        store_row(type, done, out_count, out, y);
    }
    filter_clear(&down);
    filter_clear(&across);
    free(tall);
    return status;
}

cod_status cod_resize_f64(const double *in, int64_t height, int64_t width, int channels, double scale, double *out)
{
    COD_REQUIRE(height > 0 && width > 0 && channels > 0, "cannot resize an empty picture");
    COD_REQUIRE(isfinite(scale) && scale > 0, "cannot resize by %g", scale);
    return resample(SAMPLE_F64, in, scaled_side(height, scale), scaled_side(width, scale), channels, false, out);
}

cod_status cod_resize_f64_to(const double *in, int64_t height, int64_t width, int channels, int64_t out_height,
                             int64_t out_width, double *out)
{
    COD_REQUIRE(height > 0 && width > 0 && channels > 0, "cannot resize an empty picture");
    COD_REQUIRE(out_height > 0 && out_width > 0, "cannot resize to an empty picture");
    return resample(SAMPLE_F64, in, (side){height, out_height, (double)out_height / (double)height},
                    (side){width, out_width, (double)out_width / (double)width}, channels, false, out);
}

cod_status cod_image_resize(const cod_image *in, double scale, cod_image *out)
{
    *out = (cod_image){0};
    COD_REQUIRE(in->pixels != NULL, "cannot resize an empty picture");
    COD_REQUIRE(isfinite(scale) && scale > 0, "cannot resize by %g", scale);
    cod_image resized;
    COD_TRY(cod_image_init(&resized, cod_resized_size(in->width, scale), cod_resized_size(in->height, scale),
                           in->channels, in->bits));
    const sample_type type = in->bits == 8 ? SAMPLE_U8 : SAMPLE_U16;
    const side height = scaled_side(in->height, scale), width = scaled_side(in->width, scale);
    const cod_status status =
        resample(type, in->pixels, height, width, in->channels, cod_image_is_transparent(in), resized.pixels);
    if (status != COD_OK)
        cod_image_clear(&resized);
    *out = resized;
    return status;
}
