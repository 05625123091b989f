/**
 * @file
 * Seals (keyed checksums) on data in storage that others may write: keyed BLAKE2b of 32 bytes (RFC 7693; libsodium). A
 * seal can be made only with the key. Seals do not encrypt.
 */
#ifndef COD_IO_SEAL_H
#define COD_IO_SEAL_H

#include "core/status.h"

#include <stdbool.h>
#include <stddef.h>

enum { COD_SEAL_BYTES = 32, COD_SEAL_KEY_LEAST = 16 };

typedef struct cod_seal_key {
    unsigned char bytes[32];
} cod_seal_key;

/**
 * Makes a key from all bytes of a file, which must have COD_SEAL_KEY_LEAST bytes at least. Warns if other users may
 * read the file.
 * @return COD_ERR_ARGUMENT where it is too short; COD_ERR_IO
 */
COD_MUST_CHECK cod_status cod_seal_key_read(const char *path, cod_seal_key *key);

/**
 * Makes the seal of `data` at a place. Equal data at another place have another seal.
 *
 * @param place   what the data are and where they belong; always the same number of bytes for a kind of place
 * @param[out] seal [COD_SEAL_BYTES]
 */
void cod_seal_make(const cod_seal_key *key, const void *place, size_t place_bytes, const void *data, size_t bytes,
                   unsigned char *seal);
/** Whether `seal` is the result of cod_seal_make(); takes a time that does not depend on where they differ. */
bool cod_seal_check(const cod_seal_key *key, const void *place, size_t place_bytes, const void *data, size_t bytes,
                    const unsigned char *seal);

#endif
