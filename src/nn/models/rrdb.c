/*
 * RRDBNet, the generator of ESRGAN (Wang et al., "ESRGAN: Enhanced Super-Resolution Generative Adversarial Networks",
 * ECCV workshops 2018, figure 4), which enlarges four times, in the layout and with the tensor names of BasicSR's
 * RRDBNet, so that its files go both ways. To enlarge by two or one, it first makes channels of squares of two or four
 * pixels a side, as in Real-ESRGAN.
 */
#include "nn/models/models_internal.h"

#include <stdio.h>

enum { ENLARGEMENT = 4, DENSE_BLOCKS = 3, CONVOLUTIONS = 5 };

/** What each dense block and each group of three adds to its input is scaled by this. */
static const float residual_scale = 0.2f;

typedef struct rrdb_options {
    int64_t num_feat, num_block, num_grow_ch;
    int scale; /**< index in `scales` */
} rrdb_options;

static const char *const scales[] = {"1", "2", "4", NULL};
static const int scale_values[] = {1, 2, 4};

#define FIELD(name) offsetof(rrdb_options, name)
static const cod_option options_table[] = {
    {"num_feat", COD_OPTION_INT, FIELD(num_feat), "64", 1, 1024, NULL, "Feature channels."},
    {"num_block", COD_OPTION_INT, FIELD(num_block), "23", 1, 256, NULL, "Residual blocks, each of three dense blocks."},
    {"num_grow_ch", COD_OPTION_INT, FIELD(num_grow_ch), "32", 1, 1024, NULL,
     "Channels that each convolution of a dense block adds to the input of the next ones."},
    {"scale", COD_OPTION_CHOICE, FIELD(scale), "4", 0, 0, scales,
     "Upscaling factor. Factors 2 and 1 first turn squares of 2x2 and 4x4 pixels into channels, so that data.patch "
     "must be a multiple of 2 or 4."},
};
#undef FIELD

static const cod_option_table table = {"model",
                                       "BasicSR's RRDBNet, the generator of ESRGAN and Real-ESRGAN, "
                                       "file-compatible with BasicSR",
                                       options_table, sizeof options_table / sizeof options_table[0],
                                       sizeof(rrdb_options)};

static cod_value conv(cod_graph *graph, const char *name, cod_value x, int64_t channels, double init_gain)
{
    return cod_graph_conv2d(
        graph, name, x, (cod_conv2d_spec){.out_channels = channels, .kernel = 3, .padding = 1, .init_gain = init_gain});
}

static cod_value lrelu(cod_graph *graph, cod_value x)
{
    return cod_graph_activation(graph, x, COD_ACT_LEAKY_RELU, 0.2f);
}

/**
 * Each convolution reads the block's input and what all convolutions before it gave. The concatenations lie within one
 * another, so that the compiler has every part written where the next convolution reads it: only the block's input may
 * have to be copied.
 */
static cod_value dense_block(cod_graph *graph, const rrdb_options *o, const char *prefix, cod_value x)
{
    cod_value seen = x, grown = 0;
    for (int i = 1; i <= CONVOLUTIONS; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s.conv%d", prefix, i);
        const bool last = i == CONVOLUTIONS;
        /* BasicSR's default_init_weights(scale=0.1): Kaiming normal times 0.1, biases zero. */
        grown = conv(graph, name, seen, last ? o->num_feat : o->num_grow_ch, 0.1);
        if (!last) {
            const cod_value parts[] = {seen, lrelu(graph, grown)};
            seen = cod_graph_concat(graph, parts, 2);
        }
    }
    return cod_graph_scaled_add(graph, residual_scale, grown, 1, x);
}

static cod_value residual_block(cod_graph *graph, const rrdb_options *o, int64_t index, cod_value x)
{
    cod_value f = x;
    for (int i = 1; i <= DENSE_BLOCKS; i++) {
        char prefix[48];
        snprintf(prefix, sizeof prefix, "body.%lld.rdb%d", (long long)index, i);
        f = dense_block(graph, o, prefix, f);
    }
    return cod_graph_scaled_add(graph, residual_scale, f, 1, x);
}

static int scale_of(const void *options)
{
    return scale_values[((const rrdb_options *)options)->scale];
}

static int multiple_of(const void *options)
{
    return ENLARGEMENT / scale_of(options);
}

static cod_value build(cod_graph *graph, cod_value input, const void *options)
{
    const rrdb_options *o = options;
    const int squares = multiple_of(options);
    const cod_value taken = squares > 1 ? cod_graph_pixel_unshuffle(graph, input, squares) : input;
    const cod_value features = conv(graph, "conv_first", taken, o->num_feat, 0);
    cod_value x = features;
    for (int64_t i = 0; i < o->num_block; i++)
        x = residual_block(graph, o, i, x);
    x = cod_graph_add(graph, features, conv(graph, "conv_body", x, o->num_feat, 0));
    x = cod_graph_resize(graph, x, 2, COD_RESIZE_NEAREST);
    x = lrelu(graph, conv(graph, "conv_up1", x, o->num_feat, 0));
    x = cod_graph_resize(graph, x, 2, COD_RESIZE_NEAREST);
    x = lrelu(graph, conv(graph, "conv_up2", x, o->num_feat, 0));
    x = lrelu(graph, conv(graph, "conv_hr", x, o->num_feat, 0));
    return conv(graph, "conv_last", x, 3, 0);
}

const cod_model_kind cod_model_rrdb = {.name = "rrdb",
                                       .table = &table,
                                       .build = build,
                                       .scale = scale_of,
                                       .multiple = multiple_of,
                                       .compatible_with = "BasicSR RRDBNet"};
