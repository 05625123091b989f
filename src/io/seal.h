/**
 * @file
 * Seals on bytes that pass through storage which others may write: keyed BLAKE2b of 32 bytes (RFC 7693; libsodium). Only who has the
 * key can make a seal; seals hide nothing.
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
 * Makes a key of a file's bytes, COD_SEAL_KEY_LEAST of them at least, all of which count. Warns where other users may read the file.
 * @return COD_ERR_ARGUMENT where it is too short; COD_ERR_IO
 */
COD_MUST_CHECK cod_status cod_seal_key_read(const char *path, cod_seal_key *key);

/**
 * The seal of `data` in a place: equal data elsewhere have another seal.
 *
 * @param place   what the data are and where they belong; as many bytes for each kind of place
 * @param[out] seal [COD_SEAL_BYTES]
 */
void cod_seal_make(const cod_seal_key *key, const void *place, size_t place_bytes, const void *data, size_t bytes,
                   unsigned char *seal);
/** Whether `seal` is that of cod_seal_make(), in a time that does not depend on where it differs. */
bool cod_seal_check(const cod_seal_key *key, const void *place, size_t place_bytes, const void *data, size_t bytes,
                    const unsigned char *seal);

#endif
