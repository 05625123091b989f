/**
 * @file
 * Ops on the GPU by each of their candidates, compared with `ref`. Values are small integers: sums are exact in any
 * order, so that results must be equal bit for bit.
 */
#ifndef COD_TESTS_CUDA_CANDIDATES_CUH
#define COD_TESTS_CUDA_CANDIDATES_CUH

#include "cuda/conv_plan.cuh"

#include <cstdio>
#include <cstdlib>
#include <cstring>

extern "C" {
#include "core/rng.h"
#include "emulated/emulated.h"
#include "pair.h"
#include "support/test.h" /* last: cmocka defines `fail` */
}

/* Ops. */

struct layer {
    int64_t n, h, w, in, out, kernel;
    int stride;
    int64_t gap;
};

enum { PLAIN, ACCUMULATED, ADDED }; /**< ADDED: with a residual, or accumulated */

static cod_op convolution(const layer &l, cod_op_kind kind, cod_dtype dtype, cod_activation activation, int variant)
{
    const cod_test_layer full = {l.n, l.h, l.w, l.in, l.out, l.kernel, l.stride, static_cast<int>(l.kernel / 2)};
    cod_op op = cod_test_layer_op(&full, kind, {dtype, dtype, l.gap, l.gap}, 0);
    op.accumulate = variant != PLAIN && kind != COD_OP_CONV2D;
    op.attr.activation = activation;
    op.attr.leak = 0.25f;
    if (kind == COD_OP_CONV2D && variant == PLAIN)
        cod_test_without_bias(&op);
    if (kind == COD_OP_CONV2D && variant == ADDED)
        op.inputs[4] = op.outputs[0];
    return op;
}

static cod_op linear(int64_t n, int64_t in, int64_t out, cod_op_kind kind, cod_dtype dtype, int variant)
{
    const cod_view x = cod_test_view_of(dtype, {n, 1, 1, in}, 0), y = cod_test_view_of(dtype, {n, 1, 1, out}, 0);
    const cod_view w = cod_test_view_of(COD_F32, {out, 1, 1, in}, 0), b = cod_test_view_of(COD_F32, {1, 1, 1, out}, 0);
    const bool data = kind == COD_OP_LINEAR_BACKWARD_DATA, weights = kind == COD_OP_LINEAR_BACKWARD_WEIGHTS;
    cod_op op = {};
    op.kind = kind;
    op.name = "linear";
    op.accumulate = variant != PLAIN && kind != COD_OP_LINEAR;
    op.inputs[0] = data ? y : x;
    op.inputs[1] = weights ? y : w;
    op.outputs[0] = data ? x : weights ? w : y;
    if (weights)
        op.outputs[1] = b;
    if (kind == COD_OP_LINEAR && variant != PLAIN) {
        op.inputs[2] = b;
        op.attr.activation = variant == ADDED ? COD_ACT_RELU : COD_ACT_NONE;
    }
    return op;
}

/* Running. */

static void write_integers(cod_test_op *test, uint64_t seed)
{
    for (size_t slot = 0; slot < COD_TEST_SLOTS; slot++) {
        if (test->buffers[slot] == nullptr)
            continue;
        const int64_t count = cod_shape_count(cod_test_view(&test->op, slot)->shape);
        double *values = static_cast<double *>(calloc(static_cast<size_t>(count), sizeof *values));
        assert_non_null(values);
        cod_rng rng = cod_rng_open(seed, 3, 0, test->op.kind, COD_RNG_TEST, static_cast<uint32_t>(slot));
        for (int64_t i = 0; i < count; i++)
            values[i] = static_cast<double>(cod_rng_below(&rng, 5)) - 2;
        assert_ok(cod_test_op_write(test, slot, values));
        free(values);
    }
}

static double *values_of(cod_test_op *test, size_t slot)
{
    const int64_t count = cod_shape_count(cod_test_view(&test->op, slot)->shape);
    double *values = static_cast<double *>(calloc(static_cast<size_t>(count) + 1, sizeof *values));
    assert_non_null(values);
    if (test->buffers[slot] != nullptr)
        assert_ok(cod_test_op_read(test, slot, values));
    return values;
}

/**
 * What a plan that stands for two ops gives (conv.cuh), of what `ref` gives of the product alone and the plan's inputs.
 */
static void apply_join(cod_test_op *test, cod_test_op *plan)
{
    static const size_t first = COD_OP_MAX_INPUTS, second = COD_OP_MAX_INPUTS + 1;
    const cod_op *joined = &plan->op;
    const bool forward = joined->kind == COD_OP_CONV2D;
    const cod_shape shape = joined->outputs[0].shape;
    const int64_t slopes = cod_shape_count(joined->inputs[CONV_SLOPE].shape);
    double *values = values_of(test, first), *x = forward ? values_of(test, first) : values_of(plan, CONV_GATE),
           *slope = values_of(plan, CONV_SLOPE);
    double *dslope = static_cast<double *>(calloc(static_cast<size_t>(shape.c), sizeof *dslope));
    assert_non_null(dslope);
    for (int64_t i = 0; i < cod_shape_count(shape); i++) {
        const int64_t at = slopes > 1 ? i % shape.c : 0;
        const double factor = joined->attr.activation == COD_ACT_PRELU        ? slope[at]
                              : joined->attr.activation == COD_ACT_LEAKY_RELU ? static_cast<double>(joined->attr.leak)
                                                                              : 0;
        if (x[i] > 0)
            continue;
        dslope[at] += values[i] * x[i];
        values[i] *= factor;
    }
    assert_ok(cod_test_op_write(test, forward ? second : first, values));
    if (!forward && slopes > 0)
        assert_ok(cod_test_op_write(test, second, dslope));
    free(values);
    free(x);
    free(slope);
    free(dslope);
}

static cod_status compare_outputs(cod_test_op *expected, cod_test_op *actual)
{
    for (size_t slot = COD_OP_MAX_INPUTS; slot < COD_TEST_SLOTS; slot++) {
        if (expected->buffers[slot] == nullptr)
            continue;
        const int64_t count = cod_shape_count(cod_test_view(&expected->op, slot)->shape);
        double *values = static_cast<double *>(calloc(static_cast<size_t>(count) * 2, sizeof *values));
        assert_non_null(values);
        assert_ok(cod_test_op_read(expected, slot, values));
        assert_ok(cod_test_op_read(actual, slot, values + count));
        const cod_status status = cod_test_compare("output", values + count, values, count, {0, 0});
        free(values);
        COD_TRY(status);
    }
    return COD_OK;
}

static void no_faults(const char *what)
{
    cod_test_assert_none(cod_emulated_faults, "%s", what);
}

static void list_own(const cod_plan *plan, const char *, cuda_candidates *list)
{
    conv_own_candidates(plan, list);
}

/**
 * The candidates of an op on the GPU, asked as the tuner asks; and, as without libraries nothing else would run there,
 * own convolutions with the shuffle behind them.
 */
static void list_candidates(const cod_plan *plan, cuda_candidates *list)
{
    char key[CUDA_KEY_BYTES];
    cuda_tuner *tuner = nullptr;
    assert_ok(cuda_tuner_of(plan->device, &tuner));
    cuda_tuner_key(plan, tuner->libraries, key, sizeof key);
    *list = {};
    conv_own_candidates(plan, list);
    assert_true(list->count > 0);
    conv_library_candidates(plan, key, list);
    conv_shuffled_candidates(plan, key, list_own, list);
}

/** Replaces a test's plan, which was made for `op`, by one of the candidate. */
static cod_status remake(cod_test_op *test, const cuda_candidate *candidate)
{
    cuda_plan_clear(test->plan);
    return candidate->make(test->plan, candidate);
}

/** All candidates of the op give what `ref` gives. @return how many could */
static int check_candidates(const cod_op *op, uint64_t seed)
{
    cod_test_op expected, actual;
    cuda_candidates list;
    cod_op alone = *op;
    int able = 0;
    assert_ok(cod_test_op_init(&actual, test_cuda, op));
    const bool joined = conv_is_joined(&actual.op);
    if (joined) {
        alone.attr.activation = COD_ACT_NONE;
        alone.inputs[CONV_SLOPE] = alone.inputs[CONV_GATE] = {};
    }
    assert_ok(cod_test_op_init(&expected, test_ref, &alone));
    write_integers(&expected, seed);
    write_integers(&actual, seed);
    assert_ok(cod_test_op_run(&expected));
    if (joined)
        apply_join(&expected, &actual);
    list_candidates(actual.plan, &list);
    for (size_t i = 0; i < list.count; i++) {
        cod_status status = remake(&actual, &list.items[i]);
        write_integers(&actual, seed);
        COD_THEN(status, cod_test_op_run(&actual));
        const bool own = strncmp(list.names[i], "own-", 4) == 0;
        if (status != COD_OK && !own) { /* the tuner passes it over */
            printf("    %s: %s\n", list.names[i], cod_error_message());
            continue;
        }
        COD_THEN(status, compare_outputs(&expected, &actual));
        no_faults(list.names[i]);
        if (status != COD_OK)
            fail_msg("%s, %s, seed %d: %s", cod_op_kind_name(op->kind), list.names[i], static_cast<int>(seed),
                     cod_error_message());
        able++;
    }
    cod_test_op_clear(&expected);
    cod_test_op_clear(&actual);
    return able;
}

#endif
