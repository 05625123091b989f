/* NORM: batch normalisation, by the batch's statistics or by running ones. */
#include "nn/ops/ops_internal.h"

cod_value cod_graph_norm(cod_graph *graph, const char *name, cod_value x)
{
    cod_node node = graph_new_unary(graph, COD_NODE_NORM, x);
    node.attr = (cod_op_attr){.epsilon = 1e-5f, .momentum = 0.1f};
    node.params[0] = graph_use_vector(graph, name, "weight", node.channels, 1, false);
    node.params[1] = graph_use_vector(graph, name, "bias", node.channels, 0, false);
    node.params[2] = graph_use_vector(graph, name, "running_mean", node.channels, 0, true);
    node.params[3] = graph_use_vector(graph, name, "running_var", node.channels, 1, true);
    return graph_add_node(graph, node, name);
}

static void forward_running(lowering *lower, const cod_node *node, lower_group *group)
{
    ir_instr instr = {.kind = COD_OP_NORM_INFERENCE,
                      .attr = node->attr,
                      .inputs = {group->pre_x, [6] = lower_residual(lower, group)},
                      .outputs = {lower_output(lower, group->output)},
                      .name = node->name};
    for (int i = 0; i < 4; i++)
        instr.inputs[1 + i] = lower_param(lower, node->params[i]);
    lower_use_activation(lower, group, &instr, 5);
    lower_emit(lower, instr);
}

static void forward_batch(lowering *lower, const cod_node *node, lower_group *group)
{
    const cod_shape vector = {1, 1, 1, node->channels};
    const size_t index = (size_t)(group - lower->groups);
    const int set = lower_param_set(lower, node->params[0]);
    const bool moves = lower->keeps[index] || (set == lower->set && !lower->resumes[index]);
    const int gamma = lower_param(lower, node->params[0]), beta = lower_param(lower, node->params[1]);
    const int mean = lower_param(lower, node->params[2]), var = lower_param(lower, node->params[3]);
    const int y = lower_output(lower, group->output);
    group->mean = lower_saved_tensor(lower, vector, lower->context->param_dtype, 1);
    group->inv_std = lower_saved_tensor(lower, vector, lower->context->param_dtype, 2);
    lower->program->moved |= moves ? cod_set_of(set) : 0;
    ir_instr instr = {.kind = COD_OP_NORM_TRAIN,
                      .attr = node->attr,
                      .inputs = {group->pre_x, gamma, beta, 0, lower_residual(lower, group)},
                      .outputs = {y, group->mean, group->inv_std, moves ? mean : 0, moves ? var : 0},
                      .name = node->name};
    lower_use_activation(lower, group, &instr, 3);
    lower_emit(lower, instr);
}

static void forward(lowering *lower, const cod_node *node, lower_group *group)
{
    group->pre_x = lower->tensor[node->inputs[0]];
    if (lower_uses_batch(lower, node))
        forward_batch(lower, node, group);
    else
        forward_running(lower, node, group);
}

/** By running statistics, of a set that is not trained: the gradient of x alone. */
static void backward_running(lowering *lower, const cod_node *node, const lower_group *group, int dy)
{
    if (!lower->needs_grad[node->inputs[0]])
        return;
    bool adds;
    const int dx = lower_contribution(lower, node->inputs[0], &adds);
    ir_instr instr = {.kind = COD_OP_NORM_INFERENCE_BACKWARD,
                      .attr = node->attr,
                      .accumulate = adds,
                      .inputs = {group->pre_x, dy},
                      .outputs = {dx},
                      .name = node->name};
    for (int i = 0; i < 4; i++)
        instr.inputs[2 + i] = lower_param(lower, node->params[i]);
    lower_use_activation(lower, group, &instr, 6);
    lower_emit(lower, instr);
}

static void backward_batch(lowering *lower, const cod_node *node, const lower_group *group, int dy)
{
    const int slope = group->activation >= 0 ? lower_node(lower, (size_t)group->activation)->params[0] : -1;
    bool adds[COD_OP_MAX_OUTPUTS] = {false};
    ir_instr instr = {.kind = COD_OP_NORM_BACKWARD,
                      .attr = node->attr,
                      .inputs = {group->pre_x, dy, lower_param(lower, node->params[0]),
                                 lower_param(lower, node->params[1]), group->mean, group->inv_std},
                      .name = node->name};
    lower_use_activation(lower, group, &instr, 6);
    const cod_value x = node->inputs[0];
    const int dx = lower->needs_grad[x] ? lower_contribution(lower, x, &adds[0]) : 0;
    instr.outputs[0] = lower_or_scratch(lower, dx, lower->context->shapes[x], lower->context->options->activation);
    for (int i = 0; i < 2; i++)
        instr.outputs[1 + i] = lower_param_gradient(lower, node->params[i], &adds[1 + i]);
    if (slope >= 0)
        instr.outputs[3] = lower_param_gradient(lower, slope, &adds[3]);
    lower_emit_gradients(lower, instr, adds);
}

static void backward(lowering *lower, const cod_node *node, const lower_group *group, int dy)
{
    if (group->residual != 0)
        lower_contribute(lower, group->residual, dy, 1);
    if (lower_uses_batch(lower, node))
        backward_batch(lower, node, group, dy);
    else
        backward_running(lower, node, group, dy);
}

const node_rules node_norm = {.forward = forward,
                              .backward = backward,
                              .differentiable = node_all_inputs,
                              .taps = node_no_taps,
                              .op = COD_OP_NORM_INFERENCE};
