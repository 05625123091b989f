#include "core/host_memory.h"

#include "core/memory.h"

#include <stdlib.h>
#include <string.h>

cod_status cod_host_buffer_create(cod_device *device, size_t bytes, cod_buffer **out)
{
    (void)device;
    cod_buffer *buffer = calloc(1, sizeof *buffer);
    COD_REQUIRE_MEMORY(buffer);
    const cod_status status = cod_aligned_alloc(&buffer->host, bytes);
    if (status != COD_OK) {
        free(buffer);
        return status;
    }
    buffer->bytes = bytes;
    *out = buffer;
    return COD_OK;
}

void cod_host_buffer_destroy(cod_device *device, cod_buffer *buffer)
{
    (void)device;
    if (buffer == NULL)
        return;
    cod_aligned_free(buffer->host);
    free(buffer);
}

static cod_status range_check(const cod_buffer *buffer, size_t offset, size_t bytes)
{
    COD_REQUIRE(offset <= buffer->bytes && bytes <= buffer->bytes - offset,
                "%zu bytes from offset %zu on reach past a buffer of %zu", bytes, offset, buffer->bytes);
    return COD_OK;
}

cod_status cod_host_upload(cod_device *device, cod_queue *queue, cod_buffer *target, size_t offset, const void *source,
                           size_t bytes)
{
    (void)device, (void)queue;
    COD_TRY(range_check(target, offset, bytes));
    if (bytes > 0)
        memcpy((char *)target->host + offset, source, bytes);
    return COD_OK;
}

cod_status cod_host_download(cod_device *device, cod_queue *queue, void *target, cod_buffer *source, size_t offset,
                             size_t bytes)
{
    (void)device, (void)queue;
    COD_TRY(range_check(source, offset, bytes));
    if (bytes > 0)
        memcpy(target, (const char *)source->host + offset, bytes);
    return COD_OK;
}

cod_status cod_host_copy(cod_device *device, cod_queue *queue, cod_buffer *target, size_t target_offset,
                         cod_buffer *source, size_t source_offset, size_t bytes)
{
    (void)device, (void)queue;
    COD_TRY(cod_copy_check(target, target_offset, source, source_offset, bytes));
    if (bytes > 0)
        memcpy((char *)target->host + target_offset, (const char *)source->host + source_offset, bytes);
    return COD_OK;
}
