/*
 * The command with the CUDA backend on the emulated GPU (tests/cuda/emulated): linked with --wrap=cod_backend_register.
 */
#include "cuda/cuda.h"

#include <string.h>

cod_status __real_cod_backend_register(const cod_backend *backend);
cod_status __wrap_cod_backend_register(const cod_backend *backend);

/** The command registers `cuda` itself where it was built with it: under that name there is one backend. */
cod_status __wrap_cod_backend_register(const cod_backend *backend)
{
    if (strcmp(backend->name, "cpu") == 0)
        COD_TRY(__real_cod_backend_register(&cod_cuda_backend));
    return __real_cod_backend_register(backend);
}
