#include "core/slots.h"

#include "core/log.h"

#include <assert.h>
#include <string.h>

cod_status cod_slots_init(cod_slots *slots, const cod_backend *backend, cod_device *device, size_t bytes)
{
    *slots = (cod_slots){.backend = backend, .device = device};
    if (cod_backend_runs_at_once(backend))
        return COD_OK;
    slots->bytes = bytes;
    COD_TRY(cod_queue_create(backend, device, &slots->queue));
    COD_TRY(backend->host_buffer_create(device, COD_SLOTS * bytes, &slots->pinned));
    COD_TRY(backend->buffer_create(device, COD_SLOTS * bytes, &slots->staged));
    for (int i = 0; i < COD_SLOTS; i++) {
        COD_TRY(cod_event_create(backend, device, &slots->copied[i]));
        COD_TRY(cod_event_create(backend, device, &slots->passed[i]));
    }
    return COD_OK;
}

cod_status cod_slots_init_mapped(cod_slots *slots, const cod_backend *backend, cod_device *device, size_t bytes)
{
    *slots = (cod_slots){.backend = backend, .device = device, .bytes = bytes};
    COD_REQUIRE(!cod_backend_runs_at_once(backend) && backend->maps_host_buffers,
                "backend '%s' maps no memory of the host", backend->name);
    COD_TRY(backend->host_buffer_create(device, COD_SLOTS * bytes, &slots->pinned));
    for (int i = 0; i < COD_SLOTS; i++)
        COD_TRY(cod_event_create(backend, device, &slots->copied[i]));
    return COD_OK;
}

/** Plans that read pinned memory are not waited for where it is destroyed. */
static void wait_for_readers(const cod_slots *slots)
{
    for (int i = 0; i < COD_SLOTS; i++)
        if (cod_event_wait(slots->backend, slots->copied[i]) != COD_OK)
            cod_log_warn("slots: %s", cod_error_message());
}

void cod_slots_clear(cod_slots *slots)
{
    if (slots->pinned != NULL && slots->staged == NULL)
        wait_for_readers(slots);
    cod_queue_destroy(slots->backend, slots->queue);
    if (slots->staged != NULL)
        slots->backend->buffer_destroy(slots->device, slots->staged);
    if (slots->pinned != NULL)
        slots->backend->host_buffer_destroy(slots->device, slots->pinned);
    for (int i = 0; i < COD_SLOTS; i++) {
        cod_event_destroy(slots->backend, slots->copied[i]);
        cod_event_destroy(slots->backend, slots->passed[i]);
    }
    *slots = (cod_slots){0};
}

size_t cod_slots_bytes(const cod_slots *slots)
{
    const size_t copies = slots->staged != NULL ? 2 : 1;
    return copies * COD_SLOTS * slots->bytes;
}

cod_status cod_slots_open(cod_slots *slots, void **host)
{
    const size_t slot = slots->count % COD_SLOTS;
    *host = (char *)slots->pinned->host + slot * slots->bytes;
    return cod_event_wait(slots->backend, slots->copied[slot]);
}

cod_view cod_slots_view(const cod_slots *slots, size_t slot, size_t offset, cod_dtype dtype, cod_shape shape)
{
    cod_buffer *buffer = slots->staged != NULL ? slots->staged : slots->pinned;
    return cod_view_dense(buffer, slot * slots->bytes + offset, dtype, shape);
}

cod_status cod_slots_arrive(cod_slots *slots, size_t *slot)
{
    const cod_backend *backend = slots->backend;
    *slot = slots->count % COD_SLOTS;
    if (slots->staged == NULL)
        return COD_OK;
    const size_t offset = *slot * slots->bytes;
    COD_TRY(cod_queue_wait(backend, slots->queue, slots->passed[*slot]));
    COD_TRY(backend->copy(slots->device, slots->queue, slots->staged, offset, slots->pinned, offset, slots->bytes));
    COD_TRY(cod_event_record(backend, slots->copied[*slot], slots->queue));
    return cod_queue_wait(backend, NULL, slots->copied[*slot]);
}

cod_status cod_slots_release(cod_slots *slots)
{
    const size_t slot = slots->count++ % COD_SLOTS;
    return cod_event_record(slots->backend, slots->staged != NULL ? slots->passed[slot] : slots->copied[slot], NULL);
}

cod_status cod_slots_send(cod_slots *slots, const cod_view *views, size_t count)
{
    size_t slot;
    COD_TRY(cod_slots_arrive(slots, &slot));
    size_t offset = slot * slots->bytes;
    for (size_t i = 0; i < count; i++) {
        const size_t bytes = cod_view_span_bytes(&views[i]);
        COD_TRY(
            slots->backend->copy(slots->device, NULL, views[i].buffer, views[i].offset, slots->staged, offset, bytes));
        offset += bytes;
    }
    return cod_slots_release(slots);
}

/** On a backend that runs at once. */
static cod_status write_at_once(const cod_slots *slots, const cod_view *views, const void *const *sources, size_t count)
{
    for (size_t i = 0; i < count; i++)
        COD_TRY(slots->backend->upload(slots->device, NULL, views[i].buffer, views[i].offset, sources[i],
                                       cod_view_span_bytes(&views[i])));
    return COD_OK;
}

cod_status cod_slots_write(cod_slots *slots, const cod_view *views, const void *const *sources, size_t count)
{
    void *host;
    if (slots->bytes == 0)
        return write_at_once(slots, views, sources, count);
    COD_TRY(cod_slots_open(slots, &host));
    for (size_t i = 0, at = 0; i < count; i++) {
        const size_t bytes = cod_view_span_bytes(&views[i]);
        memcpy((char *)host + at, sources[i], bytes);
        at += bytes;
    }
    return cod_slots_send(slots, views, count);
}

cod_status cod_slots_receive(cod_slots *slots, const cod_view *view)
{
    const cod_backend *backend = slots->backend;
    const size_t slot = slots->count++ % COD_SLOTS, offset = slot * slots->bytes;
    COD_TRY(cod_queue_wait(backend, NULL, slots->copied[slot]));
    COD_TRY(backend->copy(slots->device, NULL, slots->staged, offset, view->buffer, view->offset, slots->bytes));
    COD_TRY(cod_event_record(backend, slots->passed[slot], NULL));
    COD_TRY(cod_queue_wait(backend, slots->queue, slots->passed[slot]));
    COD_TRY(backend->copy(slots->device, slots->queue, slots->pinned, offset, slots->staged, offset, slots->bytes));
    return cod_event_record(backend, slots->copied[slot], slots->queue);
}

cod_status cod_slots_take(cod_slots *slots, size_t back, const void **host)
{
    assert(back < COD_SLOTS && back < slots->count);
    const size_t slot = (slots->count - 1 - back) % COD_SLOTS;
    *host = (const char *)slots->pinned->host + slot * slots->bytes;
    return cod_event_wait(slots->backend, slots->copied[slot]);
}
