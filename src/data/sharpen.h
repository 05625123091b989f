/**
 * @file
 * Truth as Real-ESRGAN trains on it: sharpened by unsharp masking (Wang et al. 2021, section 3.5), by the formula of
 * BasicSR's USMSharp.
 *
 * With I the picture and B a Gaussian blur, each in 0 … 255, channel by channel, borders reflected:
 *
 *     R = I - B        M = blur(1 where |R| > 10, else 0)        K = I + R/2 within 0 … 255        result = M·K + (1 - M)·I
 *
 * BasicSR's radius of 50 gives a kernel of 51 pixels, because its size must be odd; its deviation 0 stands for OpenCV's
 * 0.3·((51 - 1)/2 - 1) + 0.8 = 8.
 */
#ifndef COD_DATA_SHARPEN_H
#define COD_DATA_SHARPEN_H

#include "core/status.h"

#include <stdint.h>

/** What a sample's target is. */
typedef enum cod_truth {
    COD_TRUTH_PLAIN, /**< the picture */
    COD_TRUTH_SHARP, /**< the picture sharpened */
    COD_TRUTH_BOTH,  /**< six channels: the picture, followed by the sharpened picture */
} cod_truth;

static inline int64_t cod_truth_channels(cod_truth truth)
{
    return truth == COD_TRUTH_BOTH ? 6 : 3;
}

typedef struct cod_sharpener cod_sharpener;

/** Part of an 8-bit RGB picture [picture_height, picture_width, 3]. Outside its borders the picture is reflected. */
typedef struct cod_sharpen_region {
    const uint8_t *picture;
    int64_t picture_width, picture_height;
    int64_t left, top, width, height;
} cod_sharpen_region;

/** A sharpened part; end it with cod_sharpened_clear(). */
typedef struct cod_sharpened {
    const float *pixels; /**< [height, width, 3], 0 … 255, not rounded */
    int64_t width, height;
    cod_sharpener *sharpener;
    struct cod_sharpen_room *room;
} cod_sharpened;

/** @param[out] out  new; cod_sharpener_destroy() */
COD_MUST_CHECK cod_status cod_sharpener_create(cod_sharpener **out);
/** NULL is fine. */
void cod_sharpener_destroy(cod_sharpener *sharpener);

/**
 * Sharpens a part of a picture. Inside the picture, the result has the bits of the same part of the whole sharpened
 * picture. Any thread. Memory is kept for the next call.
 *
 * @param[out] out  new; cod_sharpened_clear()
 */
COD_MUST_CHECK cod_status cod_sharpen(cod_sharpener *sharpener, const cod_sharpen_region *region, cod_sharpened *out);
void cod_sharpened_clear(cod_sharpened *sharpened);

#endif
