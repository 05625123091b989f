#include "gan/features_internal.h"

#include "gan/perceptual.h"
#include "infer/squeezenet_file.h"

static bool is_squeezenet(const gan_settings *settings)
{
    return settings->layers[0].squeezenet > 0;
}

const char *gan_network_name(const gan_settings *settings)
{
    return is_squeezenet(settings) ? "SqueezeNet 1.1" : "VGG-19";
}

static cod_status examine_squeezenet(const gan_settings *settings, gan_network *network)
{
    const gan_options *o = settings->options;
    int last = 0;
    for (size_t i = 0; i < settings->layer_count; i++)
        last = settings->layers[i].squeezenet > last ? settings->layers[i].squeezenet : last;
    COD_TRY(cod_squeezenet_examine(o->perceptual_file, last, &network->names, &network->input));
    if (o->perceptual_input != COD_PERCEPTUAL_INPUT_AUTO)
        network->input = (cod_vgg_input)(o->perceptual_input - COD_PERCEPTUAL_INPUT_FIRST);
    return COD_OK;
}

cod_status gan_network_examine(const gan_settings *settings, gan_network *network)
{
    const gan_options *o = settings->options;
    *network = (gan_network){0};
    if (is_squeezenet(settings))
        return examine_squeezenet(settings, network);
    cod_vgg_layer last = settings->layers[0].vgg;
    for (size_t i = 1; i < settings->layer_count; i++)
        if (cod_vgg_index(settings->layers[i].vgg) > cod_vgg_index(last))
            last = settings->layers[i].vgg;
    return cod_perceptual_examine(o->perceptual_file, last, o->perceptual_input, &network->input);
}

int64_t gan_network_side(const gan_settings *settings, const char **layer)
{
    int64_t side = 0;
    for (size_t i = 0; i < settings->layer_count; i++) {
        const gan_layer *at = &settings->layers[i];
        /* Each block of VGG-19 halves sides before the next one. */
        const int64_t needed =
            at->squeezenet > 0 ? cod_squeezenet_side(at->squeezenet) : (int64_t)1 << (at->vgg.block - 1);
        if (needed > side)
            *layer = at->name;
        side = needed > side ? needed : side;
    }
    return side;
}

static void add_squeezenet(cod_graph *graph, const gan_settings *settings, const gan_network *network,
                           cod_value pictures, cod_value *features)
{
    int layers[GAN_MAX_LAYERS];
    for (size_t i = 0; i < settings->layer_count; i++)
        layers[i] = settings->layers[i].squeezenet;
    const cod_squeezenet_spec spec = {.input = network->input,
                                      .names = network->names,
                                      .layers = layers,
                                      .layer_count = settings->layer_count,
                                      .before_activation = settings->before_activation};
    cod_squeezenet_features(graph, pictures, spec, features);
}

void gan_network_add(cod_graph *graph, const gan_settings *settings, const gan_network *network, cod_value pictures,
                     cod_value *features)
{
    cod_vgg_layer layers[GAN_MAX_LAYERS];
    cod_graph_use_set(graph, "perceptual");
    if (is_squeezenet(settings)) {
        add_squeezenet(graph, settings, network, pictures, features);
        return;
    }
    for (size_t i = 0; i < settings->layer_count; i++)
        layers[i] = settings->layers[i].vgg;
    const cod_vgg_spec spec = {.layers = layers,
                               .layer_count = settings->layer_count,
                               .before_activation = settings->before_activation,
                               .input = network->input,
                               .pooling = settings->options->pooling == 0 ? COD_POOL_MAX : COD_POOL_AVERAGE,
                               .channels = COD_VGG_CHANNELS};
    cod_vgg_features(graph, pictures, spec, features);
}
