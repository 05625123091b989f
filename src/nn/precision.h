/**
 * @file
 * The precision that users choose for a program, and the type that it means on a device.
 */
#ifndef COD_NN_PRECISION_H
#define COD_NN_PRECISION_H

#include "core/backend.h"

typedef enum cod_precision {
    COD_PRECISION_AUTO, /**< bf16 if the device supports it at a useful speed, else f32 */
    COD_PRECISION_F32,
    COD_PRECISION_BF16,
    COD_PRECISION_INT8 /**< convolutions on 8-bit integers, the rest as with `auto`; only for upscaling and teachers */
} cod_precision;

/**
 * NULL-terminated names in the order of cod_precision, for option tables and arguments: for training; and including
 * int8.
 */
extern const char *const cod_precision_names[], *const cod_precision_names_with_int8[];

/**
 * The activation type for `precision` on this device; COD_ERR_UNSUPPORTED if the device lacks bf16 or 8-bit integers.
 */
COD_MUST_CHECK cod_status cod_precision_dtype(cod_precision precision, const cod_backend *backend, cod_device *device,
                                              cod_dtype *dtype);

#endif
