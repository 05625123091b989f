#include "nn/vgg.h"

#include <stdio.h>

const char *const cod_vgg_input_names[] = {"torchvision", "caffe", NULL};

int cod_vgg_convolutions(int block)
{
    return block <= 2 ? 2 : 4;
}

/** Each convolution is followed by its activation, and each block by a pooling. */
int cod_vgg_index(cod_vgg_layer layer)
{
    int index = 2 * (layer.convolution - 1);
    for (int block = 1; block < layer.block; block++)
        index += 2 * cod_vgg_convolutions(block) + 1;
    return index;
}

enum { COLOURS = 3 };

/** y = weights·x + biases at each pixel. */
typedef struct affine {
    double weights[COLOURS * COLOURS], biases[COLOURS];
} affine;

static const affine normalisations[] = {
    [COD_VGG_TORCHVISION] = {{1 / 0.229, 0, 0, 0, 1 / 0.224, 0, 0, 0, 1 / 0.225},
                             {-0.485 / 0.229, -0.456 / 0.224, -0.406 / 0.225}},
    [COD_VGG_CAFFE] = {{0, 0, 255, 0, 255, 0, 255, 0, 0}, {-103.939, -116.779, -123.68}},
};

cod_value cod_vgg_present(cod_graph *graph, cod_value pictures, cod_vgg_input input)
{
    const affine *normal = &normalisations[input];
    return cod_graph_conv2d(
        graph, "normalise", pictures,
        (cod_conv2d_spec){.out_channels = COLOURS, .kernel = 1, .weights = normal->weights, .biases = normal->biases});
}

/** Where a layer lies among those that are wanted; layer_count where it does not. */
static size_t find_wanted(const cod_vgg_spec *spec, cod_vgg_layer layer)
{
    size_t i = 0;
    while (i < spec->layer_count && cod_vgg_index(spec->layers[i]) != cod_vgg_index(layer))
        i++;
    return i;
}

void cod_vgg_features(cod_graph *graph, cod_value pictures, cod_vgg_spec spec, cod_value *features)
{
    static const int64_t widths[COD_VGG_BLOCKS] = {1, 2, 4, 8, 8};
    cod_value x = cod_vgg_present(graph, pictures, spec.input);
    size_t found = 0;
    for (cod_vgg_layer at = {1, 1}; found < spec.layer_count; at.convolution++) {
        char name[32];
        if (at.convolution > cod_vgg_convolutions(at.block)) {
            at = (cod_vgg_layer){at.block + 1, 1};
            x = cod_graph_pool(graph, x, spec.pooling, 2, 2, 0);
        }
        snprintf(name, sizeof name, "features.%d", cod_vgg_index(at));
        x = cod_graph_conv2d(
            graph, name, x,
            (cod_conv2d_spec){.out_channels = spec.channels * widths[at.block - 1], .kernel = 3, .padding = 1});
        const size_t wanted = find_wanted(&spec, at);
        const cod_value before = x;
        found += wanted < spec.layer_count;
        if (found < spec.layer_count || !spec.before_activation)
            x = cod_graph_activation(graph, x, COD_ACT_RELU, 0);
        if (wanted < spec.layer_count)
            features[wanted] = spec.before_activation ? before : x;
    }
}
