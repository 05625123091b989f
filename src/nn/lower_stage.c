/* What passes the ends of a stage: values forward, their gradients back. */
#include "nn/lower_internal.h"

#include <stdlib.h>

/** Marks what nodes before `cut` make and needed nodes from it on read; inputs are given to every stage. */
static void mark(const lowering *lower, size_t cut, bool *passes)
{
    for (size_t i = cut; i < cod_graph_node_count(lower->context->graph); i++) {
        const cod_node *node = lower_node(lower, i);
        for (int k = 0; lower->needed[i] && k < node->input_count; k++) {
            const size_t producer = lower_producer(lower, node->inputs[k]);
            if (producer < cut && lower_node(lower, producer)->kind != COD_NODE_INPUT)
                passes[node->inputs[k]] = true;
        }
    }
}

void lower_mark_passing(lowering *lower)
{
    mark(lower, lower->stage.first, lower->taken);
    mark(lower, lower->stage.end, lower->handed);
}

static size_t place_bytes(const lowering *lower, cod_value value, cod_dtype dtype)
{
    return cod_align_up((size_t)cod_shape_count(lower->context->shapes[value]) * cod_dtype_bytes(dtype));
}

cod_status lower_place_passing(lowering *lower)
{
    ir_context *context = lower->context;
    ir_program *program = lower->program;
    program->taken = calloc(context->value_count, sizeof *program->taken);
    program->handed = calloc(context->value_count, sizeof *program->handed);
    COD_REQUIRE_MEMORY(program->taken);
    COD_REQUIRE_MEMORY(program->handed);
    for (cod_value v = 1; (size_t)v < context->value_count; v++) {
        const cod_dtype dtype = lower_value_dtype(lower, v), narrow = context->options->activation;
        if (!lower->taken[v] && !lower->handed[v])
            continue;
        if (context->pass_offset[v] == SIZE_MAX) {
            context->pass_offset[v] = context->io_bytes;
            context->io_bytes += place_bytes(lower, v, dtype) + place_bytes(lower, v, narrow);
        }
        lower->tensor[v] = lower_placed_tensor(lower, context->shapes[v], dtype, IR_IO, context->pass_offset[v]);
        if (lower->needs_grad[v])
            lower->pass_grad[v] = lower_placed_tensor(lower, context->shapes[v], narrow, IR_IO,
                                                      context->pass_offset[v] + place_bytes(lower, v, dtype));
        const ir_passing passing = {v, lower->tensor[v], lower->pass_grad[v]};
        if (lower->taken[v])
            program->taken[program->taken_count++] = passing;
        if (lower->handed[v])
            program->handed[program->handed_count++] = passing;
    }
    return COD_OK;
}

void lower_seed_gradients(lowering *lower)
{
    for (size_t i = 0; i < lower->program->handed_count; i++)
        lower->grad[lower->program->handed[i].value] = lower->program->handed[i].gradient;
}

void lower_give_gradients(lowering *lower)
{
    for (size_t i = 0; i < lower->program->taken_count; i++) {
        const ir_passing *taken = &lower->program->taken[i];
        const int gradient = lower->grad[taken->value];
        if (taken->gradient != 0 && gradient == 0)
            lower_emit(lower, (ir_instr){.kind = COD_OP_FILL, .outputs = {taken->gradient}, .name = "zero"});
        else if (taken->gradient != gradient)
            lower_copy(lower, gradient, taken->gradient);
    }
}
