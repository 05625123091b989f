#include "data/image_internal.h"

#include <string.h>

enum { EXIF_HEAD = 6 };

int cod_exif_orientation(const uint8_t *bytes, size_t count)
{
    if (count < EXIF_HEAD || memcmp(bytes, "Exif\0\0", EXIF_HEAD) != 0)
        return 1;
    return cod_exif_tiff_orientation(bytes + EXIF_HEAD, count - EXIF_HEAD);
}

int cod_exif_tiff_orientation(const uint8_t *tiff, size_t size)
{
    enum { TAG_ORIENTATION = 0x0112, ENTRY_BYTES = 12 };
    if (size < 8)
        return 1;
    const bool little = memcmp(tiff, "II", 2) == 0;
    if (!little && memcmp(tiff, "MM", 2) != 0)
        return 1;
    const size_t directory = cod_image_number(tiff + 4, 4, little);
    if (directory > size - 2)
        return 1;
    const size_t entries = cod_image_number(tiff + directory, 2, little);
    for (size_t i = 0; i < entries; i++) {
        const size_t at = directory + 2 + i * ENTRY_BYTES;
        if (at + ENTRY_BYTES > size)
            break;
        if (cod_image_number(tiff + at, 2, little) != TAG_ORIENTATION)
            continue;
        const uint32_t value = cod_image_number(tiff + at + 8, 2, little);
        return value >= 1 && value <= 8 ? (int)value : 1;
    }
    return 1;
}

cod_status cod_image_orient(cod_image *image, int orientation)
{
    if (orientation <= 1 || orientation > 8)
        return COD_OK;
    /* Source of output pixel (0,0), and the directions of steps in x and y, for the EXIF values 2 … 8. */
    static const struct {
        bool transpose, from_right, from_bottom;
    } turns[9] = {
        [2] = {false, true, false}, [3] = {false, true, true}, [4] = {false, false, true}, [5] = {true, false, false},
        [6] = {true, false, true},  [7] = {true, true, true},  [8] = {true, true, false},
    };
    const bool transpose = turns[orientation].transpose;
    const int64_t width = image->width, height = image->height;
    cod_image upright;
    COD_TRY(
        cod_image_init(&upright, transpose ? height : width, transpose ? width : height, image->channels, image->bits));
    const size_t pixel = (size_t)(image->channels * (image->bits / 8));
    const char *in = image->pixels;
    char *out = upright.pixels;
    for (int64_t y = 0; y < upright.height; y++)
        for (int64_t x = 0; x < upright.width; x++, out += pixel) {
            int64_t from_x = transpose ? y : x, from_y = transpose ? x : y;
            if (turns[orientation].from_right)
                from_x = width - 1 - from_x;
            if (turns[orientation].from_bottom)
                from_y = height - 1 - from_y;
            memcpy(out, in + (size_t)(from_y * width + from_x) * pixel, pixel);
        }
    cod_image_clear(image);
    *image = upright;
    return COD_OK;
}
