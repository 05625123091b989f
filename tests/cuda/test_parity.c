#include "support/test.h"

#include "cuda/cuda.h"
#include "emulated.h"
#include "ref/ref.h"
#include "support/ops.h"

#include <inttypes.h>

/** Random ops of each kind against `ref`, on the emulated GPU, in several orders of threads and blocks. */

#ifdef __SANITIZE_ADDRESS__
enum { SEEDS = 15 };
#else
enum { SEEDS = 60 };
#endif

static cod_test_device test_ref, test_cuda;

static int open_devices(void **state)
{
    (void)state;
    test_ref.backend = &cod_ref_backend;
    test_cuda.backend = &cod_cuda_backend;
    return test_ref.backend->open(NULL, &test_ref.device) || test_cuda.backend->open(NULL, &test_cuda.device);
}

static int close_devices(void **state)
{
    (void)state;
    test_ref.backend->close(test_ref.device);
    test_cuda.backend->close(test_cuda.device);
    return 0;
}

/** As tests/cpu/test_parity.c has them: f32 against sums in double, one rounding to bf16 where results are stored. */
static cod_tolerance tolerance_of(cod_op_kind kind, cod_dtype dtype)
{
    const bool f32 = dtype == COD_F32;
    switch (kind) {
    case COD_OP_NORM_TRAIN:
    case COD_OP_NORM_INFERENCE:
    case COD_OP_NORM_BACKWARD:
    case COD_OP_NORM_INFERENCE_BACKWARD:
    case COD_OP_ACTIVATION_BACKWARD: /* a single slope's gradient is one sum of both signs */
    case COD_OP_MEAN:
        return f32 ? (cod_tolerance){2e-5, 2e-5} : (cod_tolerance){8e-3, 2e-5};
    case COD_OP_ACTIVATION:
    case COD_OP_LOSS:
        return f32 ? (cod_tolerance){4e-6, 1e-6} : (cod_tolerance){8e-3, 1e-6};
    default:
        return f32 ? (cod_tolerance){2e-6, 1e-6} : (cod_tolerance){8e-3, 1e-6};
    }
}

static void check_kind(cod_op_kind kind, cod_dtype dtype)
{
    char message[512];
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        const cod_op op = cod_test_random_op(kind, dtype, COD_F32, seed);
        cod_emulated_set_seed(seed);
        const cod_status status = cod_test_parity(test_ref, test_cuda, &op, seed, tolerance_of(kind, dtype));
        if (cod_emulated_faults(message, sizeof message) > 0)
            fail_msg("%s, %s, seed %" PRIu64 ": %s", cod_op_kind_name(kind), cod_dtype_name(dtype), seed, message);
        assert_ok(status);
    }
}

/** The kinds that this file tests, from the first to the last. */
enum { FIRST_KIND = COD_OP_NORM_TRAIN, LAST_KIND = COD_OP_FILL };

static void kinds_agree_with_ref_in_f32(void **state)
{
    (void)state;
    for (int kind = FIRST_KIND; kind <= LAST_KIND; kind++)
        check_kind((cod_op_kind)kind, COD_F32);
}

static void kinds_agree_with_ref_in_bf16(void **state)
{
    (void)state;
    for (int kind = FIRST_KIND; kind <= LAST_KIND; kind++)
        check_kind((cod_op_kind)kind, COD_BF16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kinds_agree_with_ref_in_f32),
        cmocka_unit_test(kinds_agree_with_ref_in_bf16),
    };
    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
