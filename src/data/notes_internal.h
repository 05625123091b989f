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

/* profile.c, by Little CMS. */

/** A colour space by its ICC signature. */
typedef enum cod_profile_space {
    COD_PROFILE_DAMAGED,
    COD_PROFILE_RGB,
    COD_PROFILE_GRAY,
    COD_PROFILE_CMYK
} cod_profile_space;
cod_profile_space cod_profile_space_of(const void *profile, size_t bytes);
/** A profile of RGB whose channels all have the tone curve of a profile of gray, with sRGB's primaries. */
COD_MUST_CHECK cod_status cod_profile_from_gray(const void *gray, size_t bytes, void **profile, size_t *profile_bytes);
/**
 * A profile of RGB from the exponent with which values become light, and from CIE 1931 (x, y) of white, red, green and
 * blue.
 */
COD_MUST_CHECK cod_status cod_profile_from_gamma(double gamma, const double xy[8], void **profile,
                                                 size_t *profile_bytes);
/** Turns a picture whose four channels are CMYK into sRGB by a profile of CMYK. @param inverted  0 is full ink */
COD_MUST_CHECK cod_status cod_image_cmyk_to_rgb(cod_image *image, const void *profile, size_t bytes, bool inverted);

/** "Little CMS 2.14". */
void cod_profile_library(char *text, size_t bytes);

/* exif.c */

/** EXIF orientation 1 … 8 of an APP1 payload ("Exif\0\0", then a TIFF's), 1 when it says nothing sensible. */
int cod_exif_orientation(const uint8_t *bytes, size_t count);
/** The same of the TIFF alone, as PNG and most WebP files have it. */
int cod_exif_tiff_orientation(const uint8_t *tiff, size_t count);
/** Pixels an inch, 0 = it does not say. */
void cod_exif_dpi(const uint8_t *tiff, size_t bytes, double *dpi_x, double *dpi_y);
/** Ends the list of directories behind the first: the second is of a thumbnail, which shows the picture as it was. */
void cod_exif_drop_thumbnail(uint8_t *tiff, size_t bytes);
/** Makes it fit a picture that stands upright: orientation 1, its resolution and its size, where EXIF says them. */
void cod_exif_adapt(uint8_t *tiff, size_t bytes, const cod_image *image);
/** EXIF of a resolution alone. @param[out] tiff  new; free(); NULL = memory is short */
void cod_exif_of_dpi(double dpi_x, double dpi_y, uint8_t **tiff, size_t *bytes);
/**
 * Copies what a TIFF file says of a photograph: its maker and author, time, exposure and place.
 *
 * @param directory   offset of the picture's directory
 * @param[out] exif   new; free(); NULL = the file says nothing of that, or more than 1 MiB of it, which is
 *                    logged
 */
void cod_exif_of_tiff(const uint8_t *file, size_t count, uint64_t directory, uint8_t **exif, size_t *bytes);

#endif
