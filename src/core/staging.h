/**
 * @file
 * Pinned host memory through which ranges of a device's buffers travel: to the host, which changes them, and back.
 *
 * Copies run in two queues of their own, one each way, so that they overlap with computing and with each other. Pinned
 * memory and events are kept: a range allocates only if more ranges of its size are in progress than ever before. All
 * functions use the device, so only one thread at a time may call them; cod_staged_test() and cod_staged_wait() may be
 * called from any thread.
 */
#ifndef COD_CORE_STAGING_H
#define COD_CORE_STAGING_H

#include "core/backend.h"

typedef struct cod_staging cod_staging; /**< of one device */
typedef struct cod_staged cod_staged;   /**< a range under way */

/**
 * @param backend,device  borrowed; they outlive the staging
 * @param[out] out        new; cod_staging_destroy()
 */
COD_MUST_CHECK cod_status cod_staging_create(const cod_backend *backend, cod_device *device, cod_staging **out);
/** Waits for its copies. Ranges that are still under way are lost. NULL does nothing. */
void cod_staging_destroy(cod_staging *staging);

/**
 * Starts copying a range to pinned memory; returns before it is there.
 *
 * @param buffer    of the device; borrowed until the range is back, and the range is not to be touched until then
 * @param ready     the copy waits for this event; NULL = no queued work still writes the range
 * @param[out] out  new; end it with cod_staged_return() or cod_staged_drop()
 */
COD_MUST_CHECK cod_status cod_staging_start(cod_staging *staging, cod_buffer *buffer, size_t offset, size_t bytes,
                                            cod_event *ready, cod_staged **out);
/** Whether the host may use the range; never blocks; from any thread. NULL is there. */
COD_MUST_CHECK cod_status cod_staged_test(const cod_staged *staged, bool *there);
/** Blocks the host until it may use the range; from any thread. NULL is there. */
COD_MUST_CHECK cod_status cod_staged_wait(const cod_staged *staged);
/**
 * [bytes] of the range, in pinned memory; not to be touched before cod_staged_test() or cod_staged_wait() says that
 * they are there.
 */
void *cod_staged_host(const cod_staged *staged);
/**
 * Queues the copy of the host's values back to the range; returns before it is done.
 *
 * @param staged  taken; the host touches its memory no more
 * @param queue   its later work waits for the copy; NULL = the device's default queue
 */
COD_MUST_CHECK cod_status cod_staged_return(cod_staged *staged, cod_queue *queue);
/** Ends it without copying anything back. NULL does nothing. */
void cod_staged_drop(cod_staged *staged);

#endif
