#include "nn/squeezenet.h"

#include <stdio.h>
#include <string.h>

const int cod_squeezenet_stages[COD_SQUEEZENET_STAGES] = {1, 3, 5, 6, 7, 8, 9};

enum { COLOURS = 3, FIRST_CHANNELS = 64, FIRST_FIRE = 2 };

/** Of each fire module. */
static const struct fire {
    int64_t squeezed, expanded; /**< channels; each of the two expansions has so many */
    int index;                  /**< in torchvision's `features` */
    bool pooled;                /**< a pooling comes before it */
} fires[] = {{16, 64, 3, true},  {16, 64, 4, false},   {32, 128, 6, true},   {32, 128, 7, false},
             {48, 192, 9, true}, {48, 192, 10, false}, {64, 256, 11, false}, {64, 256, 12, false}};

int64_t cod_squeezenet_channels(int layer)
{
    return layer < FIRST_FIRE ? FIRST_CHANNELS : 2 * fires[layer - FIRST_FIRE].expanded;
}

int cod_squeezenet_side(int layer)
{
    int side = 1;
    for (; layer >= FIRST_FIRE; layer--)
        if (fires[layer - FIRST_FIRE].pooled)
            side = side == 1 ? 3 : 2 * side; /* the last window may stand over the edge, but not begin there */
    return 2 * side + 1;
}

/** `squeeze`, `expand1x1` or `expand3x3` of a fire module. */
static void name_part(cod_squeezenet_names names, int layer, const char *part, char name[48])
{
    if (names == COD_SQUEEZENET_CAFFE)
        snprintf(name, 48, "fire%d/%s%s", layer, part, strcmp(part, "squeeze") == 0 ? "1x1" : "");
    else
        snprintf(name, 48, "features.%d.%s", fires[layer - FIRST_FIRE].index, part);
}

int cod_squeezenet_parts(cod_squeezenet_names names, int layer, cod_squeezenet_part parts[COD_SQUEEZENET_PARTS])
{
    if (layer < FIRST_FIRE) {
        parts[0] = (cod_squeezenet_part){.outputs = FIRST_CHANNELS, .inputs = COLOURS, .kernel = 3};
        snprintf(parts[0].name, sizeof parts[0].name, "%s", names == COD_SQUEEZENET_CAFFE ? "conv1" : "features.0");
        return 1;
    }
    const struct fire *fire = &fires[layer - FIRST_FIRE];
    parts[0] =
        (cod_squeezenet_part){.outputs = fire->squeezed, .inputs = cod_squeezenet_channels(layer - 1), .kernel = 1};
    parts[1] = (cod_squeezenet_part){.outputs = fire->expanded, .inputs = fire->squeezed, .kernel = 1};
    parts[2] = (cod_squeezenet_part){.outputs = fire->expanded, .inputs = fire->squeezed, .kernel = 3};
    static const char *const kinds[COD_SQUEEZENET_PARTS] = {"squeeze", "expand1x1", "expand3x3"};
    for (int i = 0; i < COD_SQUEEZENET_PARTS; i++)
        name_part(names, layer, kinds[i], parts[i].name);
    return COD_SQUEEZENET_PARTS;
}

static cod_value convolution(cod_graph *graph, const cod_squeezenet_part *part, cod_value x, int stride, bool activated)
{
    const cod_conv2d_spec spec = {.out_channels = part->outputs,
                                  .kernel = part->kernel,
                                  .stride = stride,
                                  .padding = stride == 1 ? part->kernel / 2 : 0};
    x = cod_graph_conv2d(graph, part->name, x, spec);
    return activated ? cod_graph_activation(graph, x, COD_ACT_RELU, 0) : x;
}

static cod_value add_layer(cod_graph *graph, cod_squeezenet_names names, int layer, cod_value x, bool activated)
{
    cod_squeezenet_part parts[COD_SQUEEZENET_PARTS];
    cod_squeezenet_parts(names, layer, parts);
    if (layer < FIRST_FIRE)
        return convolution(graph, &parts[0], x, 2, activated);
    if (fires[layer - FIRST_FIRE].pooled)
        x = cod_graph_max_pool_ceil(graph, x, 3, 2);
    x = convolution(graph, &parts[0], x, 1, true);
    const cod_value narrow = convolution(graph, &parts[1], x, 1, activated),
                    wide = convolution(graph, &parts[2], x, 1, activated);
    return cod_graph_concat(graph, (const cod_value[]){narrow, wide}, 2);
}

void cod_squeezenet_features(cod_graph *graph, cod_value pictures, cod_squeezenet_spec spec, cod_value *features)
{
    cod_value x = cod_vgg_present(graph, pictures, spec.input);
    size_t found = 0;
    for (int layer = 1; layer <= COD_SQUEEZENET_LAYERS && found < spec.layer_count; layer++) {
        size_t wanted = 0;
        while (wanted < spec.layer_count && spec.layers[wanted] != layer)
            wanted++;
        const bool is_wanted = wanted < spec.layer_count, apart = is_wanted && spec.before_activation;
        x = add_layer(graph, spec.names, layer, x, !apart);
        if (is_wanted)
            features[wanted] = x;
        found += is_wanted;
        if (apart && found < spec.layer_count)
            x = cod_graph_activation(graph, x, COD_ACT_RELU, 0);
    }
}
