/**
 * @file
 * Where an axis has its ticks: round numbers, such as 1, 2 or 5 times a power of ten.
 */
#ifndef COD_REPORT_TICKS_INTERNAL_H
#define COD_REPORT_TICKS_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>

enum { COD_MAX_TICKS = 16 };

typedef struct cod_ticks {
    size_t count;
    double at[COD_MAX_TICKS];
    int digits[COD_MAX_TICKS]; /**< behind the point, as many as each needs */
} cod_ticks;

/** At most `most` >= 2 multiples of one round step within [low, high]; none when the range is empty or not finite. */
cod_ticks cod_ticks_linear(double low, double high, size_t most);
/**
 * At most `most` >= 2 of 1, 2, 5 times powers of ten within [low, high], else of 1, 3, of powers of ten alone, of every
 * n-th; `low` > 0.
 */
cod_ticks cod_ticks_log(double low, double high, size_t most);

#endif
