/**
 * @file
 * The ranges of convolutions' inputs, which computing on 8-bit integers needs: observed on pictures and kept in model
 * files.
 *
 * A table has one range for each node of the graph; 0 = the node is not computed on integers. Convolutions with few
 * channels, such as the first of a network, stay in floats, and so does the convolution after the first if there are
 * many: they are a small part of the work and the largest part of the error.
 */
#ifndef COD_INFER_INT8_H
#define COD_INFER_INT8_H

#include "nn/compile.h"
#include "nn/model.h"

/** Where a model file's metadata keeps the table. */
#define COD_INT8_METADATA "codistill.int8"

/**
 * Marks the layers that run on integers with a range of 1, others with 0.
 *
 * @param[out] ranges  [node count].
 * @return whether there are any
 */
bool cod_int8_layers(const cod_graph *graph, float *ranges);

/** Counts how often each magnitude, to 8 bits, occurs in the convolutions' inputs. */
typedef struct cod_int8_observer cod_int8_observer;

/** Makes an observer that has observed nothing yet. `graph` is borrowed. */
COD_MUST_CHECK cod_status cod_int8_observer_create(const cod_graph *graph, cod_int8_observer **out);
void cod_int8_observer_destroy(cod_int8_observer *observer);

/**
 * Runs the program, whose inputs are set, and counts the inputs of its convolutions.
 *
 * @param[in] weights  those that the program was compiled for
 * @return COD_ERR_NUMERIC when an input is not finite
 */
COD_MUST_CHECK cod_status cod_int8_observe(cod_int8_observer *observer, const cod_weights *weights,
                                           cod_program *program);

/** Ranges by the rule of core/int8_range.h. @param[out] ranges  [node count] */
void cod_int8_choose(const cod_int8_observer *observer, float *ranges);

/** The table as a JSON object from layer names to ranges. @param[out] text  new; free() */
COD_MUST_CHECK cod_status cod_int8_format(const cod_graph *graph, const float *ranges, char **text);
/**
 * Reads such a text; COD_ERR_FORMAT if it is not such a text, or names a layer that the graph does not have or that
 * must not run on integers.
 */
COD_MUST_CHECK cod_status cod_int8_parse(const cod_graph *graph, const char *text, float *ranges);

#endif
