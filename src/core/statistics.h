/**
 * @file
 * Figures that sum up measurements.
 */
#ifndef COD_CORE_STATISTICS_H
#define COD_CORE_STATISTICS_H

#include <stddef.h>

/**
 * The median; for an even count the higher of the two middle values; NaN if there are none. Sorts `values` [count],
 * which must not contain NaN.
 */
double cod_median(double *values, size_t count);

#endif
