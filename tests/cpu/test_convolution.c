#include "support/test.h"

#include "cpu/cpu.h"
#include "devices.h"
#include "support/paranoid.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/**
 * Convolutions and linear layers against `ref` in f64, with a bound for each element.
 *
 * `ref` computes on the values that the backend multiplies: activations as stored, weights rounded to bf16 where the
 * convolution is computed in it. What is left is how the backend adds and stores. With M the sum of the terms'
 * magnitudes, found by running ref on absolute values:
 *
 * - Adding K terms in f32 (u = 2^-24), whatever the order, is in error by at most K·u·M, and as roundings are as often
 *   up as down by about sqrt(K)·u·M (Higham & Mary 2019, theorem 2.4, with lambda = 1). Products of bf16 numbers are
 *   exact in f32.
 * - Storing a result y in bf16 is in error by at most half a step: 2^-8·|y| just above a power of two, where the step
 *   is 2^-7·|y|. A PReLU is applied to the stored result and stored again: twice that. Other fused activations and
 *   accumulation see the f32 sum.
 * - A residual may be added to the stored result, which is stored again: half a step of what it is, and one of what it
 *   was.
 * - Fused sigmoid and tanh are polynomials, good to 2^-20·|y|. No activation but a steep PReLU enlarges earlier errors.
 */

/*
 * A sanitizer looks at what the backend reads and writes: in all layers, dense and whole, and with gaps and sliced.
 * There numbers are compared for small convolutions only, as ref is slow in it; the plain build compares all.
 */
#ifdef __SANITIZE_ADDRESS__
enum { SEEDS = 16, LAYERS_COMPARED = 0 };
#else
enum { SEEDS = 60, LAYERS_COMPARED = 1 };
#endif

/** Errors planted in what ref computes on, each of which must be noticed. */
typedef enum plant {
    NO_PLANT,
    ONE_STEP,       /**< the largest element of the second input moved by one bf16 step */
    OTHER_ROUNDING, /**< weights unrounded where the backend rounds them, and rounded where not */
} plant;

typedef struct results {
    double *values[2]; /**< of each output; NULL where absent */
} results;

static void results_clear(results *r)
{
    free(r->values[0]);
    free(r->values[1]);
}

static double rounded_to(cod_dtype dtype, double value)
{
    return dtype == COD_BF16 ? (double)cod_f32_from_bf16(cod_bf16_from_f32((float)value)) : (double)(float)value;
}

static bool has_weights(cod_op_kind kind)
{
    return kind != COD_OP_CONV2D_BACKWARD_WEIGHTS && kind != COD_OP_LINEAR_BACKWARD_WEIGHTS;
}

enum { RESIDUAL = 4 };

static bool has_residual(const cod_op *op)
{
    return op->kind == COD_OP_CONV2D && op->inputs[RESIDUAL].shape.n > 0;
}

/** Whether the backend takes the weights as they are: of large linear layers on few rows (linear.c). */
static bool is_large(const cod_op *op)
{
    const bool linear = op->kind == COD_OP_LINEAR || op->kind == COD_OP_LINEAR_BACKWARD_DATA;
    return linear && cod_shape_count(op->inputs[1].shape) >= 1 << 20;
}

/** The type in which the second input enters the products. */
static cod_dtype multiplied_type(const cod_op *op)
{
    if (!has_weights(op->kind))
        return op->inputs[1].dtype;
    if (is_large(op))
        return COD_F32;
    return op->inputs[0].dtype == COD_BF16 && test_cpu.backend->supports(test_cpu.device, COD_BF16) ? COD_BF16
                                                                                                    : COD_F32;
}

static void move_largest(double *values, int64_t count)
{
    int64_t largest = 0;
    for (int64_t i = 1; i < count; i++)
        if (fabs(values[i]) > fabs(values[largest]))
            largest = i;
    values[largest] = (double)cod_f32_from_bf16((uint16_t)(cod_bf16_from_f32((float)values[largest]) + 1u));
}

/** New array of the slot's values as `op`'s backend is to see them. */
static double *slot_values(const cod_op *op, size_t slot, uint64_t seed, plant planted)
{
    cod_op copy = *op;
    const cod_view *view = cod_test_view(&copy, slot);
    const int64_t count = cod_shape_count(view->shape);
    cod_dtype dtype = slot == 1 ? multiplied_type(op) : view->dtype;
    if (slot == 1 && planted == OTHER_ROUNDING)
        dtype = dtype == COD_BF16 ? COD_F32 : COD_BF16;
    double *values = cod_test_random_values(op, slot, seed, false);
    for (int64_t i = 0; i < count; i++)
        values[i] = rounded_to(dtype, values[i]);
    if (slot == 1 && planted == ONE_STEP)
        move_largest(values, count);
    return values;
}

static cod_status read_results(cod_test_op *test, results *out)
{
    for (size_t k = 0; k < 2; k++) {
        const size_t slot = COD_OP_MAX_INPUTS + k;
        if (test->buffers[slot] == NULL)
            continue;
        out->values[k] = calloc((size_t)cod_shape_count(test->op.outputs[k].shape), sizeof(double));
        COD_REQUIRE_MEMORY(out->values[k]);
        COD_TRY(cod_test_op_read(test, slot, out->values[k]));
    }
    return COD_OK;
}

/** What the op gives in f64, or where `magnitudes` the same of all absolute values before any activation. */
static cod_status run_ref(const cod_op *op, uint64_t seed, plant planted, bool magnitudes, results *out)
{
    cod_op exact = *op;
    cod_test_make_dense(&exact);
    for (size_t slot = 0; slot < COD_TEST_SLOTS; slot++)
        cod_test_view(&exact, slot)->dtype = COD_F64;
    if (magnitudes) {
        exact.attr.activation = COD_ACT_NONE;
        exact.inputs[3] = (cod_view){.buffer = NULL};
    }
    cod_test_op test;
    COD_TRY(cod_test_op_init(&test, test_ref, &exact));
    cod_status status = COD_OK;
    for (size_t slot = 0; slot < COD_TEST_SLOTS && status == COD_OK; slot++) {
        if (test.buffers[slot] == NULL)
            continue;
        double *values = slot_values(op, slot, seed, planted);
        for (int64_t i = 0; magnitudes && i < cod_shape_count(cod_test_view(&exact, slot)->shape); i++)
            values[i] = fabs(values[i]);
        status = cod_test_op_write(&test, slot, values);
        free(values);
    }
    COD_THEN(status, cod_test_op_run(&test));
    COD_THEN(status, read_results(&test, out));
    cod_test_op_clear(&test);
    return status;
}

static cod_status run_tested(const cod_op *op, cod_test_device tested, uint64_t seed, results *out)
{
    cod_test_op test;
    COD_TRY(cod_test_op_init(&test, tested, op));
    cod_status status = cod_test_op_randomise(&test, seed, false);
    COD_THEN(status, test_scratch_arm(tested));
    COD_THEN(status, cod_test_op_run(&test));
    COD_THEN(status, test_scratch_check(tested));
    COD_THEN(status, read_results(&test, out));
    cod_test_op_clear(&test);
    return status;
}

/** Terms of each sum. */
static double terms(const cod_op *op)
{
    const cod_shape w = has_weights(op->kind) ? op->inputs[1].shape : op->outputs[0].shape;
    const cod_shape first = op->inputs[0].shape, second = op->inputs[1].shape;
    if (!has_weights(op->kind))
        return (double)(second.n * second.h * second.w);
    return (double)(w.h * w.w * first.c);
}

/** How far an activation may enlarge an error. */
static double steepness(const cod_op *op, uint64_t seed)
{
    double steepest = 1;
    if (op->attr.activation != COD_ACT_PRELU || !has_weights(op->kind))
        return steepest;
    double *slopes = cod_test_random_values(op, 3, seed, false);
    for (int64_t i = 0; i < cod_shape_count(op->inputs[3].shape); i++)
        steepest = fmax(steepest, fabs(slopes[i]));
    free(slopes);
    return steepest;
}

static cod_status compare(const cod_op *op, size_t output, uint64_t seed, const results *actual, const results *exact,
                          const results *magnitudes)
{
    const double *a = actual->values[output], *e = exact->values[output], *m = magnitudes->values[output];
    const bool prelu = has_weights(op->kind) && op->attr.activation == COD_ACT_PRELU;
    const double stored = op->outputs[output].dtype == COD_BF16 ? ldexp(prelu ? 2 : 1, -8) : ldexp(1, -20);
    double *residual = has_residual(op) ? cod_test_random_values(op, RESIDUAL, seed, false) : NULL;
    const double added = ldexp(sqrt(terms(op)), -24) * steepness(op, seed);
    double worst = 0;
    int64_t at = 0;
    for (int64_t i = 0; i < cod_shape_count(op->outputs[output].shape); i++) {
        const double before = residual != NULL ? fabs(e[i] - residual[i]) : 0;
        const double share = fabs(a[i] - e[i]) / (stored * (fabs(e[i]) + before) + added * m[i] + 1e-30);
        if (!(share <= worst)) {
            worst = share;
            at = i;
        }
    }
    free(residual);
    if (worst <= 1)
        return COD_OK;
    return cod_fail(COD_ERR_NUMERIC,
                    "%s, %s, seed %" PRIu64 ": output %zu, element %" PRId64 " is %.9g, not %.9g: %.3g times the bound",
                    cod_op_kind_name(op->kind), cod_dtype_name(op->inputs[0].dtype), seed, output, at, a[at], e[at],
                    worst);
}

/** What an op must give, and the magnitudes of its sums. */
typedef struct expectation {
    results exact, magnitudes;
} expectation;

static cod_status expect(const cod_op *op, uint64_t seed, plant planted, expectation *out)
{
    COD_TRY(run_ref(op, seed, planted, false, &out->exact));
    return run_ref(op, seed, NO_PLANT, true, &out->magnitudes);
}

static void expectation_clear(expectation *e)
{
    results_clear(&e->exact);
    results_clear(&e->magnitudes);
}

/** @param expected  NULL = whatever comes out */
static cod_status check_against(const expectation *expected, const cod_op *op, cod_test_device tested, uint64_t seed)
{
    results actual = {{NULL}};
    cod_status status = run_tested(op, tested, seed, &actual);
    for (size_t k = 0; k < 2 && status == COD_OK && expected != NULL; k++)
        if (actual.values[k] != NULL)
            status = compare(op, k, seed, &actual, &expected->exact, &expected->magnitudes);
    results_clear(&actual);
    return status;
}

static cod_status check(const cod_op *op, cod_test_device tested, uint64_t seed, plant planted)
{
    expectation expected = {.exact = {{NULL}}};
    cod_status status = expect(op, seed, planted, &expected);
    COD_THEN(status, check_against(&expected, op, tested, seed));
    expectation_clear(&expected);
    return status;
}

static cod_status check_layer(const cod_op *op, uint64_t seed)
{
    return LAYERS_COMPARED ? check(op, test_cpu, seed, NO_PLANT) : check_against(NULL, op, test_cpu, seed);
}

/* Shapes of real networks' layers, odd ones, and those that oneDNN 2.6.3 gets wrong (onednn.c, is_faulty). */

typedef cod_test_layer layer;

static const layer layers[] = {
    {1, 7, 13, 64, 64, 3, 1, 1},  {3, 7, 13, 65, 65, 3, 1, 1},  {1, 5, 7, 64, 256, 3, 1, 1},
    {3, 7, 13, 5, 65, 3, 1, 0},   {3, 1, 1, 64, 64, 3, 1, 1},   {1, 1, 1, 65, 3, 1, 1, 0},
    {1, 1, 1, 3, 64, 9, 1, 4},    {3, 1, 1, 64, 3, 9, 1, 4},    {1, 7, 13, 64, 3, 9, 1, 4},
    {3, 7, 13, 64, 3, 9, 1, 4},   {1, 7, 13, 3, 64, 9, 1, 4},   {3, 7, 13, 3, 64, 9, 1, 4},
    {1, 7, 13, 64, 64, 3, 2, 1},  {3, 7, 13, 65, 64, 3, 2, 1},  {3, 13, 7, 3, 65, 9, 2, 4},
    {3, 7, 13, 64, 65, 1, 2, 0},  {16, 3, 5, 32, 32, 3, 1, 1},  {2, 7, 1, 16, 16, 7, 2, 3},
    {1, 7, 2, 64, 32, 5, 3, 2},   {3, 8, 8, 4, 32, 1, 2, 0},    {3, 8, 9, 3, 64, 1, 3, 0},
    {2, 5, 7, 64, 64, 1, 1, 0},   {2, 5, 7, 512, 8, 1, 1, 0},   {6, 1, 1, 16, 16, 1, 1, 0},
    {2, 33, 41, 16, 32, 3, 2, 1}, {3, 20, 24, 32, 16, 4, 2, 1}, {9, 6, 6, 80, 48, 4, 2, 0},
    {2, 18, 5, 32, 80, 2, 2, 1},  {3, 9, 11, 32, 64, 7, 2, 3},  {3, 8, 9, 64, 32, 1, 2, 0},
};
enum { LAYERS = sizeof layers / sizeof layers[0] };

/** Gaps between pixels as concatenation makes them, odd ones among them. */
static cod_op layer_op(const layer *l, cod_op_kind kind, cod_dtype dtype, bool gaps)
{
    return cod_test_layer_op(l, kind, (cod_test_layout){dtype, dtype, gaps ? 65 : 0, gaps ? 7 : 0}, 0);
}

/** Dense or with gaps, whole or sliced: the expectation is the same. */
static void check_variants(const layer *l, cod_op_kind kind, cod_dtype dtype, bool accumulate)
{
    const uint64_t seed = (uint64_t)(l - layers);
    expectation expected = {.exact = {{NULL}}};
    cod_op op = layer_op(l, kind, dtype, false);
    op.accumulate = accumulate;
    if (LAYERS_COMPARED)
        assert_ok(expect(&op, seed, NO_PLANT, &expected));
    for (unsigned variant = 0; variant < 4; variant += LAYERS_COMPARED ? 1 : 3) {
        op = layer_op(l, kind, dtype, variant & 1);
        op.accumulate = accumulate;
        op.deterministic = (variant & 2) != 0;
        if (check_against(LAYERS_COMPARED ? &expected : NULL, &op, test_cpu, seed) != COD_OK)
            fail_msg("layer %d%s%s%s: %s", (int)seed, accumulate ? ", added" : "", variant & 1 ? ", with gaps" : "",
                     variant & 2 ? ", sliced" : "", cod_error_message());
    }
    expectation_clear(&expected);
}

static void check_layers(cod_dtype dtype)
{
    for (int i = 0; i < LAYERS; i++)
        for (int kind = COD_OP_CONV2D; kind <= COD_OP_CONV2D_BACKWARD_WEIGHTS; kind++)
            for (int accumulate = 0; accumulate <= (kind != COD_OP_CONV2D); accumulate++)
                if (!test_few() || kind == COD_OP_CONV2D || (i + kind) % 2 == accumulate)
                    check_variants(&layers[i], (cod_op_kind)kind, dtype, accumulate != 0);
}

/** As in bands: padded at the sides only. */
static void check_lower_outputs(cod_dtype dtype)
{
    for (int i = 0; i < LAYERS; i++) {
        if (layers[i].stride != 1 || 2 * layers[i].pad != layers[i].kernel - 1)
            continue;
        for (int gaps = test_few() ? i % 2 : 0; gaps < (test_few() ? i % 2 + 1 : 2); gaps++) {
            cod_op op = layer_op(&layers[i], COD_OP_CONV2D, dtype, gaps != 0);
            op.attr.pad_h = 0;
            op.inputs[0].shape.h += 2 * layers[i].pad;
            if (check_layer(&op, (uint64_t)i) != COD_OK)
                fail_msg("layer %d%s: %s", i, gaps ? ", with gaps" : "", cod_error_message());
        }
    }
}

TEST(outputs_lower_than_inputs_agree)
{
    check_lower_outputs(COD_F32);
    check_lower_outputs(COD_BF16);
}

/** With an activation, a residual in either type, and shuffled pixels. */
TEST(residuals_are_added)
{
    static const cod_activation activations[] = {COD_ACT_NONE, COD_ACT_RELU, COD_ACT_PRELU};
    for (int i = 0; i < LAYERS; i++) {
        for (int variant = test_few() ? i % 4 : 0; variant < 8; variant += test_few() ? 4 : 1) {
            const cod_dtype dtype = variant & 1 ? COD_BF16 : COD_F32;
            cod_op op = layer_op(&layers[i], COD_OP_CONV2D, dtype, (variant & 2) != 0);
            cod_view *y = &op.outputs[0];
            if (variant >= 4 && y->shape.c % 4 == 0) {
                op.attr.factor = 2;
                *y =
                    cod_test_view_of(dtype, (cod_shape){y->shape.n, 2 * y->shape.h, 2 * y->shape.w, y->shape.c / 4}, 0);
            }
            op.attr.activation = activations[(i + variant) % 3];
            if (op.attr.activation == COD_ACT_PRELU)
                op.inputs[3] = cod_test_view_of(COD_F32, (cod_shape){1, 1, 1, variant & 2 ? y->shape.c : 1}, 0);
            op.inputs[RESIDUAL] = cod_test_view_of(i % 3 ? dtype : COD_F32, y->shape, i % 2 * 9);
            op.deterministic = i % 4 == 3;
            if (check_layer(&op, (uint64_t)i) != COD_OK)
                fail_msg("layer %d, variant %d: %s", i, variant, cod_error_message());
        }
    }
}

/** What lies before a shuffle is in memory of all plans, which a later plan may move. */
TEST(a_later_shuffle_of_more_pixels_changes_no_earlier_one)
{
    static const layer small = {1, 3, 5, 64, 64, 3, 1, 1}, large = {2, 64, 64, 64, 64, 3, 1, 1};
    static const cod_op_kind kinds[] = {COD_OP_CONV2D, COD_OP_CONV2D_BACKWARD_DATA};
    for (size_t k = 0; k < 2; k++) {
        const cod_test_layout dense = {COD_F32, COD_F32, 0, 0};
        const cod_op op = cod_test_layer_op(&small, kinds[k], dense, 2);
        const cod_op other = cod_test_layer_op(&large, kinds[k], dense, 2);
        double before[3 * 5 * 64], after[3 * 5 * 64];
        cod_test_op first, later;
        assert_ok(cod_test_op_init(&first, test_cpu, &op));
        assert_ok(cod_test_op_randomise(&first, k, false));
        assert_ok(cod_test_op_run(&first));
        assert_ok(cod_test_op_read(&first, COD_OP_MAX_INPUTS, before));
        assert_ok(cod_test_op_init(&later, test_cpu, &other));
        assert_ok(cod_test_op_run(&later));
        assert_ok(cod_test_op_run(&first));
        assert_ok(cod_test_op_read(&first, COD_OP_MAX_INPUTS, after));
        assert_memory_equal(before, after, sizeof before);
        cod_test_op_clear(&first);
        cod_test_op_clear(&later);
    }
}

TEST(layers_agree_in_f32)
{
    check_layers(COD_F32);
}

TEST(layers_agree_in_bf16)
{
    check_layers(COD_BF16);
}

static cod_op large_linear_op(cod_op_kind kind, cod_dtype dtype, int64_t rows, bool gaps, bool bias)
{
    enum { INPUTS = 1040, OUTPUTS = 1030 }; /* neither is a multiple of what a thread takes at once */
    const cod_view x = cod_test_view_of(dtype, (cod_shape){rows, 1, 1, INPUTS}, gaps ? 5 : 0);
    const cod_view y = cod_test_view_of(dtype, (cod_shape){rows, 1, 1, OUTPUTS}, gaps ? 3 : 0);
    const cod_view w = cod_test_view_of(COD_F32, (cod_shape){OUTPUTS, 1, 1, INPUTS}, 0);
    const cod_view b = cod_test_view_of(COD_F32, (cod_shape){1, 1, 1, OUTPUTS}, 0), none = {.buffer = NULL};
    const bool data = kind == COD_OP_LINEAR_BACKWARD_DATA, weights = kind == COD_OP_LINEAR_BACKWARD_WEIGHTS;
    cod_op op = {.kind = kind, .inputs = {data ? y : x, weights ? y : w}, .outputs = {data ? x : weights ? w : y}};
    op.inputs[2] = bias && kind == COD_OP_LINEAR ? b : none;
    op.outputs[1] = bias && weights ? b : none;
    if (kind == COD_OP_LINEAR && bias) {
        op.attr.activation = COD_ACT_LEAKY_RELU;
        op.attr.leak = 0.2f;
    }
    return op;
}

/** Layers whose weights do not fit in the caches, on few rows. */
TEST(large_linear_layers_agree)
{
    static const int64_t rows[] = {1, 13, 16, 32};
    for (int kind = COD_OP_LINEAR; kind <= COD_OP_LINEAR_BACKWARD_WEIGHTS; kind++)
        for (int i = 0; i < 4; i += test_few() ? 3 : 1) {
            const cod_dtype dtype = i % 2 ? COD_BF16 : COD_F32;
            cod_op op = large_linear_op((cod_op_kind)kind, dtype, rows[i], i % 2 == 1, i > 0);
            op.accumulate = kind != COD_OP_LINEAR && i > 1;
            if (check_layer(&op, (uint64_t)i) != COD_OK)
                fail_msg("%s, %d rows: %s", cod_op_kind_name(op.kind), (int)rows[i], cod_error_message());
        }
}

static void check_random(cod_test_device tested, uint64_t seeds)
{
    char message[256];
    for (int kind = COD_OP_CONV2D; kind <= COD_OP_LINEAR_BACKWARD_WEIGHTS; kind++) {
        for (uint64_t seed = 0; seed < 2 * seeds; seed++) {
            cod_op op = cod_test_random_op((cod_op_kind)kind, seed < seeds ? COD_F32 : COD_BF16, COD_F32, seed);
            op.deterministic = seed % 2 == 0; /* sliced or whole */
            assert_ok(check(&op, tested, seed, NO_PLANT));
            if (tested.backend == test_paranoid.backend && cod_paranoid_violations(message, sizeof message) > 0)
                fail_msg("%s, seed %" PRIu64 ": %s", cod_op_kind_name((cod_op_kind)kind), seed, message);
        }
    }
}

TEST(random_convolutions_agree)
{
    check_random(test_cpu, test_few() ? SEEDS / 3 : SEEDS);
}

TEST(plans_touch_only_their_outputs)
{
    check_random(test_paranoid, SEEDS / 4);
}

TEST(planted_errors_are_noticed)
{
    static const layer l = {3, 7, 13, 64, 64, 3, 1, 1};
    for (int kind = COD_OP_CONV2D; kind <= COD_OP_CONV2D_BACKWARD_WEIGHTS; kind++) {
        const cod_op op = layer_op(&l, (cod_op_kind)kind, COD_BF16, false);
        assert_ok(check(&op, test_cpu, 1, NO_PLANT));
        assert_fails(COD_ERR_NUMERIC, "times the bound", check(&op, test_cpu, 1, ONE_STEP));
        if (has_weights(op.kind))
            assert_fails(COD_ERR_NUMERIC, "times the bound", check(&op, test_cpu, 1, OTHER_ROUNDING));
    }
}

TEST_GROUP(test_devices_open, test_devices_close)
TEST_DEVICE(cod_cpu_backend)
