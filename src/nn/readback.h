/**
 * @file
 * Reads small numbers, such as losses, back from a device some steps after they were queued, without waiting for the
 * device in between.
 *
 * A ring of slots in pinned memory, one for each step in progress. A step puts its numbers into its slot and closes it;
 * reading from a slot waits until its numbers have arrived.
 */
#ifndef COD_NN_READBACK_H
#define COD_NN_READBACK_H

#include "core/backend.h"

typedef struct cod_readback cod_readback;

/**
 * @param queue   queue in which all numbers are copied; NULL = the default one
 * @param slots   steps whose numbers may be unread at once
 * @param values  numbers of each
 * @param[out] out  new; backend, device and queue are borrowed
 */
COD_MUST_CHECK cod_status cod_readback_create(const cod_backend *backend, cod_device *device, cod_queue *queue,
                                              size_t slots, size_t values, cod_readback **out);
/** NULL is fine. */
void cod_readback_destroy(cod_readback *readback);

/** Begins a slot: its numbers are NaN until they are put. The numbers that it had are lost, read or not. */
void cod_readback_open(cod_readback *readback, size_t slot);
/** Queues the copy of a number, f32 or f64, as the device has it when that work is done. */
COD_MUST_CHECK cod_status cod_readback_put(cod_readback *readback, size_t slot, size_t index, const cod_view *number);
/** Closes a slot after all its numbers were put. */
COD_MUST_CHECK cod_status cod_readback_close(cod_readback *readback, size_t slot);
/** Reads a number of a closed slot; waits for the device if it has not arrived. @param[out] value NaN = not put */
COD_MUST_CHECK cod_status cod_readback_get(cod_readback *readback, size_t slot, size_t index, double *value);

#endif
