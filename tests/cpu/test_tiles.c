/*
 * Weight gradients on AMX's tiles (tiles.c), and convolutions with stride 2 in both directions (phased.c), against
 * `ref`: sums of small integers, so that every bit can be compared.
 */
#include "support/test.h"

#include "cpu/cpu.h"
#include "cpu/cpu_internal.h"
#include "devices.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct layer {
    int64_t n, h, w, in, out, kernel_h, kernel_w;
    int pad_h, pad_w;
    int stride_h, stride_w;
} layer;

static const layer layers[] = {
    {1, 1, 1, 1, 1, 3, 3, 1, 1, 1, 1},       {2, 5, 7, 16, 16, 3, 3, 1, 1, 1, 1},
    {3, 7, 13, 65, 65, 3, 3, 0, 0, 1, 1}, /* no padding, one channel more than whole tiles have */
    {1, 4, 5, 5, 33, 3, 3, 2, 2, 1, 1},      {2, 8, 9, 40, 30, 4, 6, 0, 5, 1, 1},  /* as much padding as it takes */
    {2, 6, 20, 31, 47, 1, 2, 0, 0, 1, 1},    {2, 6, 20, 15, 16, 2, 1, 1, 0, 1, 1}, /* lines and columns */
    {1, 7, 13, 64, 3, 9, 9, 4, 4, 1, 1},     {3, 9, 11, 17, 2, 1, 16, 0, 8, 1, 1}, /* tiles of columns of the kernel */
    {1, 17, 700, 20, 20, 3, 3, 1, 1, 1, 1},                                        /* chunks of 8, 8 and 1 lines */
    {1, 7, 3100, 33, 3, 5, 5, 2, 2, 1, 1},   /* chunks of 5 and 2 lines, which is the least of 5 lines of a kernel */
    {9, 12, 12, 260, 130, 3, 3, 1, 1, 1, 1}, /* chunks of several whole images */
    {2, 8, 12, 16, 16, 3, 3, 1, 1, 2, 2},    {3, 7, 13, 65, 65, 3, 3, 0, 0, 2, 2}, /* four phases */
    {5, 12, 12, 300, 520, 3, 3, 1, 1, 2, 2}, {2, 9, 11, 40, 30, 4, 4, 1, 1, 2, 2},
    {2, 9, 10, 20, 3, 9, 9, 4, 4, 2, 2},     {2, 9, 10, 31, 20, 7, 6, 3, 2, 2, 1},
    {2, 6, 7, 31, 47, 1, 2, 0, 0, 2, 2}, /* lines that no position of the kernel meets */
    {1, 1, 1, 5, 6, 3, 3, 1, 1, 2, 2},   /* phases without pixels */
    {1, 17, 1400, 20, 20, 3, 3, 1, 1, 2, 2}, {2, 9, 10, 3, 20, 7, 7, 3, 3, 2, 2},
    {3, 8, 11, 8, 33, 3, 4, 2, 0, 1, 2},                                           /* few channels: flat */
    {9, 12, 12, 2, 33, 4, 16, 1, 3, 2, 1},   {4, 40, 90, 4, 64, 8, 8, 3, 3, 1, 1}, /* whole tiles; chunks */
};
enum { LAYERS = sizeof layers / sizeof layers[0], PARAMETERS = COD_OP_MAX_INPUTS };

static cod_op gradient(const layer *l, bool gaps)
{
    const cod_shape y = {l->n, (l->h + 2 * l->pad_h - l->kernel_h) / l->stride_h + 1,
                         (l->w + 2 * l->pad_w - l->kernel_w) / l->stride_w + 1, l->out};
    return (cod_op){.kind = COD_OP_CONV2D_BACKWARD_WEIGHTS,
                    .accumulate = gaps,
                    .attr = {.stride_h = l->stride_h, .stride_w = l->stride_w, .pad_h = l->pad_h, .pad_w = l->pad_w},
                    .inputs = {cod_test_view_of(COD_BF16, (cod_shape){l->n, l->h, l->w, l->in}, gaps ? 5 : 0),
                               cod_test_view_of(COD_BF16, y, gaps ? 3 : 0)},
                    .outputs = {cod_test_view_of(COD_F32, (cod_shape){l->out, l->kernel_h, l->kernel_w, l->in}, 0),
                                cod_test_view_of(COD_F32, (cod_shape){1, 1, 1, l->out}, 0)}};
}

/** The convolution itself, with a bias, and what it gives dx. */
static cod_op convolution(const layer *l, cod_op_kind kind, bool gaps)
{
    const cod_op of_weights = gradient(l, gaps);
    const cod_view w = of_weights.outputs[0], b = of_weights.outputs[1];
    const bool forward = kind == COD_OP_CONV2D;
    return (cod_op){.kind = kind,
                    .accumulate = gaps && !forward,
                    .attr = of_weights.attr,
                    .inputs = {of_weights.inputs[forward ? 0 : 1], w, forward ? b : (cod_view){0}},
                    .outputs = {of_weights.inputs[forward ? 1 : 0]}};
}

/** New array of whole numbers from -2 to 2. */
static double *integers(int64_t count, uint32_t seed)
{
    double *values = calloc((size_t)count, sizeof *values);
    uint32_t state = seed * 2654435761U + 1;
    assert_non_null(values);
    for (int64_t i = 0; i < count; i++) {
        state = state * 1664525U + 1013904223U;
        values[i] = (double)(state >> 16) / 13108 - 2.5;
        values[i] = round(values[i]);
    }
    return values;
}

/** Elements of the op's outputs: a gradient of weights has two. */
static int64_t result_count(const cod_op *op)
{
    const int64_t first = cod_shape_count(op->outputs[0].shape);
    return op->kind == COD_OP_CONV2D_BACKWARD_WEIGHTS ? first + cod_shape_count(op->outputs[1].shape) : first;
}

/** New array of the op's outputs; `poison` replaces one element of x's channel 3 and one of dy's channel 5. */
static double *run(cod_test_device on, cod_op op, double poison)
{
    cod_test_op test;
    if (on.backend == test_ref.backend) {
        cod_test_make_dense(&op);
        for (size_t slot = 0; slot < COD_TEST_SLOTS; slot++)
            cod_test_view(&op, slot)->dtype = COD_F64;
    }
    assert_ok(cod_test_op_init(&test, on, &op));
    for (uint32_t slot = 0; slot < COD_TEST_SLOTS; slot++) {
        if (test.buffers[slot] == NULL)
            continue;
        double *values = integers(cod_shape_count(cod_test_view(&op, slot)->shape), slot);
        if (slot < 2 && poison != 0)
            values[slot == 0 ? 3 : 5] = poison;
        assert_ok(cod_test_op_write(&test, slot, values));
        free(values);
    }
    assert_ok(test_scratch_arm(on));
    assert_ok(cod_test_op_run(&test));
    assert_ok(test_scratch_check(on));
    double *result = calloc((size_t)result_count(&op), sizeof *result);
    assert_non_null(result);
    assert_ok(cod_test_op_read(&test, PARAMETERS, result));
    if (op.kind == COD_OP_CONV2D_BACKWARD_WEIGHTS)
        assert_ok(cod_test_op_read(&test, PARAMETERS + 1, result + cod_shape_count(op.outputs[0].shape)));
    cod_test_op_clear(&test);
    return result;
}

static void assert_refs_bits(const cod_op *op, int i, bool gaps)
{
    assert_true(cpu_tiles_fits(test_cpu.device, op));
    double *expected = run(test_ref, *op, 0), *actual = run(test_cpu, *op, 0);
    for (int64_t k = 0; k < result_count(op); k++)
        if (!(actual[k] == expected[k]))
            fail_msg("layer %d%s: element %d is %g, not %g", i, gaps ? ", with gaps" : "", (int)k, actual[k],
                     expected[k]);
    free(expected);
    free(actual);
}

/** Dense, and with gaps between pixels and added to what was there. */
TEST(layers_have_refs_bits)
{
    for (int i = 0; i < LAYERS; i++) {
        for (int gaps = 0; gaps < 2; gaps++) {
            const cod_op op = gradient(&layers[i], gaps != 0);
            assert_refs_bits(&op, i, gaps != 0);
        }
    }
}

TEST(shuffled_pixels_have_refs_bits)
{
    static const layer shuffled[] = {{2, 5, 7, 16, 64, 3, 3, 1, 1, 1, 1},
                                     {2, 9, 11, 31, 64, 4, 4, 1, 1, 2, 2},
                                     {3, 17, 90, 20, 288, 3, 3, 1, 1, 1, 1}};
    static const int64_t factors[] = {2, 2, 3};
    for (int i = 0; i < 3; i++) {
        for (int gaps = 0; gaps < 2; gaps++) {
            cod_op op = gradient(&shuffled[i], gaps != 0);
            const cod_shape y = op.inputs[1].shape;
            const int64_t r = factors[i];
            op.attr.factor = (int)r;
            op.inputs[1] = cod_test_view_of(COD_BF16, (cod_shape){y.n, y.h * r, y.w * r, y.c / (r * r)}, gaps ? 3 : 0);
            assert_refs_bits(&op, i, gaps != 0);
        }
    }
}

static int set_up(void **state)
{
    return setenv("COD_CPU_CONVOLUTION", "tiles", 1) || test_devices_open(state);
}

static int reopen(void **state, const char *convolution)
{
    test_devices_close(state);
    return setenv("COD_CPU_CONVOLUTION", convolution, 1) || test_devices_open(state);
}

static int force_phased(void **state)
{
    return reopen(state, "phased");
}

static int force_tiles(void **state)
{
    return reopen(state, "tiles");
}

/** Of results as large as 2·2·512·9, bf16 keeps some 8 bits: `ref` reads and rounds as the device does. */
TEST_WITH(strided_convolutions_agree_with_ref, force_phased, force_tiles)
{
    static const layer strided[] = {
        {1, 13, 62, 512, 32, 3, 3, 1, 1, 2, 2}, /* chunks of 5 lines and fewer */
        {7, 12, 12, 512, 32, 3, 3, 1, 1, 2, 2}, /* chunks of 3 images and 1 */
        {2, 9, 35, 64, 512, 3, 3, 1, 1, 2, 2},  /* many panels; backward data, several chunks */
        {19, 12, 12, 32, 512, 3, 3, 1, 1, 2, 2}, {2, 10, 11, 96, 48, 4, 5, 1, 2, 2, 2}, /* a panel of half the width */
    };
    for (size_t i = 0; i < sizeof strided / sizeof strided[0]; i++) {
        for (int variant = 0; variant < 4; variant++) {
            const cod_op op =
                convolution(&strided[i], variant < 2 ? COD_OP_CONV2D : COD_OP_CONV2D_BACKWARD_DATA, variant % 2 != 0);
            if (!cpu_phased_fits(test_cpu.device, &op)) {
                assert_true(strided[i].out % 32 != 0 && variant >= 2); /* the depth of backward data */
                continue;
            }
            double *expected = run(test_ref, op, 0), *actual = run(test_cpu, op, 0);
            for (int64_t k = 0; k < cod_shape_count(op.outputs[0].shape); k++)
                if (!(fabs(actual[k] - expected[k]) <= fabs(expected[k]) / 256))
                    fail_msg("layer %d, variant %d: element %d is %g, not %g", (int)i, variant, (int)k, actual[k],
                             expected[k]);
            free(expected);
            free(actual);
        }
    }
}

/**
 * Numbers that are not finite reach the gradients of their own channels alone, and all of those that `ref` has there.
 */
TEST(infinite_values_stay_in_their_channels)
{
    static const layer l = {2, 5, 7, 20, 18, 3, 3, 1, 1, 1, 1};
    static const double poisons[] = {NAN, INFINITY};
    const cod_op op = gradient(&l, false);
    for (int p = 0; p < 2; p++) {
        double *expected = run(test_ref, op, poisons[p]), *actual = run(test_cpu, op, poisons[p]);
        for (int64_t k = 0; k < cod_shape_count(op.outputs[0].shape); k++) {
            const bool poisoned = k % l.in == 3 || k / l.in / 9 == 5;
            if (poisoned ? !isfinite(expected[k]) && isfinite(actual[k]) : !(actual[k] == expected[k]))
                fail_msg("%g: element %d is %g, not %g", poisons[p], (int)k, actual[k], expected[k]);
        }
        free(expected);
        free(actual);
    }
}

/** Sums that round: who adds what does not depend on how many threads there are. */
TEST(threads_do_not_change_bits)
{
    static const layer shapes[] = {{2, 9, 400, 33, 20, 3, 3, 1, 1, 1, 1},
                                   {1, 7, 13, 64, 3, 9, 9, 4, 4, 1, 1},
                                   {5, 12, 12, 300, 20, 3, 3, 1, 1, 2, 2}};
    for (int i = 0; i < 3; i++) {
        const cod_op op = gradient(&shapes[i], false);
        const int64_t count = cod_shape_count(op.outputs[0].shape);
        double *results = calloc((size_t)(3 * count), sizeof *results);
        assert_non_null(results);
        for (int threads = 1; threads <= 3; threads++) {
            cod_test_device on = {.backend = &cod_cpu_backend};
            cod_test_op test;
            assert_ok(on.backend->open(&(cod_device_options){.threads = threads}, &on.device));
            assert_ok(cod_test_op_init(&test, on, &op));
            assert_ok(cod_test_op_randomise(&test, 1, false));
            assert_ok(cod_test_op_run(&test));
            assert_ok(cod_test_op_read(&test, PARAMETERS, results + (threads - 1) * count));
            cod_test_op_clear(&test);
            on.backend->close(on.device);
        }
        for (int threads = 2; threads <= 3; threads++)
            assert_memory_equal(results, results + (threads - 1) * count, (size_t)count * sizeof *results);
        free(results);
    }
}

static void assert_refused(const cod_op *op)
{
    assert_false(cpu_tiles_fits(test_cpu.device, op));
}

TEST(what_does_not_fit_is_refused)
{
    static const layer fits = {2, 20, 40, 32, 32, 3, 3, 1, 1, 1, 1};
    const cod_op op = gradient(&fits, false);
    assert_true(cpu_tiles_fits(test_cpu.device, &op));
    cod_device without = *test_cpu.device;
    without.amx = false;
    assert_false(cpu_tiles_fits(&without, &op));

    cod_op other = op;
    other.attr.stride_h = 3;
    assert_refused(&other);
    other = op, other.attr.stride_w = 3;
    assert_refused(&other);
    other = op, other.attr.stride_w = 2, other.outputs[0].shape.w = 2, other.attr.pad_w = 1;
    assert_refused(&other);
    other = op, other.attr.pad_h = 3;
    assert_refused(&other);
    other = op, other.attr.pad_w = 3;
    assert_refused(&other);
    other = op, other.attr.factor = 2, other.inputs[1].shape.c = 8; /* shuffled channels that fill no tile */
    assert_refused(&other);
    other = op, other.inputs[0].dtype = COD_F32;
    assert_refused(&other);
    other = op, other.inputs[1].dtype = COD_F32;
    assert_refused(&other);
    other = op, other.kind = COD_OP_CONV2D_BACKWARD_DATA;
    assert_refused(&other);
    other = op, other.outputs[0].shape.w = 17;
    assert_refused(&other);
    other = op, other.outputs[0].shape.h = other.outputs[0].shape.w = 1, other.attr.pad_h = other.attr.pad_w = 0;
    assert_refused(&other);
}

/** A plan's function, which tells implementations apart. */
typedef cod_status (*runner)(cod_plan *plan);

static runner runner_of(const cod_op *op, const char *convolution)
{
    cod_test_device on = {.backend = &cod_cpu_backend};
    cod_test_op test;
    setenv("COD_CPU_CONVOLUTION", convolution, 1);
    assert_ok(on.backend->open(&(cod_device_options){.threads = 1}, &on.device));
    assert_ok(cod_test_op_init(&test, on, op));
    const runner found = test.plan->run;
    cod_test_op_clear(&test);
    on.backend->close(on.device);
    return found;
}

/** Untimed, one product makes the gradients of one pixel's kernel, and those of more weights than pixels. */
TEST(pixels_decide_where_nothing_is_timed)
{
    static const layer many = {1, 3, 43, 16, 128, 3, 3, 1, 1, 1, 1}, few = {1, 3, 42, 16, 128, 3, 3, 1, 1, 1, 1};
    static const layer of_one = {1, 3, 43, 16, 16, 1, 1, 0, 0, 1, 1};
    const cod_op of_many = gradient(&many, false), of_few = gradient(&few, false), of_pixel = gradient(&of_one, false);
    const runner tiles = runner_of(&of_many, "tiles"), columns = runner_of(&of_many, "columns");
    assert_true(tiles != columns && runner_of(&of_many, "onednn") != columns);
    assert_true(runner_of(&of_many, "fixed") == tiles);
    assert_true(runner_of(&of_few, "fixed") == columns);
    assert_true(runner_of(&of_pixel, "fixed") == columns);
}

TEST_GROUP(set_up, test_devices_close)
TEST_DEVICE(cod_cpu_backend)
