#include "nn/squeezenet.h"

#include <stdio.h>
#include <string.h>

const int64_t cod_squeezenet_channels[COD_SQUEEZENET_STAGES] = {64, 128, 256, 384, 384, 512, 512};

enum { FIRST_FIRE = 2, FIRES = 8 };

/** Of each fire module. */
static const struct fire {
    int64_t squeezed, expanded; /**< channels; each of the two expansions has so many */
    int index;                  /**< in torchvision's `features` */
    bool pooled;                /**< a pooling comes before it */
    bool ends_stage;
} fires[FIRES] = {{16, 64, 3, true, false},   {16, 64, 4, false, true},  {32, 128, 6, true, false},
                  {32, 128, 7, false, true},  {48, 192, 9, true, true},  {48, 192, 10, false, true},
                  {64, 256, 11, false, true}, {64, 256, 12, false, true}};

static cod_value convolution(cod_graph *graph, const char *name, cod_value x, cod_conv2d_spec spec)
{
    return cod_graph_activation(graph, cod_graph_conv2d(graph, name, x, spec), COD_ACT_RELU, 0);
}

static void name_part(cod_squeezenet_names names, int fire, const char *part, char name[48])
{
    if (names == COD_SQUEEZENET_CAFFE)
        snprintf(name, 48, "fire%d/%s%s", FIRST_FIRE + fire, part, strcmp(part, "squeeze") == 0 ? "1x1" : "");
    else
        snprintf(name, 48, "features.%d.%s", fires[fire].index, part);
}

static cod_value fire_module(cod_graph *graph, cod_squeezenet_names names, int fire, cod_value x)
{
    const int64_t expanded = fires[fire].expanded;
    char name[48];
    name_part(names, fire, "squeeze", name);
    x = convolution(graph, name, x, (cod_conv2d_spec){.out_channels = fires[fire].squeezed, .kernel = 1});
    name_part(names, fire, "expand1x1", name);
    const cod_value narrow = convolution(graph, name, x, (cod_conv2d_spec){.out_channels = expanded, .kernel = 1});
    name_part(names, fire, "expand3x3", name);
    const cod_value wide =
        convolution(graph, name, x, (cod_conv2d_spec){.out_channels = expanded, .kernel = 3, .padding = 1});
    return cod_graph_concat(graph, (const cod_value[]){narrow, wide}, 2);
}

void cod_squeezenet_features(cod_graph *graph, cod_value pictures, cod_squeezenet_spec spec, cod_value *features)
{
    const char *first = spec.names == COD_SQUEEZENET_CAFFE ? "conv1" : "features.0";
    cod_value x = convolution(graph, first, cod_vgg_present(graph, pictures, spec.input),
                              (cod_conv2d_spec){.out_channels = cod_squeezenet_channels[0], .kernel = 3, .stride = 2});
    *features++ = x;
    for (int fire = 0; fire < FIRES; fire++) {
        if (fires[fire].pooled)
            x = cod_graph_max_pool_ceil(graph, x, 3, 2);
        x = fire_module(graph, spec.names, fire, x);
        if (fires[fire].ends_stage)
            *features++ = x;
    }
}
