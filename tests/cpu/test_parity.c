#include "support/test.h"

#include "cpu/cpu.h"
#include "ref/ref.h"
#include "support/ops.h"
#include "support/paranoid.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/** Random ops of each kind against `ref`, and under the paranoid wrapper. */

enum { SEEDS = 120 };

static cod_test_device ref, cpu, paranoid;

/**
 * f32: `ref` sums in double, the backend in f32, so the error grows with the square root of the terms (a few hundred
 * here); sums of terms of both signs cancel, hence `scaled`. bf16: one rounding to 8 bits where results are stored, plus
 * those of values that are rounded on the way (weights to bf16 before a convolution: relative 2^-9 each, averaging out).
 * Normalisation's gradients divide by the deviation, and a fused activation may fall on the other side of its kink only
 * where its input is within an error of zero, where both sides agree but for the slope's term in f32.
 */
static cod_tolerance tolerance_of(cod_op_kind kind, cod_dtype dtype)
{
    const bool f32 = dtype == COD_F32;
    switch (kind) {
    case COD_OP_CONV2D:
    case COD_OP_CONV2D_BACKWARD_DATA:
    case COD_OP_LINEAR:
    case COD_OP_LINEAR_BACKWARD_DATA:
        return f32 ? (cod_tolerance){1e-5, 2e-6} : (cod_tolerance){8e-3, 2.5e-2};
    case COD_OP_CONV2D_BACKWARD_WEIGHTS:
    case COD_OP_LINEAR_BACKWARD_WEIGHTS: /* inputs are bf16 already, sums and results f32 */
        return (cod_tolerance){1e-5, 2e-6};
    case COD_OP_NORM_TRAIN:
    case COD_OP_NORM_INFERENCE:
    case COD_OP_NORM_BACKWARD:
        return f32 ? (cod_tolerance){2e-5, 2e-5} : (cod_tolerance){8e-3, 2e-5};
    case COD_OP_ACTIVATION:
    case COD_OP_ACTIVATION_BACKWARD:
    case COD_OP_LOSS:
        return f32 ? (cod_tolerance){4e-6, 1e-6} : (cod_tolerance){8e-3, 1e-6};
    default: /* a handful of operations for each element */
        return f32 ? (cod_tolerance){2e-6, 1e-6} : (cod_tolerance){8e-3, 1e-6};
    }
}

static void check_kind(cod_op_kind kind, cod_dtype dtype, cod_test_device tested, uint64_t seeds)
{
    char message[256];
    for (uint64_t seed = 0; seed < seeds; seed++) {
        cod_op op = cod_test_random_op(kind, dtype, COD_F32, seed);
        op.deterministic = seed % 2 == 0; /* convolutions run sliced or whole */
        assert_ok(cod_test_parity(ref, tested, &op, seed, tolerance_of(kind, dtype)));
        if (tested.backend == paranoid.backend && cod_paranoid_violations(message, sizeof message) > 0)
            fail_msg("%s, %s, seed %" PRIu64 ": %s", cod_op_kind_name(kind), cod_dtype_name(dtype), seed, message);
    }
}

static void kinds_agree_with_ref_in_f32(void **state)
{
    (void)state;
    for (int kind = 0; kind < COD_OP_KIND_COUNT; kind++)
        check_kind((cod_op_kind)kind, COD_F32, cpu, SEEDS);
}

/** bf16 must be right on every processor, fast or not. */
static void kinds_agree_with_ref_in_bf16(void **state)
{
    (void)state;
    for (int kind = 0; kind < COD_OP_KIND_COUNT; kind++)
        check_kind((cod_op_kind)kind, COD_BF16, cpu, SEEDS);
}

static void plans_touch_only_their_outputs(void **state)
{
    (void)state;
    for (int kind = 0; kind < COD_OP_KIND_COUNT; kind++) {
        check_kind((cod_op_kind)kind, COD_F32, paranoid, SEEDS / 4);
        check_kind((cod_op_kind)kind, COD_BF16, paranoid, SEEDS / 4);
    }
}

static int setup(void **state)
{
    (void)state;
    const cod_device_options one = {.threads = 1}, two = {.threads = 2};
    ref.backend = &cod_ref_backend;
    cpu.backend = &cod_cpu_backend;
    paranoid.backend = cod_paranoid_wrap(&cod_cpu_backend);
    return ref.backend->open(&one, &ref.device) || cpu.backend->open(&two, &cpu.device) ||
           paranoid.backend->open(&one, &paranoid.device);
}

static int teardown(void **state)
{
    (void)state;
    ref.backend->close(ref.device);
    cpu.backend->close(cpu.device);
    paranoid.backend->close(paranoid.device);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kinds_agree_with_ref_in_f32),
        cmocka_unit_test(kinds_agree_with_ref_in_bf16),
        cmocka_unit_test(plans_touch_only_their_outputs),
    };
    if (cod_cpu_backend.open(NULL, &cpu.device) == COD_ERR_UNSUPPORTED) {
        printf("skipped: %s\n", cod_error_message());
        return 77;
    }
    cod_cpu_backend.close(cpu.device);
    return cmocka_run_group_tests_name("cpu against ref", tests, setup, teardown);
}
