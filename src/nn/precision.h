/**
 * @file
 * In which numbers a program computes, as people choose it, and what that means on a device.
 */
#ifndef COD_NN_PRECISION_H
#define COD_NN_PRECISION_H

#include "core/backend.h"

typedef enum cod_precision {
    COD_PRECISION_AUTO, /**< bf16 where the device says that it pays, else f32 */
    COD_PRECISION_F32,
    COD_PRECISION_BF16,
    COD_PRECISION_INT8 /**< convolutions on 8-bit integers, all else as `auto` does; upscaling and teachers only */
} cod_precision;

/** NULL-terminated names in the order of cod_precision, for option tables and arguments: of training, and with int8. */
extern const char *const cod_precision_names[], *const cod_precision_names_with_int8[];

/** The activation type that `precision` means on this device; COD_ERR_UNSUPPORTED when it has no bf16, or no 8-bit integers. */
COD_MUST_CHECK cod_status cod_precision_dtype(cod_precision precision, const cod_backend *backend, cod_device *device,
                                              cod_dtype *dtype);

#endif
