/**
 * @file
 * What the file of a perceptual network says of how pictures were presented to it, and whether its tensors are of the right shapes.
 */
#ifndef COD_INFER_PERCEPTUAL_INPUT_H
#define COD_INFER_PERCEPTUAL_INPUT_H

#include "io/safetensors.h"
#include "nn/vgg.h"

/**
 * The text "input" of the file's metadata, "torchvision" or "caffe"; else caffe where one of its texts names 103.939, the blue mean of that
 * convention; else torchvision.
 *
 * @return COD_ERR_FORMAT where the text is neither
 */
COD_MUST_CHECK cod_status cod_perceptual_input_find(const cod_st_file *file, cod_vgg_input *input);

/** Whether a tensor is of this shape. @param network  as the message calls it @return COD_ERR_FORMAT, with both shapes */
COD_MUST_CHECK cod_status cod_perceptual_check_shape(const cod_st_tensor *tensor, const char *network, int rank,
                                                     const int64_t *shape);

#endif
