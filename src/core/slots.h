/**
 * @file
 * Data on its way between host and device, one way, while the device computes: a slot is copied in a queue of its own while programs,
 * in the device's default queue, use the one before.
 *
 * Only backends with queues have slots. On those that run at once nothing is allocated, and of what follows cod_slots_init() only
 * cod_slots_write() may be called: it copies there and then.
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
 * Slots that plans read where the host writes them, without a copy, by cod_slots_arrive() and cod_slots_release() alone. Only for a
 * backend with queues that maps host buffers.
 */
COD_MUST_CHECK cod_status cod_slots_init_mapped(cod_slots *slots, const cod_backend *backend, cod_device *device,
                                                size_t bytes);
/** Waits for copies that are under way, and for what reads mapped slots. */
void cod_slots_clear(cod_slots *slots);
/** Of the host and of the device, all slots together. */
size_t cod_slots_bytes(const cod_slots *slots);

/** Waits until the next slot may be written. @param[out] host  [bytes] to be written before cod_slots_send() */
COD_MUST_CHECK cod_status cod_slots_open(cod_slots *slots, void **host);
/**
 * Queues the copy of the opened slot to `views`, one after another in the slot; programs that are queued later read it there.
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
 * Lets work that is queued from now on read the opened slot, where cod_slots_view() says, up to cod_slots_release().
 *
 * @param[out] slot  its number
 */
COD_MUST_CHECK cod_status cod_slots_arrive(cod_slots *slots, size_t *slot);
/** All work that reads the slot is queued: the next one may be opened. */
COD_MUST_CHECK cod_status cod_slots_release(cod_slots *slots);
/** A dense view of slot `slot`, from byte `offset` of it on, as plans find it. */
cod_view cod_slots_view(const cod_slots *slots, size_t slot, size_t offset, cod_dtype dtype, cod_shape shape);

/** Queues the copy of a dense view to the next slot, as programs that were queued before leave it. */
COD_MUST_CHECK cod_status cod_slots_receive(cod_slots *slots, const cod_view *view);
/**
 * Waits for what the last cod_slots_receive() was given, or the one `back` calls before that.
 *
 * @param      back  less than COD_SLOTS
 * @param[out] host  [bytes] valid until COD_SLOTS - `back` more calls of cod_slots_receive()
 */
COD_MUST_CHECK cod_status cod_slots_take(cod_slots *slots, size_t back, const void **host);

#endif
