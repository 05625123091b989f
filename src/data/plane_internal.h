/**
 * @file
 * A plane of doubles, as measures of quality work on it.
 */
#ifndef COD_DATA_PLANE_INTERNAL_H
#define COD_DATA_PLANE_INTERNAL_H

#include "data/image.h"

typedef struct cod_plane {
    int64_t height, width;
    double *values; /**< [height, width] */
} cod_plane;

/** @param[out] plane  new, its values undefined; cod_plane_clear() */
COD_MUST_CHECK cod_status cod_plane_init(int64_t height, int64_t width, cod_plane *plane);
/** The same with gray values of an 8-bit picture (cod_gray()), of [height, width] pixels that begin at (crop, crop). */
COD_MUST_CHECK cod_status cod_plane_init_gray(const cod_image *image, int64_t crop, int64_t height, int64_t width,
                                              cod_plane *plane);
/** Releases the values; the plane is empty afterwards. */
void cod_plane_clear(cod_plane *plane);

#endif
