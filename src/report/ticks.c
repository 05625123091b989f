#include "report/ticks_internal.h"

#include <math.h>

/** A tick with the digits that a number of the size of `unit` needs. */
static void add(cod_ticks *ticks, double value, double unit)
{
    if (ticks->count == COD_MAX_TICKS)
        return;
    ticks->digits[ticks->count] = (int)fmax(0, -floor(log10(unit) + 1e-9));
    ticks->at[ticks->count++] = value;
}

static size_t at_most(size_t most)
{
    return most < 2 ? 2 : most > COD_MAX_TICKS ? COD_MAX_TICKS : most;
}

cod_ticks cod_ticks_linear(double low, double high, size_t most)
{
    static const double factors[] = {1, 2, 5, 10, 20, 50};
    cod_ticks ticks = {0};
    if (!isfinite(low) || !isfinite(high) || !(high > low) || high - low < 1e-12 * fmax(fabs(low), fabs(high)))
        return ticks;
    const double exponent = floor(log10((high - low) / (double)at_most(most)));
    for (size_t i = 0; i < sizeof factors / sizeof factors[0]; i++) {
        const double step = factors[i] * pow(10, exponent), slack = 1e-9 * (high - low),
                     first = ceil((low - slack) / step), last = floor((high + slack) / step);
        if (last - first + 1 > (double)at_most(most))
            continue;
        for (double k = first; k <= last; k++)
            add(&ticks, k == 0 ? 0 : k * step, step);
        break;
    }
    return ticks;
}

/** Ticks at `factors` times powers of ten, for every `stride`-th power. */
static cod_ticks powers(double low, double high, const double *factors, size_t count, int stride)
{
    cod_ticks ticks = {0};
    const int first = (int)floor(log10(low)) - 1, last = (int)ceil(log10(high)) + 1;
    for (int exponent = first; exponent <= last; exponent++)
        for (size_t i = 0; i < count; i++) {
            const double value = factors[i] * pow(10, exponent);
            if (exponent % stride == 0 && value >= low * (1 - 1e-9) && value <= high * (1 + 1e-9)) {
                if (ticks.count == COD_MAX_TICKS)
                    return (cod_ticks){.count = COD_MAX_TICKS + 1};
                add(&ticks, value, value);
            }
        }
    return ticks;
}

cod_ticks cod_ticks_log(double low, double high, size_t most)
{
    static const double three[] = {1, 2, 5}, two[] = {1, 3};
    if (!(low > 0) || !isfinite(high) || !(high > low))
        return (cod_ticks){0};
    cod_ticks ticks = powers(low, high, three, 3, 1);
    if (ticks.count > at_most(most))
        ticks = powers(low, high, two, 2, 1);
    for (int stride = 1; ticks.count > at_most(most); stride++)
        ticks = powers(low, high, two, 1, stride);
    return ticks;
}
