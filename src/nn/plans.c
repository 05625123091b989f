/* Plans of a program's instructions, and their names. */
#include "nn/compile_internal.h"

#include <stdio.h>

static cod_buffer *buffer_of(const cod_executable *executable, ir_place place)
{
    switch (place) {
    case IR_ARENA:
        return executable->arena;
    case IR_IO:
        return executable->io;
    case IR_SCALARS:
        return cod_scalars_view(executable->scalars, 0, 1).buffer;
    case IR_VALUES:
        return executable->weights->values;
    case IR_GRADS:
        return executable->weights->grads;
    case IR_PLACES:
        break;
    }
    return NULL;
}

cod_view compile_view(const cod_executable *executable, const ir_program *ir, int tensor)
{
    if (tensor == 0)
        return (cod_view){0};
    cod_view view = ir_view(ir, tensor);
    const ir_tensor *root = &ir->tensors[ir_root(ir, tensor)];
    const cod_weights *weights = executable->weights;
    const size_t trainable = weights->layout.trainable * cod_dtype_bytes(weights->dtype);
    const bool apart = root->place == IR_VALUES && weights->states != NULL && root->offset >= trainable;
    view.buffer = apart ? weights->states : buffer_of(executable, root->place);
    view.offset -= apart ? trainable : 0;
    return view;
}

/** Sets whose parameters an instruction reads; `states`: of which it reads states, or what was folded with them. */
static cod_sets sets_read(const ir_program *ir, const ir_instr *instr, bool states)
{
    cod_sets sets = 0;
    for (size_t k = 0; k < COD_OP_MAX_INPUTS; k++) {
        const ir_tensor *tensor = &ir->tensors[instr->inputs[k]];
        sets |= !states || tensor->of_states ? tensor->sets : 0;
    }
    return sets;
}

static bool is_norm_half(cod_op_kind kind)
{
    return kind >= COD_OP_NORM_STATISTICS && kind <= COD_OP_NORM_BACKWARD_APPLY;
}

/** Index of the op that a group is called after: the first that is no half of a normalisation. */
static size_t main_op(const cod_op *ops, size_t count)
{
    size_t at = 0;
    while (at + 1 < count && is_norm_half(ops[at].kind))
        at++;
    return at;
}

/** What a plan does, in words; NULL when memory is short. */
static const char *group_name(cod_arena *arena, const cod_op *ops, size_t count)
{
    char text[256];
    const size_t at = main_op(ops, count);
    const char *name = ops[at].name != NULL ? ops[at].name : "";
    if (count == 1)
        return name;
    if (ops[0].kind == COD_OP_CONV2D_BACKWARD_WEIGHTS)
        snprintf(text, sizeof text, "%s and %zu more", name, count - 1);
    else
        snprintf(text, sizeof text, "%s%s%s", at > 0 ? "norm + " : "", name,
                 at + 1 == count                  ? ""
                 : is_norm_half(ops[at + 1].kind) ? " + norm"
                                                  : " + activation");
    return cod_arena_strdup(arena, text);
}

/** The plan of the instructions [first, end). */
static cod_status make_plan(cod_program *program, size_t first, size_t end)
{
    cod_executable *executable = program->executable;
    const cod_backend *backend = executable->weights->backend;
    const cod_op *ops = &program->ops[first];
    const size_t count = end - first;
    program->names[first] = group_name(&executable->memory, ops, count);
    COD_REQUIRE_MEMORY(program->names[first]);
    program->entries[program->entry_count++] = first;
    const cod_status status =
        count == 1 ? backend->plan_create(executable->weights->device, ops, &program->plans[first])
                   : backend->plan_create_fused(executable->weights->device, ops, count, &program->plans[first]);
    return status == COD_OK ? COD_OK
                            : cod_fail_prefix(status, "program '%s', op '%s'", program->name, program->names[first]);
}

cod_status compile_plans(cod_program *program)
{
    cod_executable *executable = program->executable;
    const size_t count = program->ir.instr_count;
    program->ops = cod_arena_alloc(&executable->memory, count * sizeof *program->ops);
    program->plans = cod_arena_alloc(&executable->memory, count * sizeof *program->plans);
    program->stale = cod_arena_alloc(&executable->memory, count * sizeof *program->stale);
    program->names = cod_arena_alloc(&executable->memory, count * sizeof *program->names);
    program->entries = cod_arena_alloc(&executable->memory, count * sizeof *program->entries);
    program->depends = cod_arena_alloc(&executable->memory, count * sizeof *program->depends);
    COD_REQUIRE_MEMORY(program->ops);
    COD_REQUIRE_MEMORY(program->plans);
    COD_REQUIRE_MEMORY(program->stale);
    COD_REQUIRE_MEMORY(program->names);
    COD_REQUIRE_MEMORY(program->entries);
    COD_REQUIRE_MEMORY(program->depends);
    for (size_t first = 0, end = 0; first < count; first = end) {
        end = ir_group_end(&program->ir, first);
        for (size_t i = first; i < end; i++) {
            const ir_instr *instr = &program->ir.instrs[i];
            cod_op *op = &program->ops[i];
            program->depends[first][0] |= sets_read(&program->ir, instr, false);
            program->depends[first][1] |= sets_read(&program->ir, instr, true);
            *op = ir_op(instr, executable->options.deterministic);
            for (size_t k = 0; k < COD_OP_MAX_INPUTS; k++)
                op->inputs[k] = compile_view(executable, &program->ir, instr->inputs[k]);
            for (size_t k = 0; k < COD_OP_MAX_OUTPUTS; k++)
                op->outputs[k] = compile_view(executable, &program->ir, instr->outputs[k]);
        }
        COD_TRY(make_plan(program, first, end));
    }
    return COD_OK;
}

bool cod_program_op(const cod_program *program, size_t index, cod_op *out)
{
    if (index >= program->entry_count)
        return false;
    const size_t first = program->entries[index];
    *out = program->ops[first + main_op(&program->ops[first], cod_program_op_parts(program, index))];
    out->name = program->names[first];
    return true;
}

size_t cod_program_op_node(const cod_program *program, size_t index)
{
    const size_t first = program->entries[index];
    return program->ir.instrs[first + main_op(&program->ops[first], cod_program_op_parts(program, index))].node;
}

size_t cod_program_op_parts(const cod_program *program, size_t index)
{
    const size_t first = program->entries[index];
    return ir_group_end(&program->ir, first) - first;
}

size_t cod_program_op_part(const cod_program *program, size_t index, size_t part, cod_op *out)
{
    *out = program->ops[program->entries[index] + part];
    return program->ir.instrs[program->entries[index] + part].node;
}

double cod_program_op_flops(const cod_program *program, size_t index)
{
    double flops = 0;
    for (size_t i = 0; i < cod_program_op_parts(program, index); i++)
        flops += cod_op_flops(&program->ops[program->entries[index] + i]);
    return flops;
}

static double view_bytes(const cod_view *view)
{
    return (double)cod_shape_count(view->shape) * (double)cod_dtype_bytes(view->dtype);
}

/**
 * Whether the view is an output (else an input) of the first `count` ops, or one of the first `more` of the op behind
 * them.
 */
static bool is_among(const cod_view *view, const cod_op *ops, size_t count, size_t more, bool outputs)
{
    const size_t most = outputs ? COD_OP_MAX_OUTPUTS : COD_OP_MAX_INPUTS;
    for (size_t i = 0; i <= count; i++)
        for (size_t k = 0; k < (i < count ? most : more); k++)
            if (cod_view_equal(outputs ? &ops[i].outputs[k] : &ops[i].inputs[k], view))
                return true;
    return false;
}

double cod_program_op_bytes(const cod_program *program, size_t index)
{
    const cod_op *ops = &program->ops[program->entries[index]];
    double bytes = 0;
    for (size_t i = 0; i < cod_program_op_parts(program, index); i++) {
        for (size_t k = 0; k < COD_OP_MAX_INPUTS; k++) {
            const cod_view *x = &ops[i].inputs[k];
            if (x->buffer != NULL && !is_among(x, ops, i, 0, true) && !is_among(x, ops, i, k, false))
                bytes += view_bytes(x);
        }
        for (size_t k = 0; k < COD_OP_MAX_OUTPUTS; k++) {
            const cod_view *y = &ops[i].outputs[k];
            const cod_output_role role = cod_op_output_role(ops[i].kind, k);
            const bool added = role == COD_OUTPUT_UPDATED || (role == COD_OUTPUT_ACCUMULATED && ops[i].accumulate);
            if (y->buffer == NULL || is_among(y, ops, i, k, true))
                continue;
            bytes += view_bytes(y);
            bytes += added && !is_among(y, ops, i, COD_OP_MAX_INPUTS, false) ? view_bytes(y) : 0;
        }
    }
    return bytes;
}
