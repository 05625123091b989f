#include "data/transparency.h"

#include "data/image_internal.h"

#include <stdlib.h>

enum { RGB = 3, RGBA = 4 };

static unsigned sample(const cod_image *image, size_t at)
{
    return image->bits == 8 ? ((const uint8_t *)image->pixels)[at] : ((const uint16_t *)image->pixels)[at];
}

bool cod_image_is_transparent(const cod_image *image)
{
    const size_t values = (size_t)image->width * (size_t)image->height * RGBA;
    for (size_t i = RGBA - 1; image->channels == RGBA && i < values; i += RGBA)
        if (sample(image, i) != cod_image_top(image))
            return true;
    return false;
}

/** A picture at half the sides of the one before: each pixel is a sum of weighted colours and the weight. */
typedef struct level {
    int64_t width, height;
    float *values; /**< [height, width, 4]; NULL = the picture itself */
    const cod_image *image;
} level;

/** Reads the weighted colour and the weight of a pixel. */
static void read_pixel(const level *l, int64_t x, int64_t y, float out[RGBA])
{
    const size_t at = ((size_t)y * (size_t)l->width + (size_t)x) * RGBA;
    if (l->values != NULL) {
        for (int c = 0; c < RGBA; c++)
            out[c] = l->values[at + (size_t)c];
        return;
    }
    out[RGB] = (float)sample(l->image, at + RGB) / (float)cod_image_top(l->image);
    for (int c = 0; c < RGB; c++)
        out[c] = (float)sample(l->image, at + (size_t)c) * out[RGB];
}

/** Adds up squares of four pixels. A weight above one, of pixels that are known well enough, becomes one. */
static cod_status halve(const level *fine, level *coarse)
{
    *coarse = (level){.width = (fine->width + 1) / 2, .height = (fine->height + 1) / 2};
    coarse->values = calloc((size_t)coarse->width * (size_t)coarse->height * RGBA, sizeof *coarse->values);
    COD_REQUIRE_MEMORY(coarse->values);
    for (int64_t y = 0; y < fine->height; y++)
        for (int64_t x = 0; x < fine->width; x++) {
            float pixel[RGBA], *sum = coarse->values + ((y / 2) * coarse->width + x / 2) * RGBA;
            read_pixel(fine, x, y, pixel);
            for (int c = 0; c < RGBA; c++)
                sum[c] += pixel[c];
        }
    for (int64_t i = 0; i < coarse->width * coarse->height; i++) {
        float *sum = coarse->values + i * RGBA;
        const float weight = sum[RGB];
        for (int c = 0; c < RGBA && weight > 1; c++)
            sum[c] /= weight;
    }
    return COD_OK;
}

/** Turns the weighted colours into colours; what they lack in weight comes from coarser levels. */
static cod_status fill(level *l)
{
    level coarse;
    if (l->width == 1 && l->height == 1) {
        for (int c = 0; c < RGBA && l->values[RGB] > 0; c++)
            l->values[c] /= l->values[RGB];
        return COD_OK;
    }
    COD_TRY(halve(l, &coarse));
    const cod_status status = fill(&coarse);
    for (int64_t y = 0; status == COD_OK && y < l->height; y++)
        for (int64_t x = 0; x < l->width; x++) {
            float *value = l->values + (y * l->width + x) * RGBA;
            const float *around = coarse.values + ((y / 2) * coarse.width + x / 2) * RGBA, lack = 1 - value[RGB];
            for (int c = 0; c < RGB; c++)
                value[c] += lack * around[c];
        }
    free(coarse.values);
    return status;
}

/** @param around  colours of squares of two pixels a side; NULL = nothing is visible */
static void copy_filled(const cod_image *image, const level *around, cod_image *filled)
{
    const size_t width = (size_t)image->width, height = (size_t)image->height;
    for (size_t y = 0; y < height; y++)
        for (size_t x = 0; x < width; x++) {
            const size_t from = (y * width + x) * RGBA, to = (y * width + x) * RGB;
            const bool hidden = around != NULL && sample(image, from + RGB) == 0;
            for (size_t c = 0; c < RGB; c++) {
                const unsigned value =
                    hidden ? (unsigned)(around->values[((y / 2) * (size_t)around->width + x / 2) * RGBA + c] + 0.5f)
                           : sample(image, from + c);
                if (image->bits == 8)
                    ((uint8_t *)filled->pixels)[to + c] = (uint8_t)value;
                else
                    ((uint16_t *)filled->pixels)[to + c] = (uint16_t)value;
            }
        }
}

static bool shows_anything(const cod_image *image)
{
    const size_t values = (size_t)image->width * (size_t)image->height * RGBA;
    for (size_t i = RGB; i < values; i += RGBA)
        if (sample(image, i) != 0)
            return true;
    return false;
}

cod_status cod_image_fill_transparent(const cod_image *image, cod_image *filled)
{
    const level whole = {.width = image->width, .height = image->height, .image = image};
    level around = {0};
    COD_REQUIRE(image->channels == RGBA, "a picture without an alpha channel has nothing to fill");
    COD_TRY(cod_image_init(filled, image->width, image->height, RGB, image->bits));
    const bool some = shows_anything(image);
    cod_status status = some ? halve(&whole, &around) : COD_OK;
    if (some)
        COD_THEN(status, fill(&around));
    if (status == COD_OK)
        copy_filled(image, some ? &around : NULL, filled);
    else
        cod_image_clear(filled);
    free(around.values);
    return status;
}
