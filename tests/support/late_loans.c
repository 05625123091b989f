/* Memory of the device that MPI reads or writes: on behalf of the host, and not in a queue. */
#include "support/late.h"
#include "support/late_internal.h"

#include <stdlib.h>

static pthread_mutex_t known_lock = PTHREAD_MUTEX_INITIALIZER;
static cod_device *known;

void late_device_known(cod_device *device)
{
    pthread_mutex_lock(&known_lock);
    device->next = known;
    known = device;
    pthread_mutex_unlock(&known_lock);
}

void late_device_unknown(const cod_device *device)
{
    pthread_mutex_lock(&known_lock);
    cod_device **at = &known;
    while (*at != NULL && *at != device)
        at = &(*at)->next;
    if (*at != NULL)
        *at = device->next;
    pthread_mutex_unlock(&known_lock);
}

static bool conflicts(size_t begin, size_t end, bool write, size_t other_begin, size_t other_end, bool other_write)
{
    return begin < other_end && other_begin < end && (write || other_write);
}

static const char *verb(bool write)
{
    return write ? "writes" : "reads";
}

/** Reports what queues may still do to the memory, and what MPI does to it already. */
static void check_loan(const cod_device *device, const late_loan *loan)
{
    const late_uses *uses = &loan->buffer->uses;
    for (size_t i = 0; i < uses->count; i++) {
        const late_use *use = &uses->list[i];
        if (conflicts(loan->begin, loan->end, loan->write, use->begin, use->end, use->write) &&
            use->time > device->host.times[use->slot])
            late_violation(
                "a missing event wait: MPI %s bytes %zu to %zu of a buffer of %zu, and %s in queue %d, which "
                "the host has not seen done, %s bytes %zu to %zu",
                verb(loan->write), loan->begin, loan->end, loan->buffer->base.bytes, use->work, use->slot,
                verb(use->write), use->begin, use->end);
    }
    for (const late_loan *other = device->loans; other != NULL; other = other->next)
        if (other->buffer == loan->buffer &&
            conflicts(loan->begin, loan->end, loan->write, other->begin, other->end, other->write))
            late_violation("two messages: MPI %s bytes %zu to %zu of a buffer of %zu while it %s bytes %zu to %zu",
                           verb(loan->write), loan->begin, loan->end, loan->buffer->base.bytes, verb(other->write),
                           other->begin, other->end);
}

void late_loans_check(const cod_device *device, const late_buffer *buffer, const late_use *use)
{
    for (const late_loan *loan = device->loans; loan != NULL; loan = loan->next)
        if (loan->buffer == buffer && conflicts(loan->begin, loan->end, loan->write, use->begin, use->end, use->write))
            late_violation(
                "a missing wait: %s in queue %d %s bytes %zu to %zu of a buffer of %zu while MPI %s bytes %zu "
                "to %zu",
                use->work, use->slot, verb(use->write), use->begin, use->end, buffer->base.bytes, verb(loan->write),
                loan->begin, loan->end);
}

/** The device's buffer that holds the address, or NULL. */
static late_buffer *holder(const cod_device *device, const char *address)
{
    late_buffer *buffer = device->buffers;
    while (buffer != NULL && (buffer->pinned || address < (const char *)buffer->inner->host ||
                              address >= (const char *)buffer->inner->host + buffer->base.bytes))
        buffer = buffer->next;
    return buffer;
}

void cod_late_lend(const void *address, size_t bytes, bool write, const void *key)
{
    pthread_mutex_lock(&known_lock);
    for (cod_device *device = known; device != NULL; device = device->next) {
        pthread_mutex_lock(&device->lock);
        late_buffer *buffer = holder(device, address);
        if (buffer != NULL && bytes > 0) {
            late_loan *loan = late_new(sizeof *loan);
            const size_t begin = (size_t)((const char *)address - (const char *)buffer->inner->host);
            *loan = (late_loan){.buffer = buffer, .begin = begin, .end = begin + bytes, .write = write, .key = key};
            check_loan(device, loan);
            if (write)
                late_updated_note(buffer, loan->begin, loan->end, false);
            loan->next = device->loans;
            device->loans = loan;
        }
        pthread_mutex_unlock(&device->lock);
    }
    pthread_mutex_unlock(&known_lock);
}

void cod_late_return(const void *key)
{
    pthread_mutex_lock(&known_lock);
    for (cod_device *device = known; device != NULL; device = device->next) {
        pthread_mutex_lock(&device->lock);
        for (late_loan **at = &device->loans; *at != NULL;) {
            late_loan *loan = *at;
            if (loan->key != key) {
                at = &loan->next;
                continue;
            }
            *at = loan->next;
            free(loan);
        }
        pthread_mutex_unlock(&device->lock);
    }
    pthread_mutex_unlock(&known_lock);
}

void late_loans_free(cod_device *device)
{
    while (device->loans != NULL) {
        late_loan *loan = device->loans;
        device->loans = loan->next;
        free(loan);
    }
}
