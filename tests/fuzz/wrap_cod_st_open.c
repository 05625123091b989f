/*
 * cod_st_open(), in the programs that are linked with --wrap: of fuzz_memory()'s bytes, whose end a sanitizer knows,
 * unlike a mapping's.
 */
#include "fuzz.h"

#include "io/safetensors.h"

cod_status __real_cod_st_open(const char *path, cod_st_file **file);
cod_status __wrap_cod_st_open(const char *path, cod_st_file **file);

cod_status __wrap_cod_st_open(const char *path, cod_st_file **file)
{
    size_t bytes;
    const void *input = fuzz_memory_bytes(&bytes);
    return input != NULL ? cod_st_open_memory(input, bytes, file) : __real_cod_st_open(path, file);
}
