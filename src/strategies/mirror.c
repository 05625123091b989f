#include "strategies/mirror.h"

#include "core/queue.h"

cod_status cod_mirror_init(cod_mirror *mirror, const cod_backend *backend, cod_device *device, cod_buffer *buffer)
{
    *mirror = (cod_mirror){.backend = backend, .device = device, .buffer = buffer, .host = buffer->host};
    if (buffer->host != NULL)
        return COD_OK;
    COD_TRY(backend->host_buffer_create(device, buffer->bytes, &mirror->pinned));
    mirror->host = mirror->pinned->host;
    return cod_event_create(backend, device, &mirror->copied);
}

void cod_mirror_clear(cod_mirror *mirror)
{
    if (mirror->pinned != NULL) {
        const cod_status ended = cod_mirror_wait(mirror);
        (void)ended; /* a failed device has reported its failure to its user */
        cod_event_destroy(mirror->backend, mirror->copied);
        mirror->backend->host_buffer_destroy(mirror->device, mirror->pinned);
    }
    *mirror = (cod_mirror){0};
}

static cod_status copy(cod_mirror *mirror, cod_buffer *target, cod_buffer *source, size_t first, size_t count)
{
    const size_t offset = first * sizeof(float);
    if (mirror->pinned == NULL || count == 0)
        return COD_OK;
    COD_TRY(mirror->backend->copy(mirror->device, NULL, target, offset, source, offset, count * sizeof(float)));
    return cod_event_record(mirror->backend, mirror->copied, NULL);
}

cod_status cod_mirror_fetch(cod_mirror *mirror, size_t first, size_t count)
{
    COD_TRY(copy(mirror, mirror->pinned, mirror->buffer, first, count));
    return cod_mirror_wait(mirror);
}

cod_status cod_mirror_wait(const cod_mirror *mirror)
{
    return mirror->pinned != NULL ? cod_event_wait(mirror->backend, mirror->copied) : COD_OK;
}

cod_status cod_mirror_return(cod_mirror *mirror, size_t first, size_t count)
{
    return copy(mirror, mirror->buffer, mirror->pinned, first, count);
}
