/**
 * @file
 * The decoders behind image.h. Each decodes whole files in memory and reports problems by cod_fail() without the file's
 * name.
 */
#ifndef COD_DATA_IMAGE_INTERNAL_H
#define COD_DATA_IMAGE_INTERNAL_H

#include "data/image.h"

#include <stdbool.h>
#include <stdio.h>

/** The number of 1 … 4 bytes, least significant first or last. */
static inline uint32_t cod_image_number(const uint8_t *at, int bytes, bool little)
{
    uint32_t value = 0;
    for (int i = 0; i < bytes; i++)
        value = value << 8 | at[little ? bytes - 1 - i : i];
    return value;
}

/** Fails unless a picture of this size is within the limits. */
COD_MUST_CHECK cod_status cod_image_check_size(int64_t width, int64_t height);
/** A copy of 8 bits with 3 or 4 channels; 16 bits are rounded, and without an alpha channel the ground is white. */
COD_MUST_CHECK cod_status cod_image_narrow(const cod_image *image, int channels, cod_image *copy);

/**
 * Decodes a whole file. `header_only` fills the size (orientation applied) and leaves pixels NULL; then `count` may be
 * less.
 */
typedef cod_status (*cod_image_decoder)(const uint8_t *bytes, size_t count, bool header_only, cod_image *image);
COD_MUST_CHECK cod_status cod_png_decode(const uint8_t *bytes, size_t count, bool header_only, cod_image *image);
COD_MUST_CHECK cod_status cod_jpeg_decode(const uint8_t *bytes, size_t count, bool header_only, cod_image *image);
COD_MUST_CHECK cod_status cod_webp_decode(const uint8_t *bytes, size_t count, bool header_only, cod_image *image);
COD_MUST_CHECK cod_status cod_tiff_decode(const uint8_t *bytes, size_t count, bool header_only, cod_image *image);
COD_MUST_CHECK cod_status cod_bmp_decode(const uint8_t *bytes, size_t count, bool header_only, cod_image *image);

/**
 * Writes a whole picture to an open file; COD_ERR_IO with the system's or the library's reason.
 *
 * @param quality  1 … 100
 */
typedef cod_status (*cod_image_encoder)(FILE *file, const cod_image *image, int quality);
COD_MUST_CHECK cod_status cod_png_encode(FILE *file, const cod_image *image, int quality);
/** Of an 8-bit RGB picture. */
COD_MUST_CHECK cod_status cod_jpeg_encode(FILE *file, const cod_image *image, int quality);
/** Of an 8-bit picture. */
COD_MUST_CHECK cod_status cod_webp_encode(FILE *file, const cod_image *image, int quality);

/** Names and versions of libraries; static. */
const char *cod_png_version(void);
const char *cod_jpeg_library(void);
void cod_tiff_version(char *text, size_t bytes);
void cod_webp_version(char *text, size_t bytes);

/** Turns the picture upright; orientations 5 … 8 exchange width and height. */
COD_MUST_CHECK cod_status cod_image_orient(cod_image *image, int orientation);

#endif
