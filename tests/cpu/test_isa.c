#include "support/test.h"

#include "cpu/cpu.h"

#include <stdlib.h>

/** The variable is read once in a process, so what it may be is tested by running test_parity with each value. */
TEST(unknown_set_is_refused_each_time)
{
    cod_device *device = NULL;
    assert_int_equal(setenv("COD_CPU_ISA", "avx1024", 1), 0);
    for (int i = 0; i < 2; i++)
        assert_fails(COD_ERR_ARGUMENT, "'avx1024' is no instruction set; generic, avx2, avx512, avx512_bf16 or amx",
                     cod_cpu_backend.open(NULL, &device));
    assert_int_equal(setenv("COD_CPU_ISA", "generic", 1), 0);
    assert_fails(COD_ERR_ARGUMENT, "avx1024", cod_cpu_backend.open(NULL, &device));
}
