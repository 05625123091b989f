/* RESIZE: pictures enlarged by interpolation; RESIZE_BACKWARD: the gradient by its input. */
#include "nn/ops/ops_internal.h"

cod_value cod_graph_resize(cod_graph *graph, cod_value x, int factor, cod_resize_mode mode)
{
    cod_node node = graph_new_unary(graph, COD_NODE_RESIZE, x);
    node.attr = (cod_op_attr){.factor = factor, .resize = mode};
    return graph_add_node(graph, node, NULL);
}

static int taps(const cod_op_attr *attr, cod_shape kernel)
{
    static const int of[] = {[COD_RESIZE_NEAREST] = 0, [COD_RESIZE_BILINEAR] = 1, [COD_RESIZE_BICUBIC] = 2};
    (void)kernel;
    return of[attr->resize];
}

static void backward(lowering *lower, const cod_node *node, const lower_group *group, int dy)
{
    (void)group;
    node_backward_plain(lower, node, COD_OP_RESIZE_BACKWARD, dy, 0);
}

static cod_value gradient(cod_graph *graph, const cod_node *node, cod_value dy)
{
    return graph_add_node(graph, graph_new_gradient(graph, COD_NODE_RESIZE_BACKWARD, node, dy), node->name);
}

static void gradient_backward(lowering *lower, const cod_node *node, const lower_group *group, int g)
{
    (void)group;
    node_backward_written(lower, node, COD_OP_RESIZE, g, 0);
}

const node_rules node_resize = {.forward = node_forward_plain,
                                .backward = backward,
                                .differentiable = node_all_inputs,
                                .gradient = gradient,
                                .taps = taps,
                                .scale = NODE_ENLARGES,
                                .op = COD_OP_RESIZE};

const node_rules node_resize_backward = {.shape = node_shape_like,
                                         .forward = node_forward_plain,
                                         .backward = gradient_backward,
                                         .differentiable = node_all_inputs,
                                         .op = COD_OP_RESIZE_BACKWARD};
