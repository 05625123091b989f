#include "support/test.h"

#include "core/rng.h"
#include "cuda/cuda.h"
#include "emulated/emulated.h"
#include "pair.h"
#include "support/sequence.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/**
 * Convolutions with an activation behind them, and data gradients with an activation's gradient, as one plan, against
 * `ref`'s ops one after another. Values are small integers, slopes quarters: what passes between the ops is exact in
 * bf16, and sums are exact in f32, so that results must be equal bit for bit. Random values have a tolerance.
 */

#ifdef __SANITIZE_ADDRESS__
enum { VARIANT_STEP = 11, SEEDS = 60 };
#else
enum { VARIANT_STEP = 3, SEEDS = 600 };
#endif

typedef struct layer {
    int64_t n, h, w, in, out, kernel;
    int stride, factor;
} layer;

/**
 * Of x and of y before they are shuffled. The last has so many pixels that sums over blocks have several groups; those
 * with a few channels on one side, before it, have kernels of their own.
 */
static const layer layers[] = {
    {1, 5, 7, 64, 256, 3, 1, 2}, {2, 3, 5, 16, 36, 3, 1, 3},  {1, 7, 6, 8, 12, 1, 1, 2},  {2, 6, 5, 24, 40, 3, 1, 1},
    {1, 1, 1, 16, 16, 3, 1, 2},  {1, 9, 4, 5, 20, 3, 1, 2},   {1, 8, 7, 136, 8, 3, 1, 1}, {2, 7, 9, 16, 24, 3, 2, 1},
    {2, 9, 11, 3, 32, 9, 1, 1},  {1, 13, 19, 48, 3, 9, 1, 1}, {1, 9, 10, 2, 16, 5, 1, 1}, {1, 17, 9, 128, 4, 3, 1, 1},
    {1, 80, 80, 8, 16, 1, 1, 2},
};
enum { LAYERS = sizeof layers / sizeof layers[0], LAST_LAYER = 9, FEW = 4 };

/** Sums of these; then 8 times the activation. */
enum { BACKWARD = 1, GAPS = 2, WIDE_TYPES = 4, KINDS = 8, VARIANTS = 6 * KINDS };

static cod_view numbered(size_t *tensors, cod_dtype dtype, cod_shape shape, int64_t gap)
{
    cod_view view = cod_view_dense(NULL, ++*tensors, dtype, shape);
    view.pixel_stride += gap;
    return view;
}

/** The activation of a variant: ReLU, leaky ReLU, PReLU with one slope and with many, and PReLU with each once more. */
static cod_op activation_op(size_t *tensors, const cod_view *x, int variant)
{
    static const cod_activation kinds[] = {COD_ACT_RELU,  COD_ACT_LEAKY_RELU, COD_ACT_PRELU,
                                           COD_ACT_PRELU, COD_ACT_PRELU,      COD_ACT_PRELU};
    const int kind = variant / KINDS;
    const bool backward = variant & BACKWARD;
    cod_op op = {.kind = backward ? COD_OP_ACTIVATION_BACKWARD : COD_OP_ACTIVATION,
                 .attr = {.activation = kinds[kind], .leak = 0.25f},
                 .deterministic = true,
                 .name = "activation"};
    const cod_view other = numbered(tensors, kind == 5 ? COD_F32 : x->dtype, x->shape, variant & GAPS ? 8 : 0);
    op.inputs[0] = backward ? other : *x;
    op.outputs[0] = backward ? *x : other;
    if (backward)
        op.inputs[1] = *x;
    if (kind < 2)
        return op;
    const cod_view slope = numbered(tensors, COD_F32, (cod_shape){1, 1, 1, kind % 2 ? x->shape.c : 1}, 0);
    op.inputs[backward ? 2 : 1] = slope;
    if (backward)
        op.outputs[1] = numbered(tensors, COD_F32, slope.shape, 0);
    return op;
}

/** Describes the two ops of a layer; see support/sequence.h. */
static void describe(const layer *l, int variant, cod_op ops[2])
{
    const int64_t r = l->factor, pad = l->kernel / 2, gap = variant & GAPS ? l->stride == 1 ? 8 : 3 : 0;
    const bool backward = variant & BACKWARD;
    const cod_shape from = {l->n, l->h, l->w, l->in},
                    to = {l->n, ((l->h + 2 * pad - l->kernel) / l->stride + 1) * r,
                          ((l->w + 2 * pad - l->kernel) / l->stride + 1) * r, l->out / r / r};
    size_t tensors = 0;
    const cod_view source = numbered(&tensors, COD_BF16, backward ? to : from, 0),
                   target = numbered(&tensors, variant & WIDE_TYPES ? COD_F32 : COD_BF16, backward ? from : to, gap);
    ops[0] = (cod_op){.kind = backward ? COD_OP_CONV2D_BACKWARD_DATA : COD_OP_CONV2D,
                      .attr = {.stride_h = l->stride,
                               .stride_w = l->stride,
                               .pad_h = (int)pad,
                               .pad_w = (int)pad,
                               .factor = l->factor},
                      .deterministic = true,
                      .name = "layer"};
    ops[0].inputs[0] = source;
    ops[0].inputs[1] = numbered(&tensors, COD_F32, (cod_shape){l->out, l->kernel, l->kernel, l->in}, 0);
    if (!backward && variant % 3 != 0)
        ops[0].inputs[2] = numbered(&tensors, COD_F32, (cod_shape){1, 1, 1, l->out}, 0);
    ops[0].outputs[0] = target;
    ops[1] = activation_op(&tensors, &target, variant);
}

/** Slopes in quarters up to 3/4, weights of which most are 0; else integers up to 3. */
static cod_status write_exact(cod_test_sequence *test, size_t op, size_t slot, uint64_t seed)
{
    static const double few[8] = {-1, 1}; /* sums of them stay below 256 */
    cod_test_op one = {.on = test->on, .op = test->ops[op]};
    const cod_view *view = cod_test_view(&one.op, slot);
    if (view->buffer == NULL)
        return COD_OK;
    const bool slope = op == 1 && view->dtype == COD_F32 && view->shape.h * view->shape.w * view->shape.n == 1 &&
                       slot > 0 && slot < COD_OP_MAX_INPUTS,
               weights = op == 0 && slot == 1;
    const int64_t count = cod_shape_count(view->shape);
    cod_rng rng = cod_rng_open(seed, 9, 0, (uint32_t)op, COD_RNG_TEST, (uint32_t)slot);
    double *values = calloc((size_t)count, sizeof *values);
    COD_REQUIRE_MEMORY(values);
    for (int64_t i = 0; i < count; i++)
        values[i] = weights ? few[cod_rng_below(&rng, 8)] : ((double)cod_rng_below(&rng, 7) - 3) / (slope ? 4 : 1);
    const cod_status status = cod_test_op_write(&one, slot, values);
    free(values);
    return status;
}

/** Binds the ops, fused or not, writes exact or random values, and runs them. */
static cod_status run(cod_test_sequence *test, cod_test_device on, const cod_op ops[2], uint64_t seed, bool fused,
                      bool exact)
{
    COD_TRY(cod_test_sequence_init(test, on, ops, 2, seed, fused));
    for (size_t i = 0; exact && i < 2 * (size_t)COD_TEST_SLOTS; i++)
        COD_TRY(write_exact(test, i / COD_TEST_SLOTS, i % COD_TEST_SLOTS, seed));
    return cod_test_sequence_run(test);
}

static cod_status compare(const cod_test_sequence *expected, const cod_test_sequence *actual, double relative)
{
    for (size_t i = 0; i < 2 * (size_t)COD_OP_MAX_OUTPUTS; i++) {
        const size_t op = i / COD_OP_MAX_OUTPUTS, slot = COD_OP_MAX_INPUTS + i % COD_OP_MAX_OUTPUTS;
        cod_test_op a = {.on = expected->on, .op = expected->ops[op]}, b = {.on = actual->on, .op = actual->ops[op]};
        if (cod_test_view(&a.op, slot)->buffer == NULL)
            continue;
        const int64_t count = cod_shape_count(cod_test_view(&a.op, slot)->shape);
        double *values = calloc((size_t)count * 2, sizeof *values);
        COD_REQUIRE_MEMORY(values);
        cod_status status = cod_test_op_read(&a, slot, values);
        COD_THEN(status, cod_test_op_read(&b, slot, values + count));
        COD_THEN(status, cod_test_compare(op == 0                     ? "the product's output"
                                          : slot == COD_OP_MAX_INPUTS ? "output"
                                                                      : "dslope",
                                          values + count, values, count, (cod_tolerance){relative, 0}));
        free(values);
        COD_TRY(status);
    }
    return COD_OK;
}

static void require(cod_status status, const char *what, int number, int variant, uint64_t seed)
{
    char message[512];
    if (cod_emulated_faults(message, sizeof message) > 0)
        fail_msg("%s %d, variant %d, seed %" PRIu64 ": %s", what, number, variant, seed, message);
    if (status != COD_OK)
        fail_msg("%s %d, variant %d, seed %" PRIu64 ": %s", what, number, variant, seed, cod_error_message());
}

/**
 * Strided gradients of slopes are no plan, and of kernels between few channels and many only those that write the many
 * have activations.
 */
static bool is_joined(const layer *l, const cod_op ops[2])
{
    const bool forward = ops[0].kind == COD_OP_CONV2D;
    if (l->in <= FEW || l->out <= FEW)
        return forward == (l->in <= FEW);
    return l->stride == 1 || ops[1].outputs[1].offset == 0;
}

TEST(exact_values_agree)
{
    int agreed = 0;
    for (int number = 0; number < LAYERS; number++) {
        for (int variant = number % VARIANT_STEP; variant < VARIANTS; variant += VARIANT_STEP) {
            const uint64_t seed = (uint64_t)(number * VARIANTS + variant);
            cod_op ops[2];
            cod_test_sequence expected, actual;
            describe(&layers[number], variant, ops);
            if (!is_joined(&layers[number], ops))
                continue;
            cod_emulated_set_seed(seed);
            require(run(&expected, test_ref, ops, seed, false, true), "layer", number, variant, seed);
            require(run(&actual, test_cuda, ops, seed, true, true), "layer", number, variant, seed);
            require(compare(&expected, &actual, 0), "layer", number, variant, seed);
            cod_test_sequence_clear(&expected);
            cod_test_sequence_clear(&actual);
            agreed++;
        }
    }
    assert_true(agreed >= LAYERS * VARIANTS / VARIANT_STEP / 2);
}

/** Whatever the order of blocks and threads is; and in a second run of the plan's memory. */
TEST(results_have_the_same_bits_in_any_order)
{
    static const int variants[] = {BACKWARD + 2 * KINDS, BACKWARD + 3 * KINDS, 2 * KINDS};
    static const int numbers[] = {0, LAST_LAYER, LAYERS - 1};
    for (size_t n = 0; n < sizeof numbers / sizeof numbers[0]; n++) {
        for (size_t v = 0; v < sizeof variants / sizeof variants[0]; v++) {
            const int number = numbers[n];
            cod_op ops[2];
            cod_test_sequence first, other;
            describe(&layers[number], variants[v], ops);
            if (!is_joined(&layers[number], ops))
                continue;
            cod_emulated_set_seed(1);
            require(run(&first, test_cuda, ops, 7, true, false), "layer", number, variants[v], 1);
            for (uint64_t seed = 2; seed < 4; seed++) {
                cod_emulated_set_seed(seed);
                require(run(&other, test_cuda, ops, 7, true, false), "layer", number, variants[v], seed);
                require(compare(&first, &other, 0), "layer", number, variants[v], seed);
                if (variants[v] & BACKWARD)
                    require(cod_test_sequence_run(&other), "layer", number, variants[v], seed);
                require(compare(&first, &other, 0), "layer", number, variants[v], seed);
                cod_test_sequence_clear(&other);
            }
            cod_test_sequence_clear(&first);
        }
    }
}

/** What has kernels: products in bf16; gradients of the ReLU family, and of slopes where strides are 1. */
static bool is_expected(const cod_op ops[2])
{
    const bool backward = ops[1].kind == COD_OP_ACTIVATION_BACKWARD;
    const cod_activation kind = ops[1].attr.activation;
    if (ops[0].kind == COD_OP_CONV2D && (ops[0].attr.activation != COD_ACT_NONE || ops[0].inputs[4].offset != 0))
        return false;
    if (backward && kind != COD_ACT_RELU && kind != COD_ACT_LEAKY_RELU && kind != COD_ACT_PRELU)
        return false;
    return ops[1].outputs[1].offset == 0 || (ops[0].attr.stride_h == 1 && ops[0].attr.stride_w == 1);
}

/** Sequences of any shape, padding and kind. What a sigmoid or tanh gives may be rounded to a neighbour. */
TEST(random_sequences_agree)
{
    static const cod_op_kind products[] = {COD_OP_CONV2D, COD_OP_CONV2D_BACKWARD_DATA};
    for (size_t p = 0; p < sizeof products / sizeof products[0]; p++) {
        int fused = 0;
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            cod_op ops[COD_TEST_SEQUENCE_OPS];
            cod_test_sequence expected, actual;
            const size_t count = cod_test_random_sequence(products[p], COD_BF16, COD_F32, seed, ops);
            if (count != 2 || (ops[1].kind != COD_OP_ACTIVATION && ops[1].kind != COD_OP_ACTIVATION_BACKWARD))
                continue;
            cod_emulated_set_seed(seed);
            const cod_status status = run(&actual, test_cuda, ops, seed, true, true);
            if (is_expected(ops)) {
                const bool curved = ops[1].attr.activation >= COD_ACT_SIGMOID;
                require(status, "sequence", (int)p, 0, seed);
                require(run(&expected, test_ref, ops, seed, false, true), "sequence", (int)p, 0, seed);
                require(compare(&expected, &actual, curved ? 8e-3 : 0), "sequence", (int)p, 0, seed);
                cod_test_sequence_clear(&expected);
                fused++;
            } else {
                assert_int_equal(status, COD_ERR_UNSUPPORTED);
            }
            cod_test_sequence_clear(&actual);
        }
        if (fused < SEEDS / 100)
            fail_msg("%s: %d sequences are fused", cod_op_kind_name(products[p]), fused);
    }
}

/** A recording replays what the buffers hold then, with new weights once the plan is prepared again. */
TEST(plans_can_be_prepared_again_and_recorded)
{
    const cod_backend *cuda = test_cuda.backend;
    for (int variant = 2 * KINDS; variant <= 2 * KINDS + BACKWARD; variant++) {
        cod_op ops[2];
        cod_test_sequence expected, actual;
        cod_recording *recording;
        describe(&layers[1], variant, ops);
        assert_ok(run(&actual, test_cuda, ops, 1, true, true));
        assert_ok(cuda->capture_begin(test_cuda.device, NULL));
        assert_ok(cuda->plan_run(actual.plans[0], NULL));
        assert_ok(cuda->capture_end(test_cuda.device, NULL, &recording));
        for (uint64_t seed = 2; seed < 4; seed++) {
            assert_ok(run(&expected, test_ref, ops, seed, false, true));
            for (size_t i = 0; i < 2 * (size_t)COD_TEST_SLOTS; i++)
                assert_ok(write_exact(&actual, i / COD_TEST_SLOTS, i % COD_TEST_SLOTS, seed));
            assert_ok(cuda->plans_prepare(test_cuda.device, actual.plans, 1, NULL));
            assert_ok(cuda->recording_run(recording, NULL));
            require(compare(&expected, &actual, 0), "replay", variant, variant, seed);
            cod_test_sequence_clear(&expected);
        }
        cuda->recording_destroy(recording);
        cod_test_sequence_clear(&actual);
    }
}

/** In f32 there are no such plans, and libraries that are asked may be faster apart, but at what they cannot do. */
TEST(what_is_better_apart_is_not_joined)
{
    cod_op ops[2];
    cod_test_sequence test;
    static const struct {
        int number, variant;
        size_t asked, own; /**< ops that are joined where libraries are asked, and where not */
    } cases[] = {{0, 0, 2, 2}, {3, 0, 1, 2}, {LAST_LAYER, 0, 1, 1}, {LAST_LAYER, BACKWARD, 2, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        describe(&layers[cases[i].number], cases[i].variant + 2 * KINDS, ops);
        assert_ok(cod_test_sequence_init(&test, test_cuda, ops, 2, 1, false));
        test.ops[0].deterministic = test.ops[1].deterministic = false;
        setenv("COD_CUDA_CONVOLUTION", "auto", 1);
        const size_t asked = test_cuda.backend->op_fuses(test_cuda.device, test.ops, 2);
        setenv("COD_CUDA_CONVOLUTION", "own", 1);
        const size_t own = test_cuda.backend->op_fuses(test_cuda.device, test.ops, 2);
        unsetenv("COD_CUDA_CONVOLUTION");
        assert_int_equal(asked, cases[i].asked);
        assert_int_equal(own, cases[i].own);
        for (size_t op = 0; op < 2; op++)
            for (size_t slot = 0; slot < COD_TEST_SLOTS; slot++)
                cod_test_view(&test.ops[op], slot)->dtype = COD_F32;
        assert_int_equal(test_cuda.backend->op_fuses(test_cuda.device, test.ops, 2), 1);
        cod_test_sequence_clear(&test);
    }
}

TEST_GROUP(test_pair_open, test_pair_close)
TEST_DEVICE(cod_cuda_backend)
