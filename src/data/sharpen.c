#include "data/sharpen.h"

#include "data/degrade_internal.h"
#include "data/gaussian_internal.h"
#include "data/scratch_pool_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RADIUS = 25, SIDE = 2 * RADIUS + 1 };
static const float threshold = 10, strength = 0.5f;

/** Memory of one part on its way. */
typedef struct cod_sharpen_room {
    cod_scratch base;
    cod_floats wide; /**< the part and 2·RADIUS around it */
    cod_floats mask; /**< the part and RADIUS around it */
    cod_floats result;
    cod_grown line; /**< one row of sums over rows */
} room;

struct cod_sharpener {
    float weights[SIDE]; /**< sum 1 */
    cod_scratch_pool pool;
};

static void clear_room(void *memory)
{
    room *r = memory;
    cod_grown_clear(&r->wide.room);
    cod_grown_clear(&r->mask.room);
    cod_grown_clear(&r->result.room);
    cod_grown_clear(&r->line);
}

cod_status cod_sharpener_create(cod_sharpener **out)
{
    double weights[SIDE];
    cod_sharpener *sharpener = *out = calloc(1, sizeof *sharpener);
    COD_REQUIRE_MEMORY(sharpener);
    cod_gaussian_weights(SIDE, 0.3 * ((SIDE - 1) * 0.5 - 1) + 0.8, weights);
    for (int i = 0; i < SIDE; i++)
        sharpener->weights[i] = (float)weights[i];
    cod_scratch_pool_init(&sharpener->pool, sizeof(room), clear_room);
    return COD_OK;
}

void cod_sharpener_destroy(cod_sharpener *sharpener)
{
    if (sharpener == NULL)
        return;
    cod_scratch_pool_clear(&sharpener->pool);
    free(sharpener);
}

/** The part and 2·RADIUS around it, as floats. */
static cod_status take(const cod_sharpen_region *region, cod_floats *out)
{
    COD_TRY(cod_floats_resize(out, region->width + 4 * RADIUS, region->height + 4 * RADIUS));
    const int64_t left = region->left - 2 * RADIUS, top = region->top - 2 * RADIUS;
    float *to = out->pixels;
    for (int64_t y = 0; y < out->height; y++) {
        const uint8_t *row =
            region->picture + cod_mirror(top + y, region->picture_height) * region->picture_width * COD_RGB;
        for (int64_t x = 0; x < out->width; x++) {
            const int64_t from = left + x, width = region->picture_width;
            const uint8_t *pixel = row + (from >= 0 && from < width ? from : cod_mirror(from, width)) * COD_RGB;
            for (int c = 0; c < COD_RGB; c++)
                *to++ = pixel[c];
        }
    }
    return COD_OK;
}

/** 1 where what a blur leaves of the original is more than the threshold. */
COD_WIDE static void find_edges(const float *restrict original, float *restrict blurred, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        blurred[i] = fabsf(original[i] - blurred[i]) > threshold ? 1.0f : 0.0f;
}

/** @param out  the part's blur; afterwards the result. @param soft  the mask's blur */
COD_WIDE static void mix(const float *restrict original, const float *restrict soft, float *restrict out, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const float sharper = original[i] + strength * (original[i] - out[i]);
        const float raised = sharper > 0 ? sharper : 0, limited = raised < 255 ? raised : 255;
        out[i] = soft[i] * limited + (1 - soft[i]) * original[i];
    }
}

static cod_status run(const cod_sharpener *sharpener, const cod_sharpen_region *region, room *r)
{
    COD_TRY(take(region, &r->wide));
    COD_TRY(cod_floats_resize(&r->mask, region->width + 2 * RADIUS, region->height + 2 * RADIUS));
    COD_TRY(cod_floats_resize(&r->result, region->width, region->height));
    const int64_t wide = r->wide.width * COD_RGB, middle = r->mask.width * COD_RGB, count = region->width * COD_RGB;
    COD_TRY(cod_grow(&r->line, (size_t)(wide + count) * sizeof(float)));
    float *line = r->line.memory, *soft = line + wide;
    const float *const originals = r->wide.pixels + 2 * RADIUS * (wide + COD_RGB);
    for (int64_t y = 0; y < r->mask.height; y++) {
        float *edges = r->mask.pixels + y * middle;
        cod_filter_separable_row(sharpener->weights, RADIUS, r->wide.pixels + y * wide, wide, line, edges, middle);
        if (y >= RADIUS && y < RADIUS + region->height) /* the blur of the part itself is needed again */
            memcpy(r->result.pixels + (y - RADIUS) * count, edges + RADIUS * COD_RGB, (size_t)count * sizeof(float));
        find_edges(r->wide.pixels + (y + RADIUS) * wide + RADIUS * COD_RGB, edges, middle);
    }
    for (int64_t y = 0; y < region->height; y++) {
        cod_filter_separable_row(sharpener->weights, RADIUS, r->mask.pixels + y * middle, middle, line, soft, count);
        mix(originals + y * wide, soft, r->result.pixels + y * count, count);
    }
    return COD_OK;
}

cod_status cod_sharpen(cod_sharpener *sharpener, const cod_sharpen_region *region, cod_sharpened *out)
{
    *out = (cod_sharpened){0};
    COD_REQUIRE(region->picture_width > 0 && region->picture_height > 0 && region->width > 0 && region->height > 0,
                "cannot sharpen %lldx%lld pixels of a picture of %lldx%lld", (long long)region->width,
                (long long)region->height, (long long)region->picture_width, (long long)region->picture_height);
    room *r = cod_scratch_pool_take(&sharpener->pool);
    COD_REQUIRE_MEMORY(r);
    const cod_status status = run(sharpener, region, r);
    if (status != COD_OK) {
        cod_scratch_pool_give_back(&sharpener->pool, r);
        return status;
    }
    *out = (cod_sharpened){.pixels = r->result.pixels,
                           .width = region->width,
                           .height = region->height,
                           .sharpener = sharpener,
                           .room = r};
    return COD_OK;
}

void cod_sharpened_clear(cod_sharpened *sharpened)
{
    if (sharpened->room != NULL)
        cod_scratch_pool_give_back(&sharpened->sharpener->pool, sharpened->room);
    *sharpened = (cod_sharpened){0};
}
