#include "support/late_internal.h"

#include "core/hash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POISON = 0xFF };

static unsigned char *address(const late_buffer *buffer, size_t offset)
{
    return (unsigned char *)buffer->base.host + offset;
}

static bool overlaps(const late_buffer *a, size_t a_offset, size_t a_bytes, const late_buffer *b, size_t b_offset,
                     size_t b_bytes)
{
    return a == b && a_offset < b_offset + b_bytes && b_offset < a_offset + a_bytes;
}

static void hold_check(late_hold *hold)
{
    if (hold->reported || cod_hash(address(hold->buffer, hold->offset), hold->bytes, 0) == hold->hash)
        return;
    hold->reported = true;
    late_violation("a pinned slot was used again before it was read: bytes %zu to %zu of a pinned buffer of %zu, which "
                   "%s in queue %d reads",
                   hold->offset, hold->offset + hold->bytes, hold->buffer->base.bytes, hold->work, hold->slot);
}

static void delivery_check(late_delivery *delivery)
{
    const unsigned char *bytes = address(delivery->buffer, delivery->offset);
    size_t i = 0;
    while (i < delivery->bytes && bytes[i] == POISON)
        i++;
    if (delivery->reported || i == delivery->bytes)
        return;
    delivery->reported = true;
    late_violation("the host wrote byte %zu of a pinned buffer of %zu, which a copy in queue %d had not yet written",
                   delivery->offset + i, delivery->buffer->base.bytes, delivery->slot);
}

/** Looks at what the host did to the range so far, before the wrapper itself writes there. */
static void range_check(cod_device *device, const late_buffer *buffer, size_t offset, size_t bytes)
{
    for (late_hold *hold = device->holds; hold != NULL; hold = hold->next)
        if (overlaps(hold->buffer, hold->offset, hold->bytes, buffer, offset, bytes))
            hold_check(hold);
    for (late_delivery *d = device->deliveries; d != NULL; d = d->next)
        if (overlaps(d->buffer, d->offset, d->bytes, buffer, offset, bytes))
            delivery_check(d);
}

/** The wrapper wrote there. */
static void range_rehash(cod_device *device, const late_buffer *buffer, size_t offset, size_t bytes)
{
    for (late_hold *hold = device->holds; hold != NULL; hold = hold->next)
        if (overlaps(hold->buffer, hold->offset, hold->bytes, buffer, offset, bytes))
            hold->hash = cod_hash(address(hold->buffer, hold->offset), hold->bytes, 0);
}

void late_pinned_hold(cod_queue *queue, late_buffer *buffer, size_t offset, size_t bytes, const char *work)
{
    cod_device *device = queue->device;
    late_hold *hold = late_new(sizeof *hold);
    *hold = (late_hold){.buffer = buffer,
                        .offset = offset,
                        .bytes = bytes,
                        .slot = queue->slot,
                        .time = queue->clock.times[queue->slot],
                        .hash = cod_hash(address(buffer, offset), bytes, 0),
                        .next = device->holds};
    snprintf(hold->work, sizeof hold->work, "%s", work);
    device->holds = hold;
}

void late_pinned_read(cod_queue *queue, late_work *work)
{
    cod_device *device = queue->device;
    const late_range *range = &work->range;
    late_buffer *buffer = range->source;
    const size_t offset = range->source_offset, bytes = range->bytes;
    range_check(device, buffer, offset, bytes);
    work->staged = late_new(bytes);
    memcpy(work->staged, address(buffer, offset), bytes);
    for (int counting = 1; counting >= 0; counting--) {
        size_t count = 0;
        for (late_delivery *d = device->deliveries; d != NULL; d = d->next) {
            if (!overlaps(d->buffer, d->offset, d->bytes, buffer, offset, bytes))
                continue;
            if (!counting) {
                work->overlays[count] = d;
                d->references++;
            }
            count++;
        }
        if (counting)
            work->overlays = late_new(count * sizeof(late_delivery *));
        work->overlay_count = count;
    }
}

void late_pinned_written(cod_queue *queue, late_work *work)
{
    cod_device *device = queue->device;
    const late_range *range = &work->range;
    range_check(device, range->target, range->target_offset, range->bytes);
    memset(address(range->target, range->target_offset), POISON, range->bytes);
    range_rehash(device, range->target, range->target_offset, range->bytes);
    late_delivery *delivery = late_new(sizeof *delivery), **last = &device->deliveries;
    *delivery = (late_delivery){.buffer = range->target,
                                .offset = range->target_offset,
                                .bytes = range->bytes,
                                .slot = queue->slot,
                                .time = queue->clock.times[queue->slot],
                                .references = 2, /* the list's and the work's */
                                .data = late_new(range->bytes)};
    while (*last != NULL)
        last = &(*last)->next;
    *last = delivery;
    work->delivery = delivery;
}

void late_delivery_drop(late_delivery *delivery)
{
    if (delivery == NULL || --delivery->references > 0)
        return;
    free(delivery->data);
    free(delivery);
}

/** Writes the host's memory, and poisons again what later copies will write. */
static void deliver(cod_device *device, late_delivery *delivery)
{
    late_buffer *buffer = delivery->buffer;
    range_check(device, buffer, delivery->offset, delivery->bytes);
    if (delivery->filled)
        memcpy(address(buffer, delivery->offset), delivery->data, delivery->bytes);
    for (const late_delivery *later = delivery->next; later != NULL; later = later->next)
        if (overlaps(later->buffer, later->offset, later->bytes, buffer, delivery->offset, delivery->bytes))
            memset(address(buffer, later->offset), POISON, later->bytes);
    range_rehash(device, buffer, delivery->offset, delivery->bytes);
}

void late_pinned_release(cod_device *device)
{
    for (late_hold **link = &device->holds; *link != NULL;) {
        late_hold *hold = *link;
        if (hold->time > device->host.times[hold->slot]) {
            link = &hold->next;
            continue;
        }
        hold_check(hold);
        *link = hold->next;
        free(hold);
    }
    for (late_delivery **link = &device->deliveries; *link != NULL;) {
        late_delivery *delivery = *link;
        if (delivery->time > device->host.times[delivery->slot]) {
            link = &delivery->next;
            continue;
        }
        deliver(device, delivery);
        *link = delivery->next;
        late_delivery_drop(delivery);
    }
}

void late_pinned_forget(cod_device *device, const late_buffer *buffer)
{
    for (late_hold **link = &device->holds; *link != NULL;) {
        late_hold *hold = *link;
        if (hold->buffer != buffer) {
            link = &hold->next;
            continue;
        }
        hold_check(hold);
        *link = hold->next;
        free(hold);
    }
    for (late_delivery **link = &device->deliveries; *link != NULL;) {
        late_delivery *delivery = *link;
        if (delivery->buffer != buffer) {
            link = &delivery->next;
            continue;
        }
        *link = delivery->next;
        late_delivery_drop(delivery);
    }
}
