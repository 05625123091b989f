/**
 * @file
 * Work on many pictures in three stages: while a device computes on one picture, other threads prepare and finish
 * others.
 */
#ifndef COD_DATA_STAGED_H
#define COD_DATA_STAGED_H

#include "core/status.h"

/** What is done with each item, in this order; `context` is the caller's. A failure ends the work. */
typedef struct cod_staged {
    void *context;
    cod_status (*prepare)(void *context, size_t item); /**< on any thread, several items at once: reading, decoding */
    cod_status (*compute)(void *context, size_t item); /**< on the calling thread, in the items' order: the device */
    cod_status (*finish)(void *context, size_t item);  /**< on any thread: measuring, writing */
    void (*done)(void *context, size_t item);          /**< on the calling thread, in the items' order; may be NULL */
} cod_staged;

enum { COD_STAGED_THREADS_MAX = 16 };

/**
 * Processes all items. At most `threads` + 2 of them are in progress at once, so that memory is bounded.
 *
 * @param threads  threads in addition to the calling one, of which at most COD_STAGED_THREADS_MAX are used; 0 = the
 *                 calling thread does everything
 * @return the failure of the first item that failed; later items may not have been started
 */
COD_MUST_CHECK cod_status cod_staged_run(const cod_staged *work, size_t count, int threads);

#endif
