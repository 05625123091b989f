/*
 * Fusing: which instructions run as one plan, by what the backend says that it can run so.
 *
 * First gradients of weights sink (sink.c). Then one walk over the instructions writes them anew: each joins the
 * sequence before it where the backend takes both as one plan. A normalisation that has a convolution to join on either
 * side is written as its two halves, and an activation's gradient that joins the product before it works in place.
 * Gradients of weights, which stand between a normalisation's gradient and the convolution's data gradient, and sums of
 * gradients wait until the sequence is complete and then run behind it, where they read and write the same there.
 */
#include "nn/fuse_internal.h"

#include <stdlib.h>
#include <string.h>

/** The instructions as they are written anew. */
typedef struct writing {
    fusing *fuse;
    const ir_instr *old;
    size_t old_count;
    ir_instr *instrs;
    size_t count;
    size_t open;       /**< the first instruction of the sequence that the next may join; count: there is none */
    ir_instr *waiting; /**< what waits until it is complete */
    size_t waiting_count;
} writing;

/** Kinds that stand between what can be fused, and that fused plans never begin or end with. */
static bool is_waiting_kind(cod_op_kind kind)
{
    return kind == COD_OP_CONV2D_BACKWARD_WEIGHTS || kind == COD_OP_ADD;
}

/** Whether the instructions behind each other would be one plan: those of the open sequence, and `instr`. */
static bool joins_open(const writing *w, const ir_instr *instr)
{
    cod_op ops[COD_FUSED_AROUND];
    const size_t before = w->count - w->open;
    if (before == 0 || before >= COD_FUSED_AROUND)
        return false;
    for (size_t i = 0; i < before; i++)
        ops[i] = fuse_op(w->fuse, &w->instrs[w->open + i]);
    ops[before] = fuse_op(w->fuse, instr);
    if (fuse_ask(w->fuse, ops, before + 1) != before + 1)
        return false;
    for (size_t i = 0; i < w->waiting_count; i++)
        if (!fuse_may_pass(w->fuse, &w->waiting[i], instr))
            return false;
    return true;
}

/** Ends the open sequence, and writes what waits. */
static void close_sequence(writing *w)
{
    for (size_t i = 0; i < w->waiting_count; i++)
        w->instrs[w->count++] = w->waiting[i];
    w->waiting_count = 0;
    w->open = w->count;
}

static void write_instr(writing *w, ir_instr instr)
{
    if (is_waiting_kind(instr.kind)) {
        w->waiting[w->waiting_count++] = instr;
        return;
    }
    instr.joins = joins_open(w, &instr);
    if (!instr.joins)
        close_sequence(w);
    w->instrs[w->count++] = instr;
}

/** Whether `half` and the next instruction behind old[at], but for those that can wait, would be one plan. */
static bool joins_next(const writing *w, const ir_instr *half, size_t at, size_t end)
{
    size_t next = at + 1;
    while (next < end && is_waiting_kind(w->old[next].kind))
        next++;
    if (next == end || w->old[next].prepare)
        return false;
    const cod_op ops[] = {fuse_op(w->fuse, half), fuse_op(w->fuse, &w->old[next])};
    if (fuse_ask(w->fuse, ops, 2) != 2)
        return false;
    for (size_t i = at + 1; i < next; i++)
        if (!fuse_may_pass(w->fuse, &w->old[i], &w->old[next]))
            return false;
    return true;
}

/** Writes the halves where one of them joins a convolution. @return whether */
static bool write_halves(writing *w, const ir_instr halves[2], size_t at, size_t end)
{
    if (!joins_open(w, &halves[0]) && !joins_next(w, &halves[1], at, end))
        return false;
    write_instr(w, halves[0]);
    write_instr(w, halves[1]);
    return true;
}

static bool write_norm_train(writing *w, size_t at, size_t end)
{
    const ir_instr *norm = &w->old[at];
    const int *in = norm->inputs, *out = norm->outputs;
    ir_instr halves[2] = {*norm, *norm};
    halves[0].kind = COD_OP_NORM_STATISTICS;
    halves[1].kind = COD_OP_NORM_APPLY;
    halves[0].attr.activation = COD_ACT_NONE;
    const int statistics_inputs[COD_OP_MAX_INPUTS] = {in[0]},
              statistics_outputs[COD_OP_MAX_OUTPUTS] = {out[1], out[2], out[3], out[4]},
              apply_inputs[COD_OP_MAX_INPUTS] = {in[0], in[1], in[2], out[1], out[2], in[3], in[4]},
              apply_outputs[COD_OP_MAX_OUTPUTS] = {out[0]};
    memcpy(halves[0].inputs, statistics_inputs, sizeof statistics_inputs);
    memcpy(halves[0].outputs, statistics_outputs, sizeof statistics_outputs);
    memcpy(halves[1].inputs, apply_inputs, sizeof apply_inputs);
    memcpy(halves[1].outputs, apply_outputs, sizeof apply_outputs);
    return write_halves(w, halves, at, end);
}

static bool touches(const fusing *fuse, const ir_instr *instr, int tensor)
{
    for (size_t k = 0; k < COD_OP_MAX_INPUTS; k++)
        if (fuse_overlap(fuse, instr->inputs[k], tensor))
            return true;
    for (size_t k = 0; k < COD_OP_MAX_OUTPUTS; k++)
        if (fuse_overlap(fuse, instr->outputs[k], tensor))
            return true;
    return false;
}

/** Whether nobody uses what the tensor holds after the instruction old[at]. */
static bool is_last_use(const writing *w, int tensor, size_t at)
{
    if (w->fuse->program->tensors[ir_root(w->fuse->program, tensor)].place != IR_ARENA)
        return false;
    for (size_t i = 0; i < w->waiting_count; i++)
        if (touches(w->fuse, &w->waiting[i], tensor))
            return false;
    for (size_t i = at + 1; i < w->old_count; i++)
        if (touches(w->fuse, &w->old[i], tensor))
            return false;
    return true;
}

/**
 * How many of a normalisation's gradients [first, end) the `fills` instructions before it set to zero; *present: how
 * many it has.
 */
static size_t count_filled(const ir_instr *norm, size_t fills, size_t first, size_t end, size_t *present)
{
    size_t filled = 0;
    *present = 0;
    for (size_t k = first; k < end; k++) {
        *present += norm->outputs[k] != 0;
        for (size_t i = 1; i <= fills; i++)
            filled += norm->outputs[k] != 0 && norm[-(ptrdiff_t)i].outputs[0] == norm->outputs[k];
    }
    return filled;
}

/**
 * The halves of old[at]. Its one `accumulate` is for all its gradients, so that the others are filled with zeros before
 * it; halves can have one each, and then need no zeros.
 * @return false where memory is short or some of the parameters' gradients alone are filled
 */
static bool halve_norm_backward(writing *w, size_t at, size_t fills, ir_instr halves[2])
{
    enum { DX, DGAMMA, DBETA, DSLOPE, GRADIENTS };
    fusing *fuse = w->fuse;
    const ir_instr *norm = &w->old[at];
    const int *in = norm->inputs, *out = norm->outputs;
    const cod_shape x = fuse->program->tensors[in[0]].shape;
    const cod_dtype dtype = fuse->program->tensors[in[1]].dtype;
    const bool activated = norm->attr.activation != COD_ACT_NONE;
    size_t params, one;
    const size_t filled = count_filled(norm, fills, DGAMMA, GRADIENTS, &params);
    if (filled != 0 && filled != params)
        return false;
    const int sums = fuse_add_tensor(fuse, (cod_shape){1, 1, 2, x.c}, fuse->context->param_dtype);
    const int g = !activated ? 0 : is_last_use(w, in[1], at) ? in[1] : fuse_add_tensor(fuse, x, dtype);
    if (sums == 0 || (activated && g == 0))
        return false;
    halves[0] = halves[1] = *norm;
    halves[0].kind = COD_OP_NORM_BACKWARD_REDUCE;
    halves[0].accumulate = norm->accumulate && filled == 0;
    halves[1].kind = COD_OP_NORM_BACKWARD_APPLY;
    halves[1].accumulate = norm->accumulate && count_filled(norm, fills, DX, DX + 1, &one) == 0;
    halves[1].attr.activation = COD_ACT_NONE;
    const int reduce_outputs[COD_OP_MAX_OUTPUTS] = {g, sums, out[DGAMMA], out[DBETA], out[DSLOPE]},
              apply_inputs[COD_OP_MAX_INPUTS] = {in[0], g != 0 ? g : in[1], in[2], in[4], in[5], sums},
              apply_outputs[COD_OP_MAX_OUTPUTS] = {out[DX]};
    memcpy(halves[0].outputs, reduce_outputs, sizeof reduce_outputs);
    memcpy(halves[1].inputs, apply_inputs, sizeof apply_inputs);
    memcpy(halves[1].outputs, apply_outputs, sizeof apply_outputs);
    return true;
}

/** How many instructions from old[at] on fill gradients of the NORM_BACKWARD behind them with zeros. */
static size_t fills_of_norm(const writing *w, size_t at, size_t end)
{
    size_t norm = at;
    while (norm < end && w->old[norm].kind == COD_OP_FILL && w->old[norm].attr.alpha == 0)
        norm++;
    if (norm == end || w->old[norm].kind != COD_OP_NORM_BACKWARD)
        return 0;
    for (size_t i = at; i < norm; i++) {
        size_t k = 0;
        while (k < COD_OP_MAX_OUTPUTS && w->old[norm].outputs[k] != w->old[i].outputs[0])
            k++;
        if (k == COD_OP_MAX_OUTPUTS)
            return 0;
    }
    return norm - at;
}

/** Whether the last instruction that was written, of the open sequence, is a product that makes the gradient `dx`. */
static bool ends_with_gradient(const writing *w, int dx)
{
    if (w->open == w->count)
        return false;
    const ir_instr *last = &w->instrs[w->count - 1];
    return (last->kind == COD_OP_LINEAR_BACKWARD_DATA || last->kind == COD_OP_CONV2D_BACKWARD_DATA) &&
           last->outputs[0] == dx;
}

/** Writes an activation's gradient in the place of its dy, where that joins the layer that makes dy. @return whether */
static bool write_activation_backward(writing *w, size_t at)
{
    const ir_instr *instr = &w->old[at];
    const int dy = instr->inputs[1], dx = instr->outputs[0];
    const ir_tensor *from = &w->fuse->program->tensors[dy];
    ir_tensor *to = &w->fuse->program->tensors[dx];
    if (instr->accumulate || !ends_with_gradient(w, dy) || from->root != dy || to->root != dx ||
        to->place != IR_ARENA || from->dtype != to->dtype || !cod_shape_equal(from->shape, to->shape) ||
        !is_last_use(w, dy, at))
        return false;
    to->root = dy;
    to->reshaped = true;
    if (joins_open(w, instr)) {
        write_instr(w, *instr);
        return true;
    }
    to->root = dx;
    to->reshaped = false;
    return false;
}

/** Writes old[at], with those behind it that belong to it. @return how many */
static size_t write_next(writing *w, size_t at, size_t end)
{
    ir_instr halves[2];
    const size_t fills = fills_of_norm(w, at, end), norm = at + fills;
    if (w->old[at].kind == COD_OP_NORM_TRAIN && write_norm_train(w, at, end))
        return 1;
    if (w->old[norm].kind == COD_OP_NORM_BACKWARD && halve_norm_backward(w, norm, fills, halves) &&
        write_halves(w, halves, norm, end))
        return fills + 1;
    if (w->old[at].kind == COD_OP_ACTIVATION_BACKWARD && write_activation_backward(w, at))
        return 1;
    for (size_t i = at; i <= norm; i++)
        write_instr(w, w->old[i]);
    return fills + 1;
}

/** Forward and backward pass apart: stages run them so. */
static void write_all(writing *w)
{
    const size_t cut = w->fuse->program->backward;
    for (size_t at = 0; at < cut; at += write_next(w, at, cut)) {
    }
    close_sequence(w);
    w->fuse->program->backward = w->count;
    for (size_t at = cut; at < w->old_count; at += write_next(w, at, w->old_count)) {
    }
    close_sequence(w);
}

static cod_status join_instructions(fusing *fuse)
{
    ir_program *program = fuse->program;
    const size_t count = program->instr_count;
    writing w = {.fuse = fuse,
                 .old = program->instrs,
                 .old_count = count,
                 .instrs = malloc(2 * count * sizeof *w.instrs),
                 .waiting = malloc(count * sizeof *w.waiting)};
    if (w.instrs == NULL || w.waiting == NULL) {
        free(w.instrs);
        free(w.waiting);
        return cod_fail(COD_ERR_MEMORY, "out of memory while fusing");
    }
    write_all(&w);
    free(w.waiting);
    free(program->instrs);
    program->instrs = w.instrs;
    program->instr_count = w.count;
    program->instr_capacity = 2 * count;
    return COD_OK;
}

/** Gradients are complete when the plan of the last instruction that writes them has run. */
static void find_ready(const fusing *fuse)
{
    const ir_program *program = fuse->program;
    const size_t params = cod_graph_param_count(fuse->context->graph),
                 element = cod_dtype_bytes(fuse->context->param_dtype);
    for (size_t first = program->backward, end = 0; first < program->instr_count; first = end) {
        end = ir_group_end(program, first);
        for (size_t i = first * COD_OP_MAX_OUTPUTS; i < end * COD_OP_MAX_OUTPUTS; i++) {
            const int output = program->instrs[i / COD_OP_MAX_OUTPUTS].outputs[i % COD_OP_MAX_OUTPUTS];
            const ir_tensor *t = &program->tensors[output];
            for (size_t p = 0; output != 0 && t->place == IR_GRADS && p < params; p++) {
                const cod_param *param = cod_graph_param(fuse->context->graph, p);
                if (!param->is_state && param->offset * element == t->offset)
                    program->grad_ready[p] = (int)end - 1;
            }
        }
    }
}

cod_status ir_fuse(const ir_context *context, const cod_backend *backend, cod_device *device, const cod_bucket *buckets,
                   size_t bucket_count, ir_program *program)
{
    cod_buffer places[IR_PLACES] = {{0}};
    fusing fuse = {.context = context, .program = program, .backend = backend, .device = device, .places = places};
    if (program->instr_count == 0)
        return COD_OK;
    for (size_t i = 0; i < IR_PLACES; i++)
        places[i].bytes = SIZE_MAX;
    for (size_t t = 1; t < program->tensor_count; t++)
        fuse_give_offset(&fuse, (int)t);
    COD_TRY(fuse_sink_weights(&fuse, buckets, bucket_count));
    COD_TRY(join_instructions(&fuse));
    find_ready(&fuse);
    return COD_OK;
}
