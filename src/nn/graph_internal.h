/**
 * @file
 * What files that add nodes to a graph share.
 */
#ifndef COD_NN_GRAPH_INTERNAL_H
#define COD_NN_GRAPH_INTERNAL_H

#include "nn/graph.h"

/** Fails the graph with COD_ERR_ARGUMENT and the formatted reason. */
#define GRAPH_FAIL(graph, ...) cod_graph_fail((graph), cod_fail(COD_ERR_ARGUMENT, __VA_ARGS__))

/** Whether an earlier call has failed: the graph's values may then be 0. */
bool graph_has_failed(const cod_graph *graph);

/** A node without inputs and parameters. */
cod_node graph_new_node(cod_node_kind kind, int64_t channels);
/** A node with one input and as many channels as that has. */
cod_node graph_new_unary(const cod_graph *graph, cod_node_kind kind, cod_value x);
/** Channels of a value; 1 where a failed call returned it. */
int64_t graph_channels(const cod_graph *graph, cod_value x);

/**
 * Adds a node, of which the caller gives everything except name and output, and returns its output; 0 on failure, or if
 * the graph has failed before.
 *
 * @param name  copied; NULL = its number
 */
cod_value graph_add_node(cod_graph *graph, cod_node node, const char *name);

/**
 * A copy of `of`, as the node of `kind` that computes the gradient by its first input from `dy`, that by its output.
 * Its parameters are the same, but for the bias, which does not bear on it.
 */
cod_node graph_new_gradient(const cod_graph *graph, cod_node_kind kind, const cod_node *of, cod_value dy);

typedef struct graph_param_spec {
    const char *layer, *suffix;
    cod_shape shape;
    int rank;
    bool is_state;
    cod_init init;
} graph_param_spec;

/** The current set's parameter LAYER.SUFFIX, made or, if it exists with the same shape, shared; -1 on failure. */
int graph_use_param(cod_graph *graph, graph_param_spec spec);
/** The same for a vector of one number for each channel, all of which start at `value`. */
int graph_use_vector(cod_graph *graph, const char *layer, const char *suffix, int64_t channels, double value,
                     bool is_state);
/** Copies what a parameter starts at; NULL = it stays as its `init` says. */
void graph_start_param(cod_graph *graph, int param, const double *values);
/** Notes the height, width and channels of the picture that a linear layer's input was, for its weight `param`. */
void graph_note_flattened(cod_graph *graph, int param, cod_shape picture);
/** Index of the scalar of that name, made or shared; -1 on failure. */
int graph_use_scalar(cod_graph *graph, const char *name);
/** Copies numbers for the graph's life; NULL when memory is short. */
const double *graph_keep(cod_graph *graph, const double *values, size_t count);

#endif
