#include "support/test.h"

#include "cpu/cpu.h"
#include "devices.h"
#include "support/copies.h"
#include "support/paranoid.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/** Random ops of each kind but convolutions (test_convolution.c) against `ref`, and under the paranoid wrapper. */

#ifdef __SANITIZE_ADDRESS__
enum { SEEDS = 12 };
#else
enum { SEEDS = 120 };
#endif

/** Of each kind of op. The shapes of odd sizes repeat after fewer seeds than twice the few. */
static uint64_t seeds(void)
{
    return test_few ? SEEDS / 4 : SEEDS;
}

/**
 * f32: `ref` sums in double, the backend in f32, so the error grows with the square root of the terms (a few hundred
 * here); sums of terms of both signs cancel, hence `scaled`. bf16: one rounding to 8 bits where results are stored, on
 * either side. Normalisation's gradients divide by the deviation, and a fused activation may fall on the other side of
 * its kink only where its input is within an error of zero, where both sides agree but for the slope's term in f32.
 */
static cod_tolerance tolerance_of(cod_op_kind kind, cod_dtype dtype)
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

/** NORM_APPLY alone is there, as programs recompute by it. */
static bool is_missing(cod_op_kind kind)
{
    return cod_test_is_norm_half(kind) && kind != COD_OP_NORM_APPLY;
}

static void check_kind(cod_op_kind kind, cod_dtype dtype, cod_test_device tested, uint64_t count)
{
    char message[256];
    if (is_missing(kind)) /* see halves_of_normalisations_are_refused() */
        return;
    for (uint64_t seed = 0; seed < count; seed++) {
        const cod_op op = cod_test_random_op(kind, dtype, COD_F32, seed);
        assert_ok(cod_test_parity(test_ref, tested, &op, seed, tolerance_of(kind, dtype)));
        if (tested.backend == test_paranoid.backend && cod_paranoid_violations(message, sizeof message) > 0)
            fail_msg("%s, %s, seed %" PRIu64 ": %s", cod_op_kind_name(kind), cod_dtype_name(dtype), seed, message);
    }
}

static void kinds_agree_with_ref_in_f32(void **state)
{
    (void)state;
    for (int kind = COD_OP_NORM_TRAIN; kind < COD_TEST_KINDS; kind++)
        check_kind((cod_op_kind)kind, COD_F32, test_cpu, seeds());
}

/** bf16 must be right on every processor, fast or not. */
static void kinds_agree_with_ref_in_bf16(void **state)
{
    (void)state;
    for (int kind = COD_OP_NORM_TRAIN; kind < COD_TEST_KINDS; kind++)
        check_kind((cod_op_kind)kind, COD_BF16, test_cpu, seeds());
}

static void plans_touch_only_their_outputs(void **state)
{
    (void)state;
    for (int kind = COD_OP_NORM_TRAIN; kind < COD_TEST_KINDS; kind++) {
        check_kind((cod_op_kind)kind, COD_F32, test_paranoid, seeds() / 4);
        check_kind((cod_op_kind)kind, COD_BF16, test_paranoid, seeds() / 4);
    }
}

/** This backend fuses nothing, so that compilers halve no normalisation for it. */
static void halves_of_normalisations_are_refused(void **state)
{
    (void)state;
    int refused = 0;
    assert_null(test_cpu.backend->op_fuses);
    assert_null(test_cpu.backend->plan_create_fused);
    for (int kind = 0; kind < COD_TEST_KINDS; kind++) {
        cod_test_op test;
        const cod_op op = cod_test_random_op((cod_op_kind)kind, COD_F32, COD_F32, 1);
        if (!is_missing((cod_op_kind)kind))
            continue;
        assert_fails(COD_ERR_UNSUPPORTED, cod_op_kind_name((cod_op_kind)kind), cod_test_op_init(&test, test_cpu, &op));
        refused++;
    }
    assert_int_equal(refused, 3);
}

/** The description with other pixels and channels; a single slope stays single. */
static void resize(cod_op *op, cod_shape shape)
{
    for (size_t slot = 0; slot < COD_TEST_SLOTS; slot++) {
        cod_view *view = cod_test_view(op, slot);
        const int64_t gap = view->pixel_stride - view->shape.c;
        const bool activation = cod_test_slot_class(op->kind, slot) == 'a';
        if (cod_shape_count(view->shape) <= 1)
            continue;
        view->shape = activation ? shape : (cod_shape){1, 1, 1, shape.c};
        view->pixel_stride = view->shape.c + gap;
    }
}

/** Another shape, with as much of a gap between pixels. */
static void set_shape(cod_view *view, cod_shape shape)
{
    view->pixel_stride += shape.c - view->shape.c;
    view->shape = shape;
}

/** Blocks of four vectors and what is left of them, single pixels, rows that are no multiple of anything. */
static void normalisations_of_odd_sizes_agree_with_ref(void **state)
{
    (void)state;
    static const int64_t channels[] = {3, 5, 64, 65};
    static const cod_op_kind kinds[] = {COD_OP_NORM_TRAIN, COD_OP_NORM_INFERENCE, COD_OP_NORM_APPLY,
                                        COD_OP_NORM_BACKWARD, COD_OP_NORM_INFERENCE_BACKWARD};
    int residuals = 0;
    for (uint64_t seed = 0; seed < 2 * seeds(); seed++) {
        for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
            const cod_dtype dtype = seed / 4 % 2 ? COD_F32 : COD_BF16;
            cod_op op = cod_test_random_op(kinds[k], dtype, COD_F32, seed);
            if (op.inputs[0].shape.c == 1)
                continue;
            resize(&op, (cod_shape){seed / 8 % 2 ? 1 : 3, seed / 16 % 2 ? 1 : 7, seed / 16 % 2 ? 1 : 13,
                                    channels[seed % 4]});
            residuals += op.inputs[kinds[k] == COD_OP_NORM_TRAIN ? 4 : 6].shape.n > 1;
            assert_ok(cod_test_parity(test_ref, test_cpu, &op, seed, tolerance_of(kinds[k], dtype)));
        }
    }
    assert_true(residuals > 0);
}

/** Windows over one pixel and over odd sizes, one picture and several, channels that are no whole vectors. */
static void pools_of_odd_sizes_agree_with_ref(void **state)
{
    (void)state;
    static const int64_t channels[] = {3, 5, 64, 65};
    static const cod_op_kind kinds[] = {COD_OP_POOL, COD_OP_POOL_BACKWARD};
    size_t seen[3] = {0};
    for (uint64_t seed = 0; seed < 2 * seeds(); seed++) {
        for (size_t k = 0; k < 2; k++) {
            const cod_dtype dtype = seed / 4 % 2 ? COD_F32 : COD_BF16;
            cod_op op = cod_test_random_op(kinds[k], dtype, COD_F32, seed);
            cod_op_attr *attr = &op.attr;
            const bool one = seed / 8 % 4 == 0;
            const cod_shape x = {seed / 16 % 2 ? 1 : 3, one ? 1 : 7, one ? 1 : 13, channels[seed % 4]};
            if (one)
                attr->kernel_h = attr->kernel_w = 1, attr->pad_h = attr->pad_w = 0;
            const cod_shape y = cod_test_pooled(attr, x);
            cod_view *const large = k == 0 ? &op.inputs[0] : &op.outputs[0];
            cod_view *const small[] = {k == 0 ? &op.outputs[0] : &op.inputs[0],
                                       k == 0 ? &op.outputs[1] : &op.inputs[1]};
            set_shape(large, x);
            set_shape(small[0], y);
            if (attr->pool == COD_POOL_MAX)
                set_shape(small[1], y);
            seen[attr->pool]++;
            assert_ok(cod_test_parity(test_ref, test_cpu, &op, seed, tolerance_of(kinds[k], dtype)));
        }
    }
    assert_true(seen[0] > 0 && seen[1] > 0 && seen[2] > 0);
}

/** Losses on rows of one class, and of more classes than a vector holds. */
static void rows_of_odd_sizes_agree_with_ref(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 3, 5, 64, 65};
    for (uint64_t seed = 0; seed < 2 * seeds(); seed++) {
        const cod_dtype dtype = seed % 2 ? COD_F32 : COD_BF16;
        const cod_shape x = {seed / 2 % 2 ? 1 : 3, 1, 1, sizes[seed % 5]};
        cod_op op = cod_test_random_op(COD_OP_LOSS, dtype, COD_F32, seed);
        op.attr.loss = seed / 4 % 2 ? COD_LOSS_KL : COD_LOSS_CROSS_ENTROPY;
        if (cod_shape_count(op.inputs[1].shape) == 0) /* total variation was drawn */
            op.inputs[1] = op.inputs[0];
        set_shape(&op.inputs[0], x);
        set_shape(&op.inputs[1], x);
        for (size_t i = 1; i <= 2; i++)
            if (cod_shape_count(op.outputs[i].shape) > 0)
                set_shape(&op.outputs[i], x);
        assert_ok(cod_test_parity(test_ref, test_cpu, &op, seed, tolerance_of(COD_OP_LOSS, dtype)));
    }
}

/** Logits so large that e^x overflows, and labels that they deny. */
static void large_logits_agree_with_ref(void **state)
{
    (void)state;
    static const double logits[] = {0, 0.5, -20, 20, -87.5, 89, 1e4, -1e4, 3e38, -3e38};
    enum { COUNT = sizeof logits / sizeof logits[0] };
    for (int label = 0; label < 2; label++) {
        for (int i = 0; i < COUNT; i++) {
            cod_op op = {.kind = COD_OP_LOSS, .attr = {.loss = COD_LOSS_BCE, .alpha = 1}, .name = "bce"};
            op.inputs[0] = op.inputs[1] = op.outputs[0] = op.outputs[1] = op.outputs[2] =
                cod_view_dense(NULL, 0, COD_F32, (cod_shape){1, 1, 1, 1});
            const cod_test_device devices[] = {test_ref, test_cpu};
            double results[2][3];
            for (int d = 0; d < 2; d++) {
                cod_test_op test;
                assert_ok(cod_test_op_init(&test, devices[d], &op));
                assert_ok(cod_test_op_write(&test, 0, &logits[i]));
                assert_ok(cod_test_op_write(&test, 1, (double[]){label}));
                assert_ok(cod_test_op_run(&test));
                for (size_t out = 0; out < 3; out++)
                    assert_ok(cod_test_op_read(&test, COD_OP_MAX_INPUTS + out, &results[d][out]));
                cod_test_op_clear(&test);
            }
            /* 2e-38: the smallest number that the vector exponential gives. */
            for (int out = 0; out < 3; out++)
                if (!(fabs(results[1][out] - results[0][out]) <= 4e-7 * fabs(results[0][out]) + 2e-38))
                    fail_msg("logit %g, label %d, output %d: %g, not %g", logits[i], label, out, results[1][out],
                             results[0][out]);
        }
    }
}

/** A NaN in the prediction is seen in the value and in that element's gradient. */
static void losses_show_nan(void **state)
{
    (void)state;
    const double values[] = {1, -2, NAN, 0.5, 3, -1};
    for (int kind = COD_LOSS_L1; kind <= COD_LOSS_TV; kind++) {
        cod_op op = {.kind = COD_OP_LOSS, .attr = {.loss = (cod_loss_kind)kind, .alpha = 1}, .name = "nan"};
        const bool rows = kind == COD_LOSS_KL || kind == COD_LOSS_CROSS_ENTROPY;
        const cod_view view =
            cod_view_dense(NULL, 0, COD_F32, rows ? (cod_shape){2, 1, 1, 3} : (cod_shape){1, 2, 3, 1});
        op.inputs[0] = op.outputs[1] = view;
        if (kind != COD_LOSS_TV)
            op.inputs[1] = view;
        op.outputs[0] = cod_view_dense(NULL, 0, COD_F32, (cod_shape){1, 1, 1, 1});
        cod_test_op test;
        double value, gradient[6];
        assert_ok(cod_test_op_init(&test, test_cpu, &op));
        assert_ok(cod_test_op_randomise(&test, 1, false));
        assert_ok(cod_test_op_write(&test, 0, values));
        assert_ok(cod_test_op_run(&test));
        assert_ok(cod_test_op_read(&test, COD_OP_MAX_INPUTS, &value));
        assert_ok(cod_test_op_read(&test, COD_OP_MAX_INPUTS + 1, gradient));
        if (!isnan(value) || !isnan(gradient[2]))
            fail_msg("loss %d hid a NaN: value %g, gradient %g", kind, value, gradient[2]);
        cod_test_op_clear(&test);
    }
}

static void copies_arrive(void **state)
{
    (void)state;
    cod_test_copies(test_cpu);
    cod_test_copies(test_paranoid);
    assert_int_equal(cod_paranoid_violations(NULL, 0), 0);
}

/** Of one piece and of several. */
static void averages_have_the_bits_of_ema(void **state)
{
    (void)state;
    static const int64_t counts[] = {1, 299, (1 << 15) + 5, 100003};
    for (uint64_t seed = 0; seed < 20; seed++)
        assert_ok(cod_test_average(test_cpu, counts[seed % 4], seed));
}

int main(int count, char **arguments)
{
    test_few_read(count, arguments);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kinds_agree_with_ref_in_f32),
        cmocka_unit_test(kinds_agree_with_ref_in_bf16),
        cmocka_unit_test(normalisations_of_odd_sizes_agree_with_ref),
        cmocka_unit_test(pools_of_odd_sizes_agree_with_ref),
        cmocka_unit_test(rows_of_odd_sizes_agree_with_ref),
        cmocka_unit_test(large_logits_agree_with_ref),
        cmocka_unit_test(losses_show_nan),
        cmocka_unit_test(averages_have_the_bits_of_ema),
        cmocka_unit_test(copies_arrive),
        cmocka_unit_test(plans_touch_only_their_outputs),
        cmocka_unit_test(halves_of_normalisations_are_refused),
    };
    if (cod_test_absent(&cod_cpu_backend))
        return 77;
    return cmocka_run_group_tests_name("cpu against ref", tests, test_devices_open, test_devices_close);
}
