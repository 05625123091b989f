/**
 * @file
 * What the files that write ONNX models share.
 */
#ifndef COD_INFER_ONNX_INTERNAL_H
#define COD_INFER_ONNX_INTERNAL_H

#include "infer/fold.h"
#include "infer_internal.h"
#include "io/protobuf.h"

/* Field numbers and values of onnx/onnx.proto3. */
enum {
    ONNX_GRAPH_NODE = 1,
    ONNX_GRAPH_NAME = 2,
    ONNX_GRAPH_INITIALIZER = 5,
    ONNX_GRAPH_INPUT = 11,
    ONNX_GRAPH_OUTPUT = 12
};
enum { ONNX_TENSOR_FLOAT = 1 };

/** A model that is being written. */
typedef struct exporter {
    cod_proto *proto;
    cod_arena arena;
    const cod_model *model;
    const float *values;
    cod_folded folded;
    graph_part part;
    const char **names; /**< [value + 1] */
    bool *flat;         /**< [value + 1] whether the ONNX tensor is [N, C] */
    bool *emitted;      /**< [param] whether the initializer was written under the parameter's own name */
} exporter;

/** Writes what computes the node's output. @return COD_ERR_UNSUPPORTED where ONNX has nothing for it */
COD_MUST_CHECK cod_status onnx_node_write(exporter *e, const cod_node *node);

#endif
