#include "nn/readback.h"

#include "core/queue.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct cod_readback {
    const cod_backend *backend;
    cod_device *device;
    cod_queue *queue;
    size_t slots, values;
    cod_buffer *pinned;  /**< [slots][values] of 8 bytes */
    cod_dtype *types;    /**< [slots][values] as put; U8 = not put */
    cod_event **arrived; /**< [slots] */
};

enum { NUMBER = sizeof(double) };

static cod_status make(cod_readback *readback)
{
    const size_t count = readback->slots * readback->values;
    readback->types = calloc(count, sizeof *readback->types);
    readback->arrived = calloc(readback->slots, sizeof *readback->arrived);
    COD_REQUIRE_MEMORY(readback->types);
    COD_REQUIRE_MEMORY(readback->arrived);
    for (size_t i = 0; i < count; i++)
        readback->types[i] = COD_U8;
    for (size_t i = 0; i < readback->slots; i++)
        COD_TRY(cod_event_create(readback->backend, readback->device, &readback->arrived[i]));
    return readback->backend->host_buffer_create(readback->device, count * NUMBER, &readback->pinned);
}

cod_status cod_readback_create(const cod_backend *backend, cod_device *device, cod_queue *queue, size_t slots,
                               size_t values, cod_readback **out)
{
    cod_readback *readback = calloc(1, sizeof *readback);
    COD_REQUIRE_MEMORY(readback);
    *readback = (cod_readback){.backend = backend, .device = device, .queue = queue, .slots = slots, .values = values};
    const cod_status status = make(readback);
    if (status != COD_OK) {
        cod_readback_destroy(readback);
        return status;
    }
    *out = readback;
    return COD_OK;
}

void cod_readback_destroy(cod_readback *readback)
{
    if (readback == NULL)
        return;
    for (size_t i = 0; readback->arrived != NULL && i < readback->slots; i++) {
        const cod_status ended = cod_event_wait(readback->backend, readback->arrived[i]);
        (void)ended; /* a device that failed has said so to whoever used it */
        cod_event_destroy(readback->backend, readback->arrived[i]);
    }
    if (readback->pinned != NULL)
        readback->backend->host_buffer_destroy(readback->device, readback->pinned);
    free(readback->arrived);
    free(readback->types);
    free(readback);
}

void cod_readback_open(cod_readback *readback, size_t slot)
{
    for (size_t i = 0; i < readback->values; i++)
        readback->types[slot * readback->values + i] = COD_U8;
}

cod_status cod_readback_put(cod_readback *readback, size_t slot, size_t index, const cod_view *number)
{
    const size_t at = slot * readback->values + index;
    readback->types[at] = number->dtype;
    return readback->backend->copy(readback->device, readback->queue, readback->pinned, at * NUMBER, number->buffer,
                                   number->offset, cod_dtype_bytes(number->dtype));
}

cod_status cod_readback_close(cod_readback *readback, size_t slot)
{
    return cod_event_record(readback->backend, readback->arrived[slot], readback->queue);
}

cod_status cod_readback_get(cod_readback *readback, size_t slot, size_t index, double *value)
{
    const size_t at = slot * readback->values + index;
    const char *number = (const char *)readback->pinned->host + at * NUMBER;
    float f32;
    *value = NAN;
    if (readback->types[at] == COD_U8)
        return COD_OK;
    COD_TRY(cod_event_wait(readback->backend, readback->arrived[slot]));
    if (readback->types[at] == COD_F64) {
        memcpy(value, number, sizeof *value);
        return COD_OK;
    }
    memcpy(&f32, number, sizeof f32);
    *value = (double)f32;
    return COD_OK;
}
