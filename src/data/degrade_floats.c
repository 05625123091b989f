/* Pictures of floats. */
#include "data/degrade_internal.h"

#include "core/memory.h"

cod_status cod_grow(cod_grown *room, size_t bytes)
{
    if (room->bytes >= bytes)
        return COD_OK;
    cod_grown_clear(room);
    COD_TRY(cod_aligned_alloc(&room->memory, bytes));
    room->bytes = bytes;
    return COD_OK;
}

void cod_grown_clear(cod_grown *room)
{
    cod_aligned_free(room->memory);
    *room = (cod_grown){0};
}

cod_status cod_floats_resize(cod_floats *picture, int64_t width, int64_t height)
{
    COD_TRY(cod_grow(&picture->room, (size_t)(width * height * COD_RGB + COD_FLOATS_SLACK) * sizeof(float)));
    picture->width = width;
    picture->height = height;
    picture->pixels = picture->room.memory;
    return COD_OK;
}

static inline float limit(float value)
{
    const float raised = value > 0 ? value : 0; /* NaN becomes 0 */
    return raised < 255 ? raised : 255;
}

COD_WIDE void cod_floats_clamp(cod_floats *picture)
{
    const int64_t count = cod_floats_count(picture);
    float *pixels = picture->pixels;
    for (int64_t i = 0; i < count; i++)
        pixels[i] = limit(pixels[i]);
}

COD_WIDE void cod_floats_to_bytes(const cod_floats *picture, uint8_t *restrict bytes)
{
    const int64_t count = cod_floats_count(picture);
    const float *restrict pixels = picture->pixels;
    for (int64_t i = 0; i < count; i++)
        bytes[i] = (uint8_t)(int32_t)(limit(pixels[i]) + 0.5f);
}

COD_WIDE void cod_floats_from_bytes(cod_floats *picture, const uint8_t *restrict bytes)
{
    const int64_t count = cod_floats_count(picture);
    float *restrict pixels = picture->pixels;
    for (int64_t i = 0; i < count; i++)
        pixels[i] = bytes[i];
}

int64_t cod_mirror(int64_t at, int64_t n)
{
    if (n == 1)
        return 0;
    const int64_t period = 2 * (n - 1), place = at % period, inside = place < 0 ? place + period : place;
    return inside < n ? inside : period - inside;
}
