/**
 * @file
 * From what a user names (a model file or `bicubic`, a device, a precision) to an upscaler that runs.
 */
#ifndef COD_INFER_SESSION_H
#define COD_INFER_SESSION_H

#include "core/device.h"
#include "core/option.h"
#include "infer/upscaler.h"

typedef struct cod_session_options {
    int device;          /**< cod_device_kind */
    const char *backend; /**< name of a backend, which overrides `device`; COD_BACKEND_AUTO = `device` decides */
    int64_t threads;     /**< 0 = as many as the process may use */
    int precision;       /**< cod_precision */
    int64_t tile;        /**< as in cod_upscaler_options */
    int64_t scale;       /**< 0 = the model's, and 4 for bicubic */
} cod_session_options;

extern const cod_option_table cod_session_option_table;

/** A backend's device and the upscaler on it. Zeroed = none. */
typedef struct cod_session {
    const cod_backend *backend;
    cod_device *device;
    cod_upscaler *upscaler;
} cod_session;

/**
 * Opens the device and loads the model.
 *
 * @param[in]  model    a file, or COD_BICUBIC
 * @param[out] session  new; cod_session_close(); empty on failure
 * @return as cod_upscaler_open() and cod_device_open(); COD_ERR_ARGUMENT for a scale that the model does not have
 */
COD_MUST_CHECK cod_status cod_session_open(const char *model, const cod_session_options *options, cod_session *session);
/** Opens the device alone, and logs which. @return as cod_device_open() */
COD_MUST_CHECK cod_status cod_session_open_device(const cod_session_options *options, cod_session *session);
void cod_session_close(cod_session *session);

#endif
