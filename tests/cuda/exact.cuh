/**
 * @file
 * An op on the GPU by one of its candidates, and what it must give to the bit: values are small integers, whose sums
 * are exact in any order.
 */
#ifndef COD_TESTS_CUDA_EXACT_CUH
#define COD_TESTS_CUDA_EXACT_CUH

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

/** Replaces a test's plan, which was made for `op`, by one of the candidate. */
static cod_status remake(cod_test_op *test, const cuda_candidate *candidate)
{
    cuda_plan_clear(test->plan);
    return candidate->make(test->plan, candidate);
}

#endif
