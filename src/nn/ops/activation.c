/*
 * ACTIVATION: ReLU, leaky ReLU, PReLU, sigmoid, tanh; ACTIVATION_BACKWARD: the gradient by the input of those that are
 * piecewise linear.
 */
#include "nn/ops/ops_internal.h"

cod_value cod_graph_activation(cod_graph *graph, cod_value x, cod_activation activation, float leak)
{
    if (activation == COD_ACT_PRELU || activation == COD_ACT_NONE) {
        GRAPH_FAIL(graph, "cod_graph_activation() makes ReLU, leaky ReLU, sigmoid and tanh");
        return 0;
    }
    cod_node node = graph_new_unary(graph, COD_NODE_ACTIVATION, x);
    node.attr = (cod_op_attr){.activation = activation, .leak = leak};
    return graph_add_node(graph, node, NULL);
}

cod_value cod_graph_prelu(cod_graph *graph, const char *name, cod_value x, bool per_channel)
{
    cod_node node = graph_new_unary(graph, COD_NODE_ACTIVATION, x);
    node.attr.activation = COD_ACT_PRELU;
    node.params[0] = graph_use_vector(graph, name, "weight", per_channel ? node.channels : 1, 0.25, false);
    return graph_add_node(graph, node, name);
}

static void forward(lowering *lower, const cod_node *node, lower_group *group)
{
    group->pre_x = lower->tensor[node->inputs[0]];
    lower_emit(lower, (ir_instr){.kind = COD_OP_ACTIVATION,
                                 .attr = node->attr,
                                 .inputs = {group->pre_x, lower_param(lower, node->params[0])},
                                 .outputs = {lower_output(lower, group->output)},
                                 .name = node->name});
}

static void backward(lowering *lower, const cod_node *node, const lower_group *group, int dy)
{
    (void)group;
    const bool prelu = node->attr.activation == COD_ACT_PRELU;
    const cod_value x = node->inputs[0];
    bool adds[COD_OP_MAX_OUTPUTS] = {false};
    ir_instr instr = {.kind = COD_OP_ACTIVATION_BACKWARD,
                      .attr = node->attr,
                      .inputs = {lower->tensor[prelu ? x : node->output], dy, lower_param(lower, node->params[0])},
                      .name = node->name};
    const int dx = lower->needs_grad[x] ? lower_contribution(lower, x, &adds[0]) : 0;
    instr.outputs[0] = lower_or_scratch(lower, dx, lower->context->shapes[x], lower->context->options->activation);
    if (prelu)
        instr.outputs[1] = lower_param_gradient(lower, node->params[0], &adds[1]);
    lower_emit_gradients(lower, instr, adds);
}

/** Only of those whose slope follows from the sign of what they make. */
static cod_value gradient(cod_graph *graph, const cod_node *node, cod_value dy)
{
    const cod_op_attr *attr = &node->attr;
    if (attr->activation != COD_ACT_RELU && !(attr->activation == COD_ACT_LEAKY_RELU && attr->leak > 0))
        return 0;
    cod_node made = graph_new_gradient(graph, COD_NODE_ACTIVATION_BACKWARD, node, dy);
    made.input_count = 2;
    made.inputs[1] = node->output;
    return graph_add_node(graph, made, node->name);
}

static void gradient_forward(lowering *lower, const cod_node *node, lower_group *group)
{
    lower_emit(lower, (ir_instr){.kind = COD_OP_ACTIVATION_BACKWARD,
                                 .attr = node->attr,
                                 .inputs = {lower->tensor[node->inputs[1]], lower->tensor[node->inputs[0]]},
                                 .outputs = {lower_output(lower, group->output)},
                                 .name = node->name});
}

/** The derivative of the activation is a constant: the same op takes the gradient back. */
static void gradient_backward(lowering *lower, const cod_node *node, const lower_group *group, int g)
{
    (void)group;
    bool adds;
    const int dx = lower_contribution(lower, node->inputs[0], &adds);
    lower_emit(lower, (ir_instr){.kind = COD_OP_ACTIVATION_BACKWARD,
                                 .attr = node->attr,
                                 .accumulate = adds,
                                 .inputs = {lower->tensor[node->inputs[1]], g},
                                 .outputs = {dx},
                                 .name = node->name});
}

const node_rules node_activation = {.forward = forward,
                                    .backward = backward,
                                    .differentiable = node_all_inputs,
                                    .gradient = gradient,
                                    .taps = node_no_taps,
                                    .op = COD_OP_ACTIVATION};

const node_rules node_activation_backward = {.shape = node_shape_like,
                                             .forward = gradient_forward,
                                             .backward = gradient_backward,
                                             .differentiable = node_first_input,
                                             .op = COD_OP_ACTIVATION_BACKWARD};
