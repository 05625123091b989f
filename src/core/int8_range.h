/**
 * @file
 * The range that a convolution's input is given on 8-bit integers, chosen by how often each magnitude occurs in it: the rule of op RANGES
 * and of calibrating (infer/int8.h).
 */
#ifndef COD_CORE_INT8_RANGE_H
#define COD_CORE_INT8_RANGE_H

#include <stdint.h>

enum {
    COD_MAGNITUDES = 0x8000,         /**< counts of a tensor, by the bits of the magnitude in bf16 */
    COD_MAGNITUDE_INFINITE = 0x7F80, /**< the first that is not finite */
    COD_RANGE_STEPS = 64             /**< ranges are tried at these parts of the largest magnitude */
};

/** Errors up to so many times the least are near enough. */
#define COD_RANGE_SLACK 1.25

/**
 * The largest range whose mean squared error, of rounding within it and of what is cut off beyond, is at most 1.25 times the least.
 *
 * @param[in] counts  [COD_MAGNITUDES]; magnitudes that are not finite are passed over
 * @return 0 where all magnitudes are 0
 */
float cod_int8_range_choose(const uint32_t *counts);

/** As op RANGES gives it: the same, but NaN where a magnitude is not finite, and 1 where all are 0. */
float cod_int8_range_observed(const uint32_t *counts);

#endif
