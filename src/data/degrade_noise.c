/* Gaussian and Poisson noise. */
#include "data/degrade_internal.h"

#include "core/memory.h"

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

/** ln(x) of a positive number: x = m · 2^e with m about 1, and ln m = 2 atanh((m - 1) / (m + 1)) by its series, to 1e-7. */
static inline float natural_log(float x)
{
    const uint32_t half_root = 0x3F3504F3; /* of sqrt(1/2) */
    const int32_t e = (int32_t)(to_bits(x) - half_root) >> 23;
    const float m = from_bits(to_bits(x) - ((uint32_t)e << 23)), s = (m - 1) / (m + 1), s2 = s * s;
    const float series = s * (2 + s2 * (2.0f / 3 + s2 * (2.0f / 5 + s2 * (2.0f / 7 + s2 * (2.0f / 9)))));
    return (float)e * 0.693147181f + series;
}

/**
 * Makes standard normal numbers of as many random ones, in pairs (Box and Muller 1958). Two bits of a pair's second number choose the
 * quadrant, the others the angle in it, where sine and cosine are their Taylor series.
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

COD_WIDE static void add_scaled(float *restrict pixels, const float *restrict normal, float sigma, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        pixels[i] += sigma * normal[i];
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
        if (!gray)
            add_scaled(pixels, normal, (float)sigma, some);
        for (int64_t n = 0; gray && n < some; n++)
            for (int c = 0; c < COD_RGB; c++)
                pixels[n * COD_RGB + c] += (float)sigma * normal[n];
    }
    cod_floats_clamp(picture);
}

/** LEVELS: numbers of different values that are told apart, 1, 2, … 256. GUIDE: where to begin to look, by the top bits. */
enum { LEVELS = 9, VALUES = 256, GUIDE_BITS = 6, GUIDE = 1 << GUIDE_BITS };

/** One distribution: `first + k` is drawn where cumulative[k - 1] < random number <= cumulative[k]. */
typedef struct distribution {
    uint32_t first;
    uint16_t guide[GUIDE];
    const uint32_t *cumulative;
} distribution;

struct cod_poisson {
    distribution tables[LEVELS][VALUES];
    cod_arena arena;
};

static cod_status fill(cod_poisson *poisson, double mean, distribution *out)
{
    const double spread = 7 * sqrt(mean) + 12; /* beyond it lies less than one of 2^32 */
    const int64_t first = mean > spread ? (int64_t)(mean - spread) : 0;
    const size_t count = (size_t)(mean + spread - (double)first) + 1;
    uint32_t *cumulative = cod_arena_alloc(&poisson->arena, count * sizeof *cumulative);
    COD_REQUIRE_MEMORY(cumulative);
    double term = exp(-mean + (double)first * (mean > 0 ? log(mean) : 0) - lgamma((double)first + 1)), sum = 0;
    for (size_t k = 0; k < count; k++) {
        sum += term;
        term *= mean / (double)(first + (int64_t)k + 1);
        cumulative[k] = k + 1 == count || sum >= 1 ? UINT32_MAX : (uint32_t)(sum * 0x1p32);
    }
    *out = (distribution){.first = (uint32_t)first, .cumulative = cumulative};
    for (uint32_t g = 0, k = 0; g < GUIDE; g++) {
        while (cumulative[k] < g << (32 - GUIDE_BITS))
            k++;
        out->guide[g] = (uint16_t)k;
    }
    return COD_OK;
}

cod_status cod_poisson_create(cod_poisson **out)
{
    cod_status status = COD_OK;
    cod_poisson *poisson = calloc(1, sizeof *poisson);
    COD_REQUIRE_MEMORY(poisson);
    for (int level = 0; level < LEVELS; level++)
        for (int value = 0; value < VALUES && status == COD_OK; value++)
            status = fill(poisson, value / 255.0 * (1 << level), &poisson->tables[level][value]);
    if (status != COD_OK) {
        cod_poisson_destroy(poisson);
        poisson = NULL;
    }
    *out = poisson;
    return status;
}

void cod_poisson_destroy(cod_poisson *poisson)
{
    if (poisson != NULL)
        cod_arena_clear(&poisson->arena);
    free(poisson);
}

static inline uint32_t draw(const distribution *d, uint32_t random)
{
    uint32_t k = d->guide[random >> (32 - GUIDE_BITS)];
    while (random > d->cumulative[k])
        k++;
    return d->first + k;
}

/** Value `i` of the picture, or the luma of pixel `i`, in 8 bits. */
static inline int byte_at(const cod_floats *picture, bool gray, int64_t i)
{
    const float *p = picture->pixels + (gray ? i * COD_RGB : i);
    const float value = gray ? 0.2989f * p[0] + 0.587f * p[1] + 0.114f * p[2] : p[0];
    return (int)((value > 0 ? value < 255 ? value : 255 : 0) + 0.5f);
}

/** The exponent of the number of different values, raised to a power of two. */
static int count_levels(const cod_floats *picture, bool gray, int64_t count)
{
    bool seen[VALUES] = {false};
    int different = 0, level = 0;
    for (int64_t i = 0; i < count; i++)
        seen[byte_at(picture, gray, i)] = true;
    for (int v = 0; v < VALUES; v++)
        different += seen[v];
    while (1 << level < different)
        level++;
    return level;
}

void cod_add_poisson(const cod_poisson *poisson, cod_floats *picture, double scale, bool gray, cod_rng *rng)
{
    uint32_t random[CHUNK];
    const int64_t depth = gray ? COD_RGB : 1, count = cod_floats_count(picture) / depth;
    const int level = count_levels(picture, gray, count);
    const float step = 255.0f / (float)(1 << level), strength = (float)scale;
    for (int64_t i = 0; i < count; i++) {
        if (i % CHUNK == 0)
            cod_rng_fill(rng, random, CHUNK);
        const int value = byte_at(picture, gray, i);
        const float drawn = (float)draw(&poisson->tables[level][value], random[i % CHUNK]) * step;
        for (int64_t c = 0; c < depth; c++)
            picture->pixels[i * depth + c] += strength * (drawn - (float)value);
    }
    cod_floats_clamp(picture);
}
