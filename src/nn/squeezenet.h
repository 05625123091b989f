/**
 * @file
 * Features of SqueezeNet 1.1 (Iandola et al., "SqueezeNet: AlexNet-level accuracy with 50x fewer parameters", 2016): a
 * light perceptual network of 0.7 million parameters, whose features LPIPS compares, and perceptual losses may compare.
 *
 * Layers have numbers: 1 is the first convolution, 2 to 9 are the fire modules.
 */
#ifndef COD_NN_SQUEEZENET_H
#define COD_NN_SQUEEZENET_H

#include "nn/vgg.h"

enum { COD_SQUEEZENET_LAYERS = 9, COD_SQUEEZENET_STAGES = 7 };

/** The layers whose outputs LPIPS reads: 1, 3, 5, 6, 7, 8, 9. */
extern const int cod_squeezenet_stages[COD_SQUEEZENET_STAGES];

/** Channels of a layer's output: 64, 128, 128, 256, 256, 384, 384, 512, 512. */
int64_t cod_squeezenet_channels(int layer);

/** The smallest side, in pixels, of pictures for which a layer has an output: 3 for layer 1, 25 for layers 6 to 9. */
int cod_squeezenet_side(int layer);

/** Naming schemes of parameters in files. */
typedef enum cod_squeezenet_names {
    /** "features.0.weight", "features.3.squeeze.weight", "features.3.expand1x1.weight", … */
    COD_SQUEEZENET_TORCHVISION,
    /** "conv1.weight", "fire2/squeeze1x1.weight", "fire2/expand1x1.weight", …; Keras has these, too */
    COD_SQUEEZENET_CAFFE
} cod_squeezenet_names;

/** One convolution of a layer: layer 1 has one, a fire module three. */
typedef struct cod_squeezenet_part {
    /** Its weight is "NAME.weight", of PyTorch's shape [outputs, inputs, kernel, kernel]; its bias "NAME.bias". */
    char name[48];
    int64_t outputs, inputs;
    int kernel;
} cod_squeezenet_part;

enum { COD_SQUEEZENET_PARTS = 3 };

/** @param[out] parts  in the order of execution; the last two of a fire module run side by side @return their number */
int cod_squeezenet_parts(cod_squeezenet_names names, int layer, cod_squeezenet_part parts[COD_SQUEEZENET_PARTS]);

typedef struct cod_squeezenet_spec {
    cod_vgg_input input;
    cod_squeezenet_names names;
    const int *layers; /**< [layer_count ≥ 1] layers whose features are returned; all different, in any order */
    size_t layer_count;
    bool before_activation;
} cod_squeezenet_spec;

/**
 * Adds the network and returns the layers' features of pictures {N,H,W,3}, RGB in 0 … 1, of at least
 * cod_squeezenet_side() to a side.
 *
 * Layer 1 reduces a side of H pixels to (H - 3) / 2 + 1; before layers 2, 4 and 6 sides are about halved, rounded up.
 * The network ends at the last of the layers.
 *
 * @param[out] features  [spec.layer_count] {N,H',W',cod_squeezenet_channels()} in the order of the layers
 */
void cod_squeezenet_features(cod_graph *graph, cod_value pictures, cod_squeezenet_spec spec, cod_value *features);

#endif
