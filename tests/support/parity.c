#include "support/parity.h"

#include "support/test.h"

#include <inttypes.h>
#include <math.h>

cod_tolerance cod_parity_tolerance(cod_op_kind kind, cod_dtype dtype)
{
    const bool f32 = dtype == COD_F32;
    switch (kind) {
    case COD_OP_NORM_TRAIN:
    case COD_OP_NORM_INFERENCE:
    case COD_OP_NORM_APPLY:
    case COD_OP_NORM_BACKWARD:
    case COD_OP_NORM_INFERENCE_BACKWARD:
    case COD_OP_MEAN: /* of numbers of both signs */
    case COD_OP_SPECTRAL_NORM:
    case COD_OP_SPECTRAL_NORM_BACKWARD:
        return f32 ? (cod_tolerance){2e-5, 2e-5} : (cod_tolerance){8e-3, 2e-5};
    case COD_OP_ACTIVATION:
    case COD_OP_ACTIVATION_BACKWARD:
    case COD_OP_LOSS:
        return f32 ? (cod_tolerance){4e-6, 1e-6} : (cod_tolerance){8e-3, 1e-6};
    case COD_OP_TURN: /* at most one operation, rounded once */
        return (cod_tolerance){0, 0};
    default: /* a handful of operations for each element */
        return f32 ? (cod_tolerance){2e-6, 1e-6} : (cod_tolerance){8e-3, 1e-6};
    }
}

void cod_parity_op(const cod_parity *p, const cod_op *op, cod_dtype dtype, uint64_t seed)
{
    char message[512];
    if (p->seed != NULL)
        p->seed(seed);
    const cod_status status = cod_test_parity(*p->ref, *p->tested, op, seed, p->tolerance_of(op->kind, dtype));
    if (p->faults != NULL && p->faults(message, sizeof message) > 0)
        fail_msg("%s, %s, seed %" PRIu64 ": %s", cod_op_kind_name(op->kind), cod_dtype_name(dtype), seed, message);
    assert_ok(status);
}

void cod_parity_kinds(const cod_parity *p, cod_dtype dtype, uint64_t count)
{
    for (int kind = COD_OP_NORM_TRAIN; kind < COD_TEST_KINDS; kind++) {
        for (uint64_t seed = 0; seed < count && !p->is_missing((cod_op_kind)kind); seed++) {
            const cod_op op = cod_test_random_op((cod_op_kind)kind, dtype, COD_F32, seed);
            cod_parity_op(p, &op, dtype, seed);
        }
    }
}

void cod_test_run_values(cod_test_device on, const cod_op *op, const double *const values[COD_OP_MAX_INPUTS],
                         double *const *outputs, size_t count)
{
    cod_test_op test;
    assert_ok(cod_test_op_init(&test, on, op));
    assert_ok(cod_test_op_randomise(&test, 1, false));
    for (size_t slot = 0; slot < COD_OP_MAX_INPUTS; slot++)
        if (values[slot] != NULL)
            assert_ok(cod_test_op_write(&test, slot, values[slot]));
    assert_ok(cod_test_op_run(&test));
    for (size_t i = 0; i < count; i++)
        assert_ok(cod_test_op_read(&test, COD_OP_MAX_INPUTS + i, outputs[i]));
    cod_test_op_clear(&test);
}

void cod_parity_large_logits(const cod_parity *p, double relative, double absolute)
{
    static const double logits[] = {0, 0.5, -20, 20, -87, -87.5, 89, 1e4, -1e4, 3e38, -3e38};
    enum { COUNT = sizeof logits / sizeof logits[0] };
    cod_op op = {.kind = COD_OP_LOSS, .attr = {.loss = COD_LOSS_BCE, .alpha = 1}, .name = "bce"};
    op.inputs[0] = op.inputs[1] = op.outputs[0] = op.outputs[1] = op.outputs[2] =
        cod_view_dense(NULL, 0, COD_F32, (cod_shape){1, 1, 1, 1});
    for (int i = 0; i < 2 * COUNT; i++) { /* one by one, as the value is a mean */
        const double *const logit = &logits[i / 2], label = i % 2;
        double expected[3], actual[3];
        for (int on = 0; on < 2; on++) {
            double *const to = on == 0 ? expected : actual;
            cod_test_run_values(on == 0 ? *p->ref : *p->tested, &op,
                                (const double *const[COD_OP_MAX_INPUTS]){logit, &label},
                                (double *const[]){to, to + 1, to + 2}, 3);
        }
        for (int out = 0; out < 3; out++)
            if (!(fabs(actual[out] - expected[out]) <= relative * fabs(expected[out]) + absolute))
                fail_msg("logit %g, label %g, output %d: %g, not %g", *logit, label, out, actual[out], expected[out]);
    }
}

void cod_parity_losses_show_nan(cod_test_device on)
{
    const double values[] = {1, -2, NAN, 0.5, 3, -1};
    for (int kind = COD_LOSS_L1; kind <= COD_LOSS_TV; kind++) {
        cod_op op = {.kind = COD_OP_LOSS, .attr = {.loss = (cod_loss_kind)kind, .alpha = 1}, .name = "nan"};
        const bool rows = kind == COD_LOSS_KL || kind == COD_LOSS_CROSS_ENTROPY;
        op.inputs[0] = op.outputs[1] =
            cod_view_dense(NULL, 0, COD_F32, rows ? (cod_shape){2, 1, 1, 3} : (cod_shape){1, 2, 3, 1});
        if (kind != COD_LOSS_TV)
            op.inputs[1] = op.inputs[0];
        op.outputs[0] = cod_view_dense(NULL, 0, COD_F32, (cod_shape){1, 1, 1, 1});
        double value, gradient[6];
        cod_test_run_values(on, &op, (const double *const[COD_OP_MAX_INPUTS]){values},
                            (double *const[]){&value, gradient}, 2);
        if (!isnan(value) || !isnan(gradient[2]))
            fail_msg("loss %d hid a NaN: value %g, gradient %g", kind, value, gradient[2]);
    }
}

/** A 1x1 convolution of one pixel from 4 channels to 2. */
static void run_pixel(cod_test_device on, float range, const double *x, const double *w, const double *bias, double *y)
{
    const cod_view scalar = cod_view_dense(NULL, 0, COD_F32, (cod_shape){1, 1, 1, 1});
    cod_op op = {.kind = COD_OP_CONV2D,
                 .attr = {.stride_h = 1, .stride_w = 1, .int8_range = isnan(range) ? 1 : range},
                 .name = "pixel"};
    op.inputs[0] = cod_view_dense(NULL, 0, COD_F32, (cod_shape){1, 1, 1, 4});
    op.inputs[1] = cod_view_dense(NULL, 0, COD_F32, (cod_shape){2, 1, 1, 4});
    op.inputs[2] = op.outputs[0] = cod_view_dense(NULL, 0, COD_F32, (cod_shape){1, 1, 1, 2});
    if (isnan(range))
        op.inputs[5] = scalar;
    cod_test_run_values(
        on, &op, (const double *const[COD_OP_MAX_INPUTS]){x, w, bias, [5] = isnan(range) ? &(double){NAN} : NULL}, &y,
        1);
}

void cod_parity_extreme_integers(cod_test_device on)
{
    const double bias[2] = {3, -2}, large = 1e30;
    double y[2];
    /* Beyond the range, infinite or not, x counts as the range; NaN as 0. */
    run_pixel(on, 2, (const double[]){large, -INFINITY, NAN, 1}, (const double[]){1, 0.5, 1, 0, 127, 127, 127, 127},
              bias, y);
    assert_true(fabs(y[0] - (3 + 2.0 / 127 / 127 * (127 * 127 - 127 * 64))) < 1e-5);
    assert_true(fabs(y[1] - (-2 + 2.0 * (127 - 127 + 64))) < 1e-4);
    /* All-zero weights leave the bias; so do weights too small to matter. */
    run_pixel(on, 1, (const double[]){1, 1, 1, 1}, (const double[]){0, 0, 0, 0, 1e-38, -1e-38, 1e-38, 1e-40}, bias, y);
    assert_true(y[0] == 3 && y[1] == -2);
    run_pixel(on, 1e-38f, (const double[]){1, NAN, 0, -1}, (const double[]){1, 1, 1, 1, 0, 0, 0, 1}, bias, y);
    assert_true(y[0] == 3 && y[1] == -2);
    /* Factors that are all 1. */
    run_pixel(on, 127, (const double[]){1, 2, 3, -4}, (const double[]){127, 0, 1, 2, 127, 1, 1, 0}, bias, y);
    assert_true(fabs(y[0] - (3 + 127 + 3 - 8)) < 1e-4 && fabs(y[1] - (-2 + 127 + 2 + 3)) < 1e-4);
    /* An input of zeros. */
    run_pixel(on, 5, (const double[]){0, 0, -0.0, 0}, (const double[]){1, 2, 3, 4, 5, 6, 7, 8}, bias, y);
    assert_true(y[0] == 3 && y[1] == -2);
    /* A model that diverged shows it. */
    run_pixel(on, 1, (const double[]){1, 1, 1, 1}, (const double[]){1, NAN, 1, 1, INFINITY, 1, 1, 1}, bias, y);
    assert_true(isnan(y[0]) && isnan(y[1]));
    run_pixel(on, NAN, (const double[]){1, 0, 1, 1}, (const double[]){1, 2, 3, 4, 0, 0, 0, 0}, bias, y);
    assert_true(isnan(y[0]) && isnan(y[1]));
}
