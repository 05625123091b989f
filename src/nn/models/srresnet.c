/*
 * SRResNet (Ledig et al., "Photo-Realistic Single Image Super-Resolution Using a GAN", CVPR 2017, figure 4), with
 * variants.
 */
#include "nn/models/models_internal.h"

#include <stdio.h>

typedef enum norm_choice { NORM_BATCH, NORM_NONE } norm_choice;
typedef enum skip_choice { SKIP_NONE, SKIP_NEAREST, SKIP_BILINEAR, SKIP_BICUBIC } skip_choice;
typedef enum upsampler_choice { UPSAMPLER_STEPS, UPSAMPLER_ONCE } upsampler_choice;

typedef struct srresnet_options {
    int64_t blocks, channels, scale;
    int head_kernel, tail_kernel; /**< indices into `kernels` */
    int norm, skip, upsampler, activation;
    bool zero_init_tail;
} srresnet_options;

static const char *const kernels[] = {"1", "3", "5", "7", "9", "11", NULL};
static const char *const norms[] = {"batch", "none", NULL};
static const char *const skips[] = {"none", "nearest", "bilinear", "bicubic", NULL};
static const char *const upsamplers[] = {"steps", "once", NULL};
static const char *const activations[] = {"prelu", "relu", NULL};

#define FIELD(name) offsetof(srresnet_options, name)
static const cod_option options_table[] = {
    {"blocks", COD_OPTION_INT, FIELD(blocks), "16", 1, 256, NULL, "Residual blocks."},
    {"channels", COD_OPTION_INT, FIELD(channels), "64", 1, 1024, NULL, "Feature channels."},
    {"scale", COD_OPTION_INT, FIELD(scale), "4", 2, 4, NULL, "Upscaling factor: 2, 3 or 4."},
    {"norm", COD_OPTION_CHOICE, FIELD(norm), "batch", 0, 0, norms, "Normalisation in the blocks."},
    {"activation", COD_OPTION_CHOICE, FIELD(activation), "prelu", 0, 0, activations,
     "Activation throughout the network."},
    {"skip", COD_OPTION_CHOICE, FIELD(skip), "none", 0, 0, skips,
     "Adds the input, enlarged by this interpolation, to the output, so that the network learns only the difference. "
     "none = no skip."},
    {"upsampler", COD_OPTION_CHOICE, FIELD(upsampler), "steps", 0, 0, upsamplers,
     "steps: pixel shuffles by 2 (or 3) with an activation after each, as in the paper. once: one pixel shuffle by "
     "the whole scale just before the output."},
    {"head_kernel", COD_OPTION_CHOICE, FIELD(head_kernel), "9", 0, 0, kernels, "Kernel size of the first convolution."},
    {"tail_kernel", COD_OPTION_CHOICE, FIELD(tail_kernel), "9", 0, 0, kernels, "Kernel size of the last convolution."},
    {"zero_init_tail", COD_OPTION_BOOL, FIELD(zero_init_tail), "false", 0, 0, NULL,
     "Start the last convolution at zero. With a skip, training then starts from the plain interpolation."},
};
#undef FIELD

static const cod_option_table table = {"model", "SRResNet: residual network for super-resolution", options_table,
                                       sizeof options_table / sizeof options_table[0], sizeof(srresnet_options)};

/** Odd sizes only: the output is as large as the input. */
static int kernel_size(int choice)
{
    return 2 * choice + 1;
}

static cod_value activate(cod_graph *graph, const srresnet_options *o, const char *name, cod_value x)
{
    return o->activation == 0 ? cod_graph_prelu(graph, name, x, false)
                              : cod_graph_activation(graph, x, COD_ACT_RELU, 0);
}

static cod_value conv(cod_graph *graph, const char *name, cod_value x, int64_t channels, int kernel, bool no_bias)
{
    return cod_graph_conv2d(
        graph, name, x,
        (cod_conv2d_spec){.out_channels = channels, .kernel = kernel, .padding = kernel / 2, .no_bias = no_bias});
}

/** Names follow the plain PyTorch module: head.0, body.I.f.0 …, tail.0 …, as nn.Sequential numbers them. */
static cod_value residual_block(cod_graph *graph, const srresnet_options *o, int64_t index, cod_value x)
{
    char name[64];
    const bool norm = o->norm == NORM_BATCH;
    int layer = 0;
#define LAYER() (snprintf(name, sizeof name, "body.%lld.f.%d", (long long)index, layer++), name)
    cod_value f = conv(graph, LAYER(), x, o->channels, 3, norm);
    if (norm)
        f = cod_graph_norm(graph, LAYER(), f);
    f = activate(graph, o, LAYER(), f);
    f = conv(graph, LAYER(), f, o->channels, 3, norm);
    if (norm)
        f = cod_graph_norm(graph, LAYER(), f);
#undef LAYER
    return cod_graph_add(graph, x, f);
}

static cod_value upsample(cod_graph *graph, const srresnet_options *o, cod_value x)
{
    char name[64];
    int layer = 0;
#define LAYER() (snprintf(name, sizeof name, "tail.%d", layer++), name)
    const int kernel = kernel_size(o->tail_kernel);
    cod_conv2d_spec last = {.out_channels = 3, .kernel = kernel, .padding = kernel / 2, .zero_init = o->zero_init_tail};
    if (o->upsampler == UPSAMPLER_ONCE) {
        last.out_channels = 3 * o->scale * o->scale;
        return cod_graph_pixel_shuffle(graph, cod_graph_conv2d(graph, LAYER(), x, last), (int)o->scale);
    }
    const int factor = o->scale == 3 ? 3 : 2;
    for (int64_t scale = 1; scale < o->scale; scale *= factor) {
        x = conv(graph, LAYER(), x, o->channels * factor * factor, 3, false);
        x = cod_graph_pixel_shuffle(graph, x, factor);
        layer++; /* nn.PixelShuffle's place */
        x = activate(graph, o, LAYER(), x);
    }
    return cod_graph_conv2d(graph, LAYER(), x, last);
#undef LAYER
}

static cod_value build(cod_graph *graph, cod_value input, const void *options)
{
    const srresnet_options *o = options;
    const bool norm = o->norm == NORM_BATCH;
    char name[64];
    cod_value x = conv(graph, "head.0", input, o->channels, kernel_size(o->head_kernel), false);
    x = activate(graph, o, "head.1", x);
    const cod_value features = x;
    for (int64_t i = 0; i < o->blocks; i++)
        x = residual_block(graph, o, i, x);
    snprintf(name, sizeof name, "body.%lld", (long long)o->blocks);
    x = conv(graph, name, x, o->channels, 3, norm);
    snprintf(name, sizeof name, "body.%lld", (long long)o->blocks + 1);
    if (norm)
        x = cod_graph_norm(graph, name, x);
    x = upsample(graph, o, cod_graph_add(graph, features, x));
    if (o->skip == SKIP_NONE)
        return x;
    static const cod_resize_mode modes[] = {[SKIP_NEAREST] = COD_RESIZE_NEAREST,
                                            [SKIP_BILINEAR] = COD_RESIZE_BILINEAR,
                                            [SKIP_BICUBIC] = COD_RESIZE_BICUBIC};
    return cod_graph_add(graph, cod_graph_resize(graph, input, (int)o->scale, modes[o->skip]), x);
}

static int scale_of(const void *options)
{
    return (int)((const srresnet_options *)options)->scale;
}

const cod_model_kind cod_model_srresnet = {.name = "srresnet", .table = &table, .build = build, .scale = scale_of};
