/**
 * @file
 * Features of VGG-19 (Simonyan & Zisserman, "Very Deep Convolutional Networks for Large-Scale Image Recognition", ICLR
 * 2015), which perceptual losses compare (Johnson et al. 2016; Ledig et al. 2017).
 *
 * Layers are called convB_C: convolution C of block B, both from 1. Parameters have torchvision's names: conv1_1 is
 * "features.0.weight" and "features.0.bias", conv5_4 "features.34".
 */
#ifndef COD_NN_VGG_H
#define COD_NN_VGG_H

#include "nn/graph.h"

enum { COD_VGG_BLOCKS = 5, COD_VGG_CHANNELS = 64 };

/**
 * Input format with which the weights were trained. The pictures given to the functions below are always RGB in 0 … 1.
 */
typedef enum cod_vgg_input {
    COD_VGG_TORCHVISION, /**< (RGB - (0.485, 0.456, 0.406)) / (0.229, 0.224, 0.225) */
    COD_VGG_CAFFE        /**< 255·BGR - (103.939, 116.779, 123.68), as Keras has it, too */
} cod_vgg_input;

/** "torchvision", "caffe". */
extern const char *const cod_vgg_input_names[];

/**
 * Converts RGB pictures {N,H,W,3} in 0 … 1 to the network's input format, by a separate 1x1 convolution, "normalise",
 * with fixed values. It is not folded into the first convolution, which pads with zeros after the normalisation.
 */
cod_value cod_vgg_present(cod_graph *graph, cod_value pictures, cod_vgg_input input);

typedef struct cod_vgg_layer {
    int block, convolution;
} cod_vgg_layer;

/** Convolutions of blocks 1 … 5: 2, 2, 4, 4, 4. */
int cod_vgg_convolutions(int block);
/** Number of a layer's convolution in torchvision's `features`: 34 for conv5_4. */
int cod_vgg_index(cod_vgg_layer layer);

typedef struct cod_vgg_spec {
    /** [layer_count ≥ 1] layers whose features are returned; all different, in any order */
    const cod_vgg_layer *layers;
    size_t layer_count;
    bool before_activation;
    cod_vgg_input input;
    cod_pool_kind pooling; /**< of 2x2 pixels: COD_POOL_MAX as published, or COD_POOL_AVERAGE */
    /** of block 1, COD_VGG_CHANNELS in the published network; the blocks after it have 2, 4, 8, 8 times as many */
    int64_t channels;
} cod_vgg_spec;

/**
 * Adds the network and returns the layers' features of pictures {N,H,W,3}: {N,H',W',C}, where H' and W' are halved,
 * rounded down, for each block before a layer's.
 *
 * cod_vgg_present() converts the pictures to `input`. The network ends at the last of the layers.
 *
 * @param[out] features  [spec.layer_count] in the order of the layers
 */
void cod_vgg_features(cod_graph *graph, cod_value pictures, cod_vgg_spec spec, cod_value *features);

#endif
