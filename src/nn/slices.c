/*
 * Slices: the end of a training program in parts of the batch.
 *
 * Between the last op of the forward pass that mixes pictures, such as a normalisation by the batch's statistics, and
 * the first one of the backward pass that does, each picture goes its own way, through the losses and back. The
 * instructions there are written once for each slice of the batch, so that tensors which only they use, in networks
 * that enlarge pictures by far the largest, need memory for one slice alone. Gradients of parameters and the losses'
 * values, which are sums over pictures, are added up.
 */
#include "nn/ir_internal.h"

#include <stdlib.h>
#include <string.h>

/** Slices of fewer bytes, in their largest tensor, would leave a device idle between its kernels. */
static const size_t least_bytes = (size_t)16 << 20;
enum { MOST_BY_ITSELF = 4 };

/**
 * Which inputs and outputs hold something for each picture, as bits; all others are parameters, gradients or values.
 */
typedef struct picture_operands {
    bool known;
    unsigned inputs, outputs;
} picture_operands;

static picture_operands operands_of(const ir_program *program, const ir_instr *instr, int64_t batch)
{
    const cod_op_traits *traits = cod_op_traits_of(instr->kind);
    if (instr->kind == COD_OP_FILL) {
        const ir_tensor *filled = &program->tensors[instr->outputs[0]];
        return (picture_operands){true, 0, filled->place != IR_GRADS && filled->shape.n == batch};
    }
    return (picture_operands){traits->item_inputs != 0, traits->item_inputs, traits->item_outputs};
}

typedef struct slicing {
    ir_program *program;
    int64_t batch, count; /**< pictures, and slices */
    size_t first, end;    /**< the instructions that are written for each slice */
    bool *outside;        /**< [tensor before] root that other instructions use, or that has a fixed place */
    int *slice_of;        /**< [tensor before] its part in the slice that is being written; 0 = not made yet */
    ir_program out;       /**< the new instructions */
    bool out_of_memory;
} slicing;

static bool can_slice(const slicing *s, const ir_instr *instr)
{
    const picture_operands operands = operands_of(s->program, instr, s->batch);
    if (!operands.known || instr->prepare)
        return false;
    for (size_t k = 0; k < COD_OP_MAX_INPUTS; k++) {
        const ir_tensor *t = &s->program->tensors[instr->inputs[k]];
        if (instr->inputs[k] != 0 && (operands.inputs >> k & 1) != 0 && (t->shape.n != s->batch || t->row != 0))
            return false;
    }
    for (size_t k = 0; k < COD_OP_MAX_OUTPUTS; k++) {
        const ir_tensor *t = &s->program->tensors[instr->outputs[k]];
        if (instr->outputs[k] != 0 && (operands.outputs >> k & 1) != 0 && (t->shape.n != s->batch || t->row != 0))
            return false;
    }
    return true;
}

/** Finds the instructions around the losses that can be sliced. @return whether there are any */
static bool find_range(slicing *s)
{
    const ir_program *program = s->program;
    size_t first = program->instr_count, last = 0;
    for (size_t i = program->backward; i < program->instr_count; i++)
        if (program->instrs[i].kind == COD_OP_LOSS) {
            first = first == program->instr_count ? i : first;
            last = i;
        }
    if (first == program->instr_count)
        return false;
    s->batch = program->tensors[program->instrs[first].inputs[0]].shape.n;
    for (size_t i = first; i <= last; i++)
        if (!can_slice(s, &program->instrs[i]))
            return false;
    while (first > 0 && can_slice(s, &program->instrs[first - 1]))
        first--;
    while (last + 1 < program->instr_count && can_slice(s, &program->instrs[last + 1]))
        last++;
    s->first = first;
    s->end = last + 1;
    return true;
}

static void find_outside(slicing *s)
{
    const ir_program *program = s->program;
    for (size_t t = 1; t < program->tensor_count; t++) {
        const ir_tensor *tensor = &program->tensors[t];
        if (tensor->root == (int)t && (tensor->place != IR_ARENA || tensor->lasting || tensor->shape.n != s->batch))
            s->outside[t] = true;
    }
    for (size_t i = 0; i < program->instr_count; i++) {
        if (i >= s->first && i < s->end)
            continue;
        for (size_t k = 0; k < COD_OP_MAX_INPUTS; k++)
            s->outside[ir_root(program, program->instrs[i].inputs[k])] = true;
        for (size_t k = 0; k < COD_OP_MAX_OUTPUTS; k++)
            s->outside[ir_root(program, program->instrs[i].outputs[k])] = true;
    }
}

/** Bytes of the largest tensor that slices make smaller. */
static size_t largest_inside(const slicing *s)
{
    size_t most = 0;
    for (size_t i = s->first; i < s->end; i++)
        for (size_t k = 0; k < COD_OP_MAX_OUTPUTS; k++) {
            const int root = ir_root(s->program, s->program->instrs[i].outputs[k]);
            const ir_tensor *t = &s->program->tensors[root];
            const size_t bytes = (size_t)cod_shape_count(t->shape) * cod_dtype_bytes(t->dtype);
            if (root != 0 && !s->outside[root] && bytes > most)
                most = bytes;
        }
    return most;
}

/** How many slices: at most as many as are wanted, of equally many pictures. */
static int64_t choose_count(const slicing *s, int64_t wanted)
{
    const size_t largest = largest_inside(s);
    int64_t count = wanted > 0 ? wanted : MOST_BY_ITSELF;
    while (count > 1 &&
           (s->batch % count != 0 || largest == 0 || (wanted == 0 && largest / (size_t)count < least_bytes)))
        count--;
    return count;
}

static int add_tensor(slicing *s, ir_tensor tensor)
{
    const int added = ir_add_tensor(s->program, tensor);
    s->out_of_memory = s->out_of_memory || added == 0;
    return added;
}

static void emit(slicing *s, ir_instr instr)
{
    s->out_of_memory = s->out_of_memory || ir_add_instr(&s->out, instr) < 0;
}

/** What the slice `index` has of a tensor with something for each picture. */
static int part_of(slicing *s, int tensor, int64_t index)
{
    if (tensor == 0 || s->slice_of[tensor] != 0)
        return tensor == 0 ? 0 : s->slice_of[tensor];
    const int root = ir_root(s->program, tensor);
    ir_tensor part = s->program->tensors[tensor];
    part.shape.n /= s->count;
    if (s->outside[root]) {
        part.root = tensor;
        part.channel = 0;
        part.reshaped = false;
        part.row = index * part.shape.n * s->program->tensors[root].shape.h;
    } else {
        part.root = part.root == tensor ? 0 : part_of(s, part.root, index);
    }
    return s->slice_of[tensor] = add_tensor(s, part);
}

/**
 * Writes `output` of the instruction, a sum over pictures, to a place of its own, and adds `share` of that to the sum.
 */
static ir_instr apart(slicing *s, ir_instr *instr, size_t output, float share, bool adds)
{
    ir_tensor sum = s->program->tensors[instr->outputs[output]];
    sum = (ir_tensor){.shape = sum.shape, .dtype = sum.dtype};
    const int own = add_tensor(s, sum);
    const ir_instr add = {.kind = COD_OP_ADD,
                          .attr = {.alpha = share},
                          .accumulate = adds,
                          .inputs = {own},
                          .outputs = {instr->outputs[output]},
                          .node = instr->node,
                          .name = instr->name};
    instr->outputs[output] = own;
    if (instr->accumulate && cod_op_output_role(instr->kind, output) == COD_OUTPUT_ACCUMULATED)
        emit(s, (ir_instr){.kind = COD_OP_FILL, .outputs = {own}, .node = instr->node, .name = "zero"});
    return add;
}

/** Writes an instruction for the slice `index`. */
static void write_slice(slicing *s, const ir_instr *old, int64_t index)
{
    const picture_operands operands = operands_of(s->program, old, s->batch);
    ir_instr instr = *old, add = {0};
    if (old->kind == COD_OP_FILL && operands.outputs == 0 && index > 0)
        return; /* all slices add to it */
    for (size_t k = 0; k < COD_OP_MAX_INPUTS; k++)
        if ((operands.inputs >> k & 1) != 0)
            instr.inputs[k] = part_of(s, old->inputs[k], index);
    for (size_t k = 0; k < COD_OP_MAX_OUTPUTS; k++)
        if ((operands.outputs >> k & 1) != 0)
            instr.outputs[k] = part_of(s, old->outputs[k], index);
    if (old->kind == COD_OP_LOSS) { /* the mean over all pictures is that of the slices' means */
        const float share = 1 / (float)s->count;
        instr.attr.alpha *= share;
        add = apart(s, &instr, 0, share, index > 0);
    } else if (old->kind == COD_OP_ACTIVATION_BACKWARD && old->outputs[1] != 0) {
        add = apart(s, &instr, 1, 1, old->accumulate || index > 0); /* `accumulate` is dx's, too */
    } else if (operands.outputs == 0 && old->kind != COD_OP_FILL) {
        instr.accumulate = old->accumulate || index > 0;
    }
    emit(s, instr);
    if (add.outputs[0] != 0)
        emit(s, add);
}

static void write_all(slicing *s, size_t tensors)
{
    const ir_program *program = s->program;
    for (size_t i = 0; i < s->first; i++)
        emit(s, program->instrs[i]);
    for (int64_t index = 0; index < s->count; index++) {
        memset(s->slice_of, 0, tensors * sizeof *s->slice_of);
        for (size_t i = s->first; i < s->end; i++)
            write_slice(s, &program->instrs[i], index);
    }
    for (size_t i = s->end; i < program->instr_count; i++)
        emit(s, program->instrs[i]);
}

static void replace_instructions(slicing *s)
{
    ir_program *program = s->program;
    free(program->instrs);
    program->instrs = s->out.instrs;
    program->instr_count = s->out.instr_count;
    program->instr_capacity = s->out.instr_capacity;
    program->backward = s->first < program->backward ? s->first : program->backward;
    s->out = (ir_program){0};
}

cod_status ir_slice(ir_program *program, int64_t wanted)
{
    const size_t tensors = program->tensor_count;
    slicing s = {.program = program,
                 .outside = calloc(tensors + 1, sizeof *s.outside),
                 .slice_of = calloc(tensors + 1, sizeof *s.slice_of)};
    s.out_of_memory = s.outside == NULL || s.slice_of == NULL;
    if (!s.out_of_memory && find_range(&s)) {
        find_outside(&s);
        s.count = choose_count(&s, wanted);
        if (s.count > 1)
            write_all(&s, tensors);
        if (s.count > 1 && !s.out_of_memory)
            replace_instructions(&s);
    }
    ir_program_clear(&s.out);
    free(s.outside);
    free(s.slice_of);
    return s.out_of_memory ? cod_fail(COD_ERR_MEMORY, "out of memory while slicing") : COD_OK;
}
