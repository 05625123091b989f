/*
 * The command with its backends late where COD_TEST_LATE says so: linked with --wrap=cod_backend_register. With
 * COD_TEST_LATE=cuda there is a device of the name `cuda`, around `cpu`, beside a `cpu` as it always is; with
 * COD_TEST_LATE=cuda-ref one around `ref`, which computes on 8-bit integers on every processor.
 */
#include "support/late.h"

#include <stdlib.h>
#include <string.h>

cod_status __real_cod_backend_register(const cod_backend *backend);
cod_status __wrap_cod_backend_register(const cod_backend *backend);

/** The late device around a backend, in the place of CUDA's. */
static cod_status register_device(const cod_backend *backend)
{
    static cod_backend device;
    device = *cod_late_wrap(backend);
    device.name = "cuda";
    return __real_cod_backend_register(&device);
}

cod_status __wrap_cod_backend_register(const cod_backend *backend)
{
    const char *wanted = getenv("COD_TEST_LATE");
    const bool around_ref = wanted != NULL && strcmp(wanted, "cuda-ref") == 0;
    const bool as_cuda = around_ref || (wanted != NULL && strcmp(wanted, "cuda") == 0);
    if (as_cuda && strcmp(backend->name, "cuda") == 0)
        return COD_OK;
    if (as_cuda && strcmp(backend->name, around_ref ? "ref" : "cpu") == 0)
        COD_TRY(register_device(backend));
    return __real_cod_backend_register(cod_late_chosen(backend));
}
