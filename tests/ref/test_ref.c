#include "open_ref.h"

#include "support/copies.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

enum { SEEDS = 20 };

static double rounded(double value, cod_dtype dtype)
{
    if (dtype == COD_BF16)
        return (double)cod_f32_from_bf16(cod_bf16_from_f32((float)value));
    return dtype == COD_F32 ? (double)(float)value : value;
}

/** The type that a view of the op has when activations are bf16 and parameters f32. */
static cod_dtype narrow_type(cod_op_kind kind, size_t slot)
{
    return cod_test_slot_class(kind, slot) == 'a' ? COD_BF16 : COD_F32;
}

/** Writes values that bf16 can hold into all slots. */
static void write_narrow_values(cod_test_op *test, uint64_t seed)
{
    for (size_t slot = 0; slot < COD_TEST_SLOTS; slot++) {
        if (test->buffers[slot] == NULL)
            continue;
        double *values = cod_test_random_values(&test->op, slot, seed, false);
        for (int64_t i = 0; i < cod_shape_count(cod_test_view(&test->op, slot)->shape); i++)
            values[i] = rounded(values[i], COD_BF16);
        assert_ok(cod_test_op_write(test, slot, values));
        free(values);
    }
}

/** An optimiser's average, which is of parameters that were rounded before: averages_have_the_bits_of_ema(). */
static bool is_of_rounded(cod_op_kind kind, size_t slot)
{
    return kind == COD_OP_OPTIMISER && slot == COD_OP_MAX_INPUTS + 3;
}

/** In bf16 and f32 an op gives exactly what it gives in f64, rounded once. */
static void compare_rounded(cod_op_kind kind, uint64_t seed)
{
    cod_op wide_op = cod_test_random_op(kind, COD_F64, COD_F64, seed);
    cod_op narrow_op = cod_test_random_op(kind, COD_BF16, COD_F32, seed);
    cod_test_op wide, narrow;
    assert_ok(cod_test_op_init(&wide, ref, &wide_op));
    assert_ok(cod_test_op_init(&narrow, ref, &narrow_op));
    write_narrow_values(&wide, seed);
    write_narrow_values(&narrow, seed);
    assert_ok(cod_test_op_run(&wide));
    assert_ok(cod_test_op_run(&narrow));
    for (size_t slot = COD_OP_MAX_INPUTS; slot < COD_TEST_SLOTS; slot++) {
        if (wide.buffers[slot] == NULL || is_of_rounded(kind, slot))
            continue;
        const int64_t count = cod_shape_count(cod_test_view(&wide.op, slot)->shape);
        double *values = calloc((size_t)count * 2, sizeof *values);
        assert_ok(cod_test_op_read(&wide, slot, values));
        assert_ok(cod_test_op_read(&narrow, slot, values + count));
        for (int64_t i = 0; i < count; i++)
            if (!(rounded(values[i], narrow_type(kind, slot)) == values[count + i]))
                fail_msg("%s, seed %" PRIu64 ", slot %zu, element %" PRId64 ": %.17g became %.17g",
                         cod_op_kind_name(kind), seed, slot, i, values[i], values[count + i]);
        free(values);
    }
    cod_test_op_clear(&wide);
    cod_test_op_clear(&narrow);
}

TEST(narrow_types_round_once)
{
    for (int kind = 0; kind < COD_TEST_KINDS; kind++)
        for (uint64_t seed = 0; seed < SEEDS; seed++)
            compare_rounded((cod_op_kind)kind, seed);
}

/** Strided views give what dense ones give. */
TEST(strides_do_not_change_results)
{
    for (int kind = 0; kind < COD_TEST_KINDS; kind++) {
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            cod_op op = cod_test_random_op((cod_op_kind)kind, COD_F32, COD_F32, seed);
            cod_test_op strided, dense;
            for (size_t slot = 0; slot < COD_TEST_SLOTS; slot++)
                cod_test_view(&op, slot)->pixel_stride = cod_test_view(&op, slot)->shape.c + 3;
            assert_ok(cod_test_op_init(&strided, ref, &op));
            cod_test_make_dense(&op);
            assert_ok(cod_test_op_init(&dense, ref, &op));
            assert_ok(cod_test_op_randomise(&strided, seed, false));
            assert_ok(cod_test_op_randomise(&dense, seed, false));
            assert_ok(cod_test_op_run(&strided));
            assert_ok(cod_test_op_run(&dense));
            for (size_t slot = 0; slot < COD_TEST_SLOTS; slot++) {
                if (dense.buffers[slot] == NULL)
                    continue;
                const int64_t count = cod_shape_count(cod_test_view(&op, slot)->shape);
                double *values = calloc((size_t)count * 2, sizeof *values);
                assert_ok(cod_test_op_read(&dense, slot, values));
                assert_ok(cod_test_op_read(&strided, slot, values + count));
                assert_ok(cod_test_compare(op.name, values + count, values, count, (cod_tolerance){0, 0}));
                free(values);
            }
            cod_test_op_clear(&strided);
            cod_test_op_clear(&dense);
        }
    }
}

/** An output may lie on its input: all is read before anything is written. */
TEST(in_place_works)
{
    const cod_shape shape = {1, 2, 3, 4};
    cod_op op = {.kind = COD_OP_ACTIVATION, .attr.activation = COD_ACT_RELU, .name = "in place"};
    cod_buffer *buffer = NULL;
    cod_plan *plan = NULL;
    float values[24];
    for (int i = 0; i < 24; i++)
        values[i] = (float)(i - 12);
    assert_ok(ref.backend->buffer_create(ref.device, sizeof values, &buffer));
    assert_ok(ref.backend->upload(ref.device, NULL, buffer, 0, values, sizeof values));
    op.inputs[0] = op.outputs[0] = cod_view_dense(buffer, 0, COD_F32, shape);
    assert_ok(ref.backend->plan_create(ref.device, &op, &plan));
    assert_ok(ref.backend->plan_run(plan, NULL));
    assert_ok(ref.backend->download(ref.device, NULL, values, buffer, 0, sizeof values));
    for (int i = 0; i < 24; i++)
        assert_true(values[i] == (i > 12 ? (float)(i - 12) : 0.0f));
    ref.backend->plan_destroy(plan);
    ref.backend->buffer_destroy(ref.device, buffer);
}

/** Sets one element of a random op's input to NaN; whether any output then is NaN. */
static bool nan_arrives(cod_op_kind kind, cod_activation activation, uint64_t seed)
{
    cod_op op = cod_test_random_op(kind, COD_F32, COD_F32, seed);
    if (kind == COD_OP_ACTIVATION && activation != COD_ACT_PRELU) {
        op.attr.activation = activation;
        op.inputs[1].shape = (cod_shape){0};
    }
    cod_test_op test;
    assert_ok(cod_test_op_init(&test, ref, &op));
    assert_ok(cod_test_op_randomise(&test, seed, false));
    double *x = cod_test_random_values(&op, 0, seed, false);
    x[0] = NAN;
    assert_ok(cod_test_op_write(&test, 0, x));
    free(x);
    assert_ok(cod_test_op_run(&test));
    const int64_t count = cod_shape_count(op.outputs[0].shape);
    double *y = calloc((size_t)count, sizeof *y);
    assert_ok(cod_test_op_read(&test, COD_OP_MAX_INPUTS, y));
    bool found = false;
    for (int64_t i = 0; i < count; i++)
        found = found || isnan(y[i]);
    free(y);
    cod_test_op_clear(&test);
    return found;
}

/** What has gone wrong must show: neither ReLU nor pooling nor a loss may hide it. */
TEST(nan_passes_through)
{
    for (int activation = COD_ACT_NONE; activation <= COD_ACT_TANH; activation++)
        for (uint64_t seed = 0; seed < 5; seed++)
            assert_true(nan_arrives(COD_OP_ACTIVATION, (cod_activation)activation, seed));
    static const cod_op_kind kinds[] = {COD_OP_NORM_TRAIN, COD_OP_POOL,      COD_OP_RESIZE,
                                        COD_OP_LOSS,       COD_OP_GRAD_NORM, COD_OP_OPTIMISER};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        for (uint64_t seed = 0; seed < 20; seed++)
            if (!nan_arrives(kinds[i], COD_ACT_NONE, seed))
                fail_msg("%s hid a NaN, seed %" PRIu64, cod_op_kind_name(kinds[i]), seed);
}

TEST(averages_have_the_bits_of_ema)
{
    static const int64_t counts[] = {1, 9, 255, 1000};
    for (uint64_t seed = 0; seed < 20; seed++)
        assert_ok(cod_test_average(ref, counts[seed % 4], seed));
}

/** Sizes of torch.nn.MaxPool2d with ceil_mode. */
TEST(sizes_of_pools_are_those_of_pytorch)
{
    static const struct {
        int64_t size;
        int kernel, stride, padding;
        int64_t floor, ceil;
    } cases[] = {{6, 3, 2, 0, 2, 3}, {7, 3, 2, 0, 3, 3}, {3, 3, 2, 0, 1, 1}, {2, 3, 2, 0, 0, 0},
                 {5, 1, 3, 0, 2, 2}, {5, 2, 2, 1, 3, 3}, {8, 3, 3, 1, 3, 3}, {4, 2, 3, 0, 1, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int ceil = 0; ceil < 2; ceil++) {
            const int64_t outputs =
                cod_pool_outputs(cases[i].size, cases[i].kernel, cases[i].stride, cases[i].padding, ceil != 0);
            if (outputs != (ceil ? cases[i].ceil : cases[i].floor))
                fail_msg("case %zu, ceil %d: %lld outputs", i, ceil, (long long)outputs);
        }
    cod_op op = {.kind = COD_OP_POOL, .name = "average"};
    op.attr = (cod_op_attr){.pool = COD_POOL_AVERAGE, .kernel_h = 1, .kernel_w = 1, .stride_h = 1, .stride_w = 1};
    op.inputs[0] = op.outputs[0] = cod_view_dense(NULL, 0, COD_F32, (cod_shape){1, 1, 1, 1});
    op.attr.pool_ceil = true;
    assert_fails(COD_ERR_ARGUMENT, "pool 'average': shapes do not fit", cod_op_check(&op));
}

TEST(what_cannot_be_done_is_refused)
{
    cod_test_op test;
    cod_op op = cod_test_random_op(COD_OP_ADD, COD_F32, COD_F32, 1);
    op.inputs[0].dtype = COD_S8;
    assert_fails(COD_ERR_UNSUPPORTED, "no support for s8", cod_test_op_init(&test, ref, &op));
    op = (cod_op){.kind = COD_OP_OPTIMISER, .attr.optimiser = COD_OPT_ADAM, .name = "adam"};
    op.inputs[0] = op.outputs[0] = op.outputs[1] = cod_view_dense(NULL, 0, COD_F32, (cod_shape){1, 1, 1, 9});
    op.inputs[1] = cod_view_dense(NULL, 0, COD_F32, (cod_shape){1, 1, 1, 4});
    assert_int_equal(cod_test_op_init(&test, ref, &op), COD_ERR_ARGUMENT);
    op.outputs[2] = op.outputs[0];
    op.outputs[3] = op.inputs[1]; /* an average of four parameters out of nine */
    assert_fails(COD_ERR_ARGUMENT, "optimiser 'adam': shapes do not fit", cod_test_op_init(&test, ref, &op));
    op.outputs[3] = op.outputs[0];
    op.inputs[3] = op.inputs[1]; /* statistics without an average of theirs, and with one that is too long */
    assert_fails(COD_ERR_ARGUMENT, "optimiser 'adam': shapes do not fit", cod_test_op_init(&test, ref, &op));
    op.outputs[4] = op.outputs[0];
    assert_fails(COD_ERR_ARGUMENT, "optimiser 'adam': shapes do not fit", cod_test_op_init(&test, ref, &op));
    op.outputs[4] = op.inputs[3];
    assert_ok(cod_test_op_init(&test, ref, &op));
    cod_test_op_clear(&test);

    op = (cod_op){.kind = COD_OP_LOSS, .attr.loss = COD_LOSS_CROSS_ENTROPY, .name = "labels"};
    op.inputs[0] = op.inputs[1] = cod_view_dense(NULL, 0, COD_F32, (cod_shape){2, 3, 1, 4}); /* no rows of logits */
    op.outputs[0] = cod_view_dense(NULL, 0, COD_F32, (cod_shape){1, 1, 1, 1});
    assert_fails(COD_ERR_ARGUMENT, "loss 'labels': shapes do not fit", cod_test_op_init(&test, ref, &op));
    op.attr.loss = COD_LOSS_BCE;
    op.outputs[2] = cod_view_dense(NULL, 0, COD_F32, (cod_shape){2, 3, 4, 1});
    assert_fails(COD_ERR_ARGUMENT, "loss 'labels': shapes do not fit", cod_test_op_init(&test, ref, &op));
    op.attr.loss = COD_LOSS_TV;
    assert_fails(COD_ERR_ARGUMENT, "has neither a target nor a gradient for one", cod_test_op_init(&test, ref, &op));
    op.attr.loss = (cod_loss_kind)(COD_LOSS_TV + 1);
    assert_fails(COD_ERR_ARGUMENT, "loss 'labels': kind 8 does not exist", cod_test_op_init(&test, ref, &op));

    cod_buffer *buffer = NULL;
    char bytes[16] = {0};
    assert_ok(ref.backend->buffer_create(ref.device, 8, &buffer));
    assert_fails(COD_ERR_ARGUMENT, "past a buffer of 8", ref.backend->upload(ref.device, NULL, buffer, 4, bytes, 5));
    assert_fails(COD_ERR_ARGUMENT, "past a buffer of 8",
                 ref.backend->download(ref.device, NULL, bytes, buffer, SIZE_MAX, 2));
    op = (cod_op){.kind = COD_OP_LOSS, .attr.loss = COD_LOSS_BCE, .name = "pair"};
    op.inputs[0] = op.inputs[1] = op.outputs[0] = op.outputs[1] = op.outputs[2] =
        cod_view_dense(buffer, 0, COD_F32, (cod_shape){1, 1, 1, 1});
    assert_fails(COD_ERR_ARGUMENT, "loss 'pair': the gradients of prediction and target are one tensor",
                 cod_op_check(&op));
    op.outputs[2].offset = sizeof(float);
    assert_ok(cod_op_check(&op));
    op = (cod_op){.kind = COD_OP_TURN, .name = "pixel"};
    op.inputs[0] = op.outputs[0] = cod_view_dense(buffer, 0, COD_F32, (cod_shape){1, 1, 1, 1});
    op.inputs[1] = cod_view_dense(buffer, 4, COD_I32, (cod_shape){1, 1, 1, 1});
    assert_fails(COD_ERR_ARGUMENT, "turn 'pixel': input and output are one tensor", cod_op_check(&op));
    op.outputs[0].offset = sizeof(float);
    assert_ok(cod_op_check(&op));
    op.inputs[1].shape.c = 2;
    assert_fails(COD_ERR_ARGUMENT, "turn 'pixel': shapes do not fit", cod_op_check(&op));
    op.inputs[1].shape.c = 1;
    op.inputs[0].dtype = COD_U8;
    assert_fails(COD_ERR_ARGUMENT, "turn 'pixel': x is u8 without a table", cod_op_check(&op));
    op.inputs[2] = cod_view_dense(buffer, 0, COD_F32, (cod_shape){1, 1, 255, 1});
    assert_fails(COD_ERR_ARGUMENT, "turn 'pixel': shapes do not fit", cod_op_check(&op));
    op.inputs[2].shape.w = 256;
    assert_fails(COD_ERR_ARGUMENT, "turn 'pixel': view 2 reaches past its buffer", cod_op_check(&op));
    op.inputs[0].dtype = COD_F32;
    assert_fails(COD_ERR_ARGUMENT, "turn 'pixel': x is f32 with a table", cod_op_check(&op));
    op = (cod_op){.kind = COD_OP_ADD, .name = "bytes"};
    op.inputs[0] = cod_view_dense(buffer, 0, COD_U8, (cod_shape){1, 1, 1, 1});
    op.outputs[0] = cod_view_dense(buffer, 4, COD_F32, (cod_shape){1, 1, 1, 1});
    assert_fails(COD_ERR_UNSUPPORTED, "add 'bytes': view 0 holds bytes", cod_op_check(&op));
    ref.backend->buffer_destroy(ref.device, buffer);
}

/** Bytes that are turned with a table give what their values give when they are turned. */
TEST(bytes_are_looked_up_and_turned)
{
    enum { COUNT = 5 * 4 * 4 * 3, PIXELS = 5 * 4 * 4, VALUES = 256 * 3 };
    const cod_shape shape = {5, 4, 4, 3}, table_shape = {1, 1, 256, 3};
    double bytes[COUNT], values[COUNT], table[VALUES], expected[COUNT], looked_up[COUNT];
    const double turns[5] = {0, COD_TURN_MIRROR_X, COD_TURN_TRANSPOSE | COD_TURN_MIRROR_Y, COD_TURN_INVERT, 31};
    for (int i = 0; i < VALUES; i++)
        table[i] = (float)(i / 3) / 255 - (float)(i % 3);
    for (int i = 0; i < COUNT; i++) {
        bytes[i] = i < 256 ? i : i * 7 % 256;
        values[i] = table[(int)bytes[i] * 3 + i % 3];
    }
    cod_op op = {.kind = COD_OP_TURN, .name = "bytes"};
    op.inputs[0] = op.outputs[0] = cod_view_dense(NULL, 0, COD_F32, shape);
    op.inputs[1] = cod_view_dense(NULL, 0, COD_I32, (cod_shape){1, 1, 1, 5});
    for (int with_table = 0; with_table < 2; with_table++) {
        cod_test_op test;
        op.inputs[0].dtype = with_table ? COD_U8 : COD_F32;
        op.inputs[2] = with_table ? cod_view_dense(NULL, 0, COD_F32, table_shape) : (cod_view){.buffer = NULL};
        assert_ok(cod_test_op_init(&test, ref, &op));
        assert_ok(cod_test_op_write(&test, 0, with_table ? bytes : values));
        assert_ok(cod_test_op_write(&test, 1, turns));
        if (with_table)
            assert_ok(cod_test_op_write(&test, 2, table));
        assert_ok(cod_test_op_run(&test));
        assert_ok(cod_test_op_read(&test, COD_OP_MAX_INPUTS, with_table ? looked_up : expected));
        cod_test_op_clear(&test);
    }
    assert_memory_equal(looked_up, expected, sizeof expected);
    assert_memory_not_equal(expected + PIXELS, values + PIXELS, sizeof *values * PIXELS);
}

TEST(copies_arrive)
{
    cod_test_copies(ref);
}

TEST(comparisons_refuse_nan_and_name_the_worst)
{
    const double expected[3] = {1, 100, -2}, near[3] = {1.05, 100, -2}, wrong[3] = {1, 100, NAN};
    assert_ok(cod_test_compare("x", near, expected, 3, (cod_tolerance){.scaled = 1e-3}));
    assert_fails(COD_ERR_NUMERIC, "worst at 0: 1.05, not 1",
                 cod_test_compare("x", near, expected, 3, (cod_tolerance){.relative = 1e-3}));
    assert_fails(COD_ERR_NUMERIC, "worst at 2", cod_test_compare("x", wrong, expected, 3, (cod_tolerance){1, 1}));
    assert_fails(COD_ERR_NUMERIC, "worst at 2", cod_test_compare("x", expected, wrong, 3, (cod_tolerance){1, 1}));
}
