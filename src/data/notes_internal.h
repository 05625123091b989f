/**
 * @file
 * What a picture's file says beside its pixels: the colour profile that gives them their meaning, EXIF, and the
 * resolution in print. Decoders collect it in cod_image.notes, encoders write it.
 */
#ifndef COD_DATA_NOTES_INTERNAL_H
#define COD_DATA_NOTES_INTERNAL_H

#include "data/image.h"

#include <stdbool.h>

struct cod_image_notes {
    uint8_t *profile; /**< ICC profile of RGB; NULL = sRGB */
    size_t profile_bytes;
    uint8_t *exif; /**< as a TIFF, without "Exif\0\0" before it; NULL = none */
    size_t exif_bytes;
    double dpi_x, dpi_y; /**< pixels an inch; 0 = unknown */
};

/** The notes of a picture, made where there are none; NULL = memory is short. */
struct cod_image_notes *cod_image_notes_of(cod_image *image);
/** Removes them. */
void cod_image_notes_clear(cod_image *image);
/** Keeps a copy of a colour profile or of EXIF, unless it is damaged; decoders turn the picture. */
COD_MUST_CHECK cod_status cod_image_keep_profile(cod_image *image, const void *profile, size_t bytes);
COD_MUST_CHECK cod_status cod_image_keep_exif(cod_image *image, const uint8_t *tiff, size_t bytes);
COD_MUST_CHECK cod_status cod_image_keep_dpi(cod_image *image, double dpi_x, double dpi_y);

#endif
