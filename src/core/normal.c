/* Many random floats at a time, with the bits that one at a time would have. */
#include "core/rng.h"
#include "core/wide.h"

#include <math.h>
#include <string.h>

/** Numbers at a time. */
enum { CHUNK = 256 };

static inline double from_bits(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint64_t to_bits(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/** cod_rng_uniform() of two random numbers. */
static inline double uniform_of(uint32_t a, uint32_t b)
{
    return (double)(int64_t)((uint64_t)(a >> 5) << 26 | b >> 6) * 0x1p-53;
}

/**
 * ln(x) of a positive normal number: x = m · 2^e with m about 1, and ln m = 2 atanh((m - 1) / (m + 1)) by its series.
 * Wrong by a few units in the last place.
 */
static inline double natural_log(double x)
{
    const uint64_t half_root = 0x3FE6A09E667F3BCD; /* of sqrt(1/2) */
    const int64_t e = (int64_t)(to_bits(x) - half_root) >> 52;
    const double m = from_bits(to_bits(x) - ((uint64_t)e << 52)), s = (m - 1) / (m + 1), z = s * s;
    const double tail =
        z * (2.0 / 3 +
             z * (2.0 / 5 +
                  z * (2.0 / 7 +
                       z * (2.0 / 9 + z * (2.0 / 11 +
                                           z * (2.0 / 13 +
                                                z * (2.0 / 15 + z * (2.0 / 17 + z * (2.0 / 19 + z * (2.0 / 21))))))))));
    return (double)e * 0.69314718055994530942 + (2 * s + s * tail);
}

/** cos(x) for x from 0 to 2 pi: Taylor's series of sine or cosine on an eighth of the circle. Wrong by about 2^-52. */
static inline double cosine(double x)
{
    const double quarter = 1.57079632679489661923, rest = 6.123233995736766e-17; /* pi / 2 is their sum */
    const double q = floor(x * (1 / quarter) + 0.5), t = (x - q * quarter) - q * rest, z = t * t;
    const double s =
        t + t * z *
                (-1.0 / 6 +
                 z * (1.0 / 120 +
                      z * (-1.0 / 5040 + z * (1.0 / 362880 + z * (-1.0 / 39916800 + z * (1.0 / 6227020800 -
                                                                                         z * (1.0 / 1307674368e3)))))));
    const double c =
        1 + z * (-1.0 / 2 +
                 z * (1.0 / 24 +
                      z * (-1.0 / 720 +
                           z * (1.0 / 40320 +
                                z * (-1.0 / 3628800 +
                                     z * (1.0 / 479001600 + z * (-1.0 / 87178291200 + z * (1.0 / 20922789888e3))))))));
    const double value = q == 1 || q == 3 ? s : c;
    return q == 1 || q == 2 ? -value : value;
}

/** Sets floats that it is not sure of to NaN. */
COD_WIDE static void make_normal(const uint32_t *restrict random, double scale, float *restrict out)
{
    for (int i = 0; i < CHUNK; i++) {
        const uint32_t *r = random + 4 * i;
        const double radius = sqrt(-2.0 * natural_log(1.0 - uniform_of(r[0], r[1])));
        const double value = scale * (radius * cosine(6.283185307179586476925 * uniform_of(r[2], r[3])));
        const double bound = fabs(scale) * radius * 0x1p-45;
        const float low = (float)(value - bound), high = (float)(value + bound);
        out[i] = low == high && low != 0 ? low : NAN;
    }
}

COD_WIDE static void make_uniform(const uint32_t *restrict random, double scale, float *restrict out)
{
    for (int i = 0; i < CHUNK; i++)
        out[i] = (float)(scale * (2 * uniform_of(random[2 * i], random[2 * i + 1]) - 1));
}

/** cod_rng_normal() of four random numbers. */
static double normal_of(const uint32_t *random)
{
    const double radius = sqrt(-2.0 * log(1.0 - uniform_of(random[0], random[1])));
    return radius * cos(6.283185307179586476925 * uniform_of(random[2], random[3]));
}

double cod_rng_normal(cod_rng *rng)
{
    uint32_t random[4];
    for (int i = 0; i < 4; i++)
        random[i] = cod_rng_u32(rng);
    return normal_of(random);
}

void cod_rng_fill_normal(cod_rng *rng, double scale, float *values, size_t count)
{
    uint32_t random[4 * CHUNK] = {0};
    float made[CHUNK];
    for (size_t first = 0; first < count; first += CHUNK) {
        const size_t some = count - first < CHUNK ? count - first : CHUNK;
        cod_rng_fill(rng, random, 4 * some);
        make_normal(random, scale, made);
        for (size_t i = 0; i < some; i++)
            values[first + i] = isnan(made[i]) ? (float)(scale * normal_of(random + 4 * i)) : made[i];
    }
}

void cod_rng_fill_uniform(cod_rng *rng, double scale, float *values, size_t count)
{
    uint32_t random[2 * CHUNK] = {0};
    float made[CHUNK];
    for (size_t first = 0; first < count; first += CHUNK) {
        const size_t some = count - first < CHUNK ? count - first : CHUNK;
        cod_rng_fill(rng, random, 2 * some);
        make_uniform(random, scale, made);
        memcpy(values + first, made, some * sizeof *values);
    }
}
