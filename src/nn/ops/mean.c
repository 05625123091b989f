/* MEAN: each channel's mean over the batch and all pixels. */
#include "nn/ops/ops_internal.h"

cod_value cod_graph_mean(cod_graph *graph, cod_value x)
{
    return graph_add_node(graph, graph_new_unary(graph, COD_NODE_MEAN, x), NULL);
}

/** A symmetric map: the gradient is the mean of dy. */
static void backward(lowering *lower, const cod_node *node, const lower_group *group, int dy)
{
    (void)group;
    node_backward_plain(lower, node, COD_OP_MEAN, dy, 0);
}

const node_rules node_mean = {.forward = node_forward_plain,
                              .backward = backward,
                              .differentiable = node_all_inputs,
                              .op = COD_OP_MEAN,
                              .keeps_precision = true};
