/**
 * @file
 * The frozen network of gan.perceptual_file, whose features the losses compare: VGG-19 or SqueezeNet 1.1, depending on
 * the layers in gan.content.
 */
#ifndef COD_GAN_FEATURES_INTERNAL_H
#define COD_GAN_FEATURES_INTERNAL_H

#include "gan/options_internal.h"
#include "nn/squeezenet.h"

/** The content of the file. */
typedef struct gan_network {
    cod_vgg_input input;
    cod_squeezenet_names names; /**< of SqueezeNet */
} gan_network;

/** "VGG-19" or "SqueezeNet 1.1"; settings->layer_count > 0, as for all below. */
const char *gan_network_name(const gan_settings *settings);
/** @return COD_ERR_IO or COD_ERR_FORMAT with the path, if the file lacks a layer */
COD_MUST_CHECK cod_status gan_network_examine(const gan_settings *settings, gan_network *network);
/**
 * The smallest side of pictures that have features in all layers. @param[out] layer the name of a layer that needs this
 * side
 */
int64_t gan_network_side(const gan_settings *settings, const char **layer);
/**
 * Adds the network to the graph's set "perceptual".
 *
 * @param[out] features  [layer_count] of `pictures`, in the layers' order
 */
void gan_network_add(cod_graph *graph, const gan_settings *settings, const gan_network *network, cod_value pictures,
                     cod_value *features);

#endif
