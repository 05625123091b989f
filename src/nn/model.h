/**
 * @file
 * Models by name: a kind is a table of options and a function that builds the graph. A new model is one file in
 * nn/models and one line in the registry (model.c).
 */
#ifndef COD_NN_MODEL_H
#define COD_NN_MODEL_H

#include "core/option.h"
#include "nn/graph.h"

typedef struct cod_model_kind {
    const char *name;
    const cod_option_table *table;                  /**< section "model"; `name` itself is not among its options */
    int64_t (*input_channels)(const void *options); /**< NULL = a picture's three */
    /** Adds the network to the graph and returns its output. */
    cod_value (*build)(cod_graph *graph, cod_value input, const void *options);
    /** Factor from input to output size for super-resolution; NULL for other tasks. */
    int (*scale)(const void *options);
    /** Whether the output is PyTorch-loadable by a well-known architecture of this name; for messages. */
    const char *compatible_with;
} cod_model_kind;

typedef struct cod_model {
    const cod_model_kind *kind;
    const void *options; /**< borrowed */
    cod_graph *graph;
    cod_value input, output;
} cod_model;

const cod_model_kind *cod_model_kind_find(const char *name);
/** The i-th registered kind, NULL past the last. */
const cod_model_kind *cod_model_kind_at(size_t index);

/** Builds the graph: input "input", network, nothing else; callers add targets and losses. `options` must outlive the model. */
COD_MUST_CHECK cod_status cod_model_build(const cod_model_kind *kind, const void *options, cod_model *out);
void cod_model_clear(cod_model *model);

/** Channels of the input. */
int64_t cod_model_input_channels(const cod_model_kind *kind, const void *options);

/** 1 for tasks without a scale. */
int cod_model_scale(const cod_model *model);

#endif
