/**
 * @file
 * Files of SqueezeNet 1.1's weights, before a graph is made for them.
 */
#ifndef COD_INFER_SQUEEZENET_FILE_H
#define COD_INFER_SQUEEZENET_FILE_H

#include "core/status.h"
#include "nn/squeezenet.h"

/**
 * Checks that a safetensors file holds SqueezeNet 1.1 up to a layer, and finds its naming of tensors and its input
 * format (infer/perceptual_input.h).
 *
 * @return COD_ERR_IO or COD_ERR_FORMAT with the path and a message that says which layers the file has, or which shape
 *   differs
 */
COD_MUST_CHECK cod_status cod_squeezenet_examine(const char *path, int layer, cod_squeezenet_names *names,
                                                 cod_vgg_input *input);

#endif
