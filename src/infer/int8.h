/**
 * @file
 * The ranges that convolutions' inputs have, so that they can be computed on 8-bit integers: observed on pictures, kept in model files.
 *
 * A table has one range for each node of the graph; 0 = stays as it is. Convolutions with few channels do: the first and the last of a
 * network are a small part of its work and the largest of its error.
 */
#ifndef COD_INFER_INT8_H
#define COD_INFER_INT8_H

#include "nn/compile.h"
#include "nn/model.h"

/** Where a model file's metadata keeps the table. */
#define COD_INT8_METADATA "codistill.int8"

/**
 * Runs the program, whose inputs are set, and raises the ranges to the largest magnitudes that convolutions meet.
 *
 * @param[in]     weights  those that the program was compiled for
 * @param[in,out] ranges   [node count]; begin with zeros
 * @return COD_ERR_NUMERIC when an input is not finite
 */
COD_MUST_CHECK cod_status cod_int8_observe(const cod_weights *weights, cod_program *program, float *ranges);

/** The table as a JSON object from layer names to ranges. @param[out] text  new; free() */
COD_MUST_CHECK cod_status cod_int8_format(const cod_graph *graph, const float *ranges, char **text);
/** Reads such a text; COD_ERR_FORMAT when it is none, or names a layer that the graph does not have or should not run so. */
COD_MUST_CHECK cod_status cod_int8_parse(const cod_graph *graph, const char *text, float *ranges);

#endif
