/* The command with its backends late where COD_TEST_LATE says so: linked with --wrap=cod_backend_register. */
#include "support/late.h"

cod_status __real_cod_backend_register(const cod_backend *backend);
cod_status __wrap_cod_backend_register(const cod_backend *backend);

cod_status __wrap_cod_backend_register(const cod_backend *backend)
{
    return __real_cod_backend_register(cod_late_chosen(backend));
}
