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
