#include "infer/infer_internal.h"

static double megabytes(size_t bytes)
{
    return 1e-6 * (double)bytes;
}

cod_status infer_explain_memory(const cod_weights *weights, const cod_compile_memory *memory, cod_status status,
                                const char *less)
{
    size_t free_bytes, total_bytes;
    if (status != COD_ERR_MEMORY || weights->backend->memory == NULL)
        return status;
    return weights->backend->memory(weights->device, &free_bytes, &total_bytes) != COD_OK
               ? status
               : cod_fail(status,
                          "%s; the network needs in the device's memory, in MB: weights %.1f, activations %.1f, inputs "
                          "and outputs %.1f, and what plans keep for themselves; %.1f of %.1f are free. %s",
                          cod_error_message(), megabytes(cod_weights_count(weights) * cod_dtype_bytes(weights->dtype)),
                          megabytes(memory->arena), megabytes(memory->io), megabytes(free_bytes),
                          megabytes(total_bytes), less);
}
