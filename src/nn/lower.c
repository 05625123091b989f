/* From graph to instructions: the forward pass. */
#include "nn/ops/ops_internal.h"

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

/** Makes the tables of a lowering, sized for the graph. */
static cod_status allocate_tables(lowering *lower)
{
    const size_t nodes = cod_graph_node_count(lower->context->graph),
                 params = cod_graph_param_count(lower->context->graph) + 1;
    const size_t values = lower->context->value_count;
    lower->groups = cod_arena_alloc(&lower->arena, nodes * sizeof *lower->groups);
    bool **const flags[] = {&lower->needed, &lower->wide,  &lower->needs_grad, &lower->consumed, &lower->taken,
                            &lower->handed, &lower->given, &lower->keeps,      &lower->resumes};
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        *flags[i] = cod_arena_alloc(&lower->arena, values + nodes);
        COD_REQUIRE_MEMORY(*flags[i]);
    }
    int **const tables[] = {&lower->tensor,     &lower->cast,      &lower->grad,        &lower->param,
                            &lower->param_grad, &lower->pass_grad, &lower->range_counts};
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        *tables[i] = cod_arena_alloc(&lower->arena, (values + params) * sizeof(int));
        COD_REQUIRE_MEMORY(*tables[i]);
    }
    lower->spectra = cod_arena_alloc(&lower->arena, params * sizeof *lower->spectra);
    COD_REQUIRE_MEMORY(lower->groups);
    COD_REQUIRE_MEMORY(lower->spectra);
    return COD_OK;
}

static cod_status check_needed_shapes(const lowering *lower)
{
    for (size_t i = 0; i < cod_graph_node_count(lower->context->graph); i++) {
        const cod_node *node = lower_node(lower, i);
        if (lower->needed[i] && lower->context->shapes[node->output].n == 0)
            return cod_fail(COD_ERR_ARGUMENT, "program '%s' needs '%s', but an input's shape was not given",
                            lower->spec->name, node->name);
    }
    return COD_OK;
}

/** Values of other programs lie where these leave their outputs. */
static void place_given(lowering *lower)
{
    for (cod_value v = 1; (size_t)v < lower->context->value_count; v++)
        if (lower->given[v])
            lower->tensor[v] = lower_placed_tensor(lower, lower->context->shapes[v], lower_value_dtype(lower, v), IR_IO,
                                                   lower->context->output_offset[v]);
}

static cod_status lower_all(lowering *lower)
{
    COD_TRY(allocate_tables(lower));
    lower_select(lower);
    COD_TRY(check_needed_shapes(lower));
    COD_TRY(lower_place_passing(lower));
    place_given(lower);
    COD_TRY(lower_keep(lower));
    concat_reserve(lower);
    const size_t nodes = cod_graph_node_count(lower->context->graph);
    for (size_t i = 0; i < nodes; i++) {
        lower->node = i;
        if (!lower->groups[i].live)
            continue;
        lower->silent = lower->resumes[i] && lower_is_kept(lower, i);
        const cod_node *node = lower_node(lower, i);
        const node_rules *rules = node_rules_of(node->kind);
        if (rules->forward != NULL)
            rules->forward(lower, node, &lower->groups[i]);
    }
    lower->silent = false;
    if (lower->spec->observes)
        COD_TRY(lower_choose_ranges(lower));
    lower->program->backward = lower->program->instr_count;
    lower_backward(lower);
    return lower->out_of_memory ? cod_fail(COD_ERR_MEMORY, "out of memory while compiling '%s'", lower->spec->name)
                                : COD_OK;
}

cod_status ir_lower(ir_context *context, const cod_program_spec *spec, ir_program *out)
{
    lowering lower = {.context = context, .spec = spec, .program = out, .set = -1};
    COD_REQUIRE(!spec->observes || (spec->trains == NULL && !context->options->bands),
                "program '%s' observes ranges: it cannot train, nor run in bands", spec->name);
    if (spec->trains != NULL) {
        lower.set = cod_graph_set_index(context->graph, spec->trains);
        COD_REQUIRE(lower.set >= 0, "program '%s' trains '%s', which is no parameter set of the graph", spec->name,
                    spec->trains);
        COD_REQUIRE(spec->losses[0] != 0, "program '%s' trains '%s' but has no loss", spec->name, spec->trains);
        lower.training = true;
    }
    const cod_layout layout = cod_graph_layout(context->graph);
    COD_TRY(cod_stage_find_range(context->graph, &layout, &spec->stage, false, &lower.own));
    lower.stage = cod_stage_is_part(&spec->stage) ? spec->stage : (cod_stage){0, cod_graph_node_count(context->graph)};
    lower.by_batch = spec->batch_statistics | (lower.training ? cod_set_of(lower.set) : 0);
    const cod_status status = lower_all(&lower);
    cod_arena_clear(&lower.arena);
    return status;
}
