/**
 * @file
 * Models by name: a kind is a table of options and a function that builds the graph. A new model is one file in
 * nn/models and one line in the registry (model.c).
 *
 * A classifier takes pictures {N,H,W,C}, or vectors as pictures of one pixel, and its output is logits {N,1,1,K}: the
 * class with the greatest one is the prediction.
 */
#ifndef COD_NN_MODEL_H
#define COD_NN_MODEL_H

#include "core/option.h"
#include "nn/graph.h"

typedef enum cod_task { COD_TASK_SUPER_RESOLUTION, COD_TASK_CLASSIFICATION } cod_task;

/** "super-resolution", "classification". */
const char *cod_task_name(cod_task task);

/**
 * Input sizes and number of classes of a classifier; 0 = as in the data. The options of every classifier begin with
 * this struct.
 */
typedef struct cod_classifier_sizes {
    int64_t height, width, channels, classes;
} cod_classifier_sizes;

typedef struct cod_model_kind {
    const char *name;
    cod_task task;
    const cod_option_table *table; /**< section "model"; `name` itself is not among its options */
    /** Adds the network to the graph and returns its output. */
    cod_value (*build)(cod_graph *graph, cod_value input, const void *options);
    /** Factor from input to output size for super-resolution; NULL for other tasks. */
    int (*scale)(const void *options);
    /** Height and width of its input must be multiples of this; NULL = any size. */
    int (*multiple)(const void *options);
    /** Name of the well-known architecture that can load the model's files in PyTorch; for messages. NULL = none. */
    const char *compatible_with;
} cod_model_kind;

typedef struct cod_model {
    const cod_model_kind *kind;
    cod_task task;       /**< the kind's */
    const void *options; /**< borrowed */
    cod_graph *graph;
    cod_value input, output;
} cod_model;

const cod_model_kind *cod_model_kind_find(const char *name);
/** The i-th registered kind, NULL past the last. */
const cod_model_kind *cod_model_kind_at(size_t index);

/** A classifier's sizes; NULL for other tasks. */
const cod_classifier_sizes *cod_model_sizes(const cod_model_kind *kind, const void *options);
/**
 * Sets those of a classifier's sizes that are 0 to the data's.
 *
 * @param[in,out] options  of the kind's table
 * @return COD_ERR_ARGUMENT if another size differs from the data's
 */
COD_MUST_CHECK cod_status cod_model_fit_sizes(const cod_model_kind *kind, void *options,
                                              const cod_classifier_sizes *data);

/**
 * Builds the graph: input "input", network, nothing else; callers add targets and losses. `options` must outlive the
 * model. Fails where one of a classifier's sizes is still 0.
 */
COD_MUST_CHECK cod_status cod_model_build(const cod_model_kind *kind, const void *options, cod_model *out);
void cod_model_clear(cod_model *model);

/** Channels of the input. */
int64_t cod_model_input_channels(const cod_model_kind *kind, const void *options);

/** 1 for tasks without a scale. */
int cod_model_scale(const cod_model *model);

/** Height and width of a model's input must be multiples of this. */
int cod_model_multiple(const cod_model_kind *kind, const void *options);

#endif
