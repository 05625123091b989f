#include "core/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t cod_hash(const void *data, size_t bytes, uint64_t seed)
{
    return XXH3_64bits_withSeed(data, bytes, seed);
}
