/**
 * @file
 * Bicubic resampling exactly as MATLAB's imresize: Keys' kernel with a = -0.5 (Keys 1981), stretched over 1/scale when
 * shrinking (antialiasing), symmetric borders, weights normalised, rows first, then columns.
 */
#ifndef COD_DATA_RESIZE_H
#define COD_DATA_RESIZE_H

#include "data/image.h"

/** Length of a side after resizing: ceil(scale * size), at least 1. */
int64_t cod_resized_size(int64_t size, double scale);

/**
 * Resamples doubles, unrounded and unclipped.
 *
 * @param[in]  in   [height, width, channels]
 * @param[out] out  [cod_resized_size(height), cod_resized_size(width), channels]; not overlapping `in`
 */
COD_MUST_CHECK cod_status cod_resize_f64(const double *in, int64_t height, int64_t width, int channels, double scale,
                                         double *out);

/** The same to a size, each side by its own scale: [height, width, channels] to [out_height, out_width, channels]. */
COD_MUST_CHECK cod_status cod_resize_f64_to(const double *in, int64_t height, int64_t width, int channels,
                                            int64_t out_height, int64_t out_width, double *out);

/**
 * Resamples an 8- or 16-bit image; like MATLAB for integer classes it rounds and saturates after each of the two
 * passes. Where a pixel is not opaque, colours are weighted by alpha; a pixel of the result that is fully transparent
 * has the colours' own mean.
 *
 * @param[out] out  new, of the same channels and bits; the caller clears it
 */
COD_MUST_CHECK cod_status cod_image_resize(const cod_image *in, double scale, cod_image *out);

#endif
