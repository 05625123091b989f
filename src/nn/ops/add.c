/* ADD: the weighted sum of two values. */
#include "nn/ops/ops_internal.h"

cod_value cod_graph_add(cod_graph *graph, cod_value a, cod_value b)
{
    return cod_graph_scaled_add(graph, 1, a, 1, b);
}

cod_value cod_graph_scaled_add(cod_graph *graph, float alpha, cod_value a, float beta, cod_value b)
{
    if (!graph_has_failed(graph) && graph_channels(graph, a) != graph_channels(graph, b)) {
        GRAPH_FAIL(graph, "cannot add %lld and %lld channels", (long long)graph_channels(graph, a),
                   (long long)graph_channels(graph, b));
        return 0;
    }
    cod_node node = graph_new_unary(graph, COD_NODE_ADD, a);
    node.input_count = 2;
    node.inputs[1] = b;
    node.attr = (cod_op_attr){.alpha = alpha, .beta = beta};
    return graph_add_node(graph, node, NULL);
}

static void backward(lowering *lower, const cod_node *node, const lower_group *group, int dy)
{
    (void)group;
    lower_contribute(lower, node->inputs[0], dy, node->attr.alpha);
    lower_contribute(lower, node->inputs[1], dy, node->attr.beta);
}

const node_rules node_add = {.shape = node_shape_of_all,
                             .forward = node_forward_plain,
                             .backward = backward,
                             .differentiable = node_all_inputs,
                             .taps = node_no_taps,
                             .op = COD_OP_ADD,
                             .keeps_precision = true};
