/**
 * @file
 * Random sequences of ops that may be one plan (core/fused.h): drawn, bound to a backend, and compared with the same
 * ops one by one.
 *
 * The views of a *described* sequence have no buffer; their `offset` is the number of their tensor, from 1 on, and
 * views of one number are the same view. The number 0 is no view.
 */
#ifndef COD_TESTS_SUPPORT_SEQUENCE_H
#define COD_TESTS_SUPPORT_SEQUENCE_H

#include "support/ops.h"

enum { COD_TEST_SEQUENCE_OPS = 4, COD_TEST_SEQUENCE_TENSORS = COD_TEST_SEQUENCE_OPS * COD_TEST_SLOTS };

/** Ops with a buffer for each tensor, as one plan or as one plan each. */
typedef struct cod_test_sequence {
    cod_test_device on;
    size_t count, plan_count;
    cod_op ops[COD_TEST_SEQUENCE_OPS];
    cod_buffer *buffers[COD_TEST_SEQUENCE_TENSORS + 1]; /**< by number */
    cod_plan *plans[COD_TEST_SEQUENCE_OPS];
} cod_test_sequence;

/**
 * A random description around a CONV2D, a CONV2D_BACKWARD_DATA or a LINEAR_BACKWARD_DATA, or of several
 * CONV2D_BACKWARD_WEIGHTS: shapes, strides, attributes, which halves or activations there are and where g lies all
 * follow from the seed.
 * @return how many ops; at least 2
 */
size_t cod_test_random_sequence(cod_op_kind product, cod_dtype activation, cod_dtype parameter, uint64_t seed,
                                cod_op ops[COD_TEST_SEQUENCE_OPS]);

/**
 * Makes buffers with random values and plans; end with cod_test_sequence_clear(), also on failure.
 * @return COD_ERR_UNSUPPORTED where `fused` and the backend's op_fuses() takes fewer as one plan
 */
COD_MUST_CHECK cod_status cod_test_sequence_init(cod_test_sequence *test, cod_test_device on, const cod_op *ops,
                                                 size_t count, uint64_t seed, bool fused);
void cod_test_sequence_clear(cod_test_sequence *test);

/** Prepares and runs the plans in their order. */
COD_MUST_CHECK cod_status cod_test_sequence_run(cod_test_sequence *test);

/**
 * Runs the ops one by one on one device and as one plan on the other, and compares all outputs; messages name the seed.
 * @return COD_ERR_UNSUPPORTED as cod_test_sequence_init()
 */
COD_MUST_CHECK cod_status cod_test_sequence_parity(cod_test_device one_by_one, cod_test_device fused, const cod_op *ops,
                                                   size_t count, uint64_t seed, cod_tolerance tolerance);

#endif
