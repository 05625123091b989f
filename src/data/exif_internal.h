/**
 * @file
 * EXIF: what a TIFF of directories without a picture says of a photograph.
 */
#ifndef COD_DATA_EXIF_INTERNAL_H
#define COD_DATA_EXIF_INTERNAL_H

#include "data/image.h"

#include <stdint.h>

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
