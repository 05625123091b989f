#include "core/backend.h"

#include "core/option.h"

#include <string.h>

enum { MAX_BACKENDS = 8 };
static const cod_backend *backends[MAX_BACKENDS];

static cod_status side_check(const char *side, const cod_buffer *buffer, size_t offset, size_t bytes)
{
    COD_REQUIRE(offset <= buffer->bytes && bytes <= buffer->bytes - offset,
                "copy: %zu bytes from offset %zu on reach past the %s, a buffer of %zu", bytes, offset, side,
                buffer->bytes);
    return COD_OK;
}

cod_status cod_copy_check(const cod_buffer *target, size_t target_offset, const cod_buffer *source,
                          size_t source_offset, size_t bytes)
{
    COD_TRY(side_check("target", target, target_offset, bytes));
    COD_TRY(side_check("source", source, source_offset, bytes));
    COD_REQUIRE(target != source || target_offset + bytes <= source_offset || source_offset + bytes <= target_offset,
                "copy: %zu bytes from offset %zu to offset %zu of one buffer overlap", bytes, source_offset,
                target_offset);
    return COD_OK;
}

cod_status cod_backend_register(const cod_backend *backend)
{
    if (backend->version != COD_BACKEND_VERSION)
        return cod_fail(
            COD_ERR_UNSUPPORTED,
            "backend '%s' was compiled for version %d of the backend interface; this program has version %d",
            backend->name, backend->version, COD_BACKEND_VERSION);
    for (size_t i = 0; i < MAX_BACKENDS; i++) {
        if (backends[i] == NULL || strcmp(backends[i]->name, backend->name) == 0) {
            backends[i] = backend;
            return COD_OK;
        }
    }
    return cod_fail(COD_ERR_ARGUMENT, "backend '%s' is one more than the %d that can be registered", backend->name,
                    MAX_BACKENDS);
}

const cod_backend *cod_backend_find(const char *name)
{
    for (size_t i = 0; i < MAX_BACKENDS && backends[i] != NULL; i++)
        if (strcmp(backends[i]->name, name) == 0)
            return backends[i];
    return NULL;
}

const char *cod_backend_name_at(size_t index)
{
    return index < MAX_BACKENDS && backends[index] != NULL ? backends[index]->name : NULL;
}

void cod_backend_names(char text[COD_BACKEND_NAMES])
{
    text[0] = '\0';
    for (size_t i = 0; cod_backend_name_at(i) != NULL; i++)
        cod_names_add(text, COD_BACKEND_NAMES, cod_backend_name_at(i));
}
