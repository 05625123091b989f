#include "data/plane_internal.h"

#include "data/metrics.h"

#include <stdlib.h>

cod_status cod_plane_init(int64_t height, int64_t width, cod_plane *plane)
{
    *plane = (cod_plane){height, width, malloc((size_t)(height * width) * sizeof *plane->values)};
    COD_REQUIRE_MEMORY(plane->values);
    return COD_OK;
}

cod_status cod_plane_init_gray(const cod_image *image, int64_t crop, int64_t height, int64_t width, cod_plane *plane)
{
    COD_TRY(cod_plane_init(height, width, plane));
    for (int64_t y = 0; y < height; y++) {
        const uint8_t *pixel = (const uint8_t *)image->pixels + ((crop + y) * image->width + crop) * image->channels;
        for (int64_t x = 0; x < width; x++, pixel += image->channels)
            plane->values[y * width + x] = cod_gray(pixel);
    }
    return COD_OK;
}

void cod_plane_clear(cod_plane *plane)
{
    free(plane->values);
    *plane = (cod_plane){0};
}
