#include "support/test.h"

#include "core/rng.h"
#include "cpu/cpu.h"
#include "devices.h"
#include "support/paranoid.h"
#include "support/parity.h"

#include <math.h>
#include <stdlib.h>

/**
 * Convolutions on 8-bit integers: `ref` against the formula of core/backend.h written out here, and cpu against ref.
 * Integers and their sums are exact on both, so cpu may differ by f32's rounding of three operations, and by one
 * rounding of the result in bf16.
 */
typedef cod_test_layer layer;

static const layer layers[] = {
    {1, 1, 1, 5, 5, 3, 1, 1},    {3, 1, 1, 16, 64, 3, 1, 1},   {1, 7, 13, 5, 65, 3, 1, 1},
    {3, 7, 13, 16, 16, 3, 1, 1}, {1, 7, 13, 64, 64, 3, 1, 1},  {3, 7, 13, 64, 65, 3, 1, 1},
    {3, 7, 13, 65, 64, 3, 1, 1}, {1, 7, 13, 64, 64, 1, 1, 0},  {3, 1, 1, 65, 65, 1, 1, 0},
    {3, 9, 8, 64, 16, 3, 2, 1},  {1, 13, 7, 16, 64, 5, 1, 2},  {3, 7, 13, 3, 1, 9, 1, 4},
    {1, 7, 13, 64, 3, 9, 1, 4},  {1, 20, 24, 64, 64, 3, 1, 1}, {1, 12, 24, 64, 256, 3, 1, 1},
    {1, 9, 9, 32, 48, 3, 1, 0},  {3, 1, 1, 64, 3, 9, 1, 4},    {3, 7, 13, 65, 4, 3, 1, 1},
    {1, 5, 341, 17, 3, 5, 1, 2}, /* wider than a tile */
};
enum { LAYERS = sizeof layers / sizeof layers[0], VARIANTS = 16 };

#ifdef __SANITIZE_ADDRESS__
enum { STEP = 5 };
#else
enum { STEP = 1 };
#endif

/** Variants differ in activation, bias, residual, types and strides. */
static cod_op layer_op(const layer *l, int variant)
{
    static const cod_activation activations[] = {COD_ACT_NONE, COD_ACT_RELU, COD_ACT_PRELU, COD_ACT_LEAKY_RELU,
                                                 COD_ACT_SIGMOID};
    const cod_dtype x_dtype = variant & 1 ? COD_BF16 : COD_F32, y_dtype = variant & 2 ? COD_BF16 : COD_F32;
    const bool shuffled = variant % 4 == 3 && l->out % 4 == 0;
    const cod_test_layout layout = {x_dtype, y_dtype, variant & 4 ? 8 : 0, variant & 8 && !shuffled ? 16 : 0};
    cod_op op = cod_test_layer_op(l, COD_OP_CONV2D, layout, shuffled ? 2 : 0);
    op.deterministic = (variant & 8) != 0;
    op.attr.activation = activations[variant % 5];
    op.attr.leak = 0.2f;
    op.attr.int8_range = 0.8f;
    if (variant % 3 == 0)
        cod_test_without_bias(&op);
    const bool slopes = (variant & (shuffled ? 4 : 1)) != 0;
    if (op.attr.activation == COD_ACT_PRELU)
        op.inputs[3] = cod_test_view_of(COD_F32, (cod_shape){1, 1, 1, slopes ? op.outputs[0].shape.c : 1}, 0);
    if (variant % 7 > 4)
        op.inputs[4] = cod_test_view_of(x_dtype, op.outputs[0].shape, variant & 4 ? 0 : 3);
    return op;
}

static double *read_values(cod_test_op *test, size_t slot)
{
    double *values = calloc((size_t)cod_shape_count(cod_test_view(&test->op, slot)->shape), sizeof *values);
    assert_non_null(values);
    assert_ok(cod_test_op_read(test, slot, values));
    return values;
}

static int nearest(double value)
{
    return isnan(value) ? 0 : (int)fmin(fmax(nearbyint(value), -127), 127);
}

/** One output element by the formula, without activation. */
static double expected_element(const cod_op *op, const double *x, const double *w, const double *bias, int64_t at)
{
    const cod_shape xs = op->inputs[0].shape, ws = op->inputs[1].shape, ys = op->outputs[0].shape;
    const int64_t o = at % ys.c, q = at / ys.c % ys.w, p = at / ys.c / ys.w % ys.h, n = at / ys.c / ys.w / ys.h;
    const int64_t inner = ws.h * ws.w * ws.c;
    const float range = op->attr.int8_range;
    float largest = 0;
    for (int64_t i = 0; i < inner; i++)
        largest = fmaxf(largest, fabsf((float)w[o * inner + i]));
    int64_t sum = 0;
    for (int64_t i = 0; i < inner; i++) {
        const int64_t row = p * op->attr.stride_h - op->attr.pad_h + i / ws.c / ws.w;
        const int64_t column = q * op->attr.stride_w - op->attr.pad_w + i / ws.c % ws.w;
        if (row < 0 || row >= xs.h || column < 0 || column >= xs.w)
            continue;
        const float value = (float)x[((n * xs.h + row) * xs.w + column) * xs.c + i % ws.c];
        sum += nearest((double)(value * (127 / range))) * nearest((double)((float)w[o * inner + i] * (127 / largest)));
    }
    const float factor = range / 127 * (largest / 127);
    return (double)sum * (double)factor + (bias ? bias[o] : 0);
}

TEST(ref_is_the_formula)
{
    for (int i = 0; i < 12; i++) {
        cod_op op = layer_op(&layers[i], i % 2 ? 1 : 5);
        op.attr.activation = COD_ACT_NONE;
        op.inputs[3] = op.inputs[4] = (cod_view){0};
        op.outputs[0].dtype = COD_F32;
        cod_test_op test;
        assert_ok(cod_test_op_init(&test, test_ref, &op));
        assert_ok(cod_test_op_randomise(&test, (uint64_t)i, false));
        assert_ok(cod_test_op_run(&test));
        double *x = read_values(&test, 0), *w = read_values(&test, 1), *y = read_values(&test, COD_OP_MAX_INPUTS);
        double *bias = test.buffers[2] ? read_values(&test, 2) : NULL;
        for (int64_t k = 0; k < cod_shape_count(op.outputs[0].shape); k++) {
            const float expected = (float)expected_element(&op, x, w, bias, k);
            if (y[k] != (double)expected)
                fail_msg("layer %d, element %lld is %.9g, not %.9g", i, (long long)k, y[k], (double)expected);
        }
        free(x), free(w), free(y), free(bias);
        cod_test_op_clear(&test);
    }
}

static bool has_int8(void)
{
    return test_cpu.backend->supports(test_cpu.device, COD_S8);
}

TEST(without_the_instructions_it_says_so)
{
    if (has_int8())
        skip();
    const cod_op op = layer_op(&layers[0], 0);
    cod_test_op test;
    assert_fails(COD_ERR_UNSUPPORTED, "VNNI", cod_test_op_init(&test, test_cpu, &op));
}

static void check_layers(cod_test_device tested, int step)
{
    char message[256];
    for (int i = 0; i < LAYERS; i++) {
        for (int variant = 0; variant < VARIANTS; variant += step) {
            const cod_op op = layer_op(&layers[i], variant + i);
            const bool bf16 = op.outputs[0].dtype == COD_BF16;
            const bool adds = op.inputs[4].shape.n > 0; /* to what was stored already */
            const cod_tolerance tolerance =
                bf16 ? (cod_tolerance){8e-3, adds ? 4e-3 : 1e-6} : (cod_tolerance){4e-6, 1e-6};
            if (cod_test_parity(test_ref, tested, &op, (uint64_t)variant, tolerance) != COD_OK)
                fail_msg("layer %d, variant %d: %s", i, variant, cod_error_message());
            if (tested.backend == test_paranoid.backend && cod_paranoid_violations(message, sizeof message) > 0)
                fail_msg("layer %d, variant %d: %s", i, variant, message);
        }
    }
}

TEST(layers_agree_with_ref)
{
    if (!has_int8())
        skip();
    check_layers(test_cpu, STEP);
}

TEST(plans_touch_only_their_outputs)
{
    if (!has_int8())
        skip();
    check_layers(test_paranoid, 3 * STEP);
}

TEST(extremes_are_as_specified)
{
    cod_parity_extreme_integers(test_ref);
    if (has_int8())
        cod_parity_extreme_integers(test_cpu);
}

TEST(new_weights_take_effect_when_prepared)
{
    if (!has_int8())
        skip();
    const cod_op op = layer_op(&layers[4], 1);
    cod_test_op a, b;
    assert_ok(cod_test_op_init(&a, test_ref, &op));
    assert_ok(cod_test_op_init(&b, test_cpu, &op));
    for (uint64_t seed = 0; seed < 3; seed++) {
        assert_ok(cod_test_op_randomise(&a, seed, false));
        assert_ok(cod_test_op_randomise(&b, seed, false));
        assert_ok(cod_test_op_run(&a));
        assert_ok(cod_test_op_run(&b));
        double *expected = read_values(&a, COD_OP_MAX_INPUTS), *actual = read_values(&b, COD_OP_MAX_INPUTS);
        assert_ok(
            cod_test_compare("y", actual, expected, cod_shape_count(op.outputs[0].shape), (cod_tolerance){4e-6, 1e-6}));
        free(expected), free(actual);
    }
    cod_test_op_clear(&a);
    cod_test_op_clear(&b);
}

TEST(a_range_that_is_none_is_refused)
{
    static const float ranges[] = {-1, NAN, INFINITY};
    for (int i = 0; i < 3; i++) {
        cod_op op = layer_op(&layers[0], 0);
        op.attr.int8_range = ranges[i];
        cod_test_op test;
        assert_fails(COD_ERR_ARGUMENT, "int8_range", cod_test_op_init(&test, test_ref, &op));
        assert_fails(COD_ERR_ARGUMENT, "int8_range", cod_test_op_init(&test, test_cpu, &op));
    }
    cod_op floats = layer_op(&layers[0], 0), two = floats; /* a range of a layer that is in floats; two ranges */
    cod_test_op test;
    floats.attr.int8_range = 0;
    floats.inputs[5] = cod_test_view_of(COD_F32, (cod_shape){1, 1, 1, 1}, 0);
    two.inputs[5] = cod_test_view_of(COD_F32, (cod_shape){1, 1, 1, 2}, 0);
    assert_fails(COD_ERR_ARGUMENT, "shapes", cod_test_op_init(&test, test_ref, &floats));
    assert_fails(COD_ERR_ARGUMENT, "shapes", cod_test_op_init(&test, test_cpu, &two));
}

TEST_GROUP(test_devices_open, test_devices_close)
TEST_DEVICE(cod_cpu_backend)
