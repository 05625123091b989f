/* LOSS: a number to minimise, and its gradients, which one op computes at the beginning of the backward pass. */
#include "nn/ops/ops_internal.h"

/** Fails the graph where a loss's target does not suit its kind. */
static void check_target(cod_graph *graph, const char *name, cod_value prediction, cod_value target, cod_loss_spec spec)
{
    if (graph_has_failed(graph))
        return;
    if (spec.kind == COD_LOSS_TV && (target != 0 || spec.target_gradient))
        GRAPH_FAIL(graph, "loss '%s': total variation has no target", name);
    else if (spec.kind != COD_LOSS_TV && target == 0)
        GRAPH_FAIL(graph, "loss '%s' needs a target", name);
    else if (spec.target_gradient && target == prediction)
        GRAPH_FAIL(graph, "loss '%s': prediction and target are one value; only two have a gradient each", name);
}

cod_value cod_graph_loss(cod_graph *graph, const char *name, cod_value prediction, cod_value target, cod_loss_spec spec)
{
    check_target(graph, name, prediction, target, spec);
    cod_node node = graph_new_unary(graph, COD_NODE_LOSS, prediction);
    node.channels = 1;
    node.input_count = spec.kind == COD_LOSS_TV ? 1 : 2;
    node.inputs[1] = target;
    node.attr = (cod_op_attr){.loss = spec.kind,
                              .epsilon = spec.epsilon > 0 ? spec.epsilon : 1e-3f,
                              .temperature = spec.temperature > 0 ? spec.temperature : 1,
                              .smoothing = spec.smoothing,
                              .alpha = spec.weight != 0 ? spec.weight : 1};
    node.first_items = spec.first_items;
    node.target_gradient = spec.target_gradient;
    if (spec.scalar != NULL)
        node.weight_scalar = graph_use_scalar(graph, spec.scalar);
    return graph_add_node(graph, node, name);
}

static cod_status shape(const ir_context *context, const cod_node *node, cod_shape x, cod_shape *out)
{
    (void)context, (void)node, (void)x;
    *out = (cod_shape){1, 1, 1, 1};
    return COD_OK;
}

static int differentiable(const cod_node *node)
{
    return node->target_gradient ? node->input_count : 1;
}

/** Whether the program's gradients are those of this loss; one that is only an output is reported. */
static bool is_minimised(const lowering *lower, cod_value loss)
{
    for (size_t i = 0; i < COD_PROGRAM_MAX_LOSSES; i++)
        if (lower->spec->losses[i] == loss)
            return true;
    return false;
}

/** The tensor of the items that a loss looks at. */
static int items_of(lowering *lower, const cod_node *node, int tensor)
{
    cod_shape items = lower->program->tensors[tensor].shape;
    if (node->first_items == 0 || node->first_items >= items.n)
        return tensor;
    items.n = node->first_items;
    return lower_view(lower, tensor, 0, items, false);
}

/**
 * Where a loss's gradient by `value` goes, or 0 where none is wanted; of the items that it does not look at it is zero.
 */
static int loss_gradient(lowering *lower, const cod_node *node, cod_value value, bool *adds)
{
    if (!lower->training || !lower->needs_grad[value] || !is_minimised(lower, node->output))
        return 0;
    const int grad = lower_contribution(lower, value, adds), seen = items_of(lower, node, grad);
    if (!*adds && seen != grad) { /* of the other items this is the first to say anything */
        lower_emit(lower, (ir_instr){.kind = COD_OP_FILL, .outputs = {grad}, .name = "zero"});
        *adds = true;
    }
    return seen;
}

void loss_emit(lowering *lower, const cod_node *node)
{
    ir_context *context = lower->context;
    const cod_value prediction = node->inputs[0], target = node->input_count > 1 ? node->inputs[1] : 0;
    const cod_shape number = {1, 1, 1, 1};
    bool adds[COD_OP_MAX_OUTPUTS] = {false};
    ir_instr instr = {.kind = COD_OP_LOSS,
                      .attr = node->attr,
                      .inputs = {items_of(lower, node, lower->tensor[prediction])},
                      .name = node->name};
    if (target != 0)
        instr.inputs[1] = items_of(lower, node, lower->tensor[target]);
    if (node->weight_scalar >= 0)
        instr.inputs[2] = lower_placed_tensor(lower, number, COD_F32, IR_SCALARS,
                                              context->scalar_index[node->weight_scalar] * sizeof(float));
    instr.outputs[0] =
        lower_placed_tensor(lower, number, ir_wide_dtype(context), IR_IO, context->loss_offset[node->output]);
    instr.outputs[1] = loss_gradient(lower, node, prediction, &adds[1]);
    if (node->target_gradient)
        instr.outputs[2] = loss_gradient(lower, node, target, &adds[2]);
    lower_emit_gradients(lower, instr, adds);
}

const node_rules node_loss = {.shape = shape, .differentiable = differentiable, .op = COD_OP_LOSS};
