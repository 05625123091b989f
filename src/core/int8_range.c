#include "core/int8_range.h"

#include "core/tensor.h"

#include <math.h>

/** Sum of squared errors with this range; a rounding error is taken to be uniform within half a step. */
static double squared_error(const uint32_t *counts, double range)
{
    const double rounding = range / 127 * (range / 127) / 12;
    double sum = 0;
    for (int i = 1; i < COD_MAGNITUDE_INFINITE; i++) {
        if (counts[i] == 0)
            continue;
        const double value = (double)cod_f32_from_bf16((uint16_t)i), beyond = value - range;
        sum += counts[i] * (beyond > 0 ? beyond * beyond : fmin(rounding, value * value));
    }
    return sum;
}

/** Not the best range but the largest that is nearly as good: pictures not observed may reach further. */
float cod_int8_range_choose(const uint32_t *counts)
{
    double errors[COD_RANGE_STEPS + 1], least = INFINITY;
    int last = COD_MAGNITUDE_INFINITE - 1, chosen = COD_RANGE_STEPS;
    while (last > 0 && counts[last] == 0)
        last--;
    const double largest = (double)cod_f32_from_bf16((uint16_t)last);
    for (int i = 1; i <= COD_RANGE_STEPS; i++) {
        errors[i] = squared_error(counts, largest * i / COD_RANGE_STEPS);
        least = fmin(least, errors[i]);
    }
    while (errors[chosen] > COD_RANGE_SLACK * least)
        chosen--;
    return (float)(largest * chosen / COD_RANGE_STEPS);
}

float cod_int8_range_observed(const uint32_t *counts)
{
    for (int i = COD_MAGNITUDE_INFINITE; i < COD_MAGNITUDES; i++)
        if (counts[i] > 0)
            return NAN;
    const float chosen = cod_int8_range_choose(counts);
    return chosen > 0 ? chosen : 1;
}
