/* The table of all kinds of nodes, and what several of them share. */
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

/** Unknown, with a batch of 0, where that of an input is. */
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

int node_all_inputs(const cod_node *node)
{
    return node->input_count;
}

int node_first_input(const cod_node *node)
{
    (void)node;
    return 1;
}

int node_no_taps(const cod_op_attr *attr, cod_shape kernel)
{
    (void)attr, (void)kernel;
    return 0;
}

void node_forward_plain(lowering *lower, const cod_node *node, lower_group *group)
{
    group->pre_x = lower->tensor[node->inputs[0]];
    lower_emit(lower, (ir_instr){.kind = node_rules_of(node->kind)->op,
                                 .attr = node->attr,
                                 .inputs = {group->pre_x, node->input_count > 1 ? lower->tensor[node->inputs[1]] : 0},
                                 .outputs = {lower_output(lower, group->output)},
                                 .name = node->name});
}

cod_status node_window(const cod_node *node, int64_t in, int64_t kernel, int pad, int stride, int64_t *out)
{
    if (stride < 1 || kernel < 1 || in + 2 * pad < kernel)
        return cod_fail(COD_ERR_ARGUMENT,
                        "'%s': a window of %lld (stride %d, padding %d) does not fit an input of %lld", node->name,
                        (long long)kernel, stride, pad, (long long)in);
    *out = (in + 2 * pad - kernel) / stride + 1;
    return COD_OK;
}

cod_status node_shape_like(const ir_context *context, const cod_node *node, cod_shape x, cod_shape *out)
{
    (void)x;
    *out = context->shapes[node->like];
    return COD_OK;
}

cod_status node_shape_of_all(const ir_context *context, const cod_node *node, cod_shape x, cod_shape *out)
{
    (void)out;
    for (int i = 1; i < node->input_count; i++) {
        const cod_shape other = context->shapes[node->inputs[i]];
        if (x.n != other.n || x.h != other.h || x.w != other.w)
            return cod_fail(COD_ERR_ARGUMENT,
                            "'%s': inputs of %lldx%lldx%lld and %lldx%lldx%lld (batch, height, width) do not fit",
                            node->name, (long long)x.n, (long long)x.h, (long long)x.w, (long long)other.n,
                            (long long)other.h, (long long)other.w);
    }
    return COD_OK;
}

void node_backward_plain(lowering *lower, const cod_node *node, cod_op_kind kind, int dy, int with)
{
    bool adds;
    const int dx = lower_contribution(lower, node->inputs[0], &adds);
    lower_emit(lower, (ir_instr){.kind = kind,
                                 .attr = node->attr,
                                 .accumulate = adds,
                                 .inputs = {dy, with},
                                 .outputs = {dx},
                                 .name = node->name});
}

void node_backward_written(lowering *lower, const cod_node *node, cod_op_kind kind, int dy, int with)
{
    const cod_value x = node->inputs[0];
    if (!lower->needs_grad[x])
        return;
    const int dx = lower_new_tensor(lower, lower->context->shapes[x], lower->context->options->activation);
    lower_emit(lower,
               (ir_instr){.kind = kind, .attr = node->attr, .inputs = {dy, with}, .outputs = {dx}, .name = node->name});
    lower_contribute(lower, x, dx, 1);
}

/** A view of the gradient tensor `of`; a copy where `of` is a slice and cannot be seen in another shape. */
static int gradient_view(lowering *lower, int of, int64_t channel, cod_shape shape, bool reshaped)
{
    if (reshaped && lower->program->tensors[of].root != of) {
        const int dense = lower_new_tensor(lower, lower->program->tensors[of].shape, lower->program->tensors[of].dtype);
        lower_copy(lower, of, dense);
        of = dense;
    }
    return lower_view(lower, of, channel, shape, reshaped);
}

void node_backward_views(lowering *lower, const cod_node *node, int dy, bool reshaped)
{
    int64_t channel = 0;
    for (int k = 0; k < node->input_count; k++) {
        const cod_value part = node->inputs[k];
        const cod_shape shape = lower->context->shapes[part];
        if (lower->needs_grad[part])
            lower_contribute(lower, part, gradient_view(lower, dy, channel, shape, reshaped), 1);
        channel += shape.c;
    }
}
