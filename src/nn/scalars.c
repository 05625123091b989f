#include "nn/scalars.h"

#include <stdlib.h>
#include <string.h>

enum { GROUP = 4 /**< scalars begin at multiples of 16 bytes */ };

struct cod_scalars {
    const cod_backend *backend;
    cod_device *device;
    cod_buffer *buffer; /**< [COD_SCALARS_MAX] on the device */
    float values[COD_SCALARS_MAX];
    size_t count;
    bool changed;
};

cod_status cod_scalars_create(const cod_backend *backend, cod_device *device, cod_scalars **out)
{
    cod_scalars *scalars = calloc(1, sizeof *scalars);
    COD_REQUIRE_MEMORY(scalars);
    scalars->backend = backend;
    scalars->device = device;
    const cod_status status = backend->buffer_create(device, sizeof scalars->values, &scalars->buffer);
    if (status != COD_OK) {
        free(scalars);
        return status;
    }
    *out = scalars;
    return COD_OK;
}

void cod_scalars_destroy(cod_scalars *scalars)
{
    if (scalars == NULL)
        return;
    scalars->backend->buffer_destroy(scalars->device, scalars->buffer);
    free(scalars);
}

cod_status cod_scalars_reserve(cod_scalars *scalars, size_t count, size_t *first)
{
    const size_t rounded = (count + GROUP - 1) / GROUP * GROUP;
    COD_REQUIRE(rounded <= COD_SCALARS_MAX - scalars->count, "more than %d scalars", COD_SCALARS_MAX);
    *first = scalars->count;
    scalars->count += rounded;
    return COD_OK;
}

cod_view cod_scalars_view(const cod_scalars *scalars, size_t first, size_t count)
{
    return cod_view_dense(scalars->buffer, first * sizeof(float), COD_F32, (cod_shape){1, 1, 1, (int64_t)count});
}

void cod_scalars_set(cod_scalars *scalars, size_t index, float value)
{
    float *const now = &scalars->values[index];
    scalars->changed = scalars->changed || memcmp(now, &value, sizeof value) != 0; /* NaN is no other than NaN */
    *now = value;
}

cod_status cod_scalars_flush(cod_scalars *scalars, cod_queue *queue)
{
    const size_t bytes = scalars->count * sizeof(float);
    if (!scalars->changed)
        return COD_OK;
    for (size_t at = 0; at < bytes; at += COD_PUT_BYTES) {
        const size_t rest = bytes - at, piece = rest < COD_PUT_BYTES ? rest : COD_PUT_BYTES;
        COD_TRY(
            scalars->backend->put(scalars->device, queue, scalars->buffer, at, (char *)scalars->values + at, piece));
    }
    scalars->changed = false;
    return COD_OK;
}
