/**
 * @file
 * Reads tests/golden/golden.bin: ops with PyTorch's results, written by make_golden.py, which documents the format.
 */
#ifndef COD_TESTS_GOLDEN_GOLDEN_H
#define COD_TESTS_GOLDEN_GOLDEN_H

#include "support/ops.h"

typedef struct golden_case {
    char name[256];                   /**< "kind: what is special" */
    cod_op op;                        /**< a description (support/ops.h): dense views, all f64 or i32 */
    double *values[COD_TEST_SLOTS];   /**< inputs, and outputs before the run where the op reads them; else NULL */
    double *expected[COD_TEST_SLOTS]; /**< outputs; else NULL */
} golden_case;

typedef struct golden_file {
    golden_case *cases;
    size_t count;
} golden_file;

COD_MUST_CHECK cod_status golden_load(const char *path, golden_file *out);
void golden_clear(golden_file *file);

#endif
