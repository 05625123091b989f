/**
 * @file
 * Small numbers that the host gives to programs and optimisers on a device: rates, loss weights, decays.
 *
 * The host sets them at any time; readers flush them first. They travel together, by put() of the backend, and only if
 * one has changed: once a step, if all of a step's scalars are set at its beginning.
 */
#ifndef COD_NN_SCALARS_H
#define COD_NN_SCALARS_H

#include "core/backend.h"

enum { COD_SCALARS_MAX = 1024 };

typedef struct cod_scalars cod_scalars;

/** @param[out] out  new, zeroed, with room for COD_SCALARS_MAX; backend and device are borrowed */
COD_MUST_CHECK cod_status cod_scalars_create(const cod_backend *backend, cod_device *device, cod_scalars **out);
/** NULL is fine. */
void cod_scalars_destroy(cod_scalars *scalars);

/** Reserves `count` scalars side by side. @param[out] first  the index of the first */
COD_MUST_CHECK cod_status cod_scalars_reserve(cod_scalars *scalars, size_t count, size_t *first);
/** View of `count` scalars from `first` on, on the device: f32 {1,1,1,count}. */
cod_view cod_scalars_view(const cod_scalars *scalars, size_t first, size_t count);

void cod_scalars_set(cod_scalars *scalars, size_t index, float value);
/**
 * Queues their transfer to the device if one has changed; later work of this queue reads the new values. Always use the
 * same queue.
 */
COD_MUST_CHECK cod_status cod_scalars_flush(cod_scalars *scalars, cod_queue *queue);

#endif
