/**
 * @file
 * The decoders behind image.h. Each decodes whole files in memory and reports problems by cod_fail() without the file's name.
 */
#ifndef COD_DATA_IMAGE_INTERNAL_H
#define COD_DATA_IMAGE_INTERNAL_H

#include "data/image.h"

#include <stdbool.h>

/** Fails unless a picture of this size is within the limits. */
COD_MUST_CHECK cod_status cod_image_check_size(int64_t width, int64_t height);

COD_MUST_CHECK cod_status cod_png_decode(const uint8_t *bytes, size_t count, cod_image *image);
/** Of libpng; static. */
const char *cod_png_version(void);
/** `header_only` fills the size (orientation applied) and leaves pixels NULL. */
COD_MUST_CHECK cod_status cod_jpeg_decode(const uint8_t *bytes, size_t count, bool header_only, cod_image *image);

/** Name and version; static. */
const char *cod_jpeg_library(void);

/** EXIF orientation 1 … 8 of an APP1 payload, 1 when it says nothing sensible. */
int cod_exif_orientation(const uint8_t *bytes, size_t count);
/** Turns the picture upright; orientations 5 … 8 exchange width and height. */
COD_MUST_CHECK cod_status cod_image_orient(cod_image *image, int orientation);

#endif
