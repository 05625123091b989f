/* Gaussian and Poisson noise. */
#include "data/degrade_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/** Random numbers at a time. */
enum { CHUNK = 1024 };

static inline float from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t to_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/**
 * ln(x) of a positive number: x = m · 2^e with m about 1, and ln m = 2 atanh((m - 1) / (m + 1)) by its series, to 1e-7.
 */
static inline float natural_log(float x)
{
    const uint32_t half_root = 0x3F3504F3; /* of sqrt(1/2) */
    const int32_t e = (int32_t)(to_bits(x) - half_root) >> 23;
    const float m = from_bits(to_bits(x) - ((uint32_t)e << 23)), s = (m - 1) / (m + 1), s2 = s * s;
    const float series = s * (2 + s2 * (2.0f / 3 + s2 * (2.0f / 5 + s2 * (2.0f / 7 + s2 * (2.0f / 9)))));
    return (float)e * 0.693147181f + series;
}

/**
 * Makes standard normal numbers of as many random ones, in pairs (Box and Muller 1958). Two bits of a pair's second
 * number choose the quadrant, the others the angle in it, where sine and cosine are their Taylor series.
 */
COD_WIDE static void make_normal(const uint32_t *restrict random, float *restrict normal)
{
    for (int i = 0; i < CHUNK / 2; i++) {
        const uint32_t a = random[i], b = random[CHUNK / 2 + i];
        const float uniform = (float)(int32_t)((a >> 8) + 1) * 0x1p-24f;
        const float radius = sqrtf(-2 * natural_log(uniform));
        const float t = ((float)(int32_t)(b & 0x3FFFFFFF) * 0x1p-30f - 0.5f) * 1.57079633f, t2 = t * t;
        const float s = t * (1 - t2 / 6 * (1 - t2 / 20 * (1 - t2 / 42)));
        const float c = 1 - t2 / 2 * (1 - t2 / 12 * (1 - t2 / 30 * (1 - t2 / 56)));
        const float x = b & 0x40000000 ? -s : c, y = b & 0x40000000 ? c : s;
        const float sign = b & 0x80000000 ? -radius : radius;
        normal[i] = sign * x;
        normal[CHUNK / 2 + i] = sign * y;
    }
}

/** Adds noise to values, or with gray to all channels of pixels. */
COD_WIDE static void add_noise(float *restrict pixels, const float *restrict noise, float strength, bool gray,
                               int64_t count)
{
    for (int64_t i = 0; !gray && i < count; i++)
        pixels[i] += strength * noise[i];
    for (int64_t i = 0; gray && i < count; i++)
        for (int c = 0; c < COD_RGB; c++)
            pixels[COD_RGB * i + c] += strength * noise[i];
}

void cod_add_gaussian(cod_floats *picture, double sigma, bool gray, cod_rng *rng)
{
    uint32_t random[CHUNK];
    float normal[CHUNK];
    const int64_t depth = gray ? COD_RGB : 1, count = cod_floats_count(picture) / depth;
    for (int64_t i = 0; i < count; i += CHUNK) {
        const int64_t some = count - i < CHUNK ? count - i : CHUNK;
        float *pixels = picture->pixels + i * depth;
        cod_rng_fill(rng, random, CHUNK);
        make_normal(random, normal);
        add_noise(pixels, normal, (float)sigma, gray, some);
    }
    cod_floats_clamp(picture);
}

/** LEVELS: classes of numbers of different values: 1, 2, … 256. */
enum { LEVELS = 9, VALUES = 256, COLUMNS = 256 };

/**
 * A distribution by Walker's alias method (1977): the top 8 bits of a random number choose a column, which is kept
 * where the other 24 are below the threshold in its upper bits, and else exchanged for the column in its lower 8.
 * Column k stands for `first + k`.
 */
typedef struct distribution {
    int32_t first[VALUES];
    uint32_t columns[VALUES * COLUMNS];
} distribution;

struct cod_poisson {
    distribution levels[LEVELS];
};

/**
 * The probabilities of COLUMNS numbers around the mean; beyond them lies less than one of 2^32.
 *
 * @return the first number
 */
static int32_t poisson(double mean, double probabilities[COLUMNS])
{
    const int32_t first = mean > COLUMNS / 2 ? (int32_t)mean - COLUMNS / 2 : 0;
    const double log_mean = mean > 0 ? log(mean) : 0;
    int sign; /* lgamma() stores it in a global variable: a data race where two threads make tables at once */
    double term = exp(-mean + first * log_mean - lgamma_r(first + 1.0, &sign)), sum = 0;
    for (int k = 0; k < COLUMNS; k++) {
        sum += probabilities[k] = term;
        term *= mean / (first + k + 1);
    }
    for (int k = 0; k < COLUMNS; k++)
        probabilities[k] /= sum;
    return first;
}

/** Gives each column that lacks probability, against 1/COLUMNS, what it lacks from one that has too much. */
static void make_columns(double probabilities[COLUMNS], uint32_t columns[COLUMNS])
{
    int lacking[COLUMNS], rich[COLUMNS], lacking_count = 0, rich_count = 0;
    for (int k = 0; k < COLUMNS; k++) {
        probabilities[k] *= COLUMNS;
        columns[k] = 0xFFFFFF00u | (uint32_t)k;
        if (probabilities[k] < 1)
            lacking[lacking_count++] = k;
        else
            rich[rich_count++] = k;
    }
    while (lacking_count > 0 && rich_count > 0) {
        const int poor = lacking[--lacking_count], giver = rich[rich_count - 1];
        columns[poor] = (uint32_t)(probabilities[poor] * 0x1p24) << 8 | (uint32_t)giver;
        probabilities[giver] -= 1 - probabilities[poor];
        if (probabilities[giver] < 1) {
            rich_count--;
            lacking[lacking_count++] = giver;
        }
    }
}

cod_status cod_poisson_create(cod_poisson **out)
{
    double probabilities[COLUMNS];
    *out = malloc(sizeof **out);
    COD_REQUIRE_MEMORY(*out);
    for (int level = 0; level < LEVELS; level++)
        for (int value = 0; value < VALUES; value++) {
            distribution *d = &(*out)->levels[level];
            d->first[value] = poisson(value / 255.0 * (1 << level), probabilities);
            make_columns(probabilities, d->columns + value * COLUMNS);
        }
    return COD_OK;
}

void cod_poisson_destroy(cod_poisson *poisson)
{
    free(poisson);
}

/** Values in 8 bits, or with gray the lumas of pixels. */
COD_WIDE static void take_bytes(const float *restrict p, bool gray, int64_t count, int32_t *restrict bytes)
{
    for (int64_t i = 0; i < count; i++) {
        const float value = gray ? 0.2989f * p[3 * i] + 0.587f * p[3 * i + 1] + 0.114f * p[3 * i + 2] : p[i];
        const float raised = value > 0 ? value : 0;
        bytes[i] = (int32_t)((raised < 255 ? raised : 255) + 0.5f);
    }
}

/** The exponent of the number of different values, raised to a power of two. */
static int count_levels(const cod_floats *picture, bool gray, int64_t count)
{
    bool seen[VALUES] = {false};
    int32_t bytes[CHUNK];
    int different = 0, level = 0;
    for (int64_t i = 0; i < count && 2 * different <= VALUES; i += CHUNK) {
        const int64_t some = count - i < CHUNK ? count - i : CHUNK;
        take_bytes(picture->pixels + i * (gray ? COD_RGB : 1), gray, some, bytes);
        for (int64_t n = 0; n < some; n++) {
            different += !seen[bytes[n]];
            seen[bytes[n]] = true;
        }
    }
    while (1 << level < different)
        level++;
    return level;
}

/** Draws a number for each value and computes the change. @param step change of the value for one more count drawn */
COD_WIDE static void draw_changes(const distribution *d, const int32_t *restrict bytes, const uint32_t *restrict random,
                                  float step, float *restrict changes)
{
    const uint32_t *columns = d->columns;
    for (int i = 0; i < CHUNK; i++) {
        const uint32_t number = random[i], own = number >> 24, column = columns[bytes[i] * COLUMNS + (int32_t)own];
        const uint32_t k = (number & 0xFFFFFF) < column >> 8 ? own : column & 0xFF;
        changes[i] = (float)(d->first[bytes[i]] + (int32_t)k) * step - (float)bytes[i];
    }
}

void cod_add_poisson(const cod_poisson *poisson, cod_floats *picture, double scale, bool gray, cod_rng *rng)
{
    uint32_t random[CHUNK];
    int32_t bytes[CHUNK] = {0};
    float changes[CHUNK];
    const int64_t depth = gray ? COD_RGB : 1, count = cod_floats_count(picture) / depth;
    const int level = count_levels(picture, gray, count);
    for (int64_t i = 0; i < count; i += CHUNK) {
        const int64_t some = count - i < CHUNK ? count - i : CHUNK;
        float *pixels = picture->pixels + i * depth;
        take_bytes(pixels, gray, some, bytes);
        cod_rng_fill(rng, random, CHUNK);
        draw_changes(&poisson->levels[level], bytes, random, 255.0f / (float)(1 << level), changes);
        add_noise(pixels, changes, (float)scale, gray, some);
    }
    cod_floats_clamp(picture);
}
