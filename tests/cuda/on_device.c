/* Stands in for the emulated GPU in tests that run on a real one: it runs threads as it likes, and tells no faults. */
#include "emulated/emulated.h"

size_t cod_emulated_faults(char *first, size_t bytes)
{
    if (bytes > 0)
        first[0] = '\0';
    return 0;
}

void cod_emulated_set_seed(uint64_t seed)
{
    (void)seed;
}

void cod_emulated_set_memory(size_t bytes)
{
    (void)bytes;
}
