/**
 * @file
 * The discrete Fourier transform of a plane of any size.
 */
#ifndef COD_DATA_FOURIER_INTERNAL_H
#define COD_DATA_FOURIER_INTERNAL_H

#include "core/status.h"

#include <stdint.h>

typedef struct cod_complex {
    double re, im;
} cod_complex;

/** Transforms planes of one size; not to be used by two threads at once. */
typedef struct cod_fourier cod_fourier;

/** @param[out] fourier  new; cod_fourier_destroy() */
COD_MUST_CHECK cod_status cod_fourier_create(int64_t height, int64_t width, cod_fourier **fourier);
void cod_fourier_destroy(cod_fourier *fourier);

/** values[v][u] = sum over y, x of values[y][x] exp(-2πi (v y / height + u x / width)), in place. */
void cod_fourier_forward(cod_fourier *fourier, cod_complex *values);
/** The inverse: cod_fourier_forward() with the other sign in the exponent, divided by height * width. */
void cod_fourier_backward(cod_fourier *fourier, cod_complex *values);

#endif
