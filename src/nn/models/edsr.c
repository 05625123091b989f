/*
 * EDSR (Lim et al., "Enhanced Deep Residual Networks for Single Image Super-Resolution", CVPR workshops 2017): residual
 * blocks without normalisation, on pictures less the mean colour. Layout and tensor names are those of BasicSR's EDSR,
 * so that its files go both ways.
 */
#include "nn/models/models_internal.h"

#include <math.h>
#include <stdio.h>

enum { COLOURS = 3, LARGE = 256 };

typedef struct edsr_options {
    int64_t num_feat, num_block, scale;
    double res_scale; /**< NaN = auto */
    double img_range;
    cod_float_list rgb_mean;
} edsr_options;

#define FIELD(name) offsetof(edsr_options, name)
static const cod_option options_table[] = {
    {"num_feat", COD_OPTION_INT, FIELD(num_feat), "64", 1, 1024, NULL, "Feature channels."},
    {"num_block", COD_OPTION_INT, FIELD(num_block), "16", 1, 256, NULL, "Residual blocks."},
    {"scale", COD_OPTION_INT, FIELD(scale), "4", 2, 4, NULL, "Upscaling factor: 2, 3 or 4."},
    {"res_scale", COD_OPTION_FLOAT, FIELD(res_scale), "auto", 0.001, 10, cod_option_auto,
     "Factor on what each block adds to its input. auto, as in the paper: 0.1 from 256 feature channels on, otherwise "
     "1."},
    {"img_range", COD_OPTION_FLOAT, FIELD(img_range), "255", 0.001, 65535, NULL,
     "Largest pixel value inside the network; the smallest is 0."},
    {"rgb_mean", COD_OPTION_FLOAT_LIST, FIELD(rgb_mean), "0.4488,0.4371,0.4040", 0, 1, NULL,
     "Mean red, green and blue of pictures in 0 to 1. It is subtracted from the input and added to the output."},
};
#undef FIELD

static const cod_option_table table = {"model", "BasicSR's EDSR: no normalisation, file-compatible with BasicSR",
                                       options_table, sizeof options_table / sizeof options_table[0],
                                       sizeof(edsr_options)};

static cod_value conv(cod_graph *graph, const char *name, cod_value x, int64_t channels)
{
    return cod_graph_conv2d(graph, name, x, (cod_conv2d_spec){.out_channels = channels, .kernel = 3, .padding = 1});
}

static cod_value residual_block(cod_graph *graph, const edsr_options *o, int64_t index, cod_value x)
{
    const double scale = isnan(o->res_scale) ? (o->num_feat >= LARGE ? 0.1 : 1) : o->res_scale;
    char name[64];
    snprintf(name, sizeof name, "body.%lld.conv1", (long long)index);
    cod_value f = cod_graph_activation(graph, conv(graph, name, x, o->num_feat), COD_ACT_RELU, 0);
    snprintf(name, sizeof name, "body.%lld.conv2", (long long)index);
    f = conv(graph, name, f, o->num_feat);
    return cod_graph_scaled_add(graph, (float)scale, f, 1, x);
}

/** Layers are numbered as in nn.Sequential, where a pixel shuffle has a place too. */
static cod_value upsample(cod_graph *graph, const edsr_options *o, cod_value x)
{
    const int factor = o->scale == 3 ? 3 : 2;
    int layer = 0;
    for (int64_t scale = 1; scale < o->scale; scale *= factor, layer += 2) {
        char name[64];
        snprintf(name, sizeof name, "upsample.%d", layer);
        x = cod_graph_pixel_shuffle(graph, conv(graph, name, x, o->num_feat * factor * factor), factor);
    }
    return x;
}

static cod_value build(cod_graph *graph, cod_value input, const void *options)
{
    const edsr_options *o = options;
    if (o->rgb_mean.count != COLOURS) {
        cod_graph_fail(graph, cod_fail(COD_ERR_ARGUMENT,
                                       "model.rgb_mean: wants three numbers, for red, green and blue, not %zu",
                                       o->rgb_mean.count));
        return 0;
    }
    const double *mean = o->rgb_mean.items;
    const double range = o->img_range;
    const cod_value centred =
        cod_graph_affine(graph, input, range, (const double[]){-range * mean[0], -range * mean[1], -range * mean[2]});
    const cod_value features = conv(graph, "conv_first", centred, o->num_feat);
    cod_value x = features;
    for (int64_t i = 0; i < o->num_block; i++)
        x = residual_block(graph, o, i, x);
    x = cod_graph_add(graph, features, conv(graph, "conv_after_body", x, o->num_feat));
    x = conv(graph, "conv_last", upsample(graph, o, x), COLOURS);
    return cod_graph_affine(graph, x, 1 / range, mean);
}

static int scale_of(const void *options)
{
    return (int)((const edsr_options *)options)->scale;
}

const cod_model_kind cod_model_edsr = {
    .name = "edsr", .table = &table, .build = build, .scale = scale_of, .compatible_with = "BasicSR EDSR"};
