/* POOL: the largest or the mean of the pixels in a window, or of all pixels. */
#include "nn/ops/ops_internal.h"

/** @param attr  all but kernel and stride, which are square */
static cod_value add(cod_graph *graph, cod_value x, cod_op_attr attr, int kernel, int stride)
{
    cod_node node = graph_new_unary(graph, COD_NODE_POOL, x);
    node.attr = attr;
    node.attr.kernel_h = node.attr.kernel_w = kernel;
    node.attr.stride_h = node.attr.stride_w = stride;
    return graph_add_node(graph, node, NULL);
}

cod_value cod_graph_pool(cod_graph *graph, cod_value x, cod_pool_kind kind, int kernel, int stride, int padding)
{
    return add(graph, x, (cod_op_attr){.pool = kind, .pad_h = padding, .pad_w = padding}, kernel, stride);
}

cod_value cod_graph_max_pool_ceil(cod_graph *graph, cod_value x, int kernel, int stride)
{
    return add(graph, x, (cod_op_attr){.pool = COD_POOL_MAX, .pool_ceil = true}, kernel, stride);
}

cod_value cod_graph_global_pool(cod_graph *graph, cod_value x)
{
    return add(graph, x, (cod_op_attr){.pool = COD_POOL_GLOBAL_AVERAGE}, 0, 0);
}

static cod_status shape(const ir_context *context, const cod_node *node, cod_shape x, cod_shape *out)
{
    (void)context;
    const cod_op_attr *attr = &node->attr;
    if (attr->pool == COD_POOL_GLOBAL_AVERAGE) {
        out->h = out->w = 1;
        return COD_OK;
    }
    COD_TRY(node_window(node, x.h, attr->kernel_h, attr->pad_h, attr->stride_h, &out->h));
    COD_TRY(node_window(node, x.w, attr->kernel_w, attr->pad_w, attr->stride_w, &out->w));
    out->h = cod_pool_outputs(x.h, attr->kernel_h, attr->stride_h, attr->pad_h, attr->pool_ceil);
    out->w = cod_pool_outputs(x.w, attr->kernel_w, attr->stride_w, attr->pad_w, attr->pool_ceil);
    return COD_OK;
}

/** Max pooling also leaves where each largest element stood, for the backward pass. */
static void forward(lowering *lower, const cod_node *node, lower_group *group)
{
    ir_instr instr = {.kind = COD_OP_POOL,
                      .attr = node->attr,
                      .inputs = {lower->tensor[node->inputs[0]]},
                      .outputs = {lower_output(lower, group->output)},
                      .name = node->name};
    if (node->attr.pool == COD_POOL_MAX)
        instr.outputs[1] = group->index = lower_saved_tensor(lower, lower->context->shapes[node->output], COD_I32, 1);
    lower_emit(lower, instr);
}

static void backward(lowering *lower, const cod_node *node, const lower_group *group, int dy)
{
    node_backward_plain(lower, node, COD_OP_POOL_BACKWARD, dy, group->index);
}

const node_rules node_pool = {
    .shape = shape, .forward = forward, .backward = backward, .differentiable = node_all_inputs, .op = COD_OP_POOL};
