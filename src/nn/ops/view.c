/* FLATTEN and STOP_GRADIENT: a value seen as vectors, and as a constant. */
#include "nn/ops/ops_internal.h"

cod_value cod_graph_flatten(cod_graph *graph, cod_value x, int64_t h, int64_t w)
{
    cod_node node = graph_new_unary(graph, COD_NODE_FLATTEN, x);
    node.channels *= h * w;
    node.attr = (cod_op_attr){.kernel_h = (int)h, .kernel_w = (int)w};
    return graph_add_node(graph, node, NULL);
}

cod_value cod_graph_stop_gradient(cod_graph *graph, cod_value x)
{
    return graph_add_node(graph, graph_new_unary(graph, COD_NODE_STOP_GRADIENT, x), NULL);
}

static cod_status flatten_shape(const ir_context *context, const cod_node *node, cod_shape x, cod_shape *out)
{
    (void)context;
    const cod_op_attr *attr = &node->attr;
    COD_REQUIRE(x.h == attr->kernel_h && x.w == attr->kernel_w,
                "'%s': the image is %lldx%lld, but the model was built for %dx%d", node->name, (long long)x.h,
                (long long)x.w, attr->kernel_h, attr->kernel_w);
    out->h = out->w = 1;
    return COD_OK;
}

/** No op, unless the value must lie in a place of its own. */
static void forward(lowering *lower, const cod_node *node, lower_group *group)
{
    const int from = lower->tensor[node->inputs[0]];
    const bool slice = lower->program->tensors[from].root != from;
    if (!lower_is_output(lower, group->output) && lower->tensor[group->output] == 0 && !slice) {
        lower->tensor[group->output] = lower_view(lower, from, 0, lower->context->shapes[group->output], true);
        return;
    }
    const int to = lower_output(lower, group->output);
    lower_copy(lower, from, lower_view(lower, to, 0, lower->context->shapes[node->inputs[0]], true));
}

static void flatten_backward(lowering *lower, const cod_node *node, const lower_group *group, int dy)
{
    (void)group;
    node_backward_views(lower, node, dy, true);
}

const node_rules node_flatten = {.shape = flatten_shape,
                                 .forward = forward,
                                 .backward = flatten_backward,
                                 .differentiable = node_all_inputs,
                                 .keeps_precision = true,
                                 .is_view = true};

const node_rules node_stop_gradient = {
    .forward = forward, .taps = node_no_taps, .op = COD_OP_ADD, .keeps_precision = true, .is_view = true};
