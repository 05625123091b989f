/*
 * SRVGGNetCompact of Real-ESRGAN (Wang et al. 2021), known as "Compact": plain convolutions at low resolution, one
 * pixel shuffle, nearest skip; with its tensor names, so that the files go both ways (spandrel and what builds on it
 * open ours).
 */
#include "nn/models/models_internal.h"

#include <stdio.h>

typedef struct compact_options {
    int64_t num_feat, num_conv, scale;
} compact_options;

#define FIELD(name) offsetof(compact_options, name)
static const cod_option options_table[] = {
    {"num_feat", COD_OPTION_INT, FIELD(num_feat), "64", 1, 1024, NULL, "Feature channels."},
    {"num_conv", COD_OPTION_INT, FIELD(num_conv), "16", 0, 256, NULL, "Convolutions between the first and the last."},
    {"scale", COD_OPTION_INT, FIELD(scale), "4", 1, 4, NULL,
     "Upscaling factor: 1 (to restore, not enlarge), 2, 3 or 4."},
};
#undef FIELD

static const cod_option_table table = {"model", "Real-ESRGAN's SRVGGNetCompact: fast, file-compatible with it",
                                       options_table, sizeof options_table / sizeof options_table[0],
                                       sizeof(compact_options)};

static cod_value build(cod_graph *graph, cod_value input, const void *options)
{
    const compact_options *o = options;
    char name[64];
    int64_t layer = 0;
#define LAYER() (snprintf(name, sizeof name, "body.%lld", (long long)layer++), name)
    cod_value x = input;
    cod_conv2d_spec conv = {.out_channels = o->num_feat, .kernel = 3, .padding = 1};
    for (int64_t i = 0; i <= o->num_conv; i++) {
        x = cod_graph_conv2d(graph, LAYER(), x, conv);
        x = cod_graph_prelu(graph, LAYER(), x, true);
    }
    conv.out_channels = 3 * o->scale * o->scale;
    x = cod_graph_conv2d(graph, LAYER(), x, conv);
#undef LAYER
    if (o->scale == 1)
        return cod_graph_add(graph, x, input);
    x = cod_graph_pixel_shuffle(graph, x, (int)o->scale);
    return cod_graph_add(graph, x, cod_graph_resize(graph, input, (int)o->scale, COD_RESIZE_NEAREST));
}

static int scale_of(const void *options)
{
    return (int)((const compact_options *)options)->scale;
}

const cod_model_kind cod_model_compact = {.name = "compact",
                                          .table = &table,
                                          .build = build,
                                          .scale = scale_of,
                                          .compatible_with = "Real-ESRGAN SRVGGNetCompact"};
