#include "data/image_internal.h"

#include "core/memory.h"
#include "data/notes_internal.h"

#include <stdlib.h>

cod_status cod_image_check_size(int64_t width, int64_t height)
{
    if (width < 1 || height < 1)
        return cod_fail(COD_ERR_FORMAT, "the picture is empty (%lldx%lld)", (long long)width, (long long)height);
    if (width > COD_IMAGE_MAX_SIDE || height > COD_IMAGE_MAX_SIDE || width * height > COD_IMAGE_MAX_PIXELS)
        return cod_fail(COD_ERR_UNSUPPORTED, "%lldx%lld pixels are more than the limit (sides %d, %d in all)",
                        (long long)width, (long long)height, COD_IMAGE_MAX_SIDE, COD_IMAGE_MAX_PIXELS);
    return COD_OK;
}

cod_status cod_image_init(cod_image *image, int64_t width, int64_t height, int channels, int bits)
{
    *image = (cod_image){0};
    COD_REQUIRE((channels == 3 || channels == 4) && (bits == 8 || bits == 16), "no image of %d channels and %d bits",
                channels, bits);
    COD_TRY(cod_image_check_size(width, height));
    cod_image sized = {.width = width, .height = height, .channels = channels, .bits = bits};
    COD_TRY(cod_aligned_alloc(&sized.pixels, cod_image_bytes(&sized)));
    *image = sized;
    return COD_OK;
}

void cod_image_notes_clear(cod_image *image)
{
    if (image->notes == NULL)
        return;
    free(image->notes->profile);
    free(image->notes->exif);
    free(image->notes);
    image->notes = NULL;
}

void cod_image_clear(cod_image *image)
{
    if (image == NULL)
        return;
    cod_aligned_free(image->pixels);
    cod_image_notes_clear(image);
    *image = (cod_image){0};
}

cod_status cod_image_narrow(const cod_image *image, int channels, cod_image *copy)
{
    COD_TRY(cod_image_init(copy, image->width, image->height, channels, 8));
    const size_t pixels = (size_t)image->width * (size_t)image->height, given = (size_t)image->channels;
    const uint8_t *narrow = image->pixels;
    const uint16_t *wide = image->pixels;
    const uint64_t top = cod_image_top(image);
    uint8_t *out = copy->pixels;
    for (size_t p = 0; p < pixels; p++) {
        const size_t last = p * given + 3;
        const uint64_t alpha = channels == 4 || given == 3 ? top : image->bits == 8 ? narrow[last] : wide[last];
        for (size_t c = 0; c < (size_t)channels; c++) {
            const size_t at = p * given + c;
            const uint64_t value = image->bits == 8 ? narrow[at] : wide[at];
            const uint64_t on_white = (value * alpha + top * (top - alpha) + top / 2) / top;
            *out++ = (uint8_t)(image->bits == 8 ? on_white : (on_white * 255 + 32767) / 65535);
        }
    }
    return COD_OK;
}

cod_status cod_image_to_rgb8(cod_image *image)
{
    if (image->channels == 3 && image->bits == 8)
        return COD_OK;
    cod_image rgb;
    COD_TRY(cod_image_narrow(image, 3, &rgb));
    cod_image_clear(image);
    *image = rgb;
    return COD_OK;
}
