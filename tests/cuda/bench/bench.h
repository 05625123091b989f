/**
 * @file
 * What tools/gpu-check.sh measures of the CUDA backend: a network of src/nn on batches that can be learnt, without data
 * sets or MPI.
 */
#ifndef COD_TESTS_CUDA_BENCH_H
#define COD_TESTS_CUDA_BENCH_H

#include "nn/net.h"
#include "nn/optimiser.h"

typedef struct bench_case {
    const cod_backend *backend;
    cod_dtype activation;
    const char *model, *options;  /**< as net_model() takes them */
    cod_optimiser_kind optimiser; /**< Adam, or SGD with a momentum of 0.9 */
    cod_shape input;
} bench_case;

/** Zeroed = closed. */
typedef struct bench {
    test_net net;
    cod_arena arena;
    cod_model model;
    cod_optimiser *optimiser; /**< as PyTorch's is by default */
    cod_value loss;           /**< L1 of pictures, cross-entropy of classes */
    cod_value lesson;         /**< loss toward the input "teacher": L1 of pictures, KL of classes; 0 = untaught */
    int64_t steps;            /**< done */
} bench;

/**
 * Compiles the program "step" and fills weights with their initial values; the inputs hold the first batch.
 *
 * @param taught  also compiles "distil", which has the loss toward a teacher's prediction, too
 * @param[out] b  bench_close(), also after a failure
 */
COD_MUST_CHECK cod_status bench_open(bench *b, const bench_case *which, bool taught);
void bench_close(bench *b);

/** Different batches there are; after the last one the first comes again. */
enum { BENCH_BATCHES = 4 };

/**
 * The elements of a batch, the same on every machine: inputs from 0 to 1; as target the enlarged input with noise, or a
 * class that the input tells.
 *
 * @param[out] input, target  [elements of the inputs' shapes] new; free()
 */
COD_MUST_CHECK cod_status bench_batch(const bench *b, int number, double **input, double **target);

/** Queues a training step of the program with its update. */
COD_MUST_CHECK cod_status bench_step(bench *b, const char *program, double rate);
/** Waits until what was queued is done, for clocks. */
COD_MUST_CHECK cod_status bench_finish(const bench *b);

/* The commands, each of which prints lines of JSON. */

/** Answers each line on standard input: "step" times some steps, "ops" each op of one. */
COD_MUST_CHECK cod_status bench_serve(const bench_case *which);
/** Prints what a teacher of the same architecture adds to a step. */
COD_MUST_CHECK cod_status bench_teacher(const bench_case *which);
/** Prints the losses of the first steps. @param folder  receives initial weights and batches for others; NULL = none */
COD_MUST_CHECK cod_status bench_losses(const bench_case *which, int steps, const char *folder);
/** Prints what coding so many weights for other groups takes, and copies of codes and of f32, in microseconds. */
COD_MUST_CHECK cod_status bench_codes(const cod_backend *backend, size_t weights);
/** Prints each op's time, arithmetic and traffic as one line. */
COD_MUST_CHECK cod_status bench_ops(bench *b, const bench_case *which);

#endif
