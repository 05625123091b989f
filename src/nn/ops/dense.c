/* CONV2D and LINEAR: layers of a weight and a bias; CONV2D_BACKWARD: the gradient by a convolution's input. */
#include "nn/ops/ops_internal.h"

#include <math.h>

cod_value cod_graph_conv2d(cod_graph *graph, const char *name, cod_value x, cod_conv2d_spec spec)
{
    const int64_t in = graph_channels(graph, x), fan_in = in * spec.kernel * spec.kernel;
    if (spec.kernel < 1 || spec.padding < 0 || spec.out_channels < 1) {
        GRAPH_FAIL(graph, "convolution '%s': kernel %d, padding %d, %lld channels", name, spec.kernel, spec.padding,
                   (long long)spec.out_channels);
        return 0;
    }
    /* PyTorch's default, kaiming_uniform_(a=√5), is uniform within ±1/√fan_in for weight and bias. */
    cod_init weight = {COD_INIT_UNIFORM, 1 / sqrt((double)fan_in)}, bias = weight;
    if (spec.zero_init)
        weight = bias = (cod_init){COD_INIT_CONSTANT, 0};
    else if (spec.init_gain > 0)
        weight = (cod_init){COD_INIT_NORMAL, spec.init_gain * sqrt(2.0 / (double)fan_in)},
        bias = (cod_init){COD_INIT_CONSTANT, 0};
    cod_node node = graph_new_unary(graph, COD_NODE_CONV2D, x);
    node.channels = spec.out_channels;
    const int stride = spec.stride ? spec.stride : 1;
    node.attr = (cod_op_attr){.stride_h = stride, .stride_w = stride, .pad_h = spec.padding, .pad_w = spec.padding};
    const cod_shape shape = {spec.out_channels, spec.kernel, spec.kernel, in};
    node.params[0] = graph_use_param(
        graph, (graph_param_spec){name, spec.spectral_norm ? "weight_orig" : "weight", shape, 4, false, weight});
    if (!spec.no_bias)
        node.params[1] =
            graph_use_param(graph, (graph_param_spec){name, "bias", {1, 1, 1, spec.out_channels}, 1, false, bias});
    if (spec.spectral_norm)
        spectrum_use(graph, name, shape, &node);
    graph_start_param(graph, node.params[0], spec.weights);
    graph_start_param(graph, node.params[1], spec.biases);
    return graph_add_node(graph, node, name);
}

cod_value cod_graph_linear(cod_graph *graph, const char *name, cod_value x, int64_t out_features, bool no_bias)
{
    const int64_t in = graph_channels(graph, x);
    const cod_init init = {COD_INIT_UNIFORM, 1 / sqrt((double)in)};
    cod_node node = graph_new_unary(graph, COD_NODE_LINEAR, x);
    node.channels = out_features;
    node.params[0] =
        graph_use_param(graph, (graph_param_spec){name, "weight", {out_features, 1, 1, in}, 2, false, init});
    if (!no_bias)
        node.params[1] =
            graph_use_param(graph, (graph_param_spec){name, "bias", {1, 1, 1, out_features}, 1, false, init});
    const cod_node *before = cod_graph_producer(graph, x);
    if (before != NULL && before->kind == COD_NODE_FLATTEN)
        graph_note_flattened(
            graph, node.params[0],
            (cod_shape){1, before->attr.kernel_h, before->attr.kernel_w, graph_channels(graph, before->inputs[0])});
    return graph_add_node(graph, node, name);
}

static cod_status conv_shape(const ir_context *context, const cod_node *node, cod_shape x, cod_shape *out)
{
    const cod_op_attr *attr = &node->attr;
    const cod_shape kernel = cod_graph_param(context->graph, (size_t)node->params[0])->shape;
    COD_TRY(node_window(node, x.h, kernel.h, attr->pad_h, attr->stride_h, &out->h));
    return node_window(node, x.w, kernel.w, attr->pad_w, attr->stride_w, &out->w);
}

static cod_status linear_shape(const ir_context *context, const cod_node *node, cod_shape x, cod_shape *out)
{
    (void)context, (void)out;
    COD_REQUIRE(x.h == 1 && x.w == 1, "'%s': a linear layer takes vectors, not %lldx%lld images; flatten them first",
                node->name, (long long)x.h, (long long)x.w);
    return COD_OK;
}

/** Of a convolution whose output is as large as its input. */
static int conv_taps(const cod_op_attr *attr, cod_shape kernel)
{
    if (attr->stride_h != 1 || attr->stride_w != 1 || 2 * attr->pad_h + 1 != kernel.h ||
        2 * attr->pad_w + 1 != kernel.w)
        return -1;
    return attr->pad_h > attr->pad_w ? attr->pad_h : attr->pad_w;
}

int node_layer_weight(lowering *lower, const cod_node *node)
{
    return node->params[2] >= 0 ? spectrum_weight(lower, node) : lower_param(lower, node->params[0]);
}

/** Weights and bias with a normalisation folded in, computed when the parameters change. */
static void fold_norm(lowering *lower, const cod_node *conv, const cod_node *norm, int *weight, int *bias)
{
    const cod_sets sets =
        cod_set_of(lower_param_set(lower, conv->params[0])) | cod_set_of(lower_param_set(lower, norm->params[0]));
    *weight = lower_prepared_tensor(lower, lower_param_shape(lower, conv->params[0]), sets);
    *bias = lower_prepared_tensor(lower, (cod_shape){1, 1, 1, conv->channels}, sets);
    lower_emit(lower, (ir_instr){.kind = COD_OP_FOLD_NORM,
                                 .attr = norm->attr,
                                 .prepare = true,
                                 .inputs = {lower_param(lower, conv->params[0]), lower_param(lower, conv->params[1]),
                                            lower_param(lower, norm->params[0]), lower_param(lower, norm->params[1]),
                                            lower_param(lower, norm->params[2]), lower_param(lower, norm->params[3])},
                                 .outputs = {*weight, *bias},
                                 .name = norm->name});
}

static void forward(lowering *lower, const cod_node *node, lower_group *group)
{
    int weight = node_layer_weight(lower, node);
    int bias = lower_param(lower, node->params[1]);
    if (group->norm >= 0)
        fold_norm(lower, node, lower_node(lower, (size_t)group->norm), &weight, &bias);
    group->pre_x = lower_narrow(lower, node->inputs[0]);
    group->weight = weight;
    ir_instr instr = {.kind = group->rules->op,
                      .attr = node->attr,
                      .inputs = {group->pre_x, weight, bias, 0, lower_residual(lower, group)},
                      .outputs = {lower_output(lower, group->output)},
                      .name = node->name};
    if (instr.kind == COD_OP_CONV2D && !lower->training)
        lower_use_range(lower, (size_t)(group - lower->groups), &instr);
    if (group->shuffle >= 0)
        instr.attr.factor = lower_node(lower, (size_t)group->shuffle)->attr.factor;
    lower_use_activation(lower, group, &instr, 3);
    lower_emit(lower, instr);
}

void node_backward_layer(lowering *lower, const cod_node *node, ir_instr weights)
{
    bool adds[COD_OP_MAX_OUTPUTS] = {false};
    const bool normalised = node->params[2] >= 0;
    const int dw = lower_param_contribution(lower, node->params[0], &adds[0]);
    weights.outputs[1] = lower_param_contribution(lower, node->params[1], &adds[1]);
    if (dw == 0)
        return;
    weights.outputs[0] =
        normalised ? lower_new_tensor(lower, lower_param_shape(lower, node->params[0]), lower->context->param_dtype)
                   : dw;
    lower_emit_gradients(lower, weights, (const bool[COD_OP_MAX_OUTPUTS]){!normalised && adds[0], adds[1]});
    if (normalised)
        spectrum_backward(lower, node, weights.outputs[0], dw, adds[0]);
}

static void backward(lowering *lower, const cod_node *node, const lower_group *group, int dy)
{
    const bool conv = node->kind == COD_NODE_CONV2D;
    cod_op_attr attr = node->attr;
    if (group->shuffle >= 0)
        attr.factor = lower_node(lower, (size_t)group->shuffle)->attr.factor;
    if (group->activation >= 0) {
        const int pre =
            lower_new_tensor(lower, lower->context->shapes[group->output], lower->context->options->activation);
        lower_emit(lower, (ir_instr){.kind = COD_OP_ACTIVATION_BACKWARD,
                                     .attr = lower_node(lower, (size_t)group->activation)->attr,
                                     .inputs = {lower->tensor[group->output], dy},
                                     .outputs = {pre},
                                     .name = node->name});
        dy = pre;
    }
    node_backward_layer(lower, node,
                        (ir_instr){.kind = conv ? COD_OP_CONV2D_BACKWARD_WEIGHTS : COD_OP_LINEAR_BACKWARD_WEIGHTS,
                                   .attr = attr,
                                   .inputs = {group->pre_x, dy},
                                   .name = node->name});
    if (!lower->needs_grad[node->inputs[0]])
        return;
    bool data_adds;
    const int dx = lower_contribution(lower, node->inputs[0], &data_adds);
    lower_emit(lower, (ir_instr){.kind = conv ? COD_OP_CONV2D_BACKWARD_DATA : COD_OP_LINEAR_BACKWARD_DATA,
                                 .attr = attr,
                                 .accumulate = data_adds,
                                 .inputs = {dy, group->weight},
                                 .outputs = {dx},
                                 .name = node->name});
}

static cod_value conv_gradient(cod_graph *graph, const cod_node *node, cod_value dy)
{
    return graph_add_node(graph, graph_new_gradient(graph, COD_NODE_CONV2D_BACKWARD, node, dy), node->name);
}

static void gradient_forward(lowering *lower, const cod_node *node, lower_group *group)
{
    group->pre_x = lower_narrow(lower, node->inputs[0]);
    group->weight = node_layer_weight(lower, node);
    lower_emit(lower, (ir_instr){.kind = COD_OP_CONV2D_BACKWARD_DATA,
                                 .attr = node->attr,
                                 .inputs = {group->pre_x, group->weight},
                                 .outputs = {lower_output(lower, group->output)},
                                 .name = node->name});
}

/**
 * Of dx = wᵀ dy, whose gradient is `g`: by w it is that of a convolution whose input is g, and by dy the convolution of
 * g.
 */
static void gradient_backward(lowering *lower, const cod_node *node, const lower_group *group, int g)
{
    node_backward_layer(lower, node,
                        (ir_instr){.kind = COD_OP_CONV2D_BACKWARD_WEIGHTS,
                                   .attr = node->attr,
                                   .inputs = {g, group->pre_x},
                                   .name = node->name});
    node_backward_written(lower, node, COD_OP_CONV2D, g, group->weight);
}

const node_rules node_conv2d = {.shape = conv_shape,
                                .forward = forward,
                                .backward = backward,
                                .differentiable = node_all_inputs,
                                .gradient = conv_gradient,
                                .taps = conv_taps,
                                .op = COD_OP_CONV2D};

const node_rules node_linear = {.shape = linear_shape,
                                .forward = forward,
                                .backward = backward,
                                .differentiable = node_all_inputs,
                                .op = COD_OP_LINEAR};

const node_rules node_conv2d_backward = {.shape = node_shape_like,
                                         .forward = gradient_forward,
                                         .backward = gradient_backward,
                                         .differentiable = node_all_inputs,
                                         .op = COD_OP_CONV2D_BACKWARD_DATA};
