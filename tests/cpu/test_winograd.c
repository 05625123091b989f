#include "support/test.h"

#include "core/rng.h"
#include "cpu/cpu.h"
#include "devices.h"

#include <math.h>
#include <stdlib.h>

/**
 * Winograd's convolutions: exact where nothing is rounded, and how much more they round than direct ones.
 *
 * With x in -2…2 and weights in multiples of 4, all transformed values are whole numbers below 256 and all sums below
 * 2^24, so nothing is rounded before the result is stored: every bit must be ref's. Tiles of 4x4 outputs divide
 * weights, or sums of a gradient, by 24 in both directions, so that they want multiples of 576.
 */
typedef struct layer {
    int64_t n, h, w, in, out;
} layer;

static const layer layers[] = {{1, 7, 13, 64, 64}, {3, 7, 13, 16, 80}, {1, 1, 1, 64, 64},  {3, 2, 1, 32, 16},
                               {2, 5, 8, 48, 32},  {3, 6, 6, 64, 256}, {1, 9, 4, 256, 64}, {16, 3, 5, 32, 32}};
enum { LAYERS = sizeof layers / sizeof layers[0] };

static cod_test_device winograd, winograd4, direct;
static double unit = 4; /* of weights and dy */

static bool is_gradient(const cod_op *op)
{
    return op->kind == COD_OP_CONV2D_BACKWARD_WEIGHTS;
}

/** `factor`: the output has `out` channels and is so many times as large. */
static cod_op layer_op(const layer *l, cod_op_kind kind, cod_dtype dtype, int64_t gap, int factor)
{
    const cod_test_layer full = {l->n, l->h, l->w, l->in, l->out * factor * factor, 3, 1, 1};
    return cod_test_layer_op(&full, kind, (cod_test_layout){dtype, dtype, gap, 2 * gap}, factor);
}

/** Whole numbers: weights and dy multiples of the unit, all else -2 … 2; slopes of 1/2. */
static double whole(const cod_op *op, size_t slot, cod_rng *rng)
{
    (void)op;
    const double number = floor(5 * cod_rng_uniform(rng)) - 2;
    return slot == 3 ? 0.5 : slot == 1 ? unit * fmin(fmax(number, -1), 1) : number;
}

static double normal(const cod_op *op, size_t slot, cod_rng *rng)
{
    const double scale = slot == 1 ? is_gradient(op) ? 0.1 : 0.06 : 1;
    const double radius = sqrt(-2 * log(1 - cod_rng_uniform(rng)));
    return scale * radius * cos(6.283185307179586 * cod_rng_uniform(rng));
}

typedef double (*value_source)(const cod_op *op, size_t slot, cod_rng *rng);

/** Runs the op on `on` and returns output `output` as new array. */
static double *run(cod_test_device on, const cod_op *op, value_source source, uint64_t seed, size_t output)
{
    cod_test_op test;
    assert_ok(cod_test_op_init(&test, on, op));
    for (size_t slot = 0; slot < COD_TEST_SLOTS; slot++) {
        const cod_view *view = cod_test_view(&test.op, slot);
        if (test.buffers[slot] == NULL)
            continue;
        const int64_t count = cod_shape_count(view->shape);
        double *values = calloc((size_t)count, sizeof *values);
        cod_rng rng = cod_rng_open(seed, 0, 0, 0, COD_RNG_TEST, (uint32_t)slot);
        for (int64_t i = 0; i < count; i++)
            values[i] = source(op, slot, &rng);
        assert_ok(cod_test_op_write(&test, slot, values));
        free(values);
    }
    assert_ok(test_scratch_arm(on));
    assert_ok(cod_test_op_run(&test));
    assert_ok(test_scratch_check(on));
    double *values = calloc((size_t)cod_shape_count(op->outputs[output].shape), sizeof *values);
    assert_non_null(values);
    assert_ok(cod_test_op_read(&test, COD_OP_MAX_INPUTS + output, values));
    cod_test_op_clear(&test);
    return values;
}

static double *run_exact(const cod_op *op, value_source source, uint64_t seed, size_t output)
{
    cod_op exact = *op;
    cod_test_make_dense(&exact);
    for (size_t slot = 0; slot < COD_TEST_SLOTS; slot++)
        cod_test_view(&exact, slot)->dtype = COD_F64;
    return run(test_ref, &exact, source, seed, output);
}

static double stored(cod_dtype dtype, double value)
{
    return dtype == COD_BF16 ? (double)cod_f32_from_bf16(cod_bf16_from_f32((float)value)) : (double)(float)value;
}

/*
 * As in test_convolution.c: a sanitizer looks at what is read and written, in all layers; the plain build compares all
 * numbers.
 */
#ifdef __SANITIZE_ADDRESS__
enum { LAYERS_COMPARED = 1 };
#else
enum { LAYERS_COMPARED = LAYERS };
#endif

static void check_whole_on(cod_test_device tested, const cod_op *op, int which)
{
    for (size_t output = 0; output < 2; output++) {
        const cod_view *view = &op->outputs[output];
        const bool compared = which < LAYERS_COMPARED;
        if (cod_shape_count(view->shape) == 0 || (output > 0 && !compared))
            continue;
        double *expected = compared ? run_exact(op, whole, (uint64_t)which, output) : NULL,
               *actual = run(tested, op, whole, (uint64_t)which, output);
        for (int64_t i = 0; compared && i < cod_shape_count(view->shape); i++)
            if (actual[i] != stored(view->dtype, expected[i]))
                fail_msg("layer %d, %s, %s: output %d, element %lld is %.9g, not %.9g", which,
                         cod_op_kind_name(op->kind), cod_dtype_name(op->inputs[0].dtype), (int)output, (long long)i,
                         actual[i], expected[i]);
        free(expected);
        free(actual);
    }
}

static void check_whole(const cod_op *op, int which)
{
    unit = 4;
    check_whole_on(winograd, op, which);
    if (op->inputs[0].dtype != COD_F32)
        return;
    unit = 576;
    check_whole_on(winograd4, op, which);
}

static bool has_bf16(void)
{
    return winograd.backend->supports(winograd.device, COD_BF16);
}

/** Of the layer's output or in f32, with a gap of its own. */
static void add_residual(cod_op *op, int variant)
{
    op->inputs[4] =
        cod_test_view_of(variant % 2 ? COD_F32 : op->outputs[0].dtype, op->outputs[0].shape, variant % 3 * 5);
}

TEST(whole_numbers_come_out_exactly)
{
    static const cod_activation activations[] = {COD_ACT_NONE, COD_ACT_RELU, COD_ACT_PRELU};
    for (int i = 0; i < LAYERS; i++) {
        /* Few: each layer of one kind in each type, so that neighbours take turns. */
        for (int variant = test_few() ? i % 3 : 0; variant < 18; variant += test_few() ? 3 : 1) {
            const cod_op_kind kind = (cod_op_kind)(COD_OP_CONV2D + variant % 3);
            const cod_dtype dtype = variant / 3 % 2 && has_bf16() ? COD_BF16 : COD_F32;
            /* Shuffled by 1, 2 and 3. */
            cod_op op =
                layer_op(&layers[i], kind, dtype, variant % 5 * 8, layers[i].out <= 64 ? 1 + variant / 3 % 3 : 1);
            op.accumulate = kind != COD_OP_CONV2D && variant / 6 % 2;
            if (kind == COD_OP_CONV2D)
                op.attr.activation = activations[variant / 6 % 3];
            if (op.attr.activation == COD_ACT_PRELU)
                op.inputs[3] = cod_test_view_of(COD_F32, (cod_shape){1, 1, 1, layers[i].out}, 0);
            if (kind == COD_OP_CONV2D && (i + variant / 3) % 2)
                add_residual(&op, i + variant / 6);
            check_whole(&op, i);
        }
    }
}

/** As in bands, whose input has a line more above and below. */
TEST(outputs_lower_than_inputs_come_out_exactly)
{
    for (int i = 0; i < LAYERS; i++) {
        for (int variant = test_few() ? i % 2 : 0; variant < 6; variant += test_few() ? 3 : 1) {
            const cod_dtype dtype = variant % 2 && has_bf16() ? COD_BF16 : COD_F32;
            cod_op op =
                layer_op(&layers[i], COD_OP_CONV2D, dtype, variant % 5 * 8, layers[i].out <= 64 ? 1 + variant / 2 : 1);
            op.attr.pad_h = 0;
            op.inputs[0].shape.h += 2;
            if ((i + variant / 2) % 2)
                add_residual(&op, variant);
            check_whole(&op, i);
        }
    }
}

static double rms(const double *a, const double *b, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += (a[i] - (b ? b[i] : 0)) * (a[i] - (b ? b[i] : 0));
    return sqrt(sum / (double)count);
}

static double rms_error(cod_test_device on, const cod_op *op, const double *exact)
{
    double *actual = run(on, op, normal, 1, 0);
    const double error = rms(actual, exact, cod_shape_count(op->outputs[0].shape));
    free(actual);
    return error;
}

/**
 * Against f64 on unrounded numbers, the error is to stay within twice a direct convolution's, which rounds the same
 * inputs; in f32, where a sum over all tiles is one chain and oneDNN's are several, or within 2^-20 of the result.
 */
TEST(it_rounds_at_most_twice_as_coarsely_as_direct)
{
    static const layer l = {2, 24, 24, 64, 64};
    for (int kind = COD_OP_CONV2D; kind <= COD_OP_CONV2D_BACKWARD_WEIGHTS; kind++) {
        const cod_op op = layer_op(&l, (cod_op_kind)kind, has_bf16() ? COD_BF16 : COD_F32, 0, 1);
        double *exact = run_exact(&op, normal, 1, 0);
        const double ours = rms_error(winograd, &op, exact), theirs = rms_error(direct, &op, exact);
        print_message("%s, %s: rms error %.3g, direct %.3g: %.2f times\n", cod_op_kind_name(op.kind),
                      cod_dtype_name(op.inputs[0].dtype), ours, theirs, ours / theirs);
        const bool bf16 = op.inputs[0].dtype == COD_BF16;
        const double noise = bf16 ? 0 : ldexp(rms(exact, NULL, cod_shape_count(op.outputs[0].shape)), -20);
        assert_true(ours <= fmax(2 * theirs, noise));
        free(exact);
    }
}

/**
 * In f32 alone, to within 2^-18 of the result: transforms with factors up to 25 round more coarsely than those of 2x2
 * outputs.
 */
TEST(large_tiles_round_to_a_quarter_million)
{
    static const layer l = {2, 22, 26, 64, 64};
    for (int kind = COD_OP_CONV2D; kind <= COD_OP_CONV2D_BACKWARD_WEIGHTS; kind++) {
        const cod_op op = layer_op(&l, (cod_op_kind)kind, COD_F32, 0, 1);
        double *exact = run_exact(&op, normal, 1, 0);
        const double ours = rms_error(winograd4, &op, exact);
        const double size = rms(exact, NULL, cod_shape_count(op.outputs[0].shape));
        print_message("%s: rms error %.3g of the result\n", cod_op_kind_name(op.kind), ours / size);
        assert_true(ours <= ldexp(size, -18));
        free(exact);
    }
}

static int open_devices(void **state)
{
    const cod_device_options two = {.threads = 2};
    winograd.backend = winograd4.backend = direct.backend = &cod_cpu_backend;
    setenv("COD_CPU_CONVOLUTION", "winograd", 1);
    if (winograd.backend->open(&two, &winograd.device) != COD_OK)
        return -1;
    setenv("COD_CPU_CONVOLUTION", "winograd4", 1);
    if (winograd4.backend->open(&two, &winograd4.device) != COD_OK)
        return -1;
    setenv("COD_CPU_CONVOLUTION", "onednn", 1);
    if (direct.backend->open(&two, &direct.device) != COD_OK)
        return -1;
    return test_devices_open(state);
}

static int close_devices(void **state)
{
    winograd.backend->close(winograd.device);
    winograd4.backend->close(winograd4.device);
    direct.backend->close(direct.device);
    return test_devices_close(state);
}

TEST_GROUP(open_devices, close_devices)
TEST_DEVICE(cod_cpu_backend)
