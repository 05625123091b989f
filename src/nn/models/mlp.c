/* Multi-layer perceptron for classification. */
#include "nn/models/models_internal.h"

#include <stdio.h>

typedef struct mlp_options {
    int64_t inputs, classes;
    cod_int_list hidden;
    int activation;
} mlp_options;

static const char *const activations[] = {"relu", "sigmoid", "tanh", NULL};

#define FIELD(name) offsetof(mlp_options, name)
static const cod_option options_table[] = {
    {"inputs", COD_OPTION_INT, FIELD(inputs), "784", 1, 1e7, NULL, "input features"},
    {"hidden", COD_OPTION_INT_LIST, FIELD(hidden), "256, 256", 1, 65536, NULL, "widths of the hidden layers"},
    {"classes", COD_OPTION_INT, FIELD(classes), "10", 1, 1e6, NULL, "outputs"},
    {"activation", COD_OPTION_CHOICE, FIELD(activation), "relu", 0, 0, activations, "activation of the hidden layers"},
};
#undef FIELD

static const cod_option_table table = {"model", "Multi-layer perceptron", options_table,
                                       sizeof options_table / sizeof options_table[0], sizeof(mlp_options)};

static cod_value build(cod_graph *graph, cod_value input, const void *options)
{
    static const cod_activation kinds[] = {COD_ACT_RELU, COD_ACT_SIGMOID, COD_ACT_TANH};
    const mlp_options *o = options;
    char name[64];
    cod_value x = input;
    for (size_t i = 0; i < o->hidden.count; i++) {
        snprintf(name, sizeof name, "layers.%zu", 2 * i);
        x = cod_graph_linear(graph, name, x, o->hidden.items[i], false);
        x = cod_graph_activation(graph, x, kinds[o->activation], 0);
    }
    snprintf(name, sizeof name, "layers.%zu", 2 * o->hidden.count);
    return cod_graph_linear(graph, name, x, o->classes, false);
}

static int64_t input_channels(const void *options)
{
    return ((const mlp_options *)options)->inputs;
}

const cod_model_kind cod_model_mlp = {.name = "mlp", .table = &table, .input_channels = input_channels, .build = build};
