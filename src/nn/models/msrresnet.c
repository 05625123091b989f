/*
 * MSRResNet, the modified SRResNet of ESRGAN's authors (Wang et al. 2018), in the layout and with the tensor names of
 * BasicSR's MSRResNet, so that its files go both ways: no normalisation, leaky ReLU 0.1, bilinear skip.
 */
#include "nn/models/models_internal.h"

#include <stdio.h>

typedef struct msrresnet_options {
    int64_t num_feat, num_block, scale;
} msrresnet_options;

#define FIELD(name) offsetof(msrresnet_options, name)
static const cod_option options_table[] = {
    {"num_feat", COD_OPTION_INT, FIELD(num_feat), "64", 1, 1024, NULL, "Feature channels."},
    {"num_block", COD_OPTION_INT, FIELD(num_block), "16", 1, 256, NULL, "Residual blocks."},
    {"scale", COD_OPTION_INT, FIELD(scale), "4", 2, 4, NULL, "Upscaling factor: 2, 3 or 4."},
};
#undef FIELD

static const cod_option_table table = {"model", "BasicSR's MSRResNet: no normalisation, file-compatible with BasicSR",
                                       options_table, sizeof options_table / sizeof options_table[0],
                                       sizeof(msrresnet_options)};

/** BasicSR's default_init_weights(scale=0.1): Kaiming normal times 0.1, biases zero. */
static cod_value conv(cod_graph *graph, const char *name, cod_value x, int64_t channels)
{
    return cod_graph_conv2d(graph, name, x,
                            (cod_conv2d_spec){.out_channels = channels, .kernel = 3, .padding = 1, .init_gain = 0.1});
}

static cod_value lrelu(cod_graph *graph, cod_value x)
{
    return cod_graph_activation(graph, x, COD_ACT_LEAKY_RELU, 0.1f);
}

static cod_value build(cod_graph *graph, cod_value input, const void *options)
{
    const msrresnet_options *o = options;
    char name[64];
    cod_value x = lrelu(graph, conv(graph, "conv_first", input, o->num_feat));
    for (int64_t i = 0; i < o->num_block; i++) {
        snprintf(name, sizeof name, "body.%lld.conv1", (long long)i);
        cod_value f = cod_graph_activation(graph, conv(graph, name, x, o->num_feat), COD_ACT_RELU, 0);
        snprintf(name, sizeof name, "body.%lld.conv2", (long long)i);
        f = conv(graph, name, f, o->num_feat);
        x = cod_graph_add(graph, x, f);
    }
    const int factor = o->scale == 3 ? 3 : 2;
    int stage = 1;
    for (int64_t scale = 1; scale < o->scale; scale *= factor, stage++) {
        snprintf(name, sizeof name, "upconv%d", stage);
        x = conv(graph, name, x, o->num_feat * factor * factor);
        x = lrelu(graph, cod_graph_pixel_shuffle(graph, x, factor));
    }
    x = lrelu(graph, conv(graph, "conv_hr", x, o->num_feat));
    x = conv(graph, "conv_last", x, 3);
    return cod_graph_add(graph, x, cod_graph_resize(graph, input, (int)o->scale, COD_RESIZE_BILINEAR));
}

static int scale_of(const void *options)
{
    return (int)((const msrresnet_options *)options)->scale;
}

const cod_model_kind cod_model_msrresnet = {
    .name = "msrresnet", .table = &table, .build = build, .scale = scale_of, .compatible_with = "BasicSR MSRResNet"};
