/**
 * @file
 * The kinds that model.c registers, and what classifiers share.
 */
#ifndef COD_NN_MODELS_INTERNAL_H
#define COD_NN_MODELS_INTERNAL_H

#include "nn/model.h"

extern const cod_model_kind cod_model_srresnet;
extern const cod_model_kind cod_model_msrresnet;
extern const cod_model_kind cod_model_rrdb;
extern const cod_model_kind cod_model_edsr;
extern const cod_model_kind cod_model_compact;
extern const cod_model_kind cod_model_logistic;
extern const cod_model_kind cod_model_mlp;
extern const cod_model_kind cod_model_cnn;
extern const cod_model_kind cod_model_resnet18;
extern const cod_model_kind cod_model_resnet50;

/** The options that set a classifier's sizes, which lie at the start of its struct. */
#define CLASSIFIER_SIZE(key, most, help)                                                                               \
    {                                                                                                                  \
#key, COD_OPTION_INT, offsetof(cod_classifier_sizes, key), "0", 0, most, NULL, help ". 0 = as in the data."    \
    }
#define CLASSIFIER_SIZES                                                                                               \
    CLASSIFIER_SIZE(height, 4096, "Height of the input in pixels"),                                                    \
        CLASSIFIER_SIZE(width, 4096, "Width of the input in pixels"),                                                  \
        CLASSIFIER_SIZE(channels, 1e6, "Channels of the input"), CLASSIFIER_SIZE(classes, 65536, "Number of classes")

/** The input as vectors: pictures are flattened, vectors stay as they are. */
static inline cod_value classifier_vectors(cod_graph *graph, cod_value x, int64_t height, int64_t width)
{
    return height * width > 1 ? cod_graph_flatten(graph, x, height, width) : x;
}

#endif
