/*
 * Gradients of values and parameters, and what ops contribute to them.
 *
 * The gradient of a value is a tensor that its readers contribute to. The first contribution writes it, later ones add
 * to it. The gradient of a sum is its terms' gradient without a copy, as long as nobody who still needs that tensor
 * would see it change.
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

int lower_contribution(lowering *lower, cod_value value, bool *adds)
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

void lower_contribute(lowering *lower, cod_value value, int tensor, float scale)
{
    if (!lower->needs_grad[value])
        return;
    if (scale == 1 && lower->grad[value] == 0) {
        lower->grad[value] = tensor;
        return;
    }
    bool adds;
    const int target = lower_contribution(lower, value, &adds);
    lower_emit(lower, (ir_instr){.kind = COD_OP_ADD,
                                 .attr = {.alpha = scale},
                                 .accumulate = adds,
                                 .inputs = {tensor},
                                 .outputs = {target},
                                 .name = "add_gradient"});
}

int lower_param_contribution(lowering *lower, int param, bool *adds)
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

void lower_emit_gradients(lowering *lower, ir_instr instr, const bool adds[COD_OP_MAX_OUTPUTS])
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

int lower_or_scratch(lowering *lower, int wanted, cod_shape shape, cod_dtype dtype)
{
    return wanted != 0 ? wanted : lower_new_tensor(lower, shape, dtype);
}

int lower_param_gradient(lowering *lower, int param, bool *adds)
{
    const int wanted = lower_param_contribution(lower, param, adds);
    return lower_or_scratch(lower, wanted, lower_param_shape(lower, param), lower->context->param_dtype);
}
