#include "data/steerable_internal.h"

#include "data/fourier_internal.h"

#include <math.h>
#include <stdlib.h>

static const double pi = 3.14159265358979323846;

enum { RADII = 259, ANGLES = 3075 };

/** A function in steps of `step` from `origin` on. */
typedef struct table {
    double origin, step;
    int count;
    const double *values;
} table;

/** Linear interpolation, and extrapolation at both ends. */
static double look_up(table t, double at)
{
    const double position = (at - t.origin) / t.step;
    const double index = fmin(fmax(trunc(position), 0), t.count - 2);
    const double *value = t.values + (int)index;
    return value[0] + (value[1] - value[0]) * (position - index);
}

typedef struct filters {
    double rising[RADII];   /**< what a high-pass filter lets through, over log2 of the radius from -257/256 to 1/256 */
    double falling[RADII];  /**< what the low-pass filter beside it does: rising² + falling² = 1 */
    double angular[ANGLES]; /**< of the band of orientation 0, over the angle from -2049/1024 π to 1025/1024 π */
} filters;

static void fill_filters(filters *f)
{
    enum { STEPS = 256, TURN = 1024, ORDER = COD_STEERABLE_BANDS - 1 };
    const double factorial_5 = 120, factorial_10 = 3628800;
    for (int i = 0; i < RADII; i++) {
        /* The two ends repeat their neighbours, so that extrapolation is constant. */
        const int j = i == 0 ? 1 : i == RADII - 1 ? RADII - 2 : i;
        const double c = cos(pi * (j - STEPS - 1) / (2 * STEPS));
        f->rising[i] = sqrt(c * c);
        f->falling[i] = sqrt(1 - f->rising[i] * f->rising[i]);
    }
    const double scale = sqrt(ldexp(factorial_5 * factorial_5, 2 * ORDER) / (COD_STEERABLE_BANDS * factorial_10));
    for (int i = 0; i < ANGLES; i++)
        f->angular[i] = scale * pow(cos(pi * (i - 2 * TURN - 1) / TURN), ORDER);
}

/** A radial filter whose transition lies `octaves` below the highest frequencies. */
static double radial(const double values[RADII], int octaves, double log_radius)
{
    return look_up((table){-257.0 / 256 - octaves, 1.0 / 256, RADII, values}, log_radius);
}

/** The radial part of a level's filters: its own high-pass filter, and all low-pass filters up to it. */
static double radial_of_level(const filters *f, int level, double log_radius)
{
    double factor = radial(f->rising, level + 1, log_radius);
    for (int below = 0; below <= level; below++)
        factor *= radial(f->falling, below, log_radius);
    return factor;
}

static double angular(const filters *f, int band, double angle)
{
    const double step = pi / 1024;
    return look_up((table){-2049 * step + pi * band / COD_STEERABLE_BANDS, step, ANGLES, f->angular}, angle);
}

typedef struct builder {
    filters filters;
    int64_t height, width;
    cod_complex *spectrum; /**< [height, width] of the plane */
    cod_complex *buffer;   /**< [height, width]: a filtered spectrum, then its band */
} builder;

/** Frequency of a row or column of a spectrum: 0, 1, … and the negative ones from the middle on. */
static int64_t frequency(int64_t index, int64_t size)
{
    return index < (size + 1) / 2 ? index : index - size;
}

/** The part of the spectrum that `band` has, times its filter; level -1 is the band of high frequencies. */
static void filter(const builder *b, int level, int band, int64_t height, int64_t width)
{
    for (int64_t v = 0; v < height; v++)
        for (int64_t u = 0; u < width; u++) {
            const int64_t fy = frequency(v, height), fx = frequency(u, width);
            const double y = (double)fy / ((double)b->height / 2), x = (double)fx / ((double)b->width / 2);
            /* In the place of log2(0) is that of the frequency to its left. */
            const double log_radius = log2(fx == 0 && fy == 0 ? 2 / (double)b->width : sqrt(x * x + y * y));
            const cod_complex value = b->spectrum[(fy + b->height) % b->height * b->width + (fx + b->width) % b->width];
            cod_complex *to = &b->buffer[v * width + u];
            if (level < 0) {
                const double factor = radial(b->filters.rising, 0, log_radius);
                *to = (cod_complex){value.re * factor, value.im * factor};
            } else { /* and times (-i)^5 = -i, by which an odd filter's band is real */
                const double factor =
                    radial_of_level(&b->filters, level, log_radius) * angular(&b->filters, band, atan2(y, x));
                *to = (cod_complex){value.im * factor, -value.re * factor};
            }
        }
}

static cod_status build_band(const builder *b, cod_fourier *fourier, int level, int band, cod_plane *plane)
{
    filter(b, level, band, plane->height, plane->width);
    cod_fourier_backward(fourier, b->buffer);
    for (int64_t i = 0; i < plane->height * plane->width; i++)
        plane->values[i] = b->buffer[i].re;
    return COD_OK;
}

static cod_status build_level(const builder *b, int level, cod_steerable *pyramid)
{
    cod_fourier *fourier = NULL;
    int64_t height = b->height, width = b->width;
    cod_status status = COD_OK;
    for (int above = 0; above < level; above++) {
        height = (height + 1) / 2;
        width = (width + 1) / 2;
    }
    COD_TRY(cod_fourier_create(height, width, &fourier));
    for (int band = 0; status == COD_OK && band < COD_STEERABLE_BANDS; band++) {
        status = cod_plane_init(height, width, &pyramid->band[level][band]);
        COD_THEN(status, build_band(b, fourier, level, band, &pyramid->band[level][band]));
    }
    cod_fourier_destroy(fourier);
    return status;
}

static cod_status build(builder *b, const cod_plane *plane, cod_steerable *pyramid)
{
    cod_fourier *fourier = NULL;
    for (int64_t i = 0; i < b->height * b->width; i++)
        b->spectrum[i] = (cod_complex){plane->values[i], 0};
    COD_TRY(cod_fourier_create(b->height, b->width, &fourier));
    cod_fourier_forward(fourier, b->spectrum);
    cod_status status = cod_plane_init(b->height, b->width, &pyramid->high);
    COD_THEN(status, build_band(b, fourier, -1, 0, &pyramid->high));
    cod_fourier_destroy(fourier);
    for (int level = 0; status == COD_OK && level < COD_STEERABLE_LEVELS; level++)
        status = build_level(b, level, pyramid);
    return status;
}

cod_status cod_steerable_init(const cod_plane *plane, cod_steerable *pyramid)
{
    *pyramid = (cod_steerable){0};
    builder *b = malloc(sizeof *b);
    COD_REQUIRE_MEMORY(b);
    const size_t bytes = (size_t)(plane->height * plane->width) * sizeof *b->spectrum;
    *b = (builder){.height = plane->height, .width = plane->width, .spectrum = malloc(bytes), .buffer = malloc(bytes)};
    fill_filters(&b->filters);
    const cod_status status = b->spectrum != NULL && b->buffer != NULL
                                  ? build(b, plane, pyramid)
                                  : cod_fail(COD_ERR_MEMORY, "out of memory for a pyramid of %lldx%lld pixels",
                                             (long long)plane->width, (long long)plane->height);
    free(b->spectrum);
    free(b->buffer);
    free(b);
    return status;
}

void cod_steerable_clear(cod_steerable *pyramid)
{
    cod_plane_clear(&pyramid->high);
    for (int level = 0; level < COD_STEERABLE_LEVELS; level++)
        for (int band = 0; band < COD_STEERABLE_BANDS; band++)
            cod_plane_clear(&pyramid->band[level][band]);
}
