#include "nn/scalars.h"

#include "core/queue.h"

#include <stdlib.h>
#include <string.h>

enum { SLOTS = 4 /**< copies under way */, GROUP = 4 /**< scalars begin at multiples of 16 bytes */ };

struct cod_scalars {
    const cod_backend *backend;
    cod_device *device;
    cod_buffer *buffer;       /**< [COD_SCALARS_MAX] on the device */
    cod_buffer *pinned;       /**< [SLOTS][COD_SCALARS_MAX] */
    cod_event *copied[SLOTS]; /**< the slot may be written again */
    uint64_t copies;
    float values[COD_SCALARS_MAX];
    size_t count;
    bool changed;
};

static cod_status make(cod_scalars *scalars)
{
    const size_t bytes = sizeof scalars->values;
    COD_TRY(scalars->backend->buffer_create(scalars->device, bytes, &scalars->buffer));
    COD_TRY(scalars->backend->host_buffer_create(scalars->device, SLOTS * bytes, &scalars->pinned));
    for (int i = 0; i < SLOTS; i++)
        COD_TRY(cod_event_create(scalars->backend, scalars->device, &scalars->copied[i]));
    return COD_OK;
}

cod_status cod_scalars_create(const cod_backend *backend, cod_device *device, cod_scalars **out)
{
    cod_scalars *scalars = calloc(1, sizeof *scalars);
    COD_REQUIRE_MEMORY(scalars);
    scalars->backend = backend;
    scalars->device = device;
    const cod_status status = make(scalars);
    if (status != COD_OK) {
        cod_scalars_destroy(scalars);
        return status;
    }
    *out = scalars;
    return COD_OK;
}

void cod_scalars_destroy(cod_scalars *scalars)
{
    if (scalars == NULL)
        return;
    for (int i = 0; i < SLOTS; i++)
        cod_event_destroy(scalars->backend, scalars->copied[i]);
    if (scalars->buffer != NULL) /* waits for the copies, which read the pinned memory */
        scalars->backend->buffer_destroy(scalars->device, scalars->buffer);
    if (scalars->pinned != NULL)
        scalars->backend->host_buffer_destroy(scalars->device, scalars->pinned);
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
    const size_t slot = scalars->copies % SLOTS, offset = slot * sizeof scalars->values;
    const size_t bytes = scalars->count * sizeof(float);
    if (!scalars->changed)
        return COD_OK;
    COD_TRY(cod_event_wait(scalars->backend, scalars->copied[slot]));
    memcpy((char *)scalars->pinned->host + offset, scalars->values, bytes);
    COD_TRY(scalars->backend->copy(scalars->device, queue, scalars->buffer, 0, scalars->pinned, offset, bytes));
    scalars->copies++;
    scalars->changed = false;
    return cod_event_record(scalars->backend, scalars->copied[slot], queue);
}
