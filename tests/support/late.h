/**
 * @file
 * A backend around another that runs late: it behaves as an asynchronous device would, and reports what a device would
 * not forgive.
 *
 * Memory. Buffers of the device have no `host`. Pinned memory that a copy writes is poisoned (bytes of 0xFF: NaN as f32
 * and as f64) when copy() is called, and gets its contents only when the host has seen an event behind the copy, by
 * event_wait(), event_query(), download() or queue_destroy(); so whoever reads too early reads NaN, always. Pinned
 * memory that a copy or a plan reads is hashed when it is queued and again when the host has seen the event; a
 * difference is a slot that was used again too early. Pageable memory is refused by copy(), pinned memory by plans that
 * would write it.
 *
 * Order. Each queue, the default queue too, runs on a thread of its own with random delays; the inner backend is used
 * by one thread at a time. Whether work is ordered is not left to these delays: queues, events and the host carry
 * vector clocks (Mattern 1989). Two uses of one range of bytes, one of them a write, that neither a queue nor an event
 * orders are a violation, whichever came first. A view counts from its first to its last element, so slices of channels
 * of one tensor overlap. The host counts as one: what one of its threads has seen, all have. Gradients of weights whose
 * dy lie in one buffer, and convolutions that shuffle into it, also write scratch memory that they share.
 *
 * Messages. buffer_address() gives an address in the host's memory. Who hands it to MPI says so by cod_late_lend():
 * that MPI reads or writes counts as the host's doing. Work of queues that conflicts, and that the host has not seen
 * done, is a violation, as is such work that is queued before cod_late_return().
 *
 * Updates. A plan that plans_prepare_updated() gets although something other than an OPTIMISER plan wrote its
 * parameters last is a violation.
 *
 * Recordings. Destroying a buffer or a plan under a recording is a violation, as are an allocation by
 * cod_aligned_alloc() while a plan runs, calls of this backend from within queued work, and a plan's own memory that
 * moved after the plan was recorded (where cod_late_watch() lets it be seen). What the contract forbids within a
 * capture is refused.
 *
 * Devices. Ranks that are threads of one process have a device each; a queue of one device with a plan, a buffer or an
 * event of another is a violation. Violations and crossings are counted for the process.
 *
 * Results are those of the inner backend, bit for bit.
 *
 * Environment: COD_LATE_SEED (of the delays; default 1), COD_LATE_DELAY_US (see cod_late_set_delay()), COD_LATE_ABORT=1
 * (the first violation is printed and ends the process: for ranks that nobody asks), COD_LATE_MEMORY_MB (what the
 * device has; default 16 GiB).
 */
#ifndef COD_TESTS_SUPPORT_LATE_H
#define COD_TESTS_SUPPORT_LATE_H

#include "core/backend.h"

/**
 * The wrapper, named "late"; one inner backend at a time, borrowed. Reads the environment. Not while a device is open.
 */
const cod_backend *cod_late_wrap(const cod_backend *inner);

/**
 * The wrapper around a backend that the environment wants late, else the backend itself: COD_TEST_LATE=cpu stands for
 * `cpu`, any other value for `ref`. Keeps the backend's name, under which tests find it.
 */
const cod_backend *cod_late_chosen(const cod_backend *backend);

/**
 * How many violations there were since the last call, with the message of the first in `first` (empty when none).
 * Violations do not make a call fail. Those of queued work are all counted once the host has waited for it.
 */
size_t cod_late_violations(char *first, size_t bytes);

/** How often the host met a device so far: uploads, downloads, and waits and destructions that found work undone. */
size_t cod_late_crossings(void);

/** Bytes that copy() was asked so far to bring from pinned memory to a device's own, or back. */
size_t cod_late_copied_bytes(void);

/** Half of the work starts at once, most of the rest up to so many microseconds late, some 8 times that; 0 = none. */
void cod_late_set_delay(unsigned longest_us);

/** While held, the queues start nothing more; a call that has to wait for them ends it. */
void cod_late_hold(cod_device *device, bool held);

/**
 * From now on until cod_late_return() MPI reads or writes memory of an open device; other memory is none of late's
 * business.
 *
 * @param key  what names the message, such as the address of its request
 */
void cod_late_lend(const void *address, size_t bytes, bool write, const void *key);
/** Ends all loans of this key, if there are any. */
void cod_late_return(const void *key);

/**
 * For inner backends whose plans keep memory of their own: `place` gives a number that changes when this memory moves.
 * It is called with inner plans, while nothing else uses the inner backend. NULL = none. Not while a recording lives.
 */
void cod_late_watch(uint64_t (*place)(cod_plan *inner));

#endif
