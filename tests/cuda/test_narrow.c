#include "support/test.h"

#include "core/rng.h"
#include "cuda/cuda.h"
#include "emulated/emulated.h"
#include "pair.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/**
 * Convolutions between wide and narrow tensors (src/cuda/narrow.cuh) against `ref`. As in test_convolution.c, values
 * are small integers and multiples of 1/4, whose sums are exact in f32, so that results must be equal bit for bit;
 * random values have a tolerance.
 */

/* A sanitizer, which slows fibres down, sees one variant of each small layer. */
#ifdef __SANITIZE_ADDRESS__
enum { VARIANT_STEP = 32, LARGEST = 15000 };
#else
enum { VARIANT_STEP = 5, LARGEST = 1000000 };
#endif

/** The last layer of a network has `wide` channels in and `narrow` out, the first one the other way round. */
typedef struct layer {
    int64_t n, h, w, narrow, wide, kernel;
} layer;

static const layer layers[] = {
    {1, 1, 1, 3, 64, 9},  {2, 9, 5, 3, 16, 9},   {1, 24, 24, 3, 64, 9}, {1, 31, 17, 3, 48, 9},  {1, 9, 5, 1, 16, 11},
    {1, 9, 5, 3, 32, 11}, {2, 5, 9, 4, 16, 11},  {2, 3, 101, 2, 16, 9}, {1, 31, 17, 3, 16, 5},  {1, 24, 24, 1, 16, 3},
    {2, 9, 5, 8, 48, 3},  {1, 9, 5, 5, 16, 7},   {1, 3, 3, 4, 128, 7},  {2, 31, 17, 3, 64, 3},  {1, 5, 9, 3, 128, 11},
    {4, 6, 50, 3, 16, 9}, {3, 16, 23, 1, 32, 9}, {1, 8, 16, 6, 112, 5}, {1, 9, 5, 4, 16, 9},    {1, 11, 12, 1, 16, 7},
    {1, 1, 1, 1, 16, 11}, {2, 2, 57, 4, 16, 5},  {1, 40, 3, 2, 16, 11}, {4, 12, 40, 3, 128, 3}, {3, 8, 40, 3, 64, 9},
    {4, 3, 50, 3, 64, 5},
};
enum { LAYERS = sizeof layers / sizeof layers[0] };

enum { NARROW_F32 = 1, WIDE_F32 = 2, GAPS = 4, ADDED = 8, FIRST = 16, VARIANTS = 32 };

/**
 * `variant` is a sum of the above. Gaps are odd for the narrow tensor; the wide one has its pixels at 16-byte
 * boundaries.
 */
static cod_op layer_op(const layer *l, cod_op_kind kind, int variant)
{
    const cod_view narrow = cod_test_view_of(variant & NARROW_F32 ? COD_F32 : COD_BF16,
                                             (cod_shape){l->n, l->h, l->w, l->narrow}, variant & GAPS ? 5 : 0);
    const cod_view wide = cod_test_view_of(variant & WIDE_F32 ? COD_F32 : COD_BF16,
                                           (cod_shape){l->n, l->h, l->w, l->wide}, variant & GAPS ? 32 : 0);
    const bool first = (variant & FIRST) != 0, gradient = kind == COD_OP_CONV2D_BACKWARD_WEIGHTS;
    const int64_t in = first ? l->narrow : l->wide, out = first ? l->wide : l->narrow;
    const cod_view x = first ? narrow : wide, y = first ? wide : narrow;
    const cod_view w = cod_test_view_of(COD_F32, (cod_shape){out, l->kernel, l->kernel, in}, variant & GAPS ? 1 : 0),
                   b = cod_test_view_of(COD_F32, (cod_shape){1, 1, 1, out}, 0);
    const int pad = (int)l->kernel / 2;
    cod_op op = {.kind = kind,
                 .deterministic = true,
                 .accumulate = (variant & ADDED) != 0,
                 .name = "layer",
                 .attr = {.stride_h = 1, .stride_w = 1, .pad_h = pad, .pad_w = pad, .leak = 0.25f}};
    op.inputs[0] = kind == COD_OP_CONV2D_BACKWARD_DATA ? y : x;
    op.inputs[1] = gradient ? y : w;
    op.outputs[0] = kind == COD_OP_CONV2D ? y : gradient ? w : x;
    if (gradient && variant % 3 != 1)
        op.outputs[1] = b;
    if (kind != COD_OP_CONV2D)
        return op;
    if (variant % 3 != 1)
        op.inputs[2] = b;
    op.attr.activation = (cod_activation)(variant % 4); /* none, ReLU, leaky ReLU, PReLU */
    if (op.attr.activation == COD_ACT_PRELU)
        op.inputs[3] = cod_test_view_of(COD_F32, (cod_shape){1, 1, 1, variant & GAPS ? out : 1}, 0);
    if (variant & ADDED)
        op.inputs[4] = cod_test_view_of(variant % 5 < 3 ? COD_BF16 : COD_F32, y.shape, 3);
    return op;
}

/** Writes integers up to 3 into every slot; into bias and slope multiples of 1/4 up to 3/4. */
static cod_status write_exact(cod_test_op *test, uint64_t seed)
{
    for (size_t slot = 0; slot < COD_TEST_SLOTS; slot++) {
        if (test->buffers[slot] == NULL)
            continue;
        const int64_t count = cod_shape_count(cod_test_view(&test->op, slot)->shape);
        const bool vector = test->op.kind == COD_OP_CONV2D && (slot == 2 || slot == 3);
        cod_rng rng = cod_rng_open(seed, 3, 0, test->op.kind, COD_RNG_TEST, (uint32_t)slot);
        double *values = calloc((size_t)count, sizeof *values);
        COD_REQUIRE_MEMORY(values);
        for (int64_t i = 0; i < count; i++)
            values[i] = ((double)cod_rng_below(&rng, 7) - 3) / (vector ? 4 : 1);
        const cod_status status = cod_test_op_write(test, slot, values);
        free(values);
        COD_TRY(status);
    }
    return COD_OK;
}

static cod_status compare(cod_test_op *expected, cod_test_op *actual)
{
    cod_status status = COD_OK;
    for (size_t slot = COD_OP_MAX_INPUTS; slot < COD_TEST_SLOTS && status == COD_OK; slot++) {
        if (expected->buffers[slot] == NULL)
            continue;
        const int64_t count = cod_shape_count(cod_test_view(&expected->op, slot)->shape);
        double *values = calloc((size_t)count * 2, sizeof *values);
        COD_REQUIRE_MEMORY(values);
        status = cod_test_op_read(expected, slot, values);
        COD_THEN(status, cod_test_op_read(actual, slot, values + count));
        COD_THEN(status, cod_test_compare("output", values + count, values, count, (cod_tolerance){0, 0}));
        free(values);
    }
    return status;
}

/** Runs the op on both devices with values of write_exact(), or with random ones; results must have the same bits. */
static cod_status check_bits(cod_test_device on, uint64_t on_seed, cod_test_device other, uint64_t other_seed,
                             const cod_op *op, bool exact)
{
    cod_test_op a = {.plan = NULL}, b = {.plan = NULL};
    cod_status status = cod_test_op_init(&a, on, op);
    COD_THEN(status, cod_test_op_init(&b, other, op));
    COD_THEN(status, exact ? write_exact(&a, on_seed) : cod_test_op_randomise(&a, on_seed, false));
    COD_THEN(status, exact ? write_exact(&b, on_seed) : cod_test_op_randomise(&b, on_seed, false));
    cod_emulated_set_seed(on_seed);
    COD_THEN(status, cod_test_op_run(&a));
    cod_emulated_set_seed(other_seed);
    COD_THEN(status, cod_test_op_run(&b));
    COD_THEN(status, compare(&a, &b));
    cod_test_op_clear(&a);
    cod_test_op_clear(&b);
    return status;
}

static void require(cod_status status, int number, const cod_op *op, int variant, uint64_t seed)
{
    char message[512];
    if (cod_emulated_faults(message, sizeof message) == 0 && status == COD_OK)
        return;
    fail_msg("layer %d, %s, variant %d, seed %" PRIu64 ": %s%s", number, cod_op_kind_name(op->kind), variant, seed,
             message, status == COD_OK ? "" : cod_error_message());
}

TEST(layers_agree)
{
    for (int number = 0; number < LAYERS; number++) {
        const int64_t work = layers[number].n * layers[number].h * layers[number].w * layers[number].wide;
        const int step = work > 20000 ? 3 * VARIANT_STEP : VARIANT_STEP;
        if (work > LARGEST)
            continue;
        for (int kind = COD_OP_CONV2D; kind <= COD_OP_CONV2D_BACKWARD_WEIGHTS; kind++) {
            for (int variant = (number * 3 + kind) % step; variant < VARIANTS; variant += step) {
                const cod_op op = layer_op(&layers[number], (cod_op_kind)kind, variant);
                const uint64_t seed = (uint64_t)(number * VARIANTS + variant);
                require(check_bits(test_ref, seed, test_cuda, seed, &op, true), number, &op, variant, seed);
            }
        }
    }
}

/**
 * Weights and narrow tensors of f32 are rounded to bf16, one part in 512: errors of a sum grow with the root of its
 * terms.
 */
TEST(random_values_agree)
{
    static const int numbers[] = {1, 8, 15};
    for (int i = 0; i < (int)(sizeof numbers / sizeof numbers[0]); i++) {
        for (int kind = COD_OP_CONV2D; kind <= COD_OP_CONV2D_BACKWARD_WEIGHTS; kind++) {
            for (int variant = 1; variant < VARIANTS; variant += FIRST) {
                const cod_op op = layer_op(&layers[numbers[i]], (cod_op_kind)kind, variant);
                const uint64_t seed = (uint64_t)(i + kind + variant);
                cod_emulated_set_seed(seed);
                const cod_status status = cod_test_parity(test_ref, test_cuda, &op, seed, (cod_tolerance){8e-3, 4e-3});
                require(status, numbers[i], &op, variant, seed);
            }
        }
    }
}

/** Whatever the order of blocks and threads is, sums are made in one order. */
TEST(results_have_the_same_bits_in_any_order)
{
    for (int kind = COD_OP_CONV2D; kind <= COD_OP_CONV2D_BACKWARD_WEIGHTS; kind++) {
        for (int variant = 0; variant < VARIANTS; variant += FIRST) {
            for (uint64_t seed = 0; seed < 3; seed++) {
                const int number = seed == 0 ? 15 : 8;
                const cod_op op = layer_op(&layers[number], (cod_op_kind)kind, variant + NARROW_F32);
                require(check_bits(test_cuda, seed, test_cuda, seed + 5, &op, false), number, &op, variant, seed);
            }
        }
    }
}

/** Writes ones and in the middle pixel, first channel, NaN. */
static cod_status write_ones(cod_test_op *test)
{
    for (size_t slot = 0; slot < COD_TEST_SLOTS; slot++) {
        if (test->buffers[slot] == NULL)
            continue;
        const cod_shape shape = cod_test_view(&test->op, slot)->shape;
        const int64_t count = cod_shape_count(shape);
        double *values = calloc((size_t)count, sizeof *values);
        COD_REQUIRE_MEMORY(values);
        for (int64_t i = 0; i < count; i++)
            values[i] = 1;
        if (slot == 0)
            values[((shape.h / 2) * shape.w + shape.w / 2) * shape.c] = (double)NAN;
        const cod_status status = cod_test_op_write(test, slot, values);
        free(values);
        COD_TRY(status);
    }
    return COD_OK;
}

/** Fragments hold more than a kernel's taps; nothing of that may reach a result. */
TEST(a_nan_reaches_the_pixels_around_it_alone)
{
    for (int variant = 0; variant < VARIANTS; variant += FIRST) {
        for (int kind = COD_OP_CONV2D; kind <= COD_OP_CONV2D_BACKWARD_DATA; kind++) {
            for (int64_t narrow = 1; narrow <= 4; narrow += 1 + VARIANT_STEP / 32) {
                const layer l = {1, 21, 23, narrow, 16, narrow % 2 == 1 ? 9 : 5};
                cod_op op = layer_op(&l, (cod_op_kind)kind, variant);
                op.inputs[2] = op.inputs[3] = (cod_view){.buffer = NULL};
                cod_test_op test;
                assert_ok(cod_test_op_init(&test, test_cuda, &op));
                assert_ok(write_ones(&test));
                assert_ok(cod_test_op_run(&test));
                const cod_shape shape = op.outputs[0].shape;
                double *values = calloc((size_t)cod_shape_count(shape), sizeof *values);
                assert_non_null(values);
                assert_ok(cod_test_op_read(&test, COD_OP_MAX_INPUTS, values));
                for (int64_t i = 0; i < cod_shape_count(shape); i++) {
                    const int64_t row = i / shape.c / shape.w - 10, column = i / shape.c % shape.w - 11;
                    const bool near = 2 * llabs(row) < l.kernel && 2 * llabs(column) < l.kernel;
                    assert_true(isnan(values[i]) == near);
                }
                free(values);
                cod_test_op_clear(&test);
            }
        }
    }
}

/**
 * A kernel's limit of shared memory is the kernel's: a plan that needs less, made later, must leave it to those that
 * need more.
 */
TEST(a_small_plan_takes_no_memory_from_a_large_one)
{
    static const layer large = {1, 9, 31, 3, 128, 9}, small = {1, 1, 1, 3, 16, 9};
    for (int first = 0; first <= FIRST; first += FIRST) {
        for (int kind = COD_OP_CONV2D; kind <= COD_OP_CONV2D_BACKWARD_WEIGHTS; kind++) {
            const cod_op ops[] = {layer_op(&large, (cod_op_kind)kind, first),
                                  layer_op(&small, (cod_op_kind)kind, first)};
            cod_test_op tests[2];
            for (int i = 0; i < 2; i++)
                assert_ok(cod_test_op_init(&tests[i], test_cuda, &ops[i]));
            assert_ok(write_exact(&tests[0], 1));
            require(cod_test_op_run(&tests[0]), 0, &ops[0], first, 1);
            for (int i = 0; i < 2; i++)
                cod_test_op_clear(&tests[i]);
        }
    }
}

/** New weights count once the plan is prepared again, and a recording replays what the buffers hold then. */
TEST(plans_can_be_prepared_again_and_recorded)
{
    const cod_backend *cuda = test_cuda.backend;
    for (int first = 0; first <= FIRST; first += FIRST) {
        for (int kind = COD_OP_CONV2D; kind <= COD_OP_CONV2D_BACKWARD_WEIGHTS; kind++) {
            const cod_op op = layer_op(&layers[1], (cod_op_kind)kind, first);
            cod_test_op expected, actual;
            cod_recording *recording = NULL;
            assert_ok(cod_test_op_init(&expected, test_ref, &op));
            assert_ok(cod_test_op_init(&actual, test_cuda, &op));
            assert_ok(write_exact(&actual, 1));
            assert_ok(cod_test_op_run(&actual));
            assert_ok(cuda->capture_begin(test_cuda.device, NULL));
            assert_ok(cuda->plan_run(actual.plan, NULL));
            assert_ok(cuda->capture_end(test_cuda.device, NULL, &recording));
            for (uint64_t seed = 2; seed < 4; seed++) {
                assert_ok(write_exact(&expected, seed));
                assert_ok(write_exact(&actual, seed));
                assert_ok(cod_test_op_run(&expected));
                assert_ok(cuda->plans_prepare(test_cuda.device, &actual.plan, 1, NULL));
                assert_ok(cuda->recording_run(recording, NULL));
                assert_ok(compare(&expected, &actual));
            }
            cuda->recording_destroy(recording);
            cod_test_op_clear(&expected);
            cod_test_op_clear(&actual);
        }
    }
}

TEST_GROUP(test_pair_open, test_pair_close)
TEST_DEVICE(cod_cuda_backend)
