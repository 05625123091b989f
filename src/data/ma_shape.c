#include "data/ma_internal.h"

#include <math.h>
#include <pthread.h>

enum { SHAPES = 9971 };

/** Γ(1/s) Γ(3/s) / Γ(2/s)² of each shape s, which falls. */
static double shape_ratios[SHAPES];
static pthread_once_t shape_ratios_once = PTHREAD_ONCE_INIT;

static double shape_at(int i)
{
    return 0.03 + 0.001 * i;
}

static void fill_shape_ratios(void)
{
    for (int i = 0; i < SHAPES; i++) {
        const double s = shape_at(i), middle = tgamma(2 / s);
        shape_ratios[i] = tgamma(1 / s) * tgamma(3 / s) / (middle * middle);
    }
}

double cod_ma_shape(const double *values, size_t count)
{
    double mean = 0, variance = 0, absolute = 0;
    pthread_once(&shape_ratios_once, fill_shape_ratios);
    for (size_t i = 0; i < count; i++)
        mean += values[i];
    mean /= (double)count;
    for (size_t i = 0; i < count; i++) {
        variance += (values[i] - mean) * (values[i] - mean);
        absolute += fabs(values[i] - mean);
    }
    variance /= (double)(count - 1);
    absolute /= (double)count;
    const double ratio = variance / (absolute * absolute + 1e-7);
    int above = 0, below = SHAPES - 1; /* ratios[above] > ratio >= ratios[below], but beyond the ends */
    while (below - above > 1) {
        const int middle = (above + below) / 2;
        if (shape_ratios[middle] > ratio)
            above = middle;
        else
            below = middle;
    }
    return shape_at(fabs(shape_ratios[above] - ratio) <= fabs(shape_ratios[below] - ratio) ? above : below);
}
