#include "ref/ref_internal.h"

#include <math.h>

/** The vector's length, but at least 1e-12; the vector becomes one of length 1. */
static double normalise(double *vector, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += vector[i] * vector[i];
    const double length = fmax(sqrt(sum), 1e-12);
    for (int64_t i = 0; i < count; i++)
        vector[i] /= length;
    return length;
}

cod_status ref_spectral_norm(const ref_args *args)
{
    const double *w = args->in[0], *u = args->in[1];
    double *y = args->out[0], *next_u = args->out[2], *v = args->out[3];
    const int64_t rows = args->in_shape[0].n, columns = cod_shape_count(args->out_shape[3]);
    ref_zero(v, columns);
    for (int64_t o = 0; o < rows; o++)
        ref_axpy(v, u[o], w + o * columns, columns);
    normalise(v, columns);
    for (int64_t o = 0; o < rows; o++) {
        next_u[o] = 0;
        for (int64_t k = 0; k < columns; k++)
            next_u[o] += w[o * columns + k] * v[k];
    }
    const double sigma = args->out[1][0] = normalise(next_u, rows);
    for (int64_t i = 0; i < rows * columns; i++)
        y[i] = w[i] / sigma;
    return COD_OK;
}

cod_status ref_spectral_norm_backward(const ref_args *args)
{
    const double *dy = args->in[0], *y = args->in[1], *u = args->in[3], *v = args->in[4];
    const double sigma = args->in[2][0];
    const int64_t rows = args->in_shape[0].n, columns = cod_shape_count(args->in_shape[4]);
    double along = 0;
    for (int64_t i = 0; i < rows * columns; i++)
        along += dy[i] * y[i];
    for (int64_t o = 0; o < rows; o++)
        for (int64_t k = 0; k < columns; k++)
            args->out[0][o * columns + k] = (dy[o * columns + k] - along * u[o] * v[k]) / sigma;
    return COD_OK;
}
