/**
 * @file
 * Finds and cuts parts of pictures that show detail. Pictures are 8-bit RGB, [height, width, 3].
 */
#ifndef COD_DATA_DETAIL_H
#define COD_DATA_DETAIL_H

#include "data/image.h"

/**
 * Finds the part of a given size in which neighbouring pixels differ most in luma, in steps of half its size.
 *
 * @param crop_width, crop_height  at most the picture's
 */
void cod_detail_find(const uint8_t *pixels, int64_t width, int64_t height, int64_t crop_width, int64_t crop_height,
                     int64_t *left, int64_t *top);

/** Copies a rectangle. @param width  of the picture. @param[out] out  new; cod_image_clear() */
COD_MUST_CHECK cod_status cod_detail_cut(const uint8_t *pixels, int64_t width, int64_t left, int64_t top,
                                         int64_t crop_width, int64_t crop_height, cod_image *out);

#endif
