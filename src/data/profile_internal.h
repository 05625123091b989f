/**
 * @file
 * Colour profiles (ICC) of pictures, by Little CMS.
 */
#ifndef COD_DATA_PROFILE_INTERNAL_H
#define COD_DATA_PROFILE_INTERNAL_H

#include "data/image.h"

#include <stdbool.h>

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

#endif
