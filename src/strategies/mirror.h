/**
 * @file
 * The host's view of a buffer of the device, for strategies that work on weights and gradients in the host's memory. If
 * the buffer is in host memory, the mirror is that memory and nothing is copied. Otherwise it is pinned memory, and
 * ranges are copied to and from the device in the default queue.
 */
#ifndef COD_STRATEGIES_MIRROR_H
#define COD_STRATEGIES_MIRROR_H

#include "core/backend.h"

/** Zeroed = none. */
typedef struct cod_mirror {
    const cod_backend *backend;
    cod_device *device;
    cod_buffer *buffer;
    cod_buffer *pinned; /**< of the buffer's size; NULL = the buffer is in host memory */
    cod_event *copied;  /**< recorded after the last copy */
    float *host; /**< memory of the whole buffer; with a device it holds only ranges that were fetched or written */
} cod_mirror;

/**
 * @param backend,device,buffer  borrowed until cod_mirror_clear(), which is to be called after a failure too
 */
COD_MUST_CHECK cod_status cod_mirror_init(cod_mirror *mirror, const cod_backend *backend, cod_device *device,
                                          cod_buffer *buffer);
/** Waits for its copies. */
void cod_mirror_clear(cod_mirror *mirror);

/** Copies `count` floats from `first` on to the host, after the work that is queued already. Waits for that work. */
COD_MUST_CHECK cod_status cod_mirror_fetch(cod_mirror *mirror, size_t first, size_t count);
/** Waits until the host may overwrite the memory that it passed to cod_mirror_return(). */
COD_MUST_CHECK cod_status cod_mirror_wait(const cod_mirror *mirror);
/** Queues the copy of `count` floats from `first` on to the device, for work that is queued later. */
COD_MUST_CHECK cod_status cod_mirror_return(cod_mirror *mirror, size_t first, size_t count);

#endif
