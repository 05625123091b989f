#include "ref/ref_internal.h"

#include <math.h>

enum { MAX_TAPS = 4 };

/** The positions along one axis that make one output position, with their weights. */
typedef struct taps {
    int count;
    int64_t index[MAX_TAPS];
    double weight[MAX_TAPS];
} taps;

/** Keys, "Cubic convolution interpolation for digital image processing", 1981, equation 15, with a = -0.75. */
static double keys_kernel(double distance)
{
    const double a = -0.75, d = fabs(distance);
    if (d <= 1)
        return ((a + 2) * d - (a + 3)) * d * d + 1;
    return d < 2 ? ((d - 5) * d + 8) * d * a - 4 * a : 0;
}

static double hat_kernel(double distance)
{
    return fmax(0, 1 - fabs(distance));
}

/**
 * Taps of output position `at` of an axis of `size` input positions; those outside fall on the border (replication).
 */
static taps taps_at(cod_resize_mode mode, int factor, int64_t size, int64_t at)
{
    if (mode == COD_RESIZE_NEAREST)
        return (taps){.count = 1, .index = {at / factor}, .weight = {1}};
    const bool cubic = mode == COD_RESIZE_BICUBIC;
    const double centre = ((double)at + 0.5) / factor - 0.5;
    const int64_t first = (int64_t)floor(centre) - (cubic ? 1 : 0);
    taps result = {.count = cubic ? 4 : 2};
    for (int t = 0; t < result.count; t++) {
        const int64_t index = first + t;
        const double distance = centre - (double)index;
        result.index[t] = index < 0 ? 0 : index >= size ? size - 1 : index;
        result.weight[t] = cubic ? keys_kernel(distance) : hat_kernel(distance);
    }
    return result;
}

/** Forward: large = interpolation of small. Backward, its transpose: small += what each large element passes back. */
static void interpolate(const cod_op_attr *attr, cod_shape small, const double *source, double *target, bool backward)
{
    const int64_t factor = attr->factor, channels = small.c;
    for (int64_t n = 0; n < small.n; n++) {
        for (int64_t y = 0; y < small.h * factor; y++) {
            const taps rows = taps_at(attr->resize, attr->factor, small.h, y);
            for (int64_t x = 0; x < small.w * factor; x++) {
                const taps columns = taps_at(attr->resize, attr->factor, small.w, x);
                const int64_t large_at = ((n * small.h * factor + y) * small.w * factor + x) * channels;
                for (int t = 0; t < rows.count * columns.count; t++) {
                    const int row = t / columns.count, column = t % columns.count;
                    const int64_t small_at =
                        ((n * small.h + rows.index[row]) * small.w + columns.index[column]) * channels;
                    ref_axpy(target + (backward ? small_at : large_at), rows.weight[row] * columns.weight[column],
                             source + (backward ? large_at : small_at), channels);
                }
            }
        }
    }
}

cod_status ref_resize(const ref_args *args)
{
    ref_zero(args->out[0], cod_shape_count(args->out_shape[0]));
    interpolate(args->attr, args->in_shape[0], args->in[0], args->out[0], false);
    return COD_OK;
}

cod_status ref_resize_backward(const ref_args *args)
{
    ref_zero(args->out[0], cod_shape_count(args->out_shape[0]));
    interpolate(args->attr, args->out_shape[0], args->in[0], args->out[0], true);
    return COD_OK;
}
