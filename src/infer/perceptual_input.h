/**
 * @file
 * Reads the input format of a perceptual network from its file, and checks the shapes of its tensors.
 */
#ifndef COD_INFER_PERCEPTUAL_INPUT_H
#define COD_INFER_PERCEPTUAL_INPUT_H

#include "io/safetensors.h"
#include "nn/vgg.h"

/**
 * The format in the text "input" of the file's metadata, "torchvision" or "caffe". Without that text: caffe if another
 * text of the metadata contains 103.939, the blue mean of that convention; otherwise torchvision.
 *
 * @return COD_ERR_FORMAT where the text is neither
 */
COD_MUST_CHECK cod_status cod_perceptual_input_find(const cod_st_file *file, cod_vgg_input *input);

/**
 * Checks that a tensor has this shape. @param network its name in the message @return COD_ERR_FORMAT, with both shapes
 */
COD_MUST_CHECK cod_status cod_perceptual_check_shape(const cod_st_tensor *tensor, const char *network, int rank,
                                                     const int64_t *shape);

#endif
