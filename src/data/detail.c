#include "data/detail.h"

#include "data/metrics.h"

#include <string.h>

enum { RGB = 3 };

/** Sum of the squares of what neighbours differ by in luma. */
static double liveliness(const uint8_t *pixels, int64_t stride, int64_t left, int64_t top, int64_t width,
                         int64_t height)
{
    double sum = 0;
    for (int64_t y = top; y + 1 < top + height; y++)
        for (int64_t x = left; x + 1 < left + width; x++) {
            const uint8_t *pixel = pixels + RGB * (y * stride + x);
            const double luma = cod_luma(pixel), right = cod_luma(pixel + RGB) - luma,
                         below = cod_luma(pixel + RGB * stride) - luma;
            sum += right * right + below * below;
        }
    return sum;
}

void cod_detail_find(const uint8_t *pixels, int64_t width, int64_t height, int64_t crop_width, int64_t crop_height,
                     int64_t *left, int64_t *top)
{
    double most = -1;
    *left = *top = 0;
    for (int64_t y = 0; y + crop_height <= height; y += (crop_height + 1) / 2)
        for (int64_t x = 0; x + crop_width <= width; x += (crop_width + 1) / 2) {
            const double value = liveliness(pixels, width, x, y, crop_width, crop_height);
            if (value > most)
                most = value, *left = x, *top = y;
        }
}

cod_status cod_detail_cut(const uint8_t *pixels, int64_t width, int64_t left, int64_t top, int64_t crop_width,
                          int64_t crop_height, cod_image *out)
{
    COD_TRY(cod_image_init(out, crop_width, crop_height, RGB, 8));
    for (int64_t y = 0; y < crop_height; y++)
        memcpy((uint8_t *)out->pixels + RGB * y * crop_width, pixels + RGB * ((top + y) * width + left),
               (size_t)(RGB * crop_width));
    return COD_OK;
}
