/* What counts as a sequence of ops that may be one plan, and when views overlap. */
#include "support/test.h"

#include "core/fused.h"

enum { APPLY, PRODUCT, REDUCE, OPS };

static cod_buffer buffer = {.host = NULL, .bytes = SIZE_MAX};

static const cod_shape picture = {2, 5, 4, 8}, vector = {1, 1, 1, 8}, sums = {1, 1, 2, 8}, weight = {8, 3, 3, 8};

/** The `index`th tensor: each has its own place. */
static cod_view at(size_t index, cod_shape shape)
{
    return cod_view_dense(&buffer, index << 16, COD_F32, shape);
}

static const cod_op_attr same_size = {.stride_h = 1, .stride_w = 1, .pad_h = 1, .pad_w = 1};

/** NORM_APPLY, CONV2D, NORM_STATISTICS: x is 0, y 1, the convolution's y 2. */
static void forward(cod_op ops[OPS])
{
    ops[APPLY] = (cod_op){.kind = COD_OP_NORM_APPLY,
                          .inputs = {at(0, picture), at(10, vector), at(11, vector), at(12, vector), at(13, vector)},
                          .outputs = {at(1, picture)}};
    ops[PRODUCT] = (cod_op){.kind = COD_OP_CONV2D,
                            .attr = same_size,
                            .inputs = {at(1, picture), at(14, weight), at(15, vector)},
                            .outputs = {at(2, picture)}};
    ops[REDUCE] = (cod_op){.kind = COD_OP_NORM_STATISTICS,
                           .inputs = {at(2, picture)},
                           .outputs = {at(16, vector), at(17, vector), at(18, vector), at(19, vector)}};
}

/** NORM_BACKWARD_APPLY, CONV2D_BACKWARD_DATA, NORM_BACKWARD_REDUCE: g is 1, dx 2, the convolution's dx 3. */
static void backward(cod_op ops[OPS])
{
    ops[APPLY] = (cod_op){
        .kind = COD_OP_NORM_BACKWARD_APPLY,
        .inputs = {at(0, picture), at(1, picture), at(10, vector), at(11, vector), at(12, vector), at(13, sums)},
        .outputs = {at(2, picture)}};
    ops[PRODUCT] = (cod_op){.kind = COD_OP_CONV2D_BACKWARD_DATA,
                            .attr = same_size,
                            .inputs = {at(2, picture), at(14, weight)},
                            .outputs = {at(3, picture)}};
    ops[REDUCE] = (cod_op){
        .kind = COD_OP_NORM_BACKWARD_REDUCE,
        .inputs = {at(4, picture), at(3, picture), at(15, vector), at(16, vector), at(17, vector), at(18, vector)},
        .outputs = {at(5, picture), at(19, sums), at(20, vector), at(21, vector)}};
}

static void check(const cod_op *ops, size_t count, size_t expected)
{
    const cod_fused fused = cod_fused_sequence(ops, count);
    assert_int_equal(fused.count, expected);
    assert_true((fused.product != NULL) == (expected > 1));
    for (size_t i = 0; i < count; i++)
        assert_ok(cod_op_check(&ops[i]));
}

TEST(halves_beside_a_convolution_are_a_sequence)
{
    void (*const makers[])(cod_op ops[OPS]) = {forward, backward};
    for (size_t m = 0; m < 2; m++) {
        cod_op ops[OPS], others[OPS];
        makers[m](ops);
        makers[1 - m](others);
        check(ops, 3, 3);
        const cod_fused all = cod_fused_sequence(ops, 3), front = cod_fused_sequence(ops, 2),
                        back = cod_fused_sequence(ops + 1, 2);
        assert_true(all.before == &ops[APPLY] && all.product == &ops[PRODUCT] && all.after == &ops[REDUCE]);
        assert_true(front.count == 2 && front.before == &ops[APPLY] && front.after == NULL);
        assert_true(back.count == 2 && back.before == NULL && back.after == &ops[REDUCE]);
        check(ops, 1, 1);
        check(ops + 2, 1, 1);
        ops[2] = ops[0]; /* nothing follows the convolution */
        check(ops, 2, 2);
        check(ops + 1, 2, 1);
        ops[1] = others[PRODUCT]; /* of the other pass */
        check(ops, 2, 1);
    }
    assert_int_equal(cod_fused_sequence(NULL, 0).count, 0);
}

TEST(ops_that_do_not_hand_on_are_none)
{
    cod_op ops[OPS];
    forward(ops);
    ops[PRODUCT].inputs[0] = at(7, picture); /* reads another tensor */
    check(ops, 3, 1);
    check(ops + 1, 2, 2);
    forward(ops);
    ops[REDUCE].inputs[0] = at(7, picture);
    check(ops, 3, 2);
    forward(ops);
    ops[PRODUCT].inputs[0].dtype = COD_BF16; /* the same place, otherwise seen */
    check(ops, 3, 1);
    backward(ops);
    ops[REDUCE].inputs[1] = at(7, picture);
    check(ops, 3, 2);
}

/** What a later op writes may not be what an earlier one still reads, nor the other way round but as the same view. */
TEST(ops_that_touch_each_others_tensors_are_none)
{
    cod_op ops[OPS];
    backward(ops);
    ops[PRODUCT].outputs[0] = ops[REDUCE].inputs[1] = at(1, picture); /* g, which neighbouring pixels still need */
    ops[PRODUCT].accumulate = true;
    check(ops, 3, 1);
    forward(ops);
    ops[PRODUCT].outputs[0] = ops[REDUCE].inputs[0] = at(0, picture);
    check(ops, 3, 1);
    forward(ops);
    ops[REDUCE].outputs[2] = at(12, vector); /* the mean that the first op reads */
    check(ops, 3, 2);
    forward(ops);
    ops[PRODUCT].outputs[0].offset += 64; /* begins within x, and ends behind it */
    ops[PRODUCT].inputs[4] = ops[PRODUCT].outputs[0];
    ops[PRODUCT].inputs[4].offset = ops[APPLY].outputs[0].offset + 64;
    check(ops, 3, 1);
    forward(ops);
    ops[PRODUCT].inputs[4] = ops[APPLY].outputs[0]; /* the same view: read once more */
    check(ops, 3, 3);
    backward(ops);
    ops[REDUCE].attr.activation = COD_ACT_PRELU;
    ops[REDUCE].inputs[6] = at(22, vector);
    ops[REDUCE].outputs[4] = at(23, vector); /* its slope's gradient, the last of all outputs */
    check(ops, 3, 3);
    ops[REDUCE].outputs[4] = at(10, vector); /* gamma, which the first op reads */
    check(ops, 3, 2);
}

TEST(g_may_be_dy)
{
    cod_op ops[OPS];
    backward(ops);
    ops[REDUCE].outputs[0] = ops[REDUCE].inputs[1];
    check(ops, 3, 3);
    ops[REDUCE].outputs[0] = (cod_view){.buffer = NULL};
    check(ops, 3, 3);
    ops[REDUCE].outputs[0] = ops[APPLY].outputs[0]; /* which gradients of weights still read, for one */
    check(ops, 3, 2);
}

static cod_op activation(void)
{
    return (cod_op){.kind = COD_OP_ACTIVATION,
                    .attr = {.activation = COD_ACT_PRELU},
                    .inputs = {at(2, picture), at(21, vector)},
                    .outputs = {at(3, picture)}};
}

TEST(an_activation_joins_a_convolution_alone)
{
    cod_op ops[OPS];
    forward(ops);
    ops[REDUCE] = activation();
    check(ops + 1, 2, 2);
    assert_true(cod_fused_sequence(ops + 1, 2).after == &ops[REDUCE]);
    check(ops, 3, 2); /* not where a normalisation is before */
    ops[REDUCE].inputs[0] = at(7, picture);
    check(ops + 1, 2, 1);
    ops[REDUCE] = activation();
    ops[REDUCE].outputs[0] = ops[REDUCE].inputs[0]; /* in the place of what backward reads */
    check(ops + 1, 2, 1);
    ops[REDUCE].outputs[0] = ops[PRODUCT].inputs[0]; /* which neighbouring pixels still need */
    check(ops + 1, 2, 1);
    forward(ops);
    ops[APPLY] = ops[PRODUCT];
    ops[PRODUCT] = activation();
    check(ops, 3, 2); /* nothing joins behind it */
}

TEST(an_activations_gradient_joins_in_place)
{
    cod_op ops[OPS];
    backward(ops);
    ops[REDUCE] = (cod_op){.kind = COD_OP_ACTIVATION_BACKWARD,
                           .attr = {.activation = COD_ACT_PRELU},
                           .inputs = {at(4, picture), at(3, picture), at(15, vector)},
                           .outputs = {at(3, picture), at(19, vector)}};
    check(ops + 1, 2, 2);
    assert_true(cod_fused_sequence(ops + 1, 2).product == &ops[PRODUCT]);
    check(ops, 3, 2);
    for (int which = 0; which < 4; which++) {
        const cod_op product = ops[PRODUCT], gradient = ops[REDUCE];
        if (which == 0)
            ops[PRODUCT].accumulate = true;
        else if (which == 1)
            ops[REDUCE].accumulate = true;
        else if (which == 2)
            ops[REDUCE].outputs[0] = at(5, picture);
        else
            ops[REDUCE].inputs[1] = at(5, picture);
        check(ops + 1, 2, 1);
        ops[PRODUCT] = product, ops[REDUCE] = gradient;
    }
}

/** Three gradients of weights: x at 3i, dy at 3i + 1, dw and db at 3i + 2. */
static void gradients(cod_op ops[3])
{
    for (size_t i = 0; i < 3; i++) {
        ops[i] = (cod_op){.kind = COD_OP_CONV2D_BACKWARD_WEIGHTS,
                          .attr = same_size,
                          .inputs = {at(3 * i, picture), at(3 * i + 1, picture)},
                          .outputs = {at(3 * i + 2, weight), at(3 * i + 2, vector)}};
        ops[i].outputs[1].offset += 1 << 15;
    }
}

TEST(equal_gradients_of_weights_are_a_sequence)
{
    cod_op ops[3];
    gradients(ops);
    check(ops, 3, 3);
    check(ops, 2, 2);
    assert_true(cod_fused_sequence(ops, 3).product == &ops[0]);
    ops[1].outputs[1] = (cod_view){.buffer = NULL}; /* without a bias */
    check(ops, 3, 3);
    ops[2].inputs[0] = ops[1].inputs[0]; /* two layers of one input */
    check(ops, 3, 3);
}

TEST(unequal_gradients_of_weights_are_none)
{
    cod_op ops[3];
    for (int which = 0; which < 7; which++) {
        gradients(ops);
        cod_op *op = &ops[2];
        if (which == 0)
            op->accumulate = true;
        else if (which == 1)
            op->deterministic = true;
        else if (which == 2)
            op->inputs[0].dtype = COD_BF16;
        else if (which == 3)
            op->inputs[1].pixel_stride = 16;
        else if (which == 4)
            op->outputs[0] = ops[0].outputs[0]; /* shared weights: the second adds to the first */
        else if (which == 5)
            op->inputs[0] = at(20, (cod_shape){2, 4, 4, 8}), op->inputs[1] = at(21, (cod_shape){2, 4, 4, 8});
        else
            op->attr.pad_h = op->attr.pad_w = 0, op->inputs[0] = at(20, (cod_shape){2, 7, 6, 8});
        check(ops, 3, 2);
    }
}

TEST(views_overlap_where_they_share_bytes)
{
    const cod_view whole = at(1, picture), absent = {.buffer = NULL};
    cod_view left = whole, right = whole, other = whole;
    cod_buffer elsewhere = buffer;
    left.shape.c = 3, right.shape.c = 5, right.offset += 3 * sizeof(float);
    assert_true(cod_views_overlap(&whole, &whole) && cod_views_overlap(&whole, &left));
    assert_true(cod_views_overlap(&right, &whole));
    assert_false(cod_views_overlap(&left, &right) || cod_views_overlap(&right, &left)); /* channels 0 … 2 and 3 … 7 */
    left.shape.c = 4;
    assert_true(cod_views_overlap(&left, &right) && cod_views_overlap(&right, &left));
    right.offset += sizeof(float); /* its last channel is the next pixel's first */
    left.shape.c = 1;
    assert_true(cod_views_overlap(&left, &right) && cod_views_overlap(&right, &left));
    other.offset += cod_view_span_bytes(&whole);
    assert_false(cod_views_overlap(&whole, &other) || cod_views_overlap(&other, &whole));
    other.offset -= 1;
    assert_true(cod_views_overlap(&whole, &other) && cod_views_overlap(&other, &whole));
    other = whole;
    other.buffer = &elsewhere;
    assert_false(cod_views_overlap(&whole, &other) || cod_view_equal(&whole, &other));
    assert_false(cod_views_overlap(&absent, &absent) || cod_views_overlap(&absent, &whole));
    other = whole;
    assert_true(cod_view_equal(&whole, &other));
    other.pixel_stride++;
    assert_false(cod_view_equal(&whole, &other));
    assert_true(cod_views_overlap(&whole, &other));
}

TEST(halves_of_wrong_shapes_are_refused)
{
    cod_op ops[OPS];
    forward(ops);
    ops[APPLY].inputs[3].shape.c = 7;
    assert_fails(COD_ERR_ARGUMENT, "norm_apply '': shapes do not fit", cod_op_check(&ops[APPLY]));
    ops[REDUCE].outputs[3] = (cod_view){.buffer = NULL}; /* one running statistic alone */
    assert_fails(COD_ERR_ARGUMENT, "norm_statistics '': shapes do not fit", cod_op_check(&ops[REDUCE]));
    backward(ops);
    ops[REDUCE].outputs[1].shape = vector;
    assert_fails(COD_ERR_ARGUMENT, "norm_backward_reduce '': shapes do not fit", cod_op_check(&ops[REDUCE]));
    backward(ops);
    ops[REDUCE].outputs[0] = (cod_view){.buffer = NULL};
    assert_ok(cod_op_check(&ops[REDUCE])); /* g is dy */
    ops[REDUCE].attr.activation = COD_ACT_RELU;
    assert_fails(COD_ERR_ARGUMENT, "norm_backward_reduce '': shapes do not fit", cod_op_check(&ops[REDUCE]));
    ops[APPLY].inputs[5] = (cod_view){.buffer = NULL};
    assert_fails(COD_ERR_ARGUMENT, "norm_backward_apply '': shapes do not fit", cod_op_check(&ops[APPLY]));
}
