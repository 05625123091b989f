/**
 * @file
 * Features of SqueezeNet 1.1 (Iandola et al., "SqueezeNet: AlexNet-level accuracy with 50x fewer parameters", 2016), on which LPIPS compares
 * pictures: a light perceptual network of 0.7 million parameters.
 */
#ifndef COD_NN_SQUEEZENET_H
#define COD_NN_SQUEEZENET_H

#include "nn/vgg.h"

enum { COD_SQUEEZENET_STAGES = 7 };

/** Channels of each stage: 64, 128, 256, 384, 384, 512, 512. */
extern const int64_t cod_squeezenet_channels[COD_SQUEEZENET_STAGES];

/** How the file's parameters are called. */
typedef enum cod_squeezenet_names {
    COD_SQUEEZENET_TORCHVISION, /**< "features.0.weight", "features.3.squeeze.weight", "features.3.expand1x1.weight", … */
    COD_SQUEEZENET_CAFFE /**< "conv1.weight", "fire2/squeeze1x1.weight", "fire2/expand1x1.weight", …; Keras has these, too */
} cod_squeezenet_names;

typedef struct cod_squeezenet_spec {
    cod_vgg_input input;
    cod_squeezenet_names names;
} cod_squeezenet_spec;

/**
 * What the seven stages that LPIPS reads make of pictures {N,H,W,3}, RGB in 0 … 1: behind conv1 and behind fire modules 3, 5, 6, 7, 8 and 9.
 * A side of H pixels becomes (H - 3) / 2 + 1, then of the second, third and fourth stage about half of the side before, rounded up.
 *
 * @param[out] features  [COD_SQUEEZENET_STAGES] {N,H',W',cod_squeezenet_channels}; pictures of at least COD_SQUEEZENET_SIDE to a side
 */
void cod_squeezenet_features(cod_graph *graph, cod_value pictures, cod_squeezenet_spec spec, cod_value *features);

enum { COD_SQUEEZENET_SIDE = 25 };

#endif
