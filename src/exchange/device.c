#include "exchange/device_internal.h"

#include <stdlib.h>

cod_status device_buffer_of(const exchange_setup *setup, bool pinned, size_t bytes, cod_buffer **out)
{
    bytes = bytes > 0 ? bytes : COD_CODEC_PLAIN_ALIGNMENT;
    return pinned ? setup->backend->host_buffer_create(setup->device, bytes, out)
                  : setup->backend->buffer_create(setup->device, bytes, out);
}

void device_plan_destroy(const exchange_setup *setup, cod_plan *plan)
{
    if (plan != NULL)
        setup->backend->plan_destroy(plan);
}

void device_buffer_destroy(const exchange_setup *setup, bool pinned, cod_buffer *buffer)
{
    if (buffer != NULL && pinned)
        setup->backend->host_buffer_destroy(setup->device, buffer);
    else if (buffer != NULL)
        setup->backend->buffer_destroy(setup->device, buffer);
}

void device_event_destroy(const exchange_setup *setup, cod_event *event)
{
    const cod_status ended = cod_event_wait(setup->backend, event);
    (void)ended; /* a device that failed has said so to whoever used it */
    cod_event_destroy(setup->backend, event);
}

cod_status device_mirror(const exchange_setup *setup, cod_buffer *values, float **mirror)
{
    if (*mirror == NULL)
        *mirror = malloc(values->bytes);
    COD_REQUIRE_MEMORY(*mirror);
    return setup->backend->download(setup->device, NULL, *mirror, values, 0, values->bytes);
}

bool cod_exchange_codes_on(const cod_backend *backend, cod_device *device)
{
    cod_buffer *bytes = NULL;
    cod_plan *plan = NULL;
    if (cod_backend_runs_at_once(backend) || !backend->supports(device, COD_U8) ||
        backend->buffer_create(device, 4096, &bytes) != COD_OK)
        return false;
    const cod_view heads = cod_view_dense(bytes, 0, COD_U8, (cod_shape){1, 1, 1, COD_CHUNK_HEADER_BYTES}),
                   payloads = cod_view_dense(bytes, 1024, COD_U8, (cod_shape){1, 1, 1, 1024}),
                   values = cod_view_dense(bytes, 2048, COD_F32, (cod_shape){1, 1, 1, 16}),
                   prints = cod_view_dense(bytes, 3072, COD_U8, (cod_shape){1, 1, 1, sizeof(uint64_t)});
    const cod_op op = {.kind = COD_OP_DEQUANTISE,
                       .inputs = {heads, payloads},
                       .outputs = {values, prints},
                       .name = "a question whether there is one"};
    const bool codes = backend->plan_create(device, &op, &plan) == COD_OK;
    if (codes)
        backend->plan_destroy(plan);
    backend->buffer_destroy(device, bytes);
    return codes;
}
