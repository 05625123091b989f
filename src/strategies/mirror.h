/**
 * @file
 * A buffer of the device as the host has it, for strategies that work on weights and gradients in the host's memory: the memory itself
 * where it is the host's, so that nothing is copied; else pinned memory, between which and the device ranges are copied in the default queue.
 */
#ifndef COD_STRATEGIES_MIRROR_H
#define COD_STRATEGIES_MIRROR_H

#include "core/backend.h"

/** Zeroed = none. */
typedef struct cod_mirror {
    const cod_backend *backend;
    cod_device *device;
    cod_buffer *buffer;
    cod_buffer *pinned; /**< as large; NULL = the buffer is the host's memory */
    cod_event *copied;  /**< behind the last copy */
    float *host;        /**< of the whole buffer; on a device it holds what was fetched or written there */
} cod_mirror;

/**
 * @param backend,device,buffer  borrowed until cod_mirror_clear(), which is to be called after a failure too
 */
COD_MUST_CHECK cod_status cod_mirror_init(cod_mirror *mirror, const cod_backend *backend, cod_device *device,
                                          cod_buffer *buffer);
/** Waits for its copies. */
void cod_mirror_clear(cod_mirror *mirror);

/** Brings `count` floats from `first` on to the host, as work that was queued before leaves them. Waits for that work. */
COD_MUST_CHECK cod_status cod_mirror_fetch(cod_mirror *mirror, size_t first, size_t count);
/** Waits until the host may write what it has given to cod_mirror_return(). */
COD_MUST_CHECK cod_status cod_mirror_wait(const cod_mirror *mirror);
/** Queues the copy of `count` floats from `first` on to the device, for work that is queued later. */
COD_MUST_CHECK cod_status cod_mirror_return(cod_mirror *mirror, size_t first, size_t count);

#endif
