/*
 * A small convolutional network: stages of 3x3 convolutions, each stage but the first at half the size, and a linear
 * head; tensor names are those of an nn.Sequential `features` and a head `classifier`.
 */
#include "nn/models/models_internal.h"

#include <stdio.h>

typedef struct cnn_options {
    cod_classifier_sizes sizes;
    cod_int_list stages;
    int64_t convolutions, hidden;
    int norm, halve;
} cnn_options;

enum { NORM_BATCH, NORM_NONE };
enum { HALVE_MAX, HALVE_STRIDE };
static const char *const norms[] = {"batch", "none", NULL};
static const char *const halvings[] = {"max", "stride", NULL};

#define FIELD(name) offsetof(cnn_options, name)
static const cod_option options_table[] = {
    CLASSIFIER_SIZES,
    {"stages", COD_OPTION_INT_LIST, FIELD(stages), "16, 32, 64", 1, 4096, NULL,
     "Channels of each stage. Every stage but the first starts by halving height and width."},
    {"convolutions", COD_OPTION_INT, FIELD(convolutions), "2", 1, 16, NULL, "3x3 convolutions in each stage."},
    {"norm", COD_OPTION_CHOICE, FIELD(norm), "batch", 0, 0, norms, "Normalisation after each convolution."},
    {"halve", COD_OPTION_CHOICE, FIELD(halve), "max", 0, 0, halvings,
     "What halves height and width. max: max pooling. stride: the first convolution of the stage, with stride 2."},
    {"hidden", COD_OPTION_INT, FIELD(hidden), "0", 0, 65536, NULL,
     "Width of a hidden layer on the flattened last stage. 0 = none: the output is one linear layer on the average of "
     "the last stage."},
};
#undef FIELD

static const cod_option_table table = {"model", "Small convolutional network, a classifier", options_table,
                                       sizeof options_table / sizeof options_table[0], sizeof(cnn_options)};

/** Where building stands. */
typedef struct cnn {
    cod_graph *graph;
    const cnn_options *options;
    cod_value x;
    int64_t height, width;
    int layer; /**< of `features` */
} cnn;

static void layer_name(cnn *net, char name[64])
{
    snprintf(name, 64, "features.%d", net->layer++);
}

static void add_convolution(cnn *net, int64_t channels, int stride)
{
    char name[64];
    const bool norm = net->options->norm == NORM_BATCH;
    layer_name(net, name);
    net->x = cod_graph_conv2d(
        net->graph, name, net->x,
        (cod_conv2d_spec){.out_channels = channels, .kernel = 3, .stride = stride, .padding = 1, .no_bias = norm});
    if (norm) {
        layer_name(net, name);
        net->x = cod_graph_norm(net->graph, name, net->x);
    }
    net->x = cod_graph_activation(net->graph, net->x, COD_ACT_RELU, 0);
    net->layer++;
    net->height = (net->height - 1) / stride + 1;
    net->width = (net->width - 1) / stride + 1;
}

static void add_max_pool(cnn *net)
{
    if (net->height < 2 || net->width < 2)
        cod_graph_fail(net->graph, cod_fail(COD_ERR_ARGUMENT, "%zu stages are too many for inputs of %lldx%lld",
                                            net->options->stages.count, (long long)net->options->sizes.height,
                                            (long long)net->options->sizes.width));
    net->x = cod_graph_pool(net->graph, net->x, COD_POOL_MAX, 2, 2, 0);
    net->layer++;
    net->height /= 2;
    net->width /= 2;
}

static cod_value add_head(cnn *net)
{
    const int64_t classes = net->options->sizes.classes, hidden = net->options->hidden;
    if (hidden == 0)
        return cod_graph_linear(net->graph, "classifier", cod_graph_global_pool(net->graph, net->x), classes, false);
    cod_value x = classifier_vectors(net->graph, net->x, net->height, net->width);
    x = cod_graph_linear(net->graph, "classifier.0", x, hidden, false);
    x = cod_graph_activation(net->graph, x, COD_ACT_RELU, 0);
    return cod_graph_linear(net->graph, "classifier.2", x, classes, false);
}

static cod_value build(cod_graph *graph, cod_value input, const void *options)
{
    const cnn_options *o = options;
    cnn net = {.graph = graph, .options = o, .x = input, .height = o->sizes.height, .width = o->sizes.width};
    for (size_t s = 0; s < o->stages.count; s++) {
        if (s > 0 && o->halve == HALVE_MAX)
            add_max_pool(&net);
        for (int64_t i = 0; i < o->convolutions; i++)
            add_convolution(&net, o->stages.items[s], s > 0 && i == 0 && o->halve == HALVE_STRIDE ? 2 : 1);
    }
    return add_head(&net);
}

const cod_model_kind cod_model_cnn = {.name = "cnn", .task = COD_TASK_CLASSIFICATION, .table = &table, .build = build};
