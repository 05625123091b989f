/*
 * Working in place: an op whose contract allows it writes its output where an input lies that nothing reads any more.
 * That saves the output's memory and leaves in the cache what the next op reads.
 */
#include "nn/ir_internal.h"

#include <stdlib.h>

/** The groups of instructions that use a tensor or its views. */
typedef struct uses {
    size_t first, last;
    bool any;
} uses;

static void note_use(const ir_program *program, int tensor, size_t group, uses *of)
{
    uses *root = &of[ir_root(program, tensor)];
    if (tensor == 0)
        return;
    if (!root->any)
        root->first = group;
    root->any = true;
    root->last = group;
}

/** of[root] of all tensors */
static void find_uses(const ir_program *program, uses *of)
{
    for (size_t first = 0, end = 0; first < program->instr_count; first = end) {
        end = ir_group_end(program, first);
        for (size_t i = first; i < end; i++) {
            for (size_t k = 0; k < COD_OP_MAX_INPUTS; k++)
                note_use(program, program->instrs[i].inputs[k], first, of);
            for (size_t k = 0; k < COD_OP_MAX_OUTPUTS; k++)
                note_use(program, program->instrs[i].outputs[k], first, of);
        }
    }
}

/** Whether nothing else of the instruction lies where `tensor` does. */
static bool is_used_once(const ir_program *program, const ir_instr *instr, int tensor)
{
    size_t count = 0;
    for (size_t k = 0; k < COD_OP_MAX_INPUTS; k++)
        count += instr->inputs[k] != 0 && ir_root(program, instr->inputs[k]) == tensor;
    for (size_t k = 0; k < COD_OP_MAX_OUTPUTS; k++)
        count += instr->outputs[k] != 0 && ir_root(program, instr->outputs[k]) == tensor;
    return count == 1;
}

/** The tensor in whose place the instruction, a plan of its own, may write its first output; 0: none. */
static int replaced_tensor(const ir_program *program, size_t at, const uses *of)
{
    const ir_instr *instr = &program->instrs[at];
    const unsigned may_replace = cod_op_traits_of(instr->kind)->in_place;
    const int output = instr->outputs[0];
    if (may_replace == 0 || instr->accumulate || instr->prepare || ir_group_end(program, at) != at + 1)
        return 0;
    const int input = instr->inputs[__builtin_ctz(may_replace)], root = ir_root(program, input);
    const ir_tensor *from = &program->tensors[root], *to = &program->tensors[output];
    const bool whole = cod_shape_equal(from->shape, program->tensors[input].shape) &&
                       cod_shape_equal(from->shape, to->shape) && from->dtype == to->dtype;
    const bool free = from->place == IR_ARENA && !from->lasting && of[root].last == at;
    const bool own = to->place == IR_ARENA && !to->lasting && to->root == output && of[output].first == at;
    return whole && free && own && is_used_once(program, instr, root) && is_used_once(program, instr, output) ? root
                                                                                                              : 0;
}

cod_status ir_work_in_place(ir_program *program)
{
    uses *of = calloc(program->tensor_count + 1, sizeof *of);
    COD_REQUIRE_MEMORY(of);
    find_uses(program, of);
    for (size_t at = 0; at < program->instr_count; at = ir_group_end(program, at)) {
        const int root = replaced_tensor(program, at, of);
        if (root == 0)
            continue;
        const int output = program->instrs[at].outputs[0];
        program->tensors[output].root = root;
        program->tensors[output].reshaped = true; /* all of the root, so that views of it keep their strides */
        of[root].last = of[output].last;
    }
    free(of);
    return COD_OK;
}
