/**
 * @file
 * Work on many pictures that passes a device: what comes before and after it is done by other threads meanwhile.
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
 * Does all items. At most `threads` + 2 of them are under way at once, so that memory is bounded.
 *
 * @param threads  beside the calling one, at most COD_STAGED_THREADS_MAX are used; 0 = the calling thread does everything
 * @return the failure of the first item that failed; later items may not have been begun then
 */
COD_MUST_CHECK cod_status cod_staged_run(const cod_staged *work, size_t count, int threads);

#endif
