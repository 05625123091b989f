#include "devices.h"

#include "core/memory.h"
#include "cpu/cpu.h"
#include "cpu/cpu_internal.h"
#include "ref/ref.h"
#include "support/paranoid.h"

#include <stdlib.h>
#include <string.h>

enum { GUARD = 4096, NAN_BYTE = 0xFF };

cod_test_device test_ref, test_cpu, test_paranoid;

bool test_few(void)
{
    return getenv("COD_TEST_FEW") != NULL;
}

int test_devices_open(void **state)
{
    (void)state;
    const cod_device_options one = {.threads = 1}, two = {.threads = 2};
    test_ref.backend = &cod_ref_backend;
    test_cpu.backend = &cod_cpu_backend;
    test_paranoid.backend = cod_paranoid_wrap(&cod_cpu_backend);
    return test_ref.backend->open(&one, &test_ref.device) || test_cpu.backend->open(&two, &test_cpu.device) ||
           test_paranoid.backend->open(&one, &test_paranoid.device);
}

int test_devices_close(void **state)
{
    (void)state;
    test_ref.backend->close(test_ref.device);
    test_cpu.backend->close(test_cpu.device);
    test_paranoid.backend->close(test_paranoid.device);
    return 0;
}

cod_status test_scratch_arm(cod_test_device on)
{
    cod_device *device = on.device;
    if (on.backend != &cod_cpu_backend)
        return COD_OK;
    void *memory;
    COD_TRY(cod_aligned_alloc(&memory, device->scratch_bytes + GUARD));
    memset(memory, NAN_BYTE, device->scratch_bytes + GUARD);
    cod_aligned_free(device->scratch);
    device->scratch = memory;
    return COD_OK;
}

cod_status test_scratch_check(cod_test_device on)
{
    const cod_device *device = on.device;
    if (on.backend != &cod_cpu_backend)
        return COD_OK;
    for (size_t i = 0; i < GUARD; i++)
        if ((unsigned char)device->scratch[device->scratch_bytes + i] != NAN_BYTE)
            return cod_fail(COD_ERR_BACKEND, "byte %zu behind the scratch of %zu was written", i,
                            device->scratch_bytes);
    return COD_OK;
}
