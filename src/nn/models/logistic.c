/* Multinomial logistic regression: one linear layer. */
#include "nn/models/models_internal.h"

static const cod_option options_table[] = {CLASSIFIER_SIZES};

static const cod_option_table table = {"model", "Logistic regression: one linear layer, a classifier", options_table,
                                       sizeof options_table / sizeof options_table[0], sizeof(cod_classifier_sizes)};

static cod_value build(cod_graph *graph, cod_value input, const void *options)
{
    const cod_classifier_sizes *sizes = options;
    const cod_value x = classifier_vectors(graph, input, sizes->height, sizes->width);
    return cod_graph_linear(graph, "linear", x, sizes->classes, false);
}

const cod_model_kind cod_model_logistic = {
    .name = "logistic", .task = COD_TASK_CLASSIFICATION, .table = &table, .build = build};
