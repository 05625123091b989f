/**
 * @file
 * Which device computes: the devices that users choose from, and the function with which every command opens one.
 */
#ifndef COD_CORE_DEVICE_H
#define COD_CORE_DEVICE_H

#include "core/backend.h"

typedef enum cod_device_kind {
    COD_DEVICE_AUTO, /**< a GPU where there is one that can be used, else the processor */
    COD_DEVICE_CPU,
    COD_DEVICE_CUDA
} cod_device_kind;

/** Names of the cod_device_kind values, NULL-terminated. */
extern const char *const cod_device_names[];

/** Given in place of a backend's name: the choice of device decides the backend. */
#define COD_BACKEND_AUTO "auto"

enum { COD_DEVICE_REASON = 1536 };

typedef struct cod_device_choice {
    cod_device_kind device;
    const char *backend;   /**< name of a registered backend, which overrides `device`; or COD_BACKEND_AUTO */
    const char *host_only; /**< why `auto` may not take a GPU; NULL = it may */
    const char *setting;   /**< where the user says it, for messages: "cluster.device", "--device" */
} cod_device_choice;

/** Whether the choice is certain to be the processor, so that no GPU is touched. */
bool cod_device_is_cpu(const cod_device_choice *choice);

/**
 * The backend that will be used, if that is certain before any device is opened. NULL = it depends on the machine, or
 * there is none.
 */
const cod_backend *cod_device_certain(const cod_device_choice *choice);

/**
 * Opens the chosen device. `auto` opens a GPU and falls back to the processor, whatever is wrong with the GPU.
 *
 * @param[out] backend,device  the caller closes the device
 * @param[out] reason  which device was opened and why, such as "cpu (there is no NVIDIA driver on this machine)", for
 *                     one line of the log; "" if the processor or a backend was named
 * @return COD_ERR_ARGUMENT if there is no backend of that name; COD_ERR_UNSUPPORTED if a GPU is required and none can
 *         be used, with the reason and a remedy
 */
COD_MUST_CHECK cod_status cod_device_open(const cod_device_choice *choice, const cod_device_options *options,
                                          const cod_backend **backend, cod_device **device,
                                          char reason[COD_DEVICE_REASON]);

/** Logs the reason of a command that uses one device, unless it is "" or the build supports no GPU. */
void cod_device_tell(const char *reason);

#endif
