#include "core/device.h"

#include "core/log.h"

#include <stdio.h>
#include <string.h>

const char *const cod_device_names[] = {
    [COD_DEVICE_AUTO] = "auto", [COD_DEVICE_CPU] = "cpu", [COD_DEVICE_CUDA] = "cuda", NULL};

static bool names_backend(const cod_device_choice *choice)
{
    return strcmp(choice->backend, COD_BACKEND_AUTO) != 0;
}

bool cod_device_is_cpu(const cod_device_choice *choice)
{
    if (names_backend(choice))
        return strcmp(choice->backend, cod_device_names[COD_DEVICE_CUDA]) != 0;
    return choice->device == COD_DEVICE_CPU || (choice->device == COD_DEVICE_AUTO && choice->host_only != NULL);
}

const cod_backend *cod_device_certain(const cod_device_choice *choice)
{
    if (names_backend(choice))
        return cod_backend_find(choice->backend);
    if (cod_device_is_cpu(choice))
        return cod_backend_find(cod_device_names[COD_DEVICE_CPU]);
    return choice->device == COD_DEVICE_CUDA ? cod_backend_find(cod_device_names[COD_DEVICE_CUDA]) : NULL;
}

static cod_status find_backend(const char *name, const cod_backend **backend)
{
    char names[COD_BACKEND_NAMES];
    *backend = cod_backend_find(name);
    if (*backend != NULL)
        return COD_OK;
    cod_backend_names(names);
    return cod_fail(COD_ERR_ARGUMENT, "there is no backend '%s' in this build; it has %s", name, names);
}

/** Opens a GPU, or says why there is none. */
static cod_status open_gpu(const cod_device_options *options, const cod_backend **backend, cod_device **device)
{
    *backend = cod_backend_find(cod_device_names[COD_DEVICE_CUDA]);
    if (*backend == NULL)
        return cod_fail(COD_ERR_UNSUPPORTED, "this build has no CUDA");
    return (*backend)->open(options, device);
}

cod_status cod_device_open(const cod_device_choice *choice, const cod_device_options *options,
                           const cod_backend **backend, cod_device **device, char reason[COD_DEVICE_REASON])
{
    reason[0] = '\0';
    if (names_backend(choice)) {
        COD_TRY(find_backend(choice->backend, backend));
        return (*backend)->open(options, device);
    }
    if (!cod_device_is_cpu(choice)) {
        const cod_status status = open_gpu(options, backend, device);
        if (status == COD_OK) {
            snprintf(reason, COD_DEVICE_REASON, "%s (%s)", (*backend)->name, (*backend)->describe(*device));
            return COD_OK;
        }
        if (choice->device == COD_DEVICE_CUDA)
            return cod_fail(status, "%s: %s: %s; `cpu` computes without a GPU, and `auto` where there is none",
                            choice->setting, cod_device_names[choice->device], cod_error_message());
    }
    if (choice->device == COD_DEVICE_AUTO)
        snprintf(reason, COD_DEVICE_REASON, "%s (%s)", cod_device_names[COD_DEVICE_CPU],
                 cod_device_is_cpu(choice) ? choice->host_only : cod_error_message());
    COD_TRY(find_backend(cod_device_names[COD_DEVICE_CPU], backend));
    return (*backend)->open(options, device);
}

void cod_device_tell(const char *reason)
{
    if (reason[0] != '\0' && cod_backend_find(cod_device_names[COD_DEVICE_CUDA]) != NULL)
        cod_log_info("device: %s", reason);
}
