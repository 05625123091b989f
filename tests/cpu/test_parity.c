#include "support/test.h"

#include "cpu/cpu.h"
#include "devices.h"
#include "support/copies.h"
#include "support/paranoid.h"
#include "support/parity.h"

/** Random ops of each kind but convolutions (test_convolution.c) against `ref`, and under the paranoid wrapper. */

#ifdef __SANITIZE_ADDRESS__
enum { SEEDS = 12 };
#else
enum { SEEDS = 120 };
#endif

/** Of each kind of op. Tests of odd sizes take twice as many: few of them still meet all combinations. */
static uint64_t seeds(void)
{
    return test_few() ? SEEDS / 4 : SEEDS;
}

/** NORM_APPLY alone is there, as programs recompute by it. */
static bool is_missing(cod_op_kind kind)
{
    return cod_test_is_norm_half(kind) && kind != COD_OP_NORM_APPLY;
}

static const cod_parity cpu = {&test_ref, &test_cpu, cod_parity_tolerance, is_missing, NULL, NULL},
                        paranoid = {&test_ref,  &test_paranoid, cod_parity_tolerance,
                                    is_missing, NULL,           cod_paranoid_violations};

TEST(kinds_agree_with_ref_in_f32)
{
    cod_parity_kinds(&cpu, COD_F32, seeds());
}

/** bf16 must be right on every processor, fast or not. */
TEST(kinds_agree_with_ref_in_bf16)
{
    cod_parity_kinds(&cpu, COD_BF16, seeds());
}

TEST(plans_touch_only_their_outputs)
{
    cod_parity_kinds(&paranoid, COD_F32, seeds() / 4);
    cod_parity_kinds(&paranoid, COD_BF16, seeds() / 4);
}

/** This backend fuses nothing, so that compilers halve no normalisation for it. */
TEST(halves_of_normalisations_are_refused)
{
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

/**
 * Blocks of four vectors and what is left of them, single pixels, rows that are no multiple of anything, or more rows
 * than kernels take at once where there are several blocks.
 */
TEST(kernels_over_rows_of_odd_sizes_agree_with_ref)
{
    static const int64_t channels[] = {3, 5, 64, 65, 200};
    enum { SIZES = sizeof channels / sizeof channels[0] };
    static const cod_op_kind kinds[] = {COD_OP_NORM_TRAIN,
                                        COD_OP_NORM_INFERENCE,
                                        COD_OP_NORM_APPLY,
                                        COD_OP_NORM_BACKWARD,
                                        COD_OP_NORM_INFERENCE_BACKWARD,
                                        COD_OP_ACTIVATION,
                                        COD_OP_ACTIVATION_BACKWARD,
                                        COD_OP_ADD};
    int residuals = 0;
    for (uint64_t seed = 0; seed < 2 * seeds(); seed++) {
        for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
            const cod_dtype dtype = seed / 4 % 2 ? COD_F32 : COD_BF16;
            cod_op op = cod_test_random_op(kinds[k], dtype, COD_F32, seed);
            if (op.inputs[0].shape.c == 1)
                continue;
            resize(&op, (cod_shape){seed / 8 % 2 ? 1 : 3, seed / 16 % 2 ? 1 : 7, seed / 16 % 2 ? 1 : 13,
                                    channels[seed % SIZES]});
            residuals += k < 3 && op.inputs[kinds[k] == COD_OP_NORM_TRAIN ? 4 : 6].shape.n > 1;
            cod_parity_op(&cpu, &op, dtype, seed);
        }
    }
    assert_true(residuals > 0);
}

/** Windows over one pixel and over odd sizes, one picture and several, channels that are no whole vectors. */
TEST(pools_of_odd_sizes_agree_with_ref)
{
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
            cod_parity_op(&cpu, &op, dtype, seed);
        }
    }
    assert_true(seen[0] > 0 && seen[1] > 0 && seen[2] > 0);
}

/** Losses on rows of one class, and of more classes than a vector holds. */
TEST(rows_of_odd_sizes_agree_with_ref)
{
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
        cod_parity_op(&cpu, &op, dtype, seed);
    }
}

/** One pair of neighbours in one direction, none in the other. */
TEST(variation_of_two_pixels_agrees_with_ref)
{
    static const cod_shape shapes[] = {{1, 1, 2, 1}, {1, 2, 1, 1}};
    for (uint64_t seed = 0; seed < 4; seed++) {
        cod_op op = {.kind = COD_OP_LOSS, .attr = {.loss = COD_LOSS_TV, .alpha = 1}, .name = "pair"};
        op.inputs[0] = op.outputs[1] = cod_view_dense(NULL, 0, COD_F32, shapes[seed % 2]);
        op.outputs[0] = cod_view_dense(NULL, 0, COD_F32, (cod_shape){1, 1, 1, 1});
        cod_parity_op(&cpu, &op, COD_F32, seed);
    }
}

/** To the last bit, also where they are small beside the slope. */
TEST(positive_values_pass_an_activation_as_they_are)
{
    enum { COUNT = 40 };
    cod_op op = {.kind = COD_OP_ACTIVATION, .attr = {.activation = COD_ACT_LEAKY_RELU, .leak = 0.2f}, .name = "leaky"};
    op.inputs[0] = op.outputs[0] = cod_view_dense(NULL, 0, COD_F32, (cod_shape){1, 2, 4, COUNT / 8});
    double x[COUNT], y[COUNT], *const outputs[] = {y};
    for (int i = 0; i < COUNT; i++)
        x[i] = (double)(1e-3f * (float)(i + 1));
    cod_test_run_values(test_cpu, &op, (const double *const[COD_OP_MAX_INPUTS]){x}, outputs, 1);
    assert_memory_equal(y, x, sizeof y);
}

TEST(large_logits_agree_with_ref)
{
    cod_parity_large_logits(&cpu, 4e-7, 2e-38); /* the smallest number that the vector exponential gives */
}

TEST(losses_show_nan)
{
    cod_parity_losses_show_nan(test_cpu);
}

TEST(copies_arrive)
{
    cod_test_copies(test_cpu);
    cod_test_copies(test_paranoid);
    assert_int_equal(cod_paranoid_violations(NULL, 0), 0);
}

/** Of one piece and of several. */
TEST(averages_have_the_bits_of_ema)
{
    static const int64_t counts[] = {1, 299, (1 << 15) + 5, 100003};
    for (uint64_t seed = 0; seed < 20; seed++)
        assert_ok(cod_test_average(test_cpu, counts[seed % 4], seed));
}

TEST_GROUP(test_devices_open, test_devices_close)
TEST_DEVICE(cod_cpu_backend)
