/**
 * @file
 * Buffers, plans and events of the setup's device, for coding publications and decoding pulls there.
 */
#ifndef COD_EXCHANGE_DEVICE_INTERNAL_H
#define COD_EXCHANGE_DEVICE_INTERNAL_H

#include "core/queue.h"
#include "exchange/chunk_table_internal.h"

/** View of a fragment's values at the beginning of the buffer. */
static inline cod_view device_vector_of(cod_buffer *buffer, const chunk_table *table)
{
    return cod_view_dense(buffer, 0, COD_F32, (cod_shape){1, 1, 1, (int64_t)table->range.count});
}

static inline cod_view device_rows_of(cod_buffer *buffer, size_t rows, size_t bytes)
{
    return cod_view_dense(buffer, 0, COD_U8, (cod_shape){1, 1, (int64_t)rows, (int64_t)bytes});
}

/** Makes a buffer of the device, or pinned memory; zero bytes give a small buffer. */
COD_MUST_CHECK cod_status device_buffer_of(const exchange_setup *setup, bool pinned, size_t bytes, cod_buffer **out);
/* NULL does nothing. */
void device_plan_destroy(const exchange_setup *setup, cod_plan *plan);
void device_buffer_destroy(const exchange_setup *setup, bool pinned, cod_buffer *buffer);
/** Waits for the event first. */
void device_event_destroy(const exchange_setup *setup, cod_event *event);
/** Copies a buffer to memory of the host, which is made where *mirror is NULL; free(). */
COD_MUST_CHECK cod_status device_mirror(const exchange_setup *setup, cod_buffer *values, float **mirror);

#endif
