/**
 * @file
 * The two devices that tests of the CUDA backend compare.
 */
#ifndef COD_TESTS_CUDA_PAIR_H
#define COD_TESTS_CUDA_PAIR_H

#include "support/ops.h"

extern cod_test_device test_ref, test_cuda;

/** cmocka's set-up and tear-down of a group of tests. */
int test_pair_open(void **state);
int test_pair_close(void **state);

#endif
