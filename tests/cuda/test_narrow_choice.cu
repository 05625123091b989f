/** Which layers the kernels between wide and narrow tensors take, and how they divide pictures. */
#include "cuda/narrow.cuh"

#include <cstdlib>
#include <initializer_list>

extern "C" {
#include "pair.h"
#include "support/test.h" /* last: cmocka defines `fail` */
}

enum { PROCESSORS = 132, SHARED = 227 << 10, AMPERE_PROCESSORS = 108, AMPERE_SHARED = 163 << 10 };

static narrow_choice on_hopper(const narrow_shape &shape)
{
    return narrow_choose(shape, PROCESSORS, SHARED);
}

/** Every pixel lies in one unit, and none is empty. */
static void assert_covered(const narrow_shape &shape, const narrow_choice &choice)
{
    const narrow_cut &cut = choice.cut;
    assert_true(cut.rows * cut.chunks >= shape.h && cut.rows * (cut.chunks - 1) < shape.h);
    assert_true(cut.columns * cut.strips >= shape.w && cut.columns * (cut.strips - 1) < shape.w);
    assert_true(cut.images == shape.images && cut.h == shape.h && cut.w == shape.w);
    assert_true(choice.blocks >= 1 && choice.blocks <= narrow_units(cut));
    if (shape.what == NARROW_GATHER)
        assert_true(choice.blocks == narrow_units(cut));
}

TEST(pictures_are_covered)
{
    static const int sizes[][2] = {{1, 1}, {9, 5}, {24, 24}, {31, 17}, {96, 96}, {2160, 3840}, {1, 300}};
    for (const auto &size : sizes) {
        for (int images = 1; images <= 256; images *= 16) {
            for (int kernel = 3; kernel <= 11; kernel += 2) {
                for (const narrow_computation what : {NARROW_GATHER, NARROW_SPREAD, NARROW_GRADIENT}) {
                    const narrow_shape shape = {what, kernel, 3, 64, images, size[0], size[1]};
                    const narrow_choice hopper = on_hopper(shape),
                                        ampere = narrow_choose(shape, AMPERE_PROCESSORS, AMPERE_SHARED);
                    assert_true(hopper.shared_bytes <= SHARED && ampere.shared_bytes <= AMPERE_SHARED);
                    assert_covered(shape, hopper);
                    assert_covered(shape, ampere);
                }
            }
        }
    }
}

/** A small batch gives most multiprocessors a block, a large one has no rows twice. */
TEST(batches_of_any_size_fill_the_gpu)
{
    for (const narrow_computation what : {NARROW_GATHER, NARROW_SPREAD, NARROW_GRADIENT}) {
        const narrow_choice small = on_hopper({what, 9, 3, 64, 16, 96, 96});
        assert_true(small.blocks >= PROCESSORS * 9 / 10);
        assert_true(on_hopper({what, 9, 3, 64, 256, 96, 96}).cut.rows >= small.cut.rows);
        assert_true(on_hopper({what, 9, 3, 64, 16, 24, 24}).blocks >= PROCESSORS / 2);
    }
    assert_int_equal(on_hopper({NARROW_GATHER, 9, 3, 64, 256, 96, 96}).cut.chunks, 1);
    assert_int_equal(on_hopper({NARROW_GATHER, 9, 3, 64, 256, 96, 96}).spans, 2);
    assert_int_equal(on_hopper({NARROW_GATHER, 9, 3, 64, 16, 96, 96}).spans, 1);
    assert_int_equal(on_hopper({NARROW_GATHER, 9, 3, 64, 256, 24, 24}).spans, 1);
}

static void assert_taken(bool taken, const narrow_shape &shape, int shared_bytes)
{
    const narrow_choice choice = narrow_choose(shape, PROCESSORS, static_cast<size_t>(shared_bytes));
    assert_true((choice.cut.strips > 0) == taken);
}

TEST(shapes_without_a_kernel_are_refused)
{
    for (const narrow_computation what : {NARROW_GATHER, NARROW_SPREAD, NARROW_GRADIENT}) {
        for (int kernel = 1; kernel <= 13; kernel++)
            assert_taken(kernel % 2 == 1 && kernel >= 3 && kernel <= 11, {what, kernel, 1, 16, 1, 9, 5}, SHARED);
        assert_taken(false, {what, 9, 9, 64, 1, 9, 5}, SHARED);
        assert_taken(false, {what, 9, 3, 24, 1, 9, 5}, SHARED);
        assert_taken(false, {what, 9, 3, 144, 1, 9, 5}, SHARED);
        assert_taken(what != NARROW_SPREAD, {what, 9, 8, 64, 1, 9, 5}, SHARED);
        assert_taken(true, {what, 11, 3, 128, 1, 9, 5}, SHARED);
        assert_taken(what != NARROW_GATHER, {what, 11, 3, 128, 1, 9, 5}, AMPERE_SHARED);
        assert_taken(false, {what, 9, 3, 64, 1, 9, 5}, 1024);
    }
    assert_taken(true, {NARROW_SPREAD, 9, 5, 64, 1, 9, 5}, SHARED);
    assert_taken(false, {NARROW_SPREAD, 9, 6, 64, 1, 9, 5}, SHARED);
}

/* Ops. */

static cod_view dense(cod_dtype dtype, int64_t n, int64_t h, int64_t w, int64_t c)
{
    return cod_view_dense(nullptr, 0, dtype, {n, h, w, c});
}

/** The last layer of a network, from 16 channels to 3. */
static cod_op last_layer(cod_op_kind kind)
{
    const cod_view x = dense(COD_BF16, 1, 5, 6, 16), y = dense(COD_F32, 1, 5, 6, 3), w = dense(COD_F32, 3, 9, 9, 16);
    cod_op op = {};
    op.kind = kind;
    op.name = "last";
    op.attr.stride_h = op.attr.stride_w = 1;
    op.attr.pad_h = op.attr.pad_w = 4;
    op.inputs[0] = kind == COD_OP_CONV2D_BACKWARD_DATA ? y : x;
    op.inputs[1] = kind == COD_OP_CONV2D_BACKWARD_WEIGHTS ? y : w;
    op.outputs[0] = kind == COD_OP_CONV2D ? y : kind == COD_OP_CONV2D_BACKWARD_DATA ? x : w;
    return op;
}

static bool is_made(const cod_op &op, cod_dtype multiplied)
{
    cod_test_op test;
    bool made = false;
    assert_ok(cod_test_op_init(&test, test_cuda, &op));
    cod_plan plan = {};
    plan.device = test_cuda.device;
    plan.ops = &test.op;
    plan.count = 1;
    assert_ok(narrow_make(&plan, multiplied, &made));
    assert_true(made == (plan.run != nullptr));
    cuda_plan_clear(&plan);
    cod_test_op_clear(&test);
    return made;
}

TEST(ops_that_fit_are_taken)
{
    for (int kind = COD_OP_CONV2D; kind <= COD_OP_CONV2D_BACKWARD_WEIGHTS; kind++) {
        cod_op op = last_layer(static_cast<cod_op_kind>(kind));
        assert_true(is_made(op, COD_BF16));
        assert_false(is_made(op, COD_F32));
        assert_false(is_made(op, COD_S8));
        /*
         * The wide tensor: pixels that begin at no 16-byte boundary; f32, which a spread alone, the data gradient,
         * writes.
         */
        cod_view *wide = kind == COD_OP_CONV2D_BACKWARD_DATA ? &op.outputs[0] : &op.inputs[0];
        wide->pixel_stride += 4;
        assert_false(is_made(op, COD_BF16));
        wide->pixel_stride -= 4;
        wide->dtype = COD_F32;
        assert_true(is_made(op, COD_BF16) == (kind == COD_OP_CONV2D_BACKWARD_DATA));
    }
}

TEST(other_convolutions_are_left)
{
    cod_op op = last_layer(COD_OP_CONV2D);
    op.attr.pad_w = 3;
    op.outputs[0] = dense(COD_F32, 1, 5, 4, 3);
    assert_false(is_made(op, COD_BF16));
    op = last_layer(COD_OP_CONV2D);
    op.attr.stride_h = 2;
    op.outputs[0] = dense(COD_F32, 1, 3, 6, 3);
    assert_false(is_made(op, COD_BF16));
    op = last_layer(COD_OP_CONV2D);
    op.inputs[1] = dense(COD_F32, 3, 9, 7, 16);
    op.attr.pad_w = 3;
    assert_false(is_made(op, COD_BF16));
    op = last_layer(COD_OP_CONV2D);
    op.attr.factor = 2;
    op.inputs[1] = dense(COD_F32, 4, 9, 9, 16);
    op.outputs[0] = dense(COD_F32, 1, 10, 12, 1);
    assert_false(is_made(op, COD_BF16));
    op = last_layer(COD_OP_CONV2D);
    op.inputs[0] = dense(COD_BF16, 1, 5, 6, 32);
    op.inputs[1] = dense(COD_F32, 16, 9, 9, 32);
    op.outputs[0] = dense(COD_F32, 1, 5, 6, 16);
    assert_false(is_made(op, COD_BF16));
}

/** A spread has the activations of first layers alone. */
TEST(first_layers_with_tanh_are_left)
{
    cod_op op = last_layer(COD_OP_CONV2D);
    op.inputs[0] = dense(COD_F32, 1, 5, 6, 3);
    op.inputs[1] = dense(COD_F32, 16, 9, 9, 3);
    op.outputs[0] = dense(COD_BF16, 1, 5, 6, 16);
    for (int activation = COD_ACT_NONE; activation <= COD_ACT_TANH; activation++) {
        op.attr.activation = static_cast<cod_activation>(activation);
        op.inputs[3] = activation == COD_ACT_PRELU ? dense(COD_F32, 1, 1, 1, 16) : cod_view();
        assert_true(is_made(op, COD_BF16) == (activation < COD_ACT_SIGMOID));
    }
}

TEST_GROUP(test_pair_open, test_pair_close)
