#include "data/image_internal.h"
#include "data/notes_internal.h"

#include <string.h>

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
    if (image->notes != NULL && transpose) {
        const double dpi_x = image->notes->dpi_x;
        image->notes->dpi_x = image->notes->dpi_y;
        image->notes->dpi_y = dpi_x;
    }
    upright.notes = image->notes;
    image->notes = NULL;
    cod_image_clear(image);
    *image = upright;
    return COD_OK;
}
