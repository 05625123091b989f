#include "core/backend.h"

#include <string.h>

enum { MAX_BACKENDS = 8 };
static const cod_backend *backends[MAX_BACKENDS];

void cod_backend_register(const cod_backend *backend)
{
    for (size_t i = 0; i < MAX_BACKENDS; i++) {
        if (backends[i] == NULL || strcmp(backends[i]->name, backend->name) == 0) {
            backends[i] = backend;
            return;
        }
    }
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
