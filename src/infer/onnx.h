/**
 * @file
 * ONNX export: opset 17, IR version 8, normalisation folded; batch, height and width are left open.
 *
 * Input "input" and output "output" are f32 in NCHW order ([N, C] for models that start with a linear layer).
 */
#ifndef COD_INFER_ONNX_H
#define COD_INFER_ONNX_H

#include "io/protobuf.h"
#include "nn/model.h"

/**
 * Writes `path` atomically.
 *
 * @param[in] values  [trainable + state]
 * @return COD_ERR_UNSUPPORTED, naming the node, when the graph has something that ONNX lacks; then nothing is written
 */
COD_MUST_CHECK cod_status cod_onnx_write(const char *path, const cod_model *model, const float *values);

/** The same into memory. @param[in,out] proto  empty; cod_proto_clear() ends it */
COD_MUST_CHECK cod_status cod_onnx_encode(const cod_model *model, const float *values, cod_proto *proto);

#endif
