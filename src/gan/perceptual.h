/**
 * @file
 * VGG-19 as the frozen network of a perceptual loss, from the user's safetensors file with torchvision's names. The
 * other such network is SqueezeNet 1.1 (infer/squeezenet_file.h).
 */
#ifndef COD_GAN_PERCEPTUAL_H
#define COD_GAN_PERCEPTUAL_H

#include "core/status.h"
#include "nn/vgg.h"

/** Values of the option for the network's input format: as the file says, or one of cod_vgg_input. */
enum { COD_PERCEPTUAL_INPUT_AUTO, COD_PERCEPTUAL_INPUT_FIRST };

/** "auto", then cod_vgg_input_names. */
extern const char *const cod_perceptual_input_names[];

/**
 * Checks that a file holds VGG-19 up to a layer, and finds its input format.
 *
 * infer/perceptual_input.h reads the format from the file.
 *
 * @param wanted  COD_PERCEPTUAL_INPUT_AUTO, or COD_PERCEPTUAL_INPUT_FIRST + a cod_vgg_input
 * @return COD_ERR_IO or COD_ERR_FORMAT with a message that says which layers the file has, or which shape differs
 */
COD_MUST_CHECK cod_status cod_perceptual_examine(const char *path, cod_vgg_layer layer, int wanted,
                                                 cod_vgg_input *input);

#endif
