/* What all steps of a lowering ask of it and add to it: nodes, tensors and instructions. */
#include "nn/lower_internal.h"

size_t lower_producer(const lowering *lower, cod_value value)
{
    size_t low = 0, high = cod_graph_node_count(lower->context->graph);
    while (low < high) { /* node outputs grow with the node's index */
        const size_t middle = (low + high) / 2;
        if (lower_node(lower, middle)->output < value)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool lower_is_asked_for(const lowering *lower, cod_value value)
{
    for (size_t i = 0; i < COD_PROGRAM_MAX_OUTPUTS; i++)
        if (lower->spec->outputs[i] != 0 && lower->spec->outputs[i] == value)
            return true;
    return false;
}

bool lower_is_output(const lowering *lower, cod_value value)
{
    return lower->handed[value] || lower_is_asked_for(lower, value);
}

bool lower_uses_batch(const lowering *lower, const cod_node *norm)
{
    const cod_param *gamma = cod_graph_param(lower->context->graph, (size_t)norm->params[0]);
    return (lower->by_batch & cod_set_of(gamma->set)) != 0;
}

int lower_new_tensor(lowering *lower, cod_shape shape, cod_dtype dtype)
{
    const int tensor = ir_add_tensor(lower->program, (ir_tensor){.shape = shape, .dtype = dtype});
    lower->out_of_memory = lower->out_of_memory || tensor == 0;
    return tensor;
}

int lower_placed_tensor(lowering *lower, cod_shape shape, cod_dtype dtype, ir_place place, size_t offset)
{
    const int tensor =
        ir_add_tensor(lower->program, (ir_tensor){.shape = shape, .dtype = dtype, .place = place, .offset = offset});
    lower->out_of_memory = lower->out_of_memory || tensor == 0;
    return tensor;
}

void lower_emit(lowering *lower, ir_instr instr)
{
    instr.node = lower->node;
    if (lower->silent)
        return;
    if (!lower->out_of_memory && ir_add_instr(lower->program, instr) < 0)
        lower->out_of_memory = true;
}

bool lower_is_kept(const lowering *lower, size_t index)
{
    return lower->context->kept != NULL && (lower->keeps[index] || lower->resumes[index]);
}

int lower_saved_tensor(lowering *lower, cod_shape shape, cod_dtype dtype, int which)
{
    if (!lower_is_kept(lower, lower->node))
        return lower_new_tensor(lower, shape, dtype);
    size_t *offset = &lower->context->kept[lower->node].offsets[which];
    if (*offset == SIZE_MAX) {
        *offset = lower->context->io_bytes;
        lower->context->io_bytes += cod_align_up((size_t)cod_shape_count(shape) * cod_dtype_bytes(dtype));
    }
    return lower_placed_tensor(lower, shape, dtype, IR_IO, *offset);
}

int lower_param(lowering *lower, int param)
{
    if (param < 0)
        return 0;
    if (lower->param[param] == 0) {
        const cod_param *info = cod_graph_param(lower->context->graph, (size_t)param);
        const cod_dtype dtype = lower->context->param_dtype;
        const int tensor = lower->param[param] =
            lower_placed_tensor(lower, info->shape, dtype, IR_VALUES, info->offset * cod_dtype_bytes(dtype));
        lower->program->tensors[tensor].sets = cod_set_of(info->set);
        lower->program->tensors[tensor].of_states = info->is_state;
    }
    return lower->param[param];
}

int lower_narrow(lowering *lower, cod_value value)
{
    if (!lower->wide[value] || lower->context->options->activation == ir_wide_dtype(lower->context))
        return lower->tensor[value];
    if (lower->cast[value] == 0) {
        const bool silent = lower->silent;
        lower->silent = false; /* casts are not kept */
        lower->cast[value] =
            lower_new_tensor(lower, lower->context->shapes[value], lower->context->options->activation);
        lower_emit(lower, (ir_instr){.kind = COD_OP_ADD,
                                     .attr = {.alpha = 1},
                                     .inputs = {lower->tensor[value]},
                                     .outputs = {lower->cast[value]},
                                     .name = "cast"});
        lower->silent = silent;
    }
    return lower->cast[value];
}

cod_dtype lower_value_dtype(const lowering *lower, cod_value value)
{
    return lower->wide[value] ? ir_wide_dtype(lower->context) : lower->context->options->activation;
}

int lower_output(lowering *lower, cod_value value)
{
    if (lower->tensor[value] != 0)
        return lower->tensor[value]; /* reserved by a concatenation, or passes a cut */
    const cod_shape shape = lower->context->shapes[value];
    if (lower_is_output(lower, value))
        lower->tensor[value] = lower_placed_tensor(lower, shape, lower_value_dtype(lower, value), IR_IO,
                                                   lower->context->output_offset[value]);
    else
        lower->tensor[value] = lower_saved_tensor(lower, shape, lower_value_dtype(lower, value), 0);
    return lower->tensor[value];
}

int lower_view(lowering *lower, int root, int64_t channel, cod_shape shape, bool reshaped)
{
    ir_tensor view = lower->program->tensors[root];
    view.root = root;
    view.channel = channel;
    view.shape = shape;
    view.reshaped = reshaped;
    const int tensor = ir_add_tensor(lower->program, view);
    lower->out_of_memory = lower->out_of_memory || tensor == 0;
    return tensor;
}

void lower_copy(lowering *lower, int from, int to)
{
    lower_emit(lower,
               (ir_instr){.kind = COD_OP_ADD, .attr = {.alpha = 1}, .inputs = {from}, .outputs = {to}, .name = "copy"});
}

void lower_use_activation(lowering *lower, const lower_group *group, ir_instr *instr, int slope_slot)
{
    if (group->activation < 0)
        return;
    const cod_node *activation = lower_node(lower, (size_t)group->activation);
    instr->attr.activation = activation->attr.activation;
    instr->attr.leak = activation->attr.leak;
    instr->inputs[slope_slot] = lower_param(lower, activation->params[0]);
}

int lower_param_set(const lowering *lower, int param)
{
    return cod_graph_param(lower->context->graph, (size_t)param)->set;
}

cod_shape lower_param_shape(const lowering *lower, int param)
{
    return cod_graph_param(lower->context->graph, (size_t)param)->shape;
}

int lower_prepared_tensor(lowering *lower, cod_shape shape, cod_sets sets)
{
    ir_context *context = lower->context;
    const int tensor = lower_placed_tensor(lower, shape, context->param_dtype, IR_IO, context->io_bytes);
    lower->program->tensors[tensor].sets = sets;
    lower->program->tensors[tensor].of_states = true;
    context->io_bytes += cod_align_up((size_t)cod_shape_count(shape) * cod_dtype_bytes(context->param_dtype));
    return tensor;
}

int lower_residual(const lowering *lower, const lower_group *group)
{
    return group->residual != 0 ? lower->tensor[group->residual] : 0;
}
