#include "nn/precision.h"

const char *const cod_precision_names[] = {"auto", "f32", "bf16", NULL};
const char *const cod_precision_names_with_int8[] = {"auto", "f32", "bf16", "int8", NULL};

cod_status cod_precision_dtype(cod_precision precision, const cod_backend *backend, cod_device *device,
                               cod_dtype *dtype)
{
    const bool has_bf16 = backend->supports(device, COD_BF16);
    if (precision == COD_PRECISION_BF16 && !has_bf16)
        return cod_fail(COD_ERR_UNSUPPORTED,
                        "precision bf16: backend '%s' does not compute it on this processor (%s); use auto or f32",
                        backend->name, backend->describe(device));
    if (precision == COD_PRECISION_INT8 && !backend->supports(device, COD_S8))
        return cod_fail(COD_ERR_UNSUPPORTED,
                        "precision int8: backend '%s' does not compute it on this processor (%s); use auto",
                        backend->name, backend->describe(device));
    *dtype = precision != COD_PRECISION_F32 && has_bf16 ? COD_BF16 : COD_F32;
    return COD_OK;
}
