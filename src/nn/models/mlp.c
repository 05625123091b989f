/* Multi-layer perceptron, with the tensor names of an nn.Sequential called `layers`. */
#include "nn/models/models_internal.h"

#include <stdio.h>

typedef struct mlp_options {
    cod_classifier_sizes sizes;
    cod_int_list hidden;
    int activation, output;
} mlp_options;

enum { RELU, SIGMOID, TANH, PRELU };
static const char *const activations[] = {"relu", "sigmoid", "tanh", "prelu", NULL};
static const char *const outputs[] = {"none", "sigmoid", NULL};

#define FIELD(name) offsetof(mlp_options, name)
static const cod_option options_table[] = {
    CLASSIFIER_SIZES,
    {"hidden", COD_OPTION_INT_LIST, FIELD(hidden), "256, 256", 1, 65536, NULL, "Widths of the hidden layers."},
    {"activation", COD_OPTION_CHOICE, FIELD(activation), "relu", 0, 0, activations, "Activation of the hidden layers."},
    {"output", COD_OPTION_CHOICE, FIELD(output), "none", 0, 0, outputs,
     "Activation of the output. none: logits. sigmoid: for the loss mse on one-hot targets."},
};
#undef FIELD

static const cod_option_table table = {"model", "Multi-layer perceptron, a classifier", options_table,
                                       sizeof options_table / sizeof options_table[0], sizeof(mlp_options)};

static cod_value activate(cod_graph *graph, const char *name, cod_value x, int activation)
{
    static const cod_activation kinds[] = {COD_ACT_RELU, COD_ACT_SIGMOID, COD_ACT_TANH};
    return activation == PRELU ? cod_graph_prelu(graph, name, x, false)
                               : cod_graph_activation(graph, x, kinds[activation], 0);
}

static cod_value build(cod_graph *graph, cod_value input, const void *options)
{
    const mlp_options *o = options;
    char name[64];
    size_t layer = 0;
#define LAYER() (snprintf(name, sizeof name, "layers.%zu", layer++), name)
    cod_value x = classifier_vectors(graph, input, o->sizes.height, o->sizes.width);
    for (size_t i = 0; i < o->hidden.count; i++) {
        x = cod_graph_linear(graph, LAYER(), x, o->hidden.items[i], false);
        x = activate(graph, LAYER(), x, o->activation);
    }
    x = cod_graph_linear(graph, LAYER(), x, o->sizes.classes, false);
#undef LAYER
    return o->output == 0 ? x : cod_graph_activation(graph, x, COD_ACT_SIGMOID, 0);
}

const cod_model_kind cod_model_mlp = {.name = "mlp", .task = COD_TASK_CLASSIFICATION, .table = &table, .build = build};
