/**
 * @file
 * Ops on the GPU by each of their candidates, compared with `ref`. Values are small integers: sums are exact in any
 * order, so that results must be equal bit for bit.
 */
#ifndef COD_TESTS_CUDA_CANDIDATES_CUH
#define COD_TESTS_CUDA_CANDIDATES_CUH

#include "exact.cuh"

#include <cstdio>
#include <cstring>

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

/* Candidates. */

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

/** All candidates of the op, or the one of this name, give what `ref` gives. @return how many could */
static int check_candidates(const cod_op *op, uint64_t seed, const char *only = nullptr)
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
        if (only != nullptr && strcmp(list.names[i], only) != 0)
            continue;
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
