/**
 * @file
 * Figures that sum up measurements.
 */
#ifndef COD_CORE_STATISTICS_H
#define COD_CORE_STATISTICS_H

#include <stddef.h>

/** The middle value, of an even number the higher of the two; NaN of none. Sorts `values` [count], which hold no NaN. */
double cod_median(double *values, size_t count);

#endif
