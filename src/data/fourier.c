#include "data/fourier_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double pi = 3.14159265358979323846;

/**
 * Transforms rows of one length; where that is no power of two, by a convolution of a length that is (Bluestein 1970).
 */
typedef struct line {
    int64_t length;
    int64_t size;        /**< power of two: the length itself, or at least 2 length - 1 */
    cod_complex *root;   /**< [size / 2]: exp(-2πi k / size) */
    cod_complex *chirp;  /**< [length]: exp(-πi k² / length); NULL where the length is a power of two */
    cod_complex *kernel; /**< [size]: transform of the chirp's conjugate, wrapped around */
    cod_complex *values; /**< [size]: scratch */
} line;

struct cod_fourier {
    int64_t height, width;
    line down, across;
    cod_complex *column; /**< [height] */
};

static cod_complex unit(double angle)
{
    return (cod_complex){cos(angle), sin(angle)};
}

static cod_complex product(cod_complex a, cod_complex b)
{
    return (cod_complex){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}

static cod_complex conjugate(cod_complex a)
{
    return (cod_complex){a.re, -a.im};
}

/** Puts values in the order of their reversed bits. */
static void reverse_bits(int64_t size, cod_complex *values)
{
    for (int64_t i = 1, reversed = 0; i < size; i++) {
        int64_t bit = size >> 1;
        for (; (reversed & bit) != 0; bit >>= 1)
            reversed ^= bit;
        reversed |= bit;
        if (i < reversed) {
            const cod_complex value = values[i];
            values[i] = values[reversed];
            values[reversed] = value;
        }
    }
}

/** The transform of `size` values, a power of two (Cooley & Tukey 1965). */
static void transform(const line *l, cod_complex *values)
{
    reverse_bits(l->size, values);
    for (int64_t half = 1; half < l->size; half *= 2) {
        const int64_t step = l->size / (2 * half);
        for (int64_t start = 0; start < l->size; start += 2 * half)
            for (int64_t k = 0; k < half; k++) {
                const cod_complex a = values[start + k];
                const cod_complex b = product(values[start + k + half], l->root[k * step]);
                values[start + k] = (cod_complex){a.re + b.re, a.im + b.im};
                values[start + k + half] = (cod_complex){a.re - b.re, a.im - b.im};
            }
    }
}

static void transform_line(const line *l, cod_complex *values)
{
    if (l->chirp == NULL) {
        transform(l, values);
        return;
    }
    memset(l->values, 0, (size_t)l->size * sizeof *l->values);
    for (int64_t k = 0; k < l->length; k++)
        l->values[k] = product(values[k], l->chirp[k]);
    transform(l, l->values);
    /* Conjugates before and after make the second transform an inverse one. */
    for (int64_t k = 0; k < l->size; k++)
        l->values[k] = conjugate(product(l->values[k], l->kernel[k]));
    transform(l, l->values);
    for (int64_t k = 0; k < l->length; k++) {
        const cod_complex sum = conjugate(l->values[k]);
        values[k] = product((cod_complex){sum.re / (double)l->size, sum.im / (double)l->size}, l->chirp[k]);
    }
}

static void line_clear(line *l)
{
    free(l->root);
    free(l->chirp);
    free(l->kernel);
    free(l->values);
}

static cod_status line_init(line *l, int64_t length)
{
    *l = (line){.length = length, .size = 1};
    const bool chirped = (length & (length - 1)) != 0;
    while (l->size < (chirped ? 2 * length - 1 : length))
        l->size *= 2;
    l->root = malloc((size_t)l->size * sizeof *l->root);
    COD_REQUIRE_MEMORY(l->root);
    for (int64_t k = 0; k < l->size / 2; k++)
        l->root[k] = unit(-2 * pi * (double)k / (double)l->size);
    if (!chirped)
        return COD_OK;
    l->chirp = malloc((size_t)length * sizeof *l->chirp);
    l->kernel = calloc((size_t)l->size, sizeof *l->kernel);
    l->values = malloc((size_t)l->size * sizeof *l->values);
    COD_REQUIRE_MEMORY(l->chirp);
    COD_REQUIRE_MEMORY(l->kernel);
    COD_REQUIRE_MEMORY(l->values);
    for (int64_t k = 0; k < length; k++) {
        /* k² modulo 2 length has the same chirp, and an exact angle. */
        l->chirp[k] = unit(-pi * (double)(k * k % (2 * length)) / (double)length);
        l->kernel[k] = l->kernel[(l->size - k) % l->size] = conjugate(l->chirp[k]);
    }
    transform(l, l->kernel);
    return COD_OK;
}

void cod_fourier_destroy(cod_fourier *fourier)
{
    if (fourier == NULL)
        return;
    line_clear(&fourier->down);
    line_clear(&fourier->across);
    free(fourier->column);
    free(fourier);
}

cod_status cod_fourier_create(int64_t height, int64_t width, cod_fourier **fourier)
{
    cod_status status = COD_OK;
    *fourier = NULL;
    COD_REQUIRE(height > 0 && width > 0, "a plane without values has no Fourier transform");
    cod_fourier *f = calloc(1, sizeof *f);
    COD_REQUIRE_MEMORY(f);
    f->height = height;
    f->width = width;
    f->column = malloc((size_t)height * sizeof *f->column);
    if (f->column == NULL)
        status = cod_fail(COD_ERR_MEMORY, "out of memory");
    COD_THEN(status, line_init(&f->down, height));
    COD_THEN(status, line_init(&f->across, width));
    if (status == COD_OK)
        *fourier = f;
    else
        cod_fourier_destroy(f);
    return status;
}

void cod_fourier_forward(cod_fourier *fourier, cod_complex *values)
{
    for (int64_t y = 0; y < fourier->height; y++)
        transform_line(&fourier->across, values + y * fourier->width);
    for (int64_t x = 0; x < fourier->width; x++) {
        for (int64_t y = 0; y < fourier->height; y++)
            fourier->column[y] = values[y * fourier->width + x];
        transform_line(&fourier->down, fourier->column);
        for (int64_t y = 0; y < fourier->height; y++)
            values[y * fourier->width + x] = fourier->column[y];
    }
}

void cod_fourier_backward(cod_fourier *fourier, cod_complex *values)
{
    const int64_t count = fourier->height * fourier->width;
    for (int64_t i = 0; i < count; i++)
        values[i] = conjugate(values[i]);
    cod_fourier_forward(fourier, values);
    for (int64_t i = 0; i < count; i++)
        values[i] = (cod_complex){values[i].re / (double)count, -values[i].im / (double)count};
}
