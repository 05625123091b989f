/* From graph to instructions: the forward pass. */
#include "nn/ops/ops_internal.h"

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
        lower_group *group = &lower->groups[i];
        if (group->rules->forward != NULL)
            group->rules->forward(lower, lower_node(lower, i), group);
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
    cod_status status = ir_begin(out);
    COD_THEN(status, lower_all(&lower));
    cod_arena_clear(&lower.arena);
    return status;
}
