/**
 * @file
 * Building blocks of degradations: pictures of floats and operations on them. Results have the same bits on every
 * x86-64 processor, because sums have a fixed order and no operations are contracted.
 */
#ifndef COD_DATA_DEGRADE_INTERNAL_H
#define COD_DATA_DEGRADE_INTERNAL_H

#include "core/rng.h"
#include "core/wide.h"
#include "data/blur_kernel.h"

#include <stdint.h>

enum { COD_RGB = 3 };

/** Memory that grows to the largest size needed and is reused, so that crops need not allocate; zeroed = none. */
typedef struct cod_grown {
    void *memory;
    size_t bytes;
} cod_grown;

/** Makes room for `bytes`; the old content may be lost. */
COD_MUST_CHECK cod_status cod_grow(cod_grown *room, size_t bytes);
void cod_grown_clear(cod_grown *room);

/**
 * A picture of floats, [height, width, 3], of values 0 … 255; COD_FLOATS_SLACK more may be read and written behind it.
 */
typedef struct cod_floats {
    int64_t width, height;
    float *pixels; /**< room's */
    cod_grown room;
} cod_floats;

enum { COD_FLOATS_SLACK = 4 };

/** Sets the size; the old content is lost. */
COD_MUST_CHECK cod_status cod_floats_resize(cod_floats *picture, int64_t width, int64_t height);

static inline int64_t cod_floats_count(const cod_floats *picture)
{
    return picture->width * picture->height * COD_RGB;
}

/** Limits all values to 0 … 255. */
void cod_floats_clamp(cod_floats *picture);
/** Rounds values, limited to 0 … 255, to the nearest. @param[out] bytes  [height, width, 3] */
void cod_floats_to_bytes(const cod_floats *picture, uint8_t *bytes);
void cod_floats_from_bytes(cod_floats *picture, const uint8_t *bytes);

/** The index into a line of n for any index `at`, with reflection at the ends, which are not repeated. */
int64_t cod_mirror(int64_t at, int64_t n);

/** Filters with reflected borders. */
COD_MUST_CHECK cod_status cod_blur_apply(const cod_floats *in, const cod_blur_kernel *kernel, cod_grown *scratch,
                                         cod_floats *out);

/**
 * One row of RGB filtered by line[y] · line[x].
 *
 * @param line   [2·radius + 1]
 * @param top    the row `radius` above, from `radius` pixels before the first on; [2·radius + 1, stride]
 * @param spare  [stride]
 * @param count  floats of `out`; at most stride - 6·radius
 */
void cod_filter_separable_row(const float *line, int radius, const float *top, int64_t stride, float *spare, float *out,
                              int64_t count);

typedef enum cod_interpolation { COD_AREA, COD_BILINEAR, COD_BICUBIC, COD_INTERPOLATIONS } cod_interpolation;

/**
 * Resamples as PyTorch's interpolate() does, without antialiasing: pixels' centres are aligned, borders repeated; area
 * is the mean over the pixels that an output pixel touches, bicubic Keys' kernel with a = -0.75.
 */
COD_MUST_CHECK cod_status cod_interpolate(const cod_floats *in, cod_interpolation mode, int64_t width, int64_t height,
                                          cod_grown *scratch, cod_floats *out);

/**
 * Adds Gaussian noise of standard deviation `sigma` (values 0 … 255) and clamps; gray = the same noise for all channels
 * of a pixel.
 */
void cod_add_gaussian(cod_floats *picture, double sigma, bool gray, cod_rng *rng);

/** Tables to draw from Poisson distributions by inversion. */
typedef struct cod_poisson cod_poisson;
COD_MUST_CHECK cod_status cod_poisson_create(cod_poisson **out);
void cod_poisson_destroy(cod_poisson *poisson);

/**
 * Adds Poisson noise and clamps, as BasicSR does: values are rounded to 8 bits; `levels` is the number of different
 * values, rounded up to a power of two; value v is replaced by a draw of mean v/255 · levels, and `scale` times the
 * change is added. Gray: the noise of the luma.
 */
void cod_add_poisson(const cod_poisson *poisson, cod_floats *picture, double scale, bool gray, cod_rng *rng);

/** A compressor and a decompressor that are reused; zeroed = none yet. */
typedef struct cod_jpeg_cycle {
    struct cod_jpeg_codec *codec;
    cod_grown pixels, file;
    size_t bytes; /**< of the last file */
} cod_jpeg_cycle;

/** Compresses a picture as JPEG and decompresses it: 8 bits, colours at half the resolution. @param quality 1 … 100 */
COD_MUST_CHECK cod_status cod_jpeg_apply(cod_jpeg_cycle *cycle, cod_floats *picture, int quality);
void cod_jpeg_cycle_clear(cod_jpeg_cycle *cycle);

#endif
