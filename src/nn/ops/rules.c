/* The table of all kinds of nodes. */
#include "nn/ops/ops_internal.h"

const node_rules *node_rules_of(cod_node_kind kind)
{
    switch (kind) { /* without a default, so that the compiler names a kind that is missing */
    case COD_NODE_INPUT:
        return &node_input;
    case COD_NODE_CONV2D:
        return &node_conv2d;
    case COD_NODE_LINEAR:
        return &node_linear;
    case COD_NODE_NORM:
        return &node_norm;
    case COD_NODE_ACTIVATION:
        return &node_activation;
    case COD_NODE_ADD:
        return &node_add;
    case COD_NODE_AFFINE:
        return &node_affine;
    case COD_NODE_CONCAT:
        return &node_concat;
    case COD_NODE_SLICE:
        return &node_slice;
    case COD_NODE_PIXEL_SHUFFLE:
        return &node_pixel_shuffle;
    case COD_NODE_PIXEL_UNSHUFFLE:
        return &node_pixel_unshuffle;
    case COD_NODE_RESIZE:
        return &node_resize;
    case COD_NODE_POOL:
        return &node_pool;
    case COD_NODE_FLATTEN:
        return &node_flatten;
    case COD_NODE_STOP_GRADIENT:
        return &node_stop_gradient;
    case COD_NODE_MEAN:
        return &node_mean;
    case COD_NODE_CONV2D_BACKWARD:
        return &node_conv2d_backward;
    case COD_NODE_ACTIVATION_BACKWARD:
        return &node_activation_backward;
    case COD_NODE_RESIZE_BACKWARD:
        return &node_resize_backward;
    case COD_NODE_LOSS:
        return &node_loss;
    }
    return NULL;
}

const node_rules *node_rules_of_op(cod_op_kind op)
{
    for (int kind = 0; kind < COD_NODE_KINDS; kind++) {
        const node_rules *rules = node_rules_of((cod_node_kind)kind);
        if (rules->op == op && rules->taps != NULL)
            return rules;
    }
    return NULL;
}

cod_node_reach cod_graph_reach(const cod_graph *graph, const cod_node *node)
{
    const node_rules *rules = node_rules_of(node->kind);
    const cod_param *weight = node->params[0] >= 0 ? cod_graph_param(graph, (size_t)node->params[0]) : NULL;
    const int taps =
        rules->taps != NULL ? rules->taps(&node->attr, weight != NULL ? weight->shape : (cod_shape){0}) : -1;
    const double factor = node->attr.factor;
    return (cod_node_reach){.whole = taps < 0,
                            .taps = taps,
                            .scale = rules->scale == NODE_ENLARGES  ? factor
                                     : rules->scale == NODE_REDUCES ? 1 / factor
                                                                    : 1};
}

/** The shape of a node's output. A batch of 0 means unknown, which the output is where an input is. */
static cod_status node_shape(const ir_context *context, const cod_node *node, cod_shape *out)
{
    const node_rules *rules = node_rules_of(node->kind);
    const cod_shape x = node->input_count > 0 ? context->shapes[node->inputs[0]] : (cod_shape){0};
    *out = x;
    for (int i = 0; i < node->input_count; i++)
        if (context->shapes[node->inputs[i]].n == 0) {
            out->n = 0;
            return COD_OK;
        }
    if (rules->scale == NODE_ENLARGES) {
        out->h *= node->attr.factor;
        out->w *= node->attr.factor;
    }
    return rules->shape != NULL ? rules->shape(context, node, x, out) : COD_OK;
}

cod_status ir_infer_shapes(ir_context *context)
{
    for (size_t i = 0; i < cod_graph_node_count(context->graph); i++) {
        const cod_node *node = cod_graph_node(context->graph, i);
        cod_shape *shape = &context->shapes[node->output];
        COD_TRY(node_shape(context, node, shape));
        shape->c = node->channels;
    }
    return COD_OK;
}
