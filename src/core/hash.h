/**
 * @file
 * XXH3 64-bit checksums (xxHash by Yann Collet); not for secrets.
 */
#ifndef COD_CORE_HASH_H
#define COD_CORE_HASH_H

#include <stddef.h>
#include <stdint.h>

/** XXH3_64bits_withSeed of the bytes. */
uint64_t cod_hash(const void *data, size_t bytes, uint64_t seed);

/** The library behind it and its version, such as "xxHash 0.8.1". */
void cod_hash_library(char *text, size_t bytes);

#endif
