/*
 * ResNet-18 and ResNet-50 (He et al., "Deep Residual Learning for Image Recognition", CVPR 2016, table 1), with the
 * tensor names of torchvision's, so that its weights load; as there, the 3x3 convolution of a bottleneck has the
 * stride.
 */
#include "nn/models/models_internal.h"

#include <math.h>
#include <stdio.h>

typedef struct resnet_options {
    cod_classifier_sizes sizes;
    int64_t features;
    int stem;
} resnet_options;

enum { STEM_LARGE, STEM_SMALL };
static const char *const stems[] = {"large", "small", NULL};

#define FIELD(name) offsetof(resnet_options, name)
static const cod_option options_table[] = {
    CLASSIFIER_SIZES,
    {"stem", COD_OPTION_CHOICE, FIELD(stem), "large", 0, 0, stems,
     "First layers. large: a 7x7 convolution with stride 2 and max pooling, which leave a quarter of the size. small: "
     "a 3x3 convolution, for small pictures."},
    {"features", COD_OPTION_INT, FIELD(features), "64", 1, 1024, NULL,
     "Width of the first of the four stages. Each further stage is twice as wide."},
};
#undef FIELD

/** Where building stands. */
typedef struct resnet {
    cod_graph *graph;
    cod_value x;
    int64_t channels;
} resnet;

/** Adds PREFIX.CONV and PREFIX.NORM; weights start as torchvision's: Kaiming normal of the fan out. */
static void add_layer(resnet *net, const char *prefix, const char *conv, const char *norm, int64_t channels, int kernel,
                      int stride)
{
    char name[64];
    snprintf(name, sizeof name, "%s%s", prefix, conv);
    net->x = cod_graph_conv2d(net->graph, name, net->x,
                              (cod_conv2d_spec){.out_channels = channels,
                                                .kernel = kernel,
                                                .stride = stride,
                                                .padding = kernel / 2,
                                                .no_bias = true,
                                                .init_gain = sqrt((double)net->channels / (double)channels)});
    snprintf(name, sizeof name, "%s%s", prefix, norm);
    net->x = cod_graph_norm(net->graph, name, net->x);
    net->channels = channels;
}

static void add_relu(resnet *net)
{
    net->x = cod_graph_activation(net->graph, net->x, COD_ACT_RELU, 0);
}

typedef void add_block(resnet *net, const char *prefix, int64_t channels, int stride);

/** Adds what the block began with, by a 1x1 convolution where its shape differs. */
static void add_shortcut(resnet *net, const char *prefix, resnet from, int stride)
{
    if (stride != 1 || from.channels != net->channels)
        add_layer(&from, prefix, "downsample.0", "downsample.1", net->channels, 1, stride);
    net->x = cod_graph_add(net->graph, net->x, from.x);
    add_relu(net);
}

static void add_basic_block(resnet *net, const char *prefix, int64_t channels, int stride)
{
    const resnet from = *net;
    add_layer(net, prefix, "conv1", "bn1", channels, 3, stride);
    add_relu(net);
    add_layer(net, prefix, "conv2", "bn2", channels, 3, 1);
    add_shortcut(net, prefix, from, stride);
}

static void add_bottleneck(resnet *net, const char *prefix, int64_t channels, int stride)
{
    const resnet from = *net;
    add_layer(net, prefix, "conv1", "bn1", channels, 1, 1);
    add_relu(net);
    add_layer(net, prefix, "conv2", "bn2", channels, 3, stride);
    add_relu(net);
    add_layer(net, prefix, "conv3", "bn3", 4 * channels, 1, 1);
    add_shortcut(net, prefix, from, stride);
}

enum { STAGES = 4 };

static cod_value build(cod_graph *graph, cod_value input, const resnet_options *o, add_block *block,
                       const int counts[STAGES])
{
    resnet net = {graph, input, o->sizes.channels};
    const bool large = o->stem == STEM_LARGE;
    add_layer(&net, "", "conv1", "bn1", o->features, large ? 7 : 3, large ? 2 : 1);
    add_relu(&net);
    if (large)
        net.x = cod_graph_pool(graph, net.x, COD_POOL_MAX, 3, 2, 1);
    for (int stage = 0; stage < STAGES; stage++) {
        for (int i = 0; i < counts[stage]; i++) {
            char prefix[32];
            snprintf(prefix, sizeof prefix, "layer%d.%d.", stage + 1, i);
            block(&net, prefix, o->features << stage, stage > 0 && i == 0 ? 2 : 1);
        }
    }
    return cod_graph_linear(graph, "fc", cod_graph_global_pool(graph, net.x), o->sizes.classes, false);
}

static cod_value build_resnet18(cod_graph *graph, cod_value input, const void *options)
{
    return build(graph, input, options, add_basic_block, (const int[STAGES]){2, 2, 2, 2});
}

static cod_value build_resnet50(cod_graph *graph, cod_value input, const void *options)
{
    return build(graph, input, options, add_bottleneck, (const int[STAGES]){3, 4, 6, 3});
}

static const cod_option_table table18 = {"model", "ResNet-18, a classifier, file-compatible with torchvision",
                                         options_table, sizeof options_table / sizeof options_table[0],
                                         sizeof(resnet_options)};
static const cod_option_table table50 = {"model", "ResNet-50, a classifier, file-compatible with torchvision",
                                         options_table, sizeof options_table / sizeof options_table[0],
                                         sizeof(resnet_options)};

const cod_model_kind cod_model_resnet18 = {.name = "resnet18",
                                           .task = COD_TASK_CLASSIFICATION,
                                           .table = &table18,
                                           .build = build_resnet18,
                                           .compatible_with = "torchvision resnet18"};
const cod_model_kind cod_model_resnet50 = {.name = "resnet50",
                                           .task = COD_TASK_CLASSIFICATION,
                                           .table = &table50,
                                           .build = build_resnet50,
                                           .compatible_with = "torchvision resnet50"};
