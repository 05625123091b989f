/**
 * @file
 * The ranges that convolutions' inputs have, so that they can be computed on 8-bit integers: observed on pictures, kept in model files.
 *
 * A table has one range for each node of the graph; 0 = stays as it is. Convolutions of few channels do, such as the first of a network,
 * and so does the one behind it where there are many: they are a small part of the work and the largest of the error.
 */
#ifndef COD_INFER_INT8_H
#define COD_INFER_INT8_H

#include "nn/compile.h"
#include "nn/model.h"

/** Where a model file's metadata keeps the table. */
#define COD_INT8_METADATA "codistill.int8"

/** Marks the layers that run on integers with a range of 1, others with 0. @param[out] ranges  [node count]. @return whether there are any */
bool cod_int8_layers(const cod_graph *graph, float *ranges);

/** What convolutions' inputs are like: how often each magnitude, to 8 bits, occurs. */
typedef struct cod_int8_observer cod_int8_observer;

/** Nothing observed yet. `graph` is borrowed. */
COD_MUST_CHECK cod_status cod_int8_observer_create(const cod_graph *graph, cod_int8_observer **out);
void cod_int8_observer_destroy(cod_int8_observer *observer);

/**
 * Runs the program, whose inputs are set, and adds what its convolutions meet.
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
/** Reads such a text; COD_ERR_FORMAT when it is none, or names a layer that the graph does not have or should not run so. */
COD_MUST_CHECK cod_status cod_int8_parse(const cod_graph *graph, const char *text, float *ranges);

#endif
