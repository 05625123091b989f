/**
 * @file
 * The range of a convolution's input on 8-bit integers, chosen by how often each magnitude occurs in the input. Op
 * RANGES and calibration (infer/int8.h) use this rule.
 */
#ifndef COD_CORE_INT8_RANGE_H
#define COD_CORE_INT8_RANGE_H

#include <stdint.h>

enum {
    COD_MAGNITUDES = 0x8000,         /**< counts of a tensor, by the bits of the magnitude in bf16 */
    COD_MAGNITUDE_INFINITE = 0x7F80, /**< the first that is not finite */
    COD_RANGE_STEPS = 64             /**< ranges are tried at these parts of the largest magnitude */
};

/** Errors up to this many times the least are accepted. */
#define COD_RANGE_SLACK 1.25

/**
 * The largest range whose mean squared error is at most 1.25 times the least. The error comes from rounding inside the
 * range and from clipping outside it.
 *
 * @param[in] counts  [COD_MAGNITUDES]; magnitudes that are not finite are ignored
 * @return 0 where all magnitudes are 0
 */
float cod_int8_range_choose(const uint32_t *counts);

/** The same range as op RANGES returns it: NaN if a magnitude is not finite, 1 if all are 0. */
float cod_int8_range_observed(const uint32_t *counts);

#endif
