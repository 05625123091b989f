/**
 * @file
 * Files of PyTorch's results, as tests/golden/make_models.py describes them, for tests that compare with them.
 */
#ifndef COD_TESTS_NN_TORCH_CASE_H
#define COD_TESTS_NN_TORCH_CASE_H

#include "nn/net.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { TORCH_CASE_MAX_TENSORS = 1024 };

typedef struct torch_tensor {
    char name[256];
    uint32_t rank, dims[4];
    size_t count;
    float *values;
} torch_tensor;

typedef struct torch_case {
    char name[256], kind[256], options[256], loss[256], optimiser[256];
    uint32_t tensor_count;
    torch_tensor tensors[TORCH_CASE_MAX_TENSORS];
} torch_case;

typedef struct torch_file {
    const char *path;
    FILE *file;
    uint32_t count, taken; /**< cases */
} torch_file;

/** All functions fail the test where something is amiss. */
torch_file torch_file_open(const char *path);
/** Reads the next case, which torch_case_clear() ends; false past the last, and the file is closed. */
bool torch_file_next(torch_file *file, torch_case *c);
void torch_case_clear(torch_case *c);

/** The tensor PREFIXNAME. */
const torch_tensor *torch_case_find(const torch_case *c, const char *prefix, const char *name);
/** The largest difference, relative to the largest element of `expected`; infinite where one is NaN. */
double torch_case_distance(const float *actual, const torch_tensor *expected);
/**
 * Demands that `actual` is near `expected`: the largest difference allowed is `tolerance` of the tensor's largest
 * element.
 */
void torch_case_compare(const torch_case *c, const char *what, const float *actual, const torch_tensor *expected,
                        double tolerance);
/** Writes a parameter's tensor to its place among a network's values. */
void torch_case_read_param(const torch_tensor *from, const cod_param *param, double *values);
/** Fills a network's input from a tensor in PyTorch's order, NCHW. */
void torch_case_write_input(test_net *net, const char *input, const torch_tensor *from);

#endif
