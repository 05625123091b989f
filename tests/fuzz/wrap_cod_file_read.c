/*
 * cod_file_read(), in the programs that are linked with --wrap: of fuzz_memory()'s bytes, without five calls of the
 * system.
 */
#include "fuzz.h"

cod_status __real_cod_file_read(const char *path, size_t limit_bytes, void **data, size_t *bytes);
cod_status __wrap_cod_file_read(const char *path, size_t limit_bytes, void **data, size_t *bytes);

cod_status __wrap_cod_file_read(const char *path, size_t limit_bytes, void **data, size_t *bytes)
{
    const void *input = fuzz_memory_bytes(bytes);
    if (input == NULL)
        return __real_cod_file_read(path, limit_bytes, data, bytes);
    char *copy = malloc(*bytes + 1);
    FUZZ_DEMAND(copy != NULL && *bytes <= limit_bytes);
    memcpy(copy, input, *bytes);
    copy[*bytes] = '\0';
    *data = copy;
    return COD_OK;
}
