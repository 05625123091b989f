/**
 * @file
 * Pictures with an alpha channel, for filters that mix neighbouring pixels: what lies under fully transparent pixels is
 * not to be seen, so it must not reach the visible ones.
 */
#ifndef COD_DATA_TRANSPARENCY_H
#define COD_DATA_TRANSPARENCY_H

#include "data/image.h"

#include <stdbool.h>

/** Whether a pixel of the picture is not opaque. */
bool cod_image_is_transparent(const cod_image *image);

/**
 * Copies the colours of a picture with alpha, those of fully transparent pixels replaced by what surrounds them:
 * weighted means of the visible pixels over squares of 2, 4, 8, … pixels a side, of which the smallest that has any
 * counts most (the pull-push algorithm of Gortler et al. 1996, "The Lumigraph", section 3.4). A picture of which
 * nothing is visible keeps its colours.
 *
 * @param[out] filled  new, three channels of as many bits; the caller clears it
 */
COD_MUST_CHECK cod_status cod_image_fill_transparent(const cod_image *image, cod_image *filled);

#endif
