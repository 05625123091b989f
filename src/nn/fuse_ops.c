/* Instructions as the backend sees them before memory is planned: which of them may be one plan. */
#include "nn/fuse_internal.h"

static cod_view placed_view(const fusing *fuse, int tensor)
{
    if (tensor == 0)
        return (cod_view){0};
    cod_view view = ir_view(fuse->program, tensor);
    view.buffer = &fuse->places[fuse->program->tensors[tensor].place];
    return view;
}

void fuse_give_offset(fusing *fuse, int tensor)
{
    ir_tensor *t = &fuse->program->tensors[tensor];
    if (t->place != IR_ARENA || t->root != tensor)
        return;
    t->offset = fuse->arena_end;
    fuse->arena_end += cod_align_up((size_t)cod_shape_count(t->shape) * cod_dtype_bytes(t->dtype));
}

int fuse_add_tensor(fusing *fuse, cod_shape shape, cod_dtype dtype)
{
    const int tensor = ir_add_tensor(fuse->program, (ir_tensor){.shape = shape, .dtype = dtype});
    if (tensor != 0)
        fuse_give_offset(fuse, tensor);
    return tensor;
}

bool fuse_overlap(const fusing *fuse, int a, int b)
{
    if (a == 0 || b == 0)
        return false;
    const cod_view x = placed_view(fuse, a), y = placed_view(fuse, b);
    return cod_views_overlap(&x, &y);
}

cod_op fuse_op(const fusing *fuse, const ir_instr *instr)
{
    cod_op op = ir_op(instr, fuse->context->options->deterministic);
    for (size_t k = 0; k < COD_OP_MAX_INPUTS; k++)
        op.inputs[k] = placed_view(fuse, instr->inputs[k]);
    for (size_t k = 0; k < COD_OP_MAX_OUTPUTS; k++)
        op.outputs[k] = placed_view(fuse, instr->outputs[k]);
    return op;
}

size_t fuse_ask(const fusing *fuse, const cod_op *ops, size_t count)
{
    const size_t fits = cod_fused_sequence(ops, count).count;
    return fits < 2 ? 1 : fuse->backend->op_fuses(fuse->device, ops, fits);
}
