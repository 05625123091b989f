/*
 * Recomputing: tensors that a cheap op makes in the forward pass and that the backward pass reads again are not kept
 * until then. The op is repeated right before the first of these readers, so that its output needs no memory between
 * the two passes. The repeated op has the same inputs, and therefore gives the same bits.
 *
 * Which tensors those are follows from the bytes that are live at each instruction. While some tensor lies idle where
 * most bytes are live, the one that saves most for what its op reads and writes is tried, and stays where no more bytes
 * are live at the new peak than at the old one. An input that would have to be kept longer counts at every instruction
 * where it is live, so that no tensor is made again at the cost of a larger one. Then each choice that the peak does
 * not need is taken back, and all of them where the memory plan needs as many bytes with them as without.
 */
#include "nn/ir_internal.h"

#include <stdlib.h>
#include <string.h>

typedef struct recomputing {
    const ir_program *program; /**< as it was */
    size_t *maker;             /**< [tensor] the instruction that made all of it and may be repeated, or NONE */
    bool *read_back;           /**< [tensor] root that the backward pass reads */
    bool *again;               /**< [tensor] chosen to be made again */
    bool *settled;             /**< [tensor] was tried */
    int *now;       /**< [tensor] what stands for it in the backward pass that is being written; 0 = not made yet */
    size_t *moved;  /**< [instr] where it stands in `out` */
    ir_program out; /**< tensors and instructions as they are written anew */
    size_t *idle_after,
        *idle_before; /**< [tensor] its last instruction of the forward and its first of the backward pass in `out` */
    size_t peak, peak_at; /**< most bytes that are live at once in `out`, and the first instruction where they are */
    bool out_of_memory;
} recomputing;

static const size_t NONE = SIZE_MAX;

static size_t bytes_of(const recomputing *r, int tensor)
{
    const ir_tensor *t = &r->program->tensors[tensor];
    return (size_t)cod_shape_count(t->shape) * cod_dtype_bytes(t->dtype);
}

/**
 * What makes the instruction's first output once more; of a normalisation only its second half, as its statistics are
 * kept.
 */
static ir_instr repeat_of(const ir_instr *made)
{
    ir_instr again = *made;
    again.joins = false;
    if (made->kind == COD_OP_NORM_TRAIN) {
        const int *in = made->inputs, *out = made->outputs;
        const int inputs[COD_OP_MAX_INPUTS] = {in[0], in[1], in[2], out[1], out[2], in[3], in[4]};
        again.kind = COD_OP_NORM_APPLY;
        memcpy(again.inputs, inputs, sizeof inputs);
        memset(again.outputs, 0, sizeof again.outputs);
        again.outputs[0] = made->outputs[0];
    }
    return again;
}

/**
 * Whether the instruction's first output may be made again anywhere behind it, to the bits: not where it joins the plan
 * of another op, whose output it may have read before that was rounded. last_write[root], NONE: by nobody.
 */
static bool may_repeat(const recomputing *r, size_t at, const size_t *writers, const size_t *last_write)
{
    const ir_program *program = r->program;
    const ir_instr *made = &program->instrs[at];
    const int output = made->outputs[0];
    const ir_tensor *t = &program->tensors[output];
    if (!cod_op_traits_of(made->kind)->is_cheap || made->accumulate || made->prepare || made->joins ||
        t->place != IR_ARENA || t->lasting || t->root != output || writers[output] != 1)
        return false;
    const ir_instr again = repeat_of(made);
    for (size_t k = 0; k < COD_OP_MAX_INPUTS; k++) {
        const size_t written = last_write[ir_root(program, again.inputs[k])];
        if (again.inputs[k] != 0 && written != NONE && written > at)
            return false;
    }
    return true;
}

static cod_status find_makers(recomputing *r)
{
    const ir_program *program = r->program;
    size_t *writers = calloc(program->tensor_count, sizeof *writers);
    size_t *last_write = malloc(program->tensor_count * sizeof *last_write);
    if (writers == NULL || last_write == NULL) {
        free(writers);
        free(last_write);
        return cod_fail(COD_ERR_MEMORY, "out of memory while choosing what to recompute");
    }
    for (size_t t = 0; t < program->tensor_count; t++)
        last_write[t] = r->maker[t] = NONE;
    for (size_t i = 0; i < program->instr_count; i++) {
        for (size_t k = 0; k < COD_OP_MAX_OUTPUTS; k++) {
            const int root = ir_root(program, program->instrs[i].outputs[k]);
            writers[root]++;
            last_write[root] = i;
        }
        for (size_t k = 0; i >= program->backward && k < COD_OP_MAX_INPUTS; k++)
            r->read_back[ir_root(program, program->instrs[i].inputs[k])] = true;
    }
    for (size_t i = 0; i < program->backward; i++)
        if (may_repeat(r, i, writers, last_write))
            r->maker[program->instrs[i].outputs[0]] = i;
    free(writers);
    free(last_write);
    return COD_OK;
}

/** Also where the backward pass does not read the root itself: then only a repeated op does, and nobody keeps it. */
static bool is_made_again(const recomputing *r, int root)
{
    return r->again[root] || (!r->read_back[root] && r->maker[root] != NONE);
}

static int add_tensor(recomputing *r, ir_tensor tensor)
{
    const int added = ir_add_tensor(&r->out, tensor);
    r->out_of_memory = r->out_of_memory || added == 0;
    return added;
}

static void emit(recomputing *r, ir_instr instr)
{
    r->out_of_memory = r->out_of_memory || ir_add_instr(&r->out, instr) < 0;
}

/** What the backward pass reads in the place of `tensor`; made here where it is the first to need it. */
static int stand_in(recomputing *r, int tensor)
{
    const ir_tensor *t = &r->program->tensors[tensor];
    const int root = ir_root(r->program, tensor);
    if (tensor == 0 || !is_made_again(r, root))
        return tensor;
    if (r->now[tensor] != 0)
        return r->now[tensor];
    if (root != tensor) {
        ir_tensor view = *t;
        view.root = stand_in(r, t->root);
        return r->now[tensor] = add_tensor(r, view);
    }
    ir_instr again = repeat_of(&r->program->instrs[r->maker[root]]);
    for (size_t k = 0; k < COD_OP_MAX_INPUTS; k++)
        again.inputs[k] = stand_in(r, again.inputs[k]);
    again.outputs[0] = r->now[tensor] = add_tensor(r, (ir_tensor){.shape = t->shape, .dtype = t->dtype});
    emit(r, again);
    return r->now[tensor];
}

/** Writes the program with what is chosen made again. */
static cod_status write_all(recomputing *r)
{
    const ir_program *program = r->program;
    ir_program_clear(&r->out);
    memset(r->now, 0, program->tensor_count * sizeof *r->now);
    for (size_t t = 1; t < program->tensor_count; t++)
        add_tensor(r, program->tensors[t]);
    for (size_t first = 0, end = 0; first < program->instr_count; first = end) {
        const bool backward = first >= program->backward;
        end = ir_group_end(program, first);
        for (size_t i = first * COD_OP_MAX_INPUTS; backward && i < end * COD_OP_MAX_INPUTS; i++)
            stand_in(r, program->instrs[i / COD_OP_MAX_INPUTS].inputs[i % COD_OP_MAX_INPUTS]);
        for (size_t i = first; i < end; i++) {
            ir_instr instr = program->instrs[i];
            for (size_t k = 0; backward && k < COD_OP_MAX_INPUTS; k++)
                instr.inputs[k] = stand_in(r, instr.inputs[k]);
            r->moved[i] = r->out.instr_count;
            emit(r, instr);
        }
    }
    r->out.backward = program->backward;
    return r->out_of_memory ? cod_fail(COD_ERR_MEMORY, "out of memory while recomputing") : COD_OK;
}

/** Notes between which instructions of `out` each tensor of the forward pass lies idle. */
static void find_idle(recomputing *r)
{
    for (size_t t = 0; t < r->program->tensor_count; t++)
        r->idle_after[t] = r->idle_before[t] = NONE;
    for (size_t first = 0, end = 0; first < r->out.instr_count; first = end) {
        end = ir_group_end(&r->out, first);
        for (size_t i = first; i < end; i++) {
            const ir_instr *instr = &r->out.instrs[i];
            for (size_t k = 0; k < COD_OP_MAX_INPUTS + COD_OP_MAX_OUTPUTS; k++) {
                const int root =
                    ir_root(&r->out, k < COD_OP_MAX_INPUTS ? instr->inputs[k] : instr->outputs[k - COD_OP_MAX_INPUTS]);
                if ((size_t)root >= r->program->tensor_count)
                    continue;
                if (first < r->out.backward)
                    r->idle_after[root] = end - 1;
                else if (r->idle_before[root] == NONE)
                    r->idle_before[root] = first;
            }
        }
    }
}

/** Writes the program with what is chosen and finds its peak, as it will be with ops that work in place. */
static cod_status measure(recomputing *r)
{
    COD_TRY(write_all(r));
    find_idle(r);
    COD_TRY(ir_work_in_place(&r->out));
    return ir_find_peak(&r->out, &r->peak, &r->peak_at);
}

/** Bytes read and written to make the root again, with those of its inputs that nobody else keeps. */
static size_t cost_of(const recomputing *r, int root)
{
    const ir_instr again = repeat_of(&r->program->instrs[r->maker[root]]);
    size_t cost = bytes_of(r, root);
    for (size_t k = 0; k < COD_OP_MAX_INPUTS; k++) {
        const int input = ir_root(r->program, again.inputs[k]);
        if (again.inputs[k] == 0)
            continue;
        cost += bytes_of(r, input);
        cost += !r->read_back[input] && r->maker[input] != NONE ? cost_of(r, input) : 0;
    }
    return cost;
}

/** The share of its cost that making the root again saves. */
static double gain_of(const recomputing *r, int root)
{
    return (double)bytes_of(r, root) / (double)cost_of(r, root);
}

/** The tensor to be tried next: idle at the peak, with the largest gain, made first; 0: there is none. */
static int next_candidate(const recomputing *r)
{
    int best = 0;
    for (size_t t = 1; t < r->program->tensor_count; t++)
        if (r->maker[t] != NONE && r->read_back[t] && !r->settled[t] && r->idle_after[t] < r->peak_at &&
            r->idle_before[t] > r->peak_at && (best == 0 || gain_of(r, (int)t) > gain_of(r, best)))
            best = (int)t;
    return best;
}

/** Chooses tensors as long as one of them lies idle at the peak. */
static cod_status choose(recomputing *r)
{
    COD_TRY(measure(r));
    for (int next = next_candidate(r); next != 0; next = next_candidate(r)) {
        const size_t before = r->peak;
        r->again[next] = r->settled[next] = true;
        COD_TRY(measure(r));
        if (r->peak <= before)
            continue;
        r->again[next] = false;
        COD_TRY(measure(r));
    }
    return COD_OK;
}

/** Takes back what the peak does not need, last made first. */
static cod_status take_back(recomputing *r)
{
    const size_t peak = r->peak;
    for (size_t t = r->program->tensor_count; t-- > 1;) {
        if (!r->again[t])
            continue;
        r->again[t] = false;
        COD_TRY(measure(r));
        r->again[t] = r->peak > peak;
    }
    return COD_OK;
}

static void replace(recomputing *r, const ir_context *context, ir_program *program)
{
    for (size_t p = 0; p < cod_graph_param_count(context->graph); p++)
        if (program->grad_ready[p] >= 0)
            program->grad_ready[p] = (int)r->moved[program->grad_ready[p]];
    free(program->tensors);
    free(program->instrs);
    program->tensors = r->out.tensors;
    program->tensor_count = r->out.tensor_count;
    program->tensor_capacity = r->out.tensor_capacity;
    program->instrs = r->out.instrs;
    program->instr_count = r->out.instr_count;
    program->instr_capacity = r->out.instr_capacity;
    r->out = (ir_program){0};
}

static cod_status allocate_tables(recomputing *r, cod_arena *arena)
{
    const size_t tensors = r->program->tensor_count;
    size_t **const places[] = {&r->maker, &r->idle_after, &r->idle_before};
    bool **const flags[] = {&r->read_back, &r->again, &r->settled};
    for (size_t i = 0; i < 3; i++) {
        *places[i] = cod_arena_alloc(arena, tensors * sizeof **places[i]);
        *flags[i] = cod_arena_alloc(arena, tensors * sizeof **flags[i]);
        COD_REQUIRE_MEMORY(*places[i]);
        COD_REQUIRE_MEMORY(*flags[i]);
    }
    r->now = cod_arena_alloc(arena, tensors * sizeof *r->now);
    r->moved = cod_arena_alloc(arena, r->program->instr_count * sizeof *r->moved);
    COD_REQUIRE_MEMORY(r->now);
    COD_REQUIRE_MEMORY(r->moved);
    return COD_OK;
}

/** Bytes of the memory plan with what is chosen, which may be more than the peak. */
static cod_status plan_bytes(recomputing *r, size_t *bytes)
{
    COD_TRY(measure(r));
    COD_TRY(ir_plan_memory(&r->out));
    *bytes = r->out.arena_bytes;
    return COD_OK;
}

static cod_status recompute(recomputing *r, cod_arena *arena)
{
    size_t kept, again;
    COD_TRY(allocate_tables(r, arena));
    COD_TRY(find_makers(r));
    COD_TRY(plan_bytes(r, &kept));
    COD_TRY(choose(r));
    COD_TRY(take_back(r));
    COD_TRY(plan_bytes(r, &again));
    if (again >= kept)
        memset(r->again, 0, r->program->tensor_count * sizeof *r->again);
    return write_all(r);
}

cod_status ir_recompute(const ir_context *context, ir_program *program)
{
    recomputing r = {.program = program};
    cod_arena arena = {0};
    if (program->instr_count == 0)
        return COD_OK;
    const cod_status status = recompute(&r, &arena);
    if (status == COD_OK)
        replace(&r, context, program);
    ir_program_clear(&r.out);
    cod_arena_clear(&arena);
    return status;
}
