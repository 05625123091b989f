#include "io_internal.h"

#include <stdlib.h>

cod_status cod_io_reserve(void **data, size_t *capacity, size_t used, size_t more)
{
    if (more <= *capacity - used)
        return COD_OK;
    if (more > SIZE_MAX / 4 - used)
        return cod_fail(COD_ERR_MEMORY, "a buffer of %zu and %zu more bytes is too large", used, more);
    size_t grown = *capacity > 0 ? *capacity : 256;
    while (grown < used + more)
        grown *= 2;
    void *moved = realloc(*data, grown);
    COD_REQUIRE_MEMORY(moved);
    *data = moved;
    *capacity = grown;
    return COD_OK;
}

size_t cod_io_utf8_length(const char *text, size_t bytes)
{
    const unsigned char *c = (const unsigned char *)text;
    if (bytes == 0)
        return 0;
    if (c[0] < 0x80)
        return 1;
    const size_t length = c[0] >= 0xC2 && c[0] < 0xE0   ? 2
                          : c[0] >= 0xE0 && c[0] < 0xF0 ? 3
                          : c[0] >= 0xF0 && c[0] < 0xF5 ? 4
                                                        : 0;
    if (length == 0 || length > bytes)
        return 0;
    for (size_t i = 1; i < length; i++)
        if ((c[i] & 0xC0) != 0x80)
            return 0;
    /* Overlong forms, surrogates and what lies past U+10FFFF. */
    if ((c[0] == 0xE0 && c[1] < 0xA0) || (c[0] == 0xED && c[1] >= 0xA0) || (c[0] == 0xF0 && c[1] < 0x90) ||
        (c[0] == 0xF4 && c[1] >= 0x90))
        return 0;
    return length;
}
