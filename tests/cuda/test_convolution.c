#include "support/test.h"

#include "core/rng.h"
#include "cuda/cuda.h"
#include "emulated/emulated.h"
#include "pair.h"
#include "support/parity.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/**
 * Convolutions and linear layers against `ref`. Values are small integers, biases halves, slopes
 * quarters: all exact in bf16, and their sums in f32, so that results must be equal bit for bit, whatever the order of
 * sums. What is no sum of such numbers (sigmoid, tanh) has a tolerance; so have random ops with normal values in f32.
 */

/* Layers take turns with variants; a sanitizer, which slows fibres down, sees few of each. */
#ifdef __SANITIZE_ADDRESS__
enum { SEEDS = 5, VARIANT_STEP = 13, LARGE_VARIANTS = 1 };
#else
enum { SEEDS = 40, VARIANT_STEP = 3, LARGE_VARIANTS = 8 };
#endif

/** New array for the slot: integers up to 3, in vectors of parameters multiples of 1/4 up to 3/4. */
static double *exact_values(const cod_op *op, size_t slot, uint64_t seed)
{
    cod_op copy = *op;
    const cod_shape shape = cod_test_view(&copy, slot)->shape;
    const int64_t count = cod_shape_count(shape);
    const bool vector = (op->kind == COD_OP_CONV2D || op->kind == COD_OP_LINEAR) && (slot == 2 || slot == 3);
    cod_rng rng = cod_rng_open(seed, 2, 0, op->kind, COD_RNG_TEST, (uint32_t)slot);
    double *values = calloc((size_t)count + 1, sizeof *values);
    assert_non_null(values);
    for (int64_t i = 0; i < count; i++)
        values[i] = ((double)cod_rng_below(&rng, 7) - 3) / (vector ? 4 : 1);
    return values;
}

static cod_status run_on(cod_test_device on, const cod_op *op, uint64_t seed, cod_test_op *test)
{
    COD_TRY(cod_test_op_init(test, on, op));
    for (size_t slot = 0; slot < COD_TEST_SLOTS; slot++) {
        if (test->buffers[slot] == NULL)
            continue;
        double *values = exact_values(op, slot, seed);
        const cod_status status = cod_test_op_write(test, slot, values);
        free(values);
        COD_TRY(status);
    }
    return cod_test_op_run(test);
}

static cod_tolerance tolerance_of(const cod_op *op)
{
    const bool forward = op->kind == COD_OP_CONV2D || op->kind == COD_OP_LINEAR;
    if (!forward || op->attr.activation < COD_ACT_SIGMOID)
        return (cod_tolerance){0, 0};
    return op->outputs[0].dtype == COD_BF16 ? (cod_tolerance){8e-3, 1e-6} : (cod_tolerance){4e-6, 1e-6};
}

static cod_status compare(cod_test_op *expected, cod_test_op *actual, const cod_op *op)
{
    cod_status status = COD_OK;
    for (size_t k = 0; k < 2 && status == COD_OK; k++) {
        const size_t slot = COD_OP_MAX_INPUTS + k;
        if (expected->buffers[slot] == NULL)
            continue;
        const int64_t count = cod_shape_count(op->outputs[k].shape);
        double *values = calloc((size_t)count * 2, sizeof *values);
        COD_REQUIRE_MEMORY(values);
        status = cod_test_op_read(expected, slot, values);
        COD_THEN(status, cod_test_op_read(actual, slot, values + count));
        if (status == COD_OK)
            status =
                cod_test_compare(k == 0 ? "output 0" : "output 1", values + count, values, count, tolerance_of(op));
        free(values);
    }
    return status;
}

static cod_status check_exact(const cod_op *op, uint64_t seed)
{
    cod_test_op expected = {.plan = NULL}, actual = {.plan = NULL};
    cod_status status = run_on(test_ref, op, seed, &expected);
    COD_THEN(status, run_on(test_cuda, op, seed, &actual));
    COD_THEN(status, compare(&expected, &actual, op));
    cod_test_op_clear(&expected);
    cod_test_op_clear(&actual);
    return status;
}

static void require_exact(const cod_op *op, uint64_t seed, const char *what, int number)
{
    char message[512];
    cod_emulated_set_seed(seed);
    const cod_status status = check_exact(op, seed);
    if (cod_emulated_faults(message, sizeof message) > 0)
        fail_msg("%s %d, %s, seed %" PRIu64 ": %s", what, number, cod_op_kind_name(op->kind), seed, message);
    if (status != COD_OK)
        fail_msg("%s %d, %s, seed %" PRIu64 ": %s", what, number, cod_op_kind_name(op->kind), seed,
                 cod_error_message());
}

/* Layers. */

typedef cod_test_layer layer;

/** Layers of real networks on small pictures, odd ones, and such that four multiprocessors get every tile. */
static const layer layers[] = {
    {1, 7, 13, 64, 64, 3, 1, 1},   {2, 5, 7, 65, 17, 3, 1, 1},  {1, 5, 7, 16, 64, 3, 1, 1},
    {2, 7, 9, 5, 33, 3, 1, 0},     {3, 1, 1, 64, 64, 3, 1, 1},  {1, 1, 1, 65, 3, 1, 1, 0},
    {1, 7, 9, 3, 32, 9, 1, 4},     {1, 7, 9, 32, 3, 9, 1, 4},   {1, 7, 13, 16, 24, 3, 2, 1},
    {2, 7, 9, 8, 16, 3, 3, 1},     {2, 7, 9, 24, 40, 1, 2, 0},  {1, 13, 11, 3, 64, 7, 2, 3},
    {1, 6, 7, 16, 8, 5, 4, 2},     {3, 8, 9, 3, 16, 1, 3, 0},   {2, 16, 16, 264, 128, 1, 1, 0},
    {4, 16, 16, 200, 64, 1, 1, 0}, {4, 16, 16, 40, 3, 3, 1, 1}, {1, 32, 33, 128, 16, 1, 1, 0},
    {2, 3, 5, 8, 8, 3, 1, 4},      {1, 2, 2, 8, 8, 2, 5, 2},    {4, 16, 17, 128, 128, 1, 1, 0},
    {4, 8, 16, 64, 64, 3, 1, 1},
};
enum { LAYERS = sizeof layers / sizeof layers[0] };

enum { X_F32 = 1, Y_F32 = 2, GAPS = 4, ADDED = 8, SHUFFLED = 16 };

/** `variant` is a sum of the above. Gaps are odd for x, and such that y still has its pixels at 16-byte boundaries. */
static cod_op layer_op(const layer *l, cod_op_kind kind, int variant)
{
    const int r = variant & SHUFFLED && l->out % 4 == 0 ? 2 : 1;
    const cod_test_layout layout = {variant & X_F32 ? COD_F32 : COD_BF16, variant & Y_F32 ? COD_F32 : COD_BF16,
                                    variant & GAPS ? 9 : 0, variant & GAPS ? 32 : 0};
    cod_op op = cod_test_layer_op(l, kind, layout, r);
    op.deterministic = true;
    op.accumulate = (variant & ADDED) != 0;
    op.attr.leak = 0.25f;
    if (variant % 3 == 1)
        cod_test_without_bias(&op);
    if (kind != COD_OP_CONV2D)
        return op;
    if (variant & ADDED)
        op.inputs[4] =
            cod_test_view_of(variant % 5 < 3 ? COD_BF16 : COD_F32, op.outputs[0].shape, variant & X_F32 ? 0 : 8);
    return op;
}

/** The variants of a layer, an activation after the other. */
static void check_layer(int number, cod_op_kind kind, int first, int last)
{
    for (int variant = first; variant < last; variant += VARIANT_STEP) {
        cod_op op = layer_op(&layers[number], kind, variant);
        if (kind == COD_OP_CONV2D) {
            op.attr.activation = (cod_activation)((number + variant) % 6);
            if (op.attr.activation == COD_ACT_PRELU)
                op.inputs[3] =
                    cod_test_view_of(COD_F32, (cod_shape){1, 1, 1, variant & GAPS ? op.outputs[0].shape.c : 1}, 0);
        }
        require_exact(&op, (uint64_t)(variant + number), "layer", number);
    }
}

TEST(layers_agree)
{
    for (int number = 0; number < LAYERS; number++) {
        const bool small = layers[number].n * layers[number].h * layers[number].w < 200;
        const int first = number % VARIANT_STEP;
        for (int kind = COD_OP_CONV2D; kind <= COD_OP_CONV2D_BACKWARD_WEIGHTS; kind++)
            check_layer(number, (cod_op_kind)kind, first, small ? 32 : first + LARGE_VARIANTS);
    }
}

/** As in bands: padded at the sides only. */
TEST(heights_and_widths_are_told_apart)
{
    for (int kind = COD_OP_CONV2D; kind <= COD_OP_CONV2D_BACKWARD_WEIGHTS; kind++) {
        for (int variant = 0; variant < 8; variant++) {
            const bool narrow = variant & 4;
            const cod_dtype dtype = variant & 1 ? COD_F32 : COD_BF16;
            const cod_view x = cod_test_view_of(dtype, (cod_shape){2, 9, 14, narrow ? 3 : 8}, 0),
                           y = cod_test_view_of(dtype, (cod_shape){2, 3, 14, 24}, 0),
                           w = cod_test_view_of(COD_F32, (cod_shape){24, 3, 5, narrow ? 3 : 8}, 0);
            cod_op op = {.kind = (cod_op_kind)kind,
                         .accumulate = (variant & 2) != 0,
                         .attr = {.stride_h = 3, .stride_w = 1, .pad_h = 0, .pad_w = 2}};
            const bool data = kind == COD_OP_CONV2D_BACKWARD_DATA, weights = kind == COD_OP_CONV2D_BACKWARD_WEIGHTS;
            op.inputs[0] = data ? y : x;
            op.inputs[1] = weights ? y : w;
            op.outputs[0] = data ? x : weights ? w : y;
            require_exact(&op, (uint64_t)variant, "variant", variant);
        }
    }
}

/** Linear layers, whose strides nobody set. */
TEST(linear_layers_agree)
{
    static const struct {
        int64_t n, in, out;
    } sizes[] = {{1, 8, 8}, {9, 17, 3}, {100, 784 / 4, 10}, {33, 64, 130}, {200, 24, 40}, {1030, 10, 16}};
    for (int i = 0; i < (int)(sizeof sizes / sizeof sizes[0]); i++) {
        for (int variant = 0; variant < 8; variant++) {
            const cod_view x = cod_test_view_of(variant & 1 ? COD_F32 : COD_BF16,
                                                (cod_shape){sizes[i].n, 1, 1, sizes[i].in}, 0),
                           y = cod_test_view_of(variant & 2 ? COD_F32 : COD_BF16,
                                                (cod_shape){sizes[i].n, 1, 1, sizes[i].out}, 0),
                           w = cod_test_view_of(COD_F32, (cod_shape){sizes[i].out, 1, 1, sizes[i].in}, 0),
                           b = cod_test_view_of(COD_F32, (cod_shape){1, 1, 1, sizes[i].out}, 0);
            const cod_op ops[] = {
                {.kind = COD_OP_LINEAR, .attr = {.activation = COD_ACT_RELU}, .inputs = {x, w, b}, .outputs = {y}},
                {.kind = COD_OP_LINEAR_BACKWARD_DATA, .inputs = {y, w}, .outputs = {x}, .accumulate = variant & 4},
                {.kind = COD_OP_LINEAR_BACKWARD_WEIGHTS,
                 .inputs = {x, y},
                 .outputs = {w, b},
                 .accumulate = variant & 4},
            };
            for (int k = 0; k < 3; k++)
                require_exact(&ops[k], (uint64_t)(variant + i), "size", i);
        }
    }
}

TEST(random_ops_agree)
{
    for (int kind = COD_OP_CONV2D; kind <= COD_OP_LINEAR_BACKWARD_WEIGHTS; kind++) {
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            cod_op op = cod_test_random_op((cod_op_kind)kind, COD_BF16, COD_F32, seed);
            op.attr.leak = 0.25f;
            require_exact(&op, seed, "random op", (int)seed);
            op = cod_test_random_op((cod_op_kind)kind, COD_F32, COD_F32, seed);
            assert_ok(cod_test_parity(test_ref, test_cuda, &op, seed, (cod_tolerance){4e-6, 2e-6}));
        }
    }
}

/** In f32 the error of a sum grows with the square root of its terms, here 8 thousand. */
TEST(long_sums_of_f32_are_precise)
{
    const cod_view x = cod_test_view_of(COD_F32, (cod_shape){2, 64, 64, 3}, 0),
                   y = cod_test_view_of(COD_F32, (cod_shape){2, 64, 64, 5}, 0),
                   w = cod_test_view_of(COD_F32, (cod_shape){5, 1, 1, 3}, 0),
                   b = cod_test_view_of(COD_F32, (cod_shape){1, 1, 1, 5}, 0);
    const cod_op op = {.kind = COD_OP_CONV2D_BACKWARD_WEIGHTS,
                       .attr = {.stride_h = 1, .stride_w = 1},
                       .inputs = {x, y},
                       .outputs = {w, b}};
    assert_ok(cod_test_parity(test_ref, test_cuda, &op, 1, (cod_tolerance){4e-6, 4e-6}));
}

/** New weights count once the plan is prepared again, and a recording replays what the buffers hold then. */
TEST(plans_can_be_prepared_again_and_recorded)
{
    const cod_backend *cuda = test_cuda.backend;
    const cod_op op = layer_op(&layers[2], COD_OP_CONV2D, 0);
    const size_t y = COD_OP_MAX_INPUTS;
    cod_test_op expected, actual;
    cod_recording *recording = NULL;
    assert_ok(run_on(test_ref, &op, 1, &expected));
    assert_ok(run_on(test_cuda, &op, 1, &actual));
    assert_ok(cuda->capture_begin(test_cuda.device, NULL));
    assert_ok(cuda->plan_run(actual.plan, NULL));
    assert_ok(cuda->capture_end(test_cuda.device, NULL, &recording));
    for (uint64_t seed = 2; seed < 4; seed++) {
        for (size_t slot = 0; slot <= y; slot++) {
            if (expected.buffers[slot] == NULL)
                continue;
            double *values = exact_values(&op, slot, seed);
            assert_ok(cod_test_op_write(&expected, slot, values));
            assert_ok(cod_test_op_write(&actual, slot, values));
            free(values);
        }
        assert_ok(cod_test_op_run(&expected));
        assert_ok(cuda->plans_prepare(test_cuda.device, &actual.plan, 1, NULL));
        assert_ok(cuda->recording_run(recording, NULL));
        assert_ok(compare(&expected, &actual, &op));
    }
    cuda->recording_destroy(recording);
    cod_test_op_clear(&expected);
    cod_test_op_clear(&actual);
}

/* On 8-bit integers: sums are exact, the factor and what follows are rounded three times in f32. */

TEST(integers_agree)
{
    char message[512];
    assert_true(test_cuda.backend->supports(test_cuda.device, COD_S8));
    for (int number = 0; number < LAYERS; number++) {
        for (int variant = number % 4; variant < 32; variant += 3 * VARIANT_STEP + 2) {
            cod_op op = layer_op(&layers[number], COD_OP_CONV2D, variant);
            op.attr.int8_range = 0.8f;
            op.attr.activation = (cod_activation)(variant % 3);
            const bool bf16 = op.outputs[0].dtype == COD_BF16;
            cod_emulated_set_seed((uint64_t)variant);
            /* A residual may cancel what it is added to. */
            const cod_tolerance tolerance = {bf16 ? 8e-3 : 4e-6, op.inputs[4].shape.n > 0 ? 2e-6 : 1e-6};
            const cod_status status = cod_test_parity(test_ref, test_cuda, &op, (uint64_t)variant, tolerance);
            if (cod_emulated_faults(message, sizeof message) > 0)
                fail_msg("layer %d, variant %d: %s", number, variant, message);
            if (status != COD_OK)
                fail_msg("layer %d, variant %d: %s", number, variant, cod_error_message());
        }
    }
}

TEST(extremes_of_integers_are_as_specified)
{
    cod_parity_extreme_integers(test_cuda);
}

TEST_GROUP(test_pair_open, test_pair_close)
TEST_DEVICE(cod_cuda_backend)
