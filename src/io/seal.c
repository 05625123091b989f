#include "io/seal.h"

#include "core/log.h"
#include "io/file.h"

#include <sodium.h>
#include <stdlib.h>
#include <sys/stat.h>

_Static_assert(COD_SEAL_BYTES == crypto_generichash_BYTES, "a seal is BLAKE2b's usual length");

cod_status cod_seal_key_read(const char *path, cod_seal_key *key)
{
    enum { LIMIT = 1 << 20 };
    void *data;
    size_t bytes;
    struct stat info;
    COD_TRY(cod_file_read_any(path, LIMIT, &data, &bytes));
    if (stat(path, &info) == 0 && (info.st_mode & (S_IRGRP | S_IROTH)) != 0)
        cod_log_warn("'%s' holds a key, and other users may read it; `chmod 600 %s` keeps it to you", path, path);
    cod_status status = COD_OK;
    if (bytes < COD_SEAL_KEY_LEAST)
        status = cod_fail(COD_ERR_ARGUMENT,
                          "'%s' has %zu bytes; a key needs at least %d: `head -c 32 /dev/urandom > FILE` makes one",
                          path, bytes, COD_SEAL_KEY_LEAST);
    else
        crypto_generichash(key->bytes, sizeof key->bytes, data, bytes, NULL, 0);
    sodium_memzero(data, bytes);
    free(data);
    return status;
}

void cod_seal_make(const cod_seal_key *key, const void *place, size_t place_bytes, const void *data, size_t bytes,
                   unsigned char *seal)
{
    crypto_generichash_state state;
    crypto_generichash_init(&state, key->bytes, sizeof key->bytes, COD_SEAL_BYTES);
    crypto_generichash_update(&state, place, place_bytes);
    crypto_generichash_update(&state, data, bytes);
    crypto_generichash_final(&state, seal, COD_SEAL_BYTES);
}

bool cod_seal_check(const cod_seal_key *key, const void *place, size_t place_bytes, const void *data, size_t bytes,
                    const unsigned char *seal)
{
    unsigned char right[COD_SEAL_BYTES];
    cod_seal_make(key, place, place_bytes, data, bytes, right);
    return sodium_memcmp(right, seal, sizeof right) == 0;
}
