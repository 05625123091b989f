/**
 * @file
 * Transfers between host and device, in one direction, while the device computes: a slot is copied in a separate queue
 * while programs in the device's default queue use the slot before it.
 *
 * Only backends with queues have slots. For backends that run at once nothing is allocated, and after cod_slots_init()
 * only cod_slots_write() may be called; it copies at once.
 */
#ifndef COD_CORE_SLOTS_H
#define COD_CORE_SLOTS_H

#include "core/queue.h"

enum { COD_SLOTS = 2 };

/** Zeroed = none. */
typedef struct cod_slots {
    const cod_backend *backend;
    cod_device *device;
    size_t bytes;                 /**< of a slot; 0 = the backend runs at once */
    size_t count;                 /**< slots begun so far */
    cod_queue *queue;             /**< between host and device; NULL = mapped slots */
    cod_buffer *pinned, *staged;  /**< [COD_SLOTS] on the host and on the device; staged NULL = mapped slots */
    cod_event *copied[COD_SLOTS]; /**< between host and device; of mapped slots: the device has read it */
    cod_event *passed[COD_SLOTS]; /**< between the device's slot and what programs use */
} cod_slots;

/** `backend` and `device` are borrowed. cod_slots_clear() also after a failure. */
COD_MUST_CHECK cod_status cod_slots_init(cod_slots *slots, const cod_backend *backend, cod_device *device,
                                         size_t bytes);
/**
 * Mapped slots: plans read them where the host writes them, without a copy. Only cod_slots_arrive() and
 * cod_slots_release() may be used with them. For backends with queues that map host buffers.
 */
COD_MUST_CHECK cod_status cod_slots_init_mapped(cod_slots *slots, const cod_backend *backend, cod_device *device,
                                                size_t bytes);
/** Waits for copies in progress, and for plans that read mapped slots. */
void cod_slots_clear(cod_slots *slots);
/** Bytes of all slots together, on the host and on the device. */
size_t cod_slots_bytes(const cod_slots *slots);

/** Waits until the next slot may be written. @param[out] host  [bytes] to be written before cod_slots_send() */
COD_MUST_CHECK cod_status cod_slots_open(cod_slots *slots, void **host);
/**
 * Queues the copy of the opened slot to `views`, one after another in the slot; programs that are queued later read it
 * there.
 *
 * @param views  dense; together as large as a slot
 */
COD_MUST_CHECK cod_status cod_slots_send(cod_slots *slots, const cod_view *views, size_t count);
/**
 * Brings what the host has to `views`, for programs that are queued later: through the next slot, or at once.
 *
 * @param views    dense; together as large as a slot
 * @param sources  [count] the host's, of the views' sizes; borrowed for the call
 */
COD_MUST_CHECK cod_status cod_slots_write(cod_slots *slots, const cod_view *views, const void *const *sources,
                                          size_t count);

/**
 * Lets work that is queued from now on read the opened slot, at cod_slots_view(), until cod_slots_release().
 *
 * @param[out] slot  its number
 */
COD_MUST_CHECK cod_status cod_slots_arrive(cod_slots *slots, size_t *slot);
/** Call this when all work that reads the slot is queued: the next slot may then be opened. */
COD_MUST_CHECK cod_status cod_slots_release(cod_slots *slots);
/** A dense view of slot `slot`, from byte `offset` of it on, as plans find it. */
cod_view cod_slots_view(const cod_slots *slots, size_t slot, size_t offset, cod_dtype dtype, cod_shape shape);

/** Queues the copy of a dense view to the next slot, after the programs that are queued already. */
COD_MUST_CHECK cod_status cod_slots_receive(cod_slots *slots, const cod_view *view);
/**
 * Waits for the data of the last cod_slots_receive(), or of the call `back` calls before it.
 *
 * @param      back  less than COD_SLOTS
 * @param[out] host  [bytes] valid until COD_SLOTS - `back` more calls of cod_slots_receive()
 */
COD_MUST_CHECK cod_status cod_slots_take(cod_slots *slots, size_t back, const void **host);

#endif
