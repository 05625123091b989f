/*
 * The backward pass: reverse-mode differentiation over the emitted groups.
 *
 * The gradient of a value is a tensor that its readers contribute to. The first contribution writes it, later ones
 * add to it; the gradient of a sum is its terms' gradient without a copy, as long as nobody who still needs that
 * tensor would see it change.
 */
#include "nn/lower_internal.h"

/** The channels of its root that a tensor covers: slices of slices add up; one seen in another shape counts as all. */
static void root_channels(const ir_program *program, int tensor, int64_t *first, int64_t *end)
{
    *first = 0;
    *end = program->tensors[tensor].shape.c;
    for (int at = tensor; program->tensors[at].root != at; at = program->tensors[at].root) {
        if (program->tensors[at].reshaped) {
            *first = 0;
            *end = INT64_MAX;
            return;
        }
        *first += program->tensors[at].channel;
        *end += program->tensors[at].channel;
    }
}

static bool slices_overlap(const ir_program *program, int a, int b)
{
    if (ir_root(program, a) != ir_root(program, b))
        return false;
    int64_t a_first, a_end, b_first, b_end;
    root_channels(program, a, &a_first, &a_end);
    root_channels(program, b, &b_first, &b_end);
    return a_first < b_end && b_first < a_end;
}

/** Whether another value still needs the tensor that stands for the gradient of `value`. */
static bool is_shared(const lowering *lower, cod_value value)
{
    for (size_t v = 1; v < lower->context->value_count; v++)
        if (v != (size_t)value && lower->grad[v] != 0 && !lower->consumed[v] &&
            slices_overlap(lower->program, lower->grad[v], lower->grad[value]))
            return true;
    return false;
}

/** The tensor to which the next contribution to the gradient of `value` goes, and whether it adds. */
static int contribution(lowering *lower, cod_value value, bool *adds)
{
    *adds = lower->grad[value] != 0;
    if (*adds && !is_shared(lower, value))
        return lower->grad[value];
    const int fresh = lower_new_tensor(lower, lower->context->shapes[value], lower->context->options->activation);
    if (*adds)
        lower_emit(lower, (ir_instr){.kind = COD_OP_ADD,
                                     .attr = {.alpha = 1},
                                     .inputs = {lower->grad[value]},
                                     .outputs = {fresh},
                                     .name = "unshare"});
    lower->grad[value] = fresh;
    return fresh;
}

/** Contributes `scale` times a tensor that exists already. */
static void contribute_tensor(lowering *lower, cod_value value, int tensor, float scale)
{
    if (!lower->needs_grad[value])
        return;
    if (scale == 1 && lower->grad[value] == 0) {
        lower->grad[value] = tensor;
        return;
    }
    bool adds;
    const int target = contribution(lower, value, &adds);
    lower_emit(lower, (ir_instr){.kind = COD_OP_ADD,
                                 .attr = {.alpha = scale},
                                 .accumulate = adds,
                                 .inputs = {tensor},
                                 .outputs = {target},
                                 .name = "add_gradient"});
}

/** Where the gradient of a parameter goes: its range if it is trained, nothing otherwise. */
static int param_contribution(lowering *lower, int param, bool *adds)
{
    *adds = false;
    const cod_param *info = param >= 0 ? cod_graph_param(lower->context->graph, (size_t)param) : NULL;
    if (info == NULL || info->set != lower->set)
        return 0;
    *adds = lower->spec->accumulate || lower->param_grad[param] != 0;
    if (lower->param_grad[param] == 0) {
        const cod_dtype dtype = lower->context->param_dtype;
        lower->param_grad[param] =
            ir_add_tensor(lower->program, (ir_tensor){.shape = info->shape,
                                                      .dtype = dtype,
                                                      .place = IR_GRADS,
                                                      .offset = info->offset * cod_dtype_bytes(dtype)});
        lower->out_of_memory = lower->out_of_memory || lower->param_grad[param] == 0;
    }
    lower->program->grad_ready[param] =
        (int)lower->program->instr_count; /* corrected when the instruction is emitted */
    return lower->param_grad[param];
}

/**
 * Emits an op with several gradient outputs of which only some add: an op has one `accumulate` flag, so the others
 * start from zero. Outputs that are not gradients, such as a loss's value, do not obey the flag.
 */
static void emit_gradients(lowering *lower, ir_instr instr, const bool adds[COD_OP_MAX_OUTPUTS])
{
    for (int i = 0; i < COD_OP_MAX_OUTPUTS; i++)
        instr.accumulate = instr.accumulate || (instr.outputs[i] != 0 && adds[i]);
    for (int i = 0; instr.accumulate && i < COD_OP_MAX_OUTPUTS; i++)
        if (instr.outputs[i] != 0 && !adds[i] && cod_op_output_role(instr.kind, (size_t)i) == COD_OUTPUT_ACCUMULATED)
            lower_emit(lower, (ir_instr){.kind = COD_OP_FILL, .outputs = {instr.outputs[i]}, .name = "zero"});
    lower_emit(lower, instr);
    const int last = (int)lower->program->instr_count - 1;
    for (size_t p = 0; p < cod_graph_param_count(lower->context->graph); p++)
        for (int i = 0; i < COD_OP_MAX_OUTPUTS; i++)
            if (lower->param_grad[p] != 0 && lower->param_grad[p] == instr.outputs[i])
                lower->program->grad_ready[p] = last;
}

/** Scratch tensor for an output that the op always writes but this program does not use. */
static int discarded(lowering *lower, int wanted, cod_shape shape, cod_dtype dtype)
{
    return wanted != 0 ? wanted : lower_new_tensor(lower, shape, dtype);
}

static cod_shape param_shape(const lowering *lower, int param)
{
    return cod_graph_param(lower->context->graph, (size_t)param)->shape;
}

/** Emits a layer's gradients of weight and bias; that of a spectrally normalised weight is computed from the quotient's. */
static void emit_weight_gradients(lowering *lower, const cod_node *node, ir_instr weights)
{
    bool adds[COD_OP_MAX_OUTPUTS] = {false};
    const lower_spectrum *spectrum = node->params[2] >= 0 ? &lower->spectra[node->params[0]] : NULL;
    const int dw = param_contribution(lower, node->params[0], &adds[0]);
    weights.outputs[1] = param_contribution(lower, node->params[1], &adds[1]);
    if (dw == 0)
        return;
    if (spectrum == NULL) {
        weights.outputs[0] = dw;
        emit_gradients(lower, weights, adds);
        return;
    }
    weights.outputs[0] = lower_new_tensor(lower, param_shape(lower, node->params[0]), lower->context->param_dtype);
    emit_gradients(lower, weights, (const bool[COD_OP_MAX_OUTPUTS]){false, adds[1]});
    emit_gradients(
        lower,
        (ir_instr){.kind = COD_OP_SPECTRAL_NORM_BACKWARD,
                   .inputs = {weights.outputs[0], spectrum->weight, spectrum->sigma, spectrum->u, spectrum->v},
                   .outputs = {dw},
                   .name = node->name},
        (const bool[COD_OP_MAX_OUTPUTS]){adds[0]});
}

static void backward_dense(lowering *lower, const cod_node *node, const lower_group *group, int dy)
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
    emit_weight_gradients(lower, node,
                          (ir_instr){.kind = conv ? COD_OP_CONV2D_BACKWARD_WEIGHTS : COD_OP_LINEAR_BACKWARD_WEIGHTS,
                                     .attr = attr,
                                     .inputs = {group->pre_x, dy},
                                     .name = node->name});
    if (!lower->needs_grad[node->inputs[0]])
        return;
    bool data_adds;
    const int dx = contribution(lower, node->inputs[0], &data_adds);
    lower_emit(lower, (ir_instr){.kind = conv ? COD_OP_CONV2D_BACKWARD_DATA : COD_OP_LINEAR_BACKWARD_DATA,
                                 .attr = attr,
                                 .accumulate = data_adds,
                                 .inputs = {dy, group->weight},
                                 .outputs = {dx},
                                 .name = node->name});
}

/** By running statistics, of a set that is not trained: the gradient of x alone. */
static void backward_frozen_norm(lowering *lower, const cod_node *node, const lower_group *group, int dy)
{
    const cod_node *activation = group->activation >= 0 ? lower_node(lower, (size_t)group->activation) : NULL;
    bool adds;
    const int dx = contribution(lower, node->inputs[0], &adds);
    ir_instr instr = {.kind = COD_OP_NORM_INFERENCE_BACKWARD,
                      .attr = node->attr,
                      .accumulate = adds,
                      .inputs = {group->pre_x, dy},
                      .outputs = {dx},
                      .name = node->name};
    for (int i = 0; i < 4; i++)
        instr.inputs[2 + i] = lower_param(lower, node->params[i]);
    if (activation != NULL) {
        instr.attr.activation = activation->attr.activation;
        instr.attr.leak = activation->attr.leak;
        instr.inputs[6] = lower_param(lower, activation->params[0]);
    }
    lower_emit(lower, instr);
}

static void backward_norm(lowering *lower, const cod_node *node, const lower_group *group, int dy)
{
    const cod_node *activation = group->activation >= 0 ? lower_node(lower, (size_t)group->activation) : NULL;
    const int slope = activation != NULL ? activation->params[0] : -1;
    bool adds[COD_OP_MAX_OUTPUTS] = {false};
    ir_instr instr = {.kind = COD_OP_NORM_BACKWARD,
                      .attr = node->attr,
                      .inputs = {group->pre_x, dy, lower_param(lower, node->params[0]),
                                 lower_param(lower, node->params[1]), group->mean, group->inv_std,
                                 lower_param(lower, slope)},
                      .name = node->name};
    if (activation != NULL) {
        instr.attr.activation = activation->attr.activation;
        instr.attr.leak = activation->attr.leak;
    }
    const cod_dtype dtype = lower->context->param_dtype;
    const cod_value x = node->inputs[0];
    const int dx = lower->needs_grad[x] ? contribution(lower, x, &adds[0]) : 0;
    instr.outputs[0] = discarded(lower, dx, lower->context->shapes[x], lower->context->options->activation);
    for (int i = 0; i < 2; i++) {
        const int wanted = param_contribution(lower, node->params[i], &adds[1 + i]);
        instr.outputs[1 + i] = discarded(lower, wanted, param_shape(lower, node->params[i]), dtype);
    }
    if (slope >= 0)
        instr.outputs[3] =
            discarded(lower, param_contribution(lower, slope, &adds[3]), param_shape(lower, slope), dtype);
    emit_gradients(lower, instr, adds);
}

static void backward_activation(lowering *lower, const cod_node *node, int dy)
{
    const bool prelu = node->attr.activation == COD_ACT_PRELU;
    const cod_value x = node->inputs[0];
    bool adds[COD_OP_MAX_OUTPUTS] = {false};
    ir_instr instr = {.kind = COD_OP_ACTIVATION_BACKWARD,
                      .attr = node->attr,
                      .inputs = {lower->tensor[prelu ? x : node->output], dy, lower_param(lower, node->params[0])},
                      .name = node->name};
    const int dx = lower->needs_grad[x] ? contribution(lower, x, &adds[0]) : 0;
    instr.outputs[0] = discarded(lower, dx, lower->context->shapes[x], lower->context->options->activation);
    if (prelu)
        instr.outputs[1] = discarded(lower, param_contribution(lower, node->params[0], &adds[1]),
                                     param_shape(lower, node->params[0]), lower->context->param_dtype);
    emit_gradients(lower, instr, adds);
}

/**
 * A gradient by an op of the forward pass, which adds to nothing: where there is one already, into a tensor of its own, which is added.
 * The op also reads `weight`, unless that is 0.
 */
static void backward_by_forward(lowering *lower, const cod_node *node, cod_op_kind kind, int dy, int weight)
{
    const cod_value x = node->inputs[0];
    if (!lower->needs_grad[x])
        return;
    const int dx = lower_new_tensor(lower, lower->context->shapes[x], lower->context->options->activation);
    lower_emit(
        lower,
        (ir_instr){.kind = kind, .attr = node->attr, .inputs = {dy, weight}, .outputs = {dx}, .name = node->name});
    contribute_tensor(lower, x, dx, 1);
}

/** Of dx = wᵀ dy, whose gradient is `g`: by w it is that of a convolution whose input is g, and by dy the convolution of g. */
static void backward_conv_backward(lowering *lower, const cod_node *node, const lower_group *group, int g)
{
    emit_weight_gradients(lower, node,
                          (ir_instr){.kind = COD_OP_CONV2D_BACKWARD_WEIGHTS,
                                     .attr = node->attr,
                                     .inputs = {g, group->pre_x},
                                     .name = node->name});
    backward_by_forward(lower, node, COD_OP_CONV2D, g, group->weight);
}

/** The derivative of the activation is a constant: the same op takes the gradient back. */
static void backward_activation_backward(lowering *lower, const cod_node *node, int g)
{
    bool adds;
    const int dx = contribution(lower, node->inputs[0], &adds);
    lower_emit(lower, (ir_instr){.kind = COD_OP_ACTIVATION_BACKWARD,
                                 .attr = node->attr,
                                 .accumulate = adds,
                                 .inputs = {lower->tensor[node->inputs[1]], g},
                                 .outputs = {dx},
                                 .name = node->name});
}

static void backward_plain(lowering *lower, const cod_node *node, cod_op_kind kind, int dy, int index)
{
    bool adds;
    const int dx = contribution(lower, node->inputs[0], &adds);
    lower_emit(lower, (ir_instr){.kind = kind,
                                 .attr = node->attr,
                                 .accumulate = adds,
                                 .inputs = {dy, index},
                                 .outputs = {dx},
                                 .name = node->name});
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

static void backward_views(lowering *lower, const cod_node *node, int dy)
{
    int64_t channel = 0;
    for (int k = 0; k < node->input_count; k++) {
        const cod_value part = node->inputs[k];
        const cod_shape shape = lower->context->shapes[part];
        if (lower->needs_grad[part])
            contribute_tensor(lower, part, gradient_view(lower, dy, channel, shape, node->kind == COD_NODE_FLATTEN), 1);
        channel += shape.c;
    }
}

static void backward_node(lowering *lower, size_t index)
{
    const cod_node *node = lower_node(lower, index);
    const lower_group *group = &lower->groups[index];
    const int dy = lower->grad[group->output];
    if (dy == 0 || !lower->needs_grad[group->output])
        return;
    switch (node->kind) {
    case COD_NODE_CONV2D:
    case COD_NODE_LINEAR:
        backward_dense(lower, node, group, dy);
        break;
    case COD_NODE_NORM:
        if (group->residual != 0)
            contribute_tensor(lower, group->residual, dy, 1);
        if (lower_uses_batch(lower, node))
            backward_norm(lower, node, group, dy);
        else if (lower->needs_grad[node->inputs[0]])
            backward_frozen_norm(lower, node, group, dy);
        break;
    case COD_NODE_ACTIVATION:
        backward_activation(lower, node, dy);
        break;
    case COD_NODE_ADD:
        contribute_tensor(lower, node->inputs[0], dy, node->attr.alpha);
        contribute_tensor(lower, node->inputs[1], dy, node->attr.beta);
        break;
    case COD_NODE_AFFINE:
        contribute_tensor(lower, node->inputs[0], dy, node->attr.alpha);
        break;
    case COD_NODE_MEAN: /* a symmetric map */
        backward_plain(lower, node, COD_OP_MEAN, dy, 0);
        break;
    case COD_NODE_PIXEL_SHUFFLE:
        backward_plain(lower, node, COD_OP_PIXEL_UNSHUFFLE, dy, 0);
        break;
    case COD_NODE_PIXEL_UNSHUFFLE:
        backward_by_forward(lower, node, COD_OP_PIXEL_SHUFFLE, dy, 0);
        break;
    case COD_NODE_RESIZE:
        backward_plain(lower, node, COD_OP_RESIZE_BACKWARD, dy, 0);
        break;
    case COD_NODE_POOL:
        backward_plain(lower, node, COD_OP_POOL_BACKWARD, dy, group->index);
        break;
    case COD_NODE_CONCAT:
    case COD_NODE_FLATTEN:
        backward_views(lower, node, dy);
        break;
    case COD_NODE_CONV2D_BACKWARD:
        backward_conv_backward(lower, node, group, dy);
        break;
    case COD_NODE_ACTIVATION_BACKWARD:
        backward_activation_backward(lower, node, dy);
        break;
    case COD_NODE_RESIZE_BACKWARD:
        backward_by_forward(lower, node, COD_OP_RESIZE, dy, 0);
        break;
    case COD_NODE_INPUT:
    case COD_NODE_SLICE:
    case COD_NODE_STOP_GRADIENT:
    case COD_NODE_LOSS:
        break;
    }
    lower->consumed[group->output] = true;
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
    cod_shape shape = lower->program->tensors[tensor].shape;
    if (node->first_items == 0 || node->first_items >= shape.n)
        return tensor;
    shape.n = node->first_items;
    return lower_view(lower, tensor, 0, shape, false);
}

/** Where a loss's gradient by `value` goes, or 0 where none is wanted; of the items that it does not look at it is zero. */
static int loss_gradient(lowering *lower, const cod_node *node, cod_value value, bool *adds)
{
    if (!lower->training || !lower->needs_grad[value] || !is_minimised(lower, node->output))
        return 0;
    const int grad = contribution(lower, value, adds), seen = items_of(lower, node, grad);
    if (!*adds && seen != grad) { /* of the other items this is the first to say anything */
        lower_emit(lower, (ir_instr){.kind = COD_OP_FILL, .outputs = {grad}, .name = "zero"});
        *adds = true;
    }
    return seen;
}

static void emit_loss(lowering *lower, const cod_node *node)
{
    ir_context *context = lower->context;
    const cod_value prediction = node->inputs[0], target = node->input_count > 1 ? node->inputs[1] : 0;
    bool adds[COD_OP_MAX_OUTPUTS] = {false};
    ir_instr instr = {.kind = COD_OP_LOSS,
                      .attr = node->attr,
                      .inputs = {items_of(lower, node, lower->tensor[prediction])},
                      .name = node->name};
    if (target != 0)
        instr.inputs[1] = items_of(lower, node, lower->tensor[target]);
    const ir_tensor scalar = {.shape = {1, 1, 1, 1}, .dtype = COD_F32, .place = IR_IO};
    if (node->weight_scalar >= 0) {
        ir_tensor weight = scalar;
        weight.place = IR_SCALARS;
        weight.offset = context->scalar_index[node->weight_scalar] * sizeof(float);
        instr.inputs[2] = ir_add_tensor(lower->program, weight);
    }
    ir_tensor value = scalar;
    value.dtype = ir_wide_dtype(context);
    value.offset = context->loss_offset[node->output];
    instr.outputs[0] = ir_add_tensor(lower->program, value);
    instr.outputs[1] = loss_gradient(lower, node, prediction, &adds[1]);
    if (node->target_gradient)
        instr.outputs[2] = loss_gradient(lower, node, target, &adds[2]);
    emit_gradients(lower, instr, adds);
}

void lower_backward(lowering *lower)
{
    const size_t nodes = cod_graph_node_count(lower->context->graph),
                 params = cod_graph_param_count(lower->context->graph);
    for (size_t i = 0; i < nodes; i++) {
        lower->node = i;
        if (lower->groups[i].live && lower_node(lower, i)->kind == COD_NODE_LOSS)
            emit_loss(lower, lower_node(lower, i));
    }
    if (!lower->training)
        return;
    lower_seed_gradients(lower);
    for (size_t i = nodes; i-- > 0;) {
        lower->node = i;
        if (lower->groups[i].live)
            backward_node(lower, i);
    }
    lower_give_gradients(lower);
    /* Parameters that no loss depends on: fill their gradients with zeros and signal their buckets. */
    for (size_t p = 0; p < params; p++) {
        const cod_param *info = cod_graph_param(lower->context->graph, p);
        bool adds;
        if (info->set != lower->set || info->is_state || lower->param_grad[p] != 0 || info->offset < lower->own.first ||
            info->offset - lower->own.first >= lower->own.count)
            continue;
        const int grad = param_contribution(lower, (int)p, &adds);
        if (adds) /* nothing to add: as complete as it was before the run */
            lower->program->grad_ready[p] = -1;
        else
            lower_emit(lower, (ir_instr){.kind = COD_OP_FILL, .outputs = {grad}, .name = "zero"});
    }
}
