/*
 * The command with its backends late where COD_TEST_LATE says so: linked with --wrap=cod_backend_register. With COD_TEST_LATE=cuda there is a
 * device of the name `cuda`, beside a `cpu` as it always is.
 */
#include "support/late.h"

#include <stdlib.h>
#include <string.h>

cod_status __real_cod_backend_register(const cod_backend *backend);
cod_status __wrap_cod_backend_register(const cod_backend *backend);

/** The late device around `cpu`, in the place of CUDA's. */
static cod_status register_device(const cod_backend *cpu)
{
    static cod_backend device;
    device = *cod_late_wrap(cpu);
    device.name = "cuda";
    return __real_cod_backend_register(&device);
}

cod_status __wrap_cod_backend_register(const cod_backend *backend)
{
    const char *wanted = getenv("COD_TEST_LATE");
    const bool as_cuda = wanted != NULL && strcmp(wanted, "cuda") == 0;
    if (as_cuda && strcmp(backend->name, "cuda") == 0)
        return COD_OK;
    if (as_cuda && strcmp(backend->name, "cpu") == 0)
        COD_TRY(register_device(backend));
    return __real_cod_backend_register(cod_late_chosen(backend));
}
