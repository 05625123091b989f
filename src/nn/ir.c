#include "nn/ir_internal.h"

#include <stdlib.h>

int ir_root(const ir_program *program, int tensor)
{
    while (program->tensors[tensor].root != tensor)
        tensor = program->tensors[tensor].root;
    return tensor;
}

cod_view ir_view(const ir_program *program, int tensor)
{
    const ir_tensor *t = &program->tensors[tensor];
    cod_view view = {.dtype = t->dtype, .shape = t->shape, .pixel_stride = t->shape.c};
    const int64_t row = t->row;
    size_t skipped = 0;
    while (t->root != tensor) {
        skipped += (size_t)t->channel * cod_dtype_bytes(t->dtype);
        const bool reshaped = t->reshaped;
        tensor = t->root;
        t = &program->tensors[tensor];
        if (!reshaped)
            view.pixel_stride = t->shape.c;
    }
    view.offset = t->offset + skipped + (size_t)(row * t->shape.w * t->shape.c) * cod_dtype_bytes(t->dtype);
    return view;
}

size_t ir_group_end(const ir_program *program, size_t first)
{
    size_t end = first + 1;
    while (end < program->instr_count && program->instrs[end].joins)
        end++;
    return end;
}

/** Makes room for one more tensor. */
static bool reserve_tensor(ir_program *program)
{
    if (program->tensor_count < program->tensor_capacity)
        return true;
    const size_t capacity = program->tensor_capacity ? 2 * program->tensor_capacity : 256;
    ir_tensor *grown = realloc(program->tensors, capacity * sizeof *grown);
    if (grown == NULL)
        return false;
    program->tensors = grown;
    program->tensor_capacity = capacity;
    if (program->tensor_count == 0)
        program->tensors[program->tensor_count++] = (ir_tensor){0};
    return true;
}

cod_status ir_begin(ir_program *program)
{
    return reserve_tensor(program) ? COD_OK : cod_fail(COD_ERR_MEMORY, "out of memory for a program's tensors");
}

int ir_add_tensor(ir_program *program, ir_tensor tensor)
{
    if (!reserve_tensor(program))
        return 0;
    const int index = (int)program->tensor_count++;
    if (tensor.root == 0)
        tensor.root = index;
    program->tensors[index] = tensor;
    return index;
}

int ir_add_instr(ir_program *program, ir_instr instr)
{
    if (program->instr_count == program->instr_capacity) {
        const size_t capacity = program->instr_capacity ? 2 * program->instr_capacity : 256;
        ir_instr *grown = realloc(program->instrs, capacity * sizeof *grown);
        if (grown == NULL)
            return -1;
        program->instrs = grown;
        program->instr_capacity = capacity;
    }
    program->instrs[program->instr_count] = instr;
    return (int)program->instr_count++;
}

void ir_program_clear(ir_program *program)
{
    free(program->tensors);
    free(program->instrs);
    free(program->grad_ready);
    free(program->images);
    free(program->taken);
    free(program->handed);
    *program = (ir_program){0};
}

typedef struct lifetime {
    int tensor, first, last;
    size_t bytes;
} lifetime;

static int larger_first(const void *a, const void *b)
{
    const lifetime *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return (x->tensor > y->tensor) - (x->tensor < y->tensor);
}

/** The instructions [first, end) use the tensor at the same time. */
static void touch(lifetime *lives, const ir_program *program, int tensor, size_t first, size_t end)
{
    if (tensor == 0)
        return;
    lifetime *life = &lives[ir_root(program, tensor)];
    if (life->first < 0)
        life->first = (int)first;
    life->last = (int)end - 1;
}

static void find_lifetimes(const ir_program *program, lifetime *lives)
{
    for (size_t i = 0; i < program->tensor_count; i++)
        lives[i] = (lifetime){.tensor = (int)i, .first = -1, .last = -1};
    for (size_t first = 0, end = 0; first < program->instr_count; first = end) {
        end = ir_group_end(program, first);
        for (size_t i = first; i < end; i++) {
            for (size_t k = 0; k < COD_OP_MAX_INPUTS; k++)
                touch(lives, program, program->instrs[i].inputs[k], first, end);
            for (size_t k = 0; k < COD_OP_MAX_OUTPUTS; k++)
                touch(lives, program, program->instrs[i].outputs[k], first, end);
        }
    }
}

/** The lowest offset at which `life` overlaps none of the `placed` ones that live at the same time. */
static size_t first_gap(const ir_program *program, const lifetime *placed, size_t count, const lifetime *life)
{
    size_t offset = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (size_t i = 0; i < count; i++) {
            const lifetime *other = &placed[i];
            const size_t begin = program->tensors[other->tensor].offset;
            const bool together = other->first <= life->last && life->first <= other->last;
            if (together && offset < begin + other->bytes && begin < offset + life->bytes) {
                offset = begin + other->bytes;
                moved = true;
            }
        }
    }
    return offset;
}

/** Whether the memory plan gives the tensor a place; what lasts from run to run has one all the time. */
static bool takes_place(const ir_program *program, lifetime *life)
{
    const ir_tensor *t = &program->tensors[life->tensor];
    if (t->place != IR_ARENA || t->root != life->tensor || life->first < 0)
        return false;
    if (t->lasting) {
        life->first = 0;
        life->last = (int)program->instr_count;
    }
    life->bytes = cod_align_up((size_t)cod_shape_count(t->shape) * cod_dtype_bytes(t->dtype));
    return true;
}

cod_status ir_find_peak(const ir_program *program, size_t *peak, size_t *at)
{
    lifetime *lives = malloc((program->tensor_count + 1) * sizeof *lives);
    size_t *begins = calloc(2 * (program->instr_count + 2), sizeof *begins), *ends = begins + program->instr_count + 2;
    if (lives == NULL || begins == NULL) {
        free(lives);
        free(begins);
        return cod_fail(COD_ERR_MEMORY, "out of memory while planning memory");
    }
    find_lifetimes(program, lives);
    for (size_t t = 1; t < program->tensor_count; t++)
        if (takes_place(program, &lives[t])) {
            begins[lives[t].first] += lives[t].bytes;
            ends[lives[t].last + 1] += lives[t].bytes;
        }
    *peak = *at = 0;
    for (size_t i = 0, live = 0; i < program->instr_count; i++) {
        live += begins[i];
        live -= ends[i];
        if (live > *peak) {
            *peak = live;
            *at = i;
        }
    }
    free(lives);
    free(begins);
    return COD_OK;
}

cod_status ir_plan_memory(ir_program *program)
{
    /* Largest first, each at the lowest free offset: Pisarchyk & Lee 2020, "Greedy by Size". */
    lifetime *lives = malloc((program->tensor_count + 1) * sizeof *lives);
    COD_REQUIRE_MEMORY(lives);
    find_lifetimes(program, lives);
    size_t count = 0;
    for (size_t i = 1; i < program->tensor_count; i++)
        if (takes_place(program, &lives[i]))
            lives[count++] = lives[i];
    qsort(lives, count, sizeof *lives, larger_first);
    program->arena_bytes = 0;
    for (size_t i = 0; i < count; i++) {
        const size_t offset = first_gap(program, lives, i, &lives[i]);
        program->tensors[lives[i].tensor].offset = offset;
        if (offset + lives[i].bytes > program->arena_bytes)
            program->arena_bytes = offset + lives[i].bytes;
    }
    free(lives);
    return COD_OK;
}
