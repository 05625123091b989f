/**
 * @file
 * Compiled graphs for tests: random weights and inputs, values as doubles, gradient checks by central differences.
 */
#ifndef COD_TESTS_NN_NET_H
#define COD_TESTS_NN_NET_H

#include "nn/compile.h"
#include "nn/model.h"

/** A graph on a device of its own. */
typedef struct test_net {
    const cod_backend *backend;
    cod_device *device;
    cod_graph *graph; /**< borrowed */
    cod_weights weights;
    cod_executable *executable;
} test_net;

/**
 * Opens the device, makes weights with gradients (f64 for f64 activations), compiles, and fills weights, statistics and
 * inputs with random numbers that follow from the seed alone. End with net_clear(), also on failure.
 */
COD_MUST_CHECK cod_status net_init(test_net *net, const cod_backend *backend, cod_graph *graph,
                                   const cod_compile_options *options, const cod_program_spec *specs, size_t count,
                                   uint64_t seed);
void net_clear(test_net *net);

/** Sets every input without randomising the weights again. */
COD_MUST_CHECK cod_status net_random_inputs(test_net *net, uint64_t seed);

/** Runs the program of this name. */
COD_MUST_CHECK cod_status net_run(test_net *net, const char *program);

/** A dense view's elements as doubles: f32 or f64. */
COD_MUST_CHECK cod_status net_read(const test_net *net, cod_view view, double *out);
COD_MUST_CHECK cod_status net_write(const test_net *net, cod_view view, const double *values);

/** Elements of the values [trainable + state] and gradients [trainable] as doubles; raises the weights' version. */
COD_MUST_CHECK cod_status net_read_values(const test_net *net, double *values);
COD_MUST_CHECK cod_status net_write_values(test_net *net, const double *values);
COD_MUST_CHECK cod_status net_read_grads(const test_net *net, double *grads);
COD_MUST_CHECK cod_status net_write_grads(const test_net *net, const double *grads);

/** Zeroed; the process ends where memory is short. */
double *net_new(size_t count);

/** What a gradient check saw. */
typedef struct net_check {
    size_t tried, smooth; /**< elements; the rest lie at kinks, where two step widths disagree */
} net_check;

/**
 * Runs the training program `spec`, whose losses must be among its outputs, and compares drawn elements of each of its
 * set's parameters with central differences of the weighted losses. COD_ERR_NUMERIC where they differ.
 */
COD_MUST_CHECK cod_status net_check_gradients(test_net *net, const cod_program_spec *spec, uint64_t seed,
                                              net_check *check);

/** How many ops of this kind the program runs; of NORM_TRAIN and NORM_BACKWARD also those that run as two halves. */
size_t net_count_kind(const test_net *net, const char *program, cod_op_kind kind);
/**
 * How many plans the program runs in which `parts` ops are fused and this kind is the first that is no half of a
 * normalisation.
 */
size_t net_count_plans(const test_net *net, const char *program, cod_op_kind kind, size_t parts);
/** The place of the first plan of this name, SIZE_MAX where there is none. @param[out] op  its first op */
size_t net_find_plan(const test_net *net, const char *program, const char *name, cod_op *op);
/** All plans of the program. */
size_t net_plans(const test_net *net, const char *program);

/** A model by name with options as "key=value key=item,item"; `arena` holds the options. */
COD_MUST_CHECK cod_status net_model(const char *kind, const char *options, cod_arena *arena, cod_model *out);

#endif
