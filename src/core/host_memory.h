/**
 * @file
 * Buffers and copies of backends that compute in the host's memory and run at once.
 */
#ifndef COD_CORE_HOST_MEMORY_H
#define COD_CORE_HOST_MEMORY_H

#include "core/backend.h"

/** These functions as members of a cod_backend. */
#define COD_HOST_MEMORY                                                                                                \
    .buffer_create = cod_host_buffer_create, .buffer_destroy = cod_host_buffer_destroy,                                \
    .host_buffer_create = cod_host_buffer_create, .host_buffer_destroy = cod_host_buffer_destroy,                      \
    .maps_host_buffers = true, .upload = cod_host_upload, .put = cod_host_upload, .download = cod_host_download,       \
    .copy = cod_host_copy

COD_MUST_CHECK cod_status cod_host_buffer_create(cod_device *device, size_t bytes, cod_buffer **out);
void cod_host_buffer_destroy(cod_device *device, cod_buffer *buffer);
COD_MUST_CHECK cod_status cod_host_upload(cod_device *device, cod_queue *queue, cod_buffer *target, size_t offset,
                                          const void *source, size_t bytes);
COD_MUST_CHECK cod_status cod_host_download(cod_device *device, cod_queue *queue, void *target, cod_buffer *source,
                                            size_t offset, size_t bytes);
COD_MUST_CHECK cod_status cod_host_copy(cod_device *device, cod_queue *queue, cod_buffer *target, size_t target_offset,
                                        cod_buffer *source, size_t source_offset, size_t bytes);

#endif
