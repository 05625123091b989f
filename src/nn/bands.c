/*
 * Running a picture in bands from top to bottom, each op band by band, so that memory is bounded by the band and
 * nothing is computed twice.
 *
 * Heights are counted in units. A unit is a row of the input or, where PIXEL_UNSHUFFLE makes a smaller picture, a row
 * of the smallest one. With bands of B units, a tensor of s rows to a unit gets R = s·B new rows in each step. An op
 * that sees p rows up and down can only make rows for which the lower ones are there: its output is *delayed*. In step
 * k a tensor delayed by d units gets the rows kR - sd … (k + 1)R - sd of the picture, and before them it keeps the last
 * rows that its readers still need. Rows outside of the picture are zeros, which is what padding means. A resize wants
 * the border repeated instead: it reads a copy of the input of its own, and makes rows above and below that nobody
 * reads.
 */
#include "nn/ops/ops_internal.h"

#include <stdlib.h>
#include <string.h>

static cod_status unsupported(const ir_instr *instr, const char *what)
{
    return cod_fail(COD_ERR_UNSUPPORTED, "'%s' (%s) cannot run in bands: %s", instr->name ? instr->name : "",
                    cod_op_kind_name(instr->kind), what);
}

/** Rows up and down that the op sees of its first input; negative where it cannot run in bands. */
static int64_t taps_of(const ir_program *program, const ir_instr *instr)
{
    const node_rules *rules = node_rules_of_op(instr->kind);
    return rules != NULL ? rules->taps(&instr->attr, program->tensors[instr->inputs[1]].shape) : -1;
}

/** Rows up and down that the op sees of its input `k`. */
static int64_t reach(const ir_program *program, const ir_instr *instr, int k)
{
    return k == 0 ? taps_of(program, instr) : 0;
}

static ir_image *image_of(const ir_program *program, int tensor)
{
    ir_image *image = tensor != 0 ? &program->images[ir_root(program, tensor)] : NULL;
    return image != NULL && image->rows > 0 ? image : NULL;
}

static int64_t divide_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/** The delay that an instruction's output has at least, in units. */
static int64_t least_delay(const ir_program *program, const ir_instr *instr)
{
    int64_t delay = 0;
    for (int k = 0; k < COD_OP_MAX_INPUTS; k++) {
        const ir_image *in = image_of(program, instr->inputs[k]);
        if (in == NULL)
            continue;
        const int64_t least = in->delay + divide_up(reach(program, instr, k), in->scale);
        delay = least > delay ? least : delay;
    }
    return delay;
}

/** Finds the tensors that are pictures, and checks that all ops can run so. */
static cod_status find_images(ir_program *program, size_t original)
{
    for (size_t i = 0; i < original; i++) {
        const ir_instr *instr = &program->instrs[i];
        if (instr->prepare)
            continue;
        if (taps_of(program, instr) < 0)
            return unsupported(instr, "it sees the whole picture, or its output has not its input's height");
        const int out = ir_root(program, instr->outputs[0]);
        const cod_shape shape = program->tensors[out].shape;
        if (shape.n != 1 || shape.h % program->band != 0)
            return unsupported(instr, "its output is no enlarged picture");
        program->images[out].rows = shape.h;
        program->images[out].scale = shape.h / program->band;
    }
    return COD_OK;
}

/** Each as early as can be; tensors with several writers make it more than one round. */
static void find_delays(ir_program *program)
{
    for (bool changed = true; changed;) {
        changed = false;
        for (size_t i = 0; i < program->instr_count; i++) {
            const ir_instr *instr = &program->instrs[i];
            ir_image *out = instr->prepare ? NULL : image_of(program, instr->outputs[0]);
            const int64_t delay = out != NULL ? least_delay(program, instr) : 0;
            if (out == NULL || delay <= out->delay)
                continue;
            out->delay = delay;
            changed = true;
        }
    }
}

/** A resize as late as can be: its small input waits, not its large output. */
static void delay_resize(ir_program *program, const ir_instr *resize)
{
    ir_image *out = image_of(program, resize->outputs[0]);
    int64_t latest = INT64_MAX;
    for (size_t i = 0; i < program->instr_count; i++) {
        const ir_instr *reader = &program->instrs[i];
        for (int k = 0; k < COD_OP_MAX_INPUTS && !reader->prepare; k++) {
            if (image_of(program, reader->inputs[k]) != out)
                continue;
            const int64_t last =
                image_of(program, reader->outputs[0])->delay - divide_up(reach(program, reader, k), out->scale);
            latest = last < latest ? last : latest;
        }
    }
    if (latest != INT64_MAX)
        out->delay = latest;
    out->overlap = resize->attr.factor * reach(program, resize, 0);
}

/** How many rows each tensor keeps for its readers. */
static cod_status find_kept_rows(ir_program *program)
{
    for (size_t i = 0; i < program->instr_count; i++) {
        const ir_instr *instr = &program->instrs[i];
        for (int k = 0; k < COD_OP_MAX_INPUTS && !instr->prepare; k++) {
            ir_image *in = image_of(program, instr->inputs[k]);
            if (in == NULL)
                continue;
            const int64_t kept =
                (image_of(program, instr->outputs[0])->delay - in->delay) * in->scale + reach(program, instr, k);
            in->kept = kept > in->kept ? kept : in->kept;
            if (in->overlap > 0 && in->kept > 0)
                return unsupported(instr, "it reads a resize that others read earlier");
            if (in->kept > 0 && program->tensors[ir_root(program, instr->inputs[k])].place == IR_IO)
                return unsupported(instr, "it reads the program's output");
        }
    }
    return COD_OK;
}

/** A view of some rows of what `tensor` is; 0 when memory is short. */
static int rows_of(ir_program *program, int tensor, int64_t first, int64_t count)
{
    ir_tensor view = program->tensors[tensor];
    if (view.root == tensor) {
        view.root = tensor;
        view.channel = 0;
        view.reshaped = false;
    }
    view.row = first;
    view.shape.h = count;
    return ir_add_tensor(program, view);
}

/** Lets the instruction read and write its rows. */
static cod_status place_instr(ir_program *program, size_t index)
{
    ir_instr instr = program->instrs[index];
    const ir_image out = *image_of(program, instr.outputs[0]);
    for (int k = 0; k < COD_OP_MAX_INPUTS; k++) {
        const ir_image *in = image_of(program, instr.inputs[k]);
        if (in == NULL)
            continue;
        const int64_t see = reach(program, &instr, k);
        const int64_t first = in->overlap + in->kept - (out.delay - in->delay) * in->scale - see;
        instr.inputs[k] = rows_of(program, instr.inputs[k], first, in->rows + 2 * see);
        COD_REQUIRE_MEMORY(instr.inputs[k] != 0 ? program : NULL);
    }
    instr.outputs[0] = rows_of(program, instr.outputs[0], out.kept, out.rows + 2 * out.overlap);
    COD_REQUIRE_MEMORY(instr.outputs[0] != 0 ? program : NULL);
    if (instr.kind == COD_OP_CONV2D)
        instr.attr.pad_h = 0;
    program->instrs[index] = instr;
    return COD_OK;
}

static cod_status add_copy(ir_program *program, int from, int to, ir_when when)
{
    const ir_instr copy = {.kind = COD_OP_ADD,
                           .attr = {.alpha = 1},
                           .inputs = {from},
                           .outputs = {to},
                           .when = when,
                           .name = when == IR_EACH ? "copy" : "keep"};
    return from != 0 && to != 0 && ir_add_instr(program, copy) >= 0
               ? COD_OK
               : cod_fail(COD_ERR_MEMORY, "out of memory while compiling bands");
}

/** Moves the rows that are kept to the front, in parts that do not overlap. */
static cod_status add_keeping(ir_program *program, int tensor)
{
    const ir_image image = program->images[tensor];
    for (int64_t at = 0; at < image.kept; at += image.rows) {
        const int64_t count = image.kept - at < image.rows ? image.kept - at : image.rows;
        const int from = rows_of(program, tensor, image.rows + at, count), to = rows_of(program, tensor, at, count);
        COD_TRY(add_copy(program, from, to, IR_KEEPS));
    }
    return COD_OK;
}

/** Repeats the picture's first row above it, in the first step, as far as a resize sees. */
static cod_status add_border(ir_program *program, int tensor)
{
    enum { MOST_TAPS = 2 };
    const int64_t kept = program->images[tensor].kept;
    for (int64_t i = 1; i <= kept && i <= MOST_TAPS; i++)
        COD_TRY(add_copy(program, rows_of(program, tensor, kept, 1), rows_of(program, tensor, kept - i, 1), IR_FIRST));
    return COD_OK;
}

/** The input's rows come in a place of their own; readers have copies: of zeros outside, or of the border repeated. */
static cod_status copy_input(ir_program *program, int input, int copies[2])
{
    const ir_tensor copy = {.shape = program->tensors[input].shape, .dtype = program->tensors[input].dtype};
    bool read[2] = {false, false};
    for (int repeats = 0; repeats < 2; repeats++) {
        copies[repeats] = ir_add_tensor(program, copy);
        COD_REQUIRE_MEMORY(copies[repeats] != 0 ? program : NULL);
    }
    for (size_t i = 0; i < program->instr_count; i++) {
        ir_instr *instr = &program->instrs[i];
        for (int k = 0; k < COD_OP_MAX_INPUTS && !instr->prepare; k++) {
            if (instr->inputs[k] != input)
                continue;
            const int repeats = instr->kind == COD_OP_RESIZE;
            instr->inputs[k] = copies[repeats];
            read[repeats] = true;
        }
    }
    for (int repeats = 0; repeats < 2; repeats++)
        copies[repeats] = read[repeats] ? copies[repeats] : 0;
    return COD_OK;
}

/** The tensor of the graph's one input. */
static cod_status find_input(const ir_context *context, const ir_program *program, int *input)
{
    *input = 0;
    for (size_t n = 0; n < cod_graph_node_count(context->graph); n++) {
        const cod_node *node = cod_graph_node(context->graph, n);
        if (node->kind != COD_NODE_INPUT)
            continue;
        for (size_t t = 1; t < program->tensor_count; t++) {
            const ir_tensor *tensor = &program->tensors[t];
            if (tensor->place != IR_IO || tensor->root != (int)t || tensor->offset != context->input_offset[n])
                continue;
            if (*input != 0)
                return cod_fail(COD_ERR_UNSUPPORTED, "a program with several inputs cannot run in bands");
            *input = (int)t;
        }
    }
    COD_REQUIRE(*input != 0, "the program reads no input");
    return COD_OK;
}

/** Height of the smallest picture: the input, of `rows`, or an output of PIXEL_UNSHUFFLE. */
static int64_t least_height(const ir_program *program, int64_t rows)
{
    for (size_t i = 0; i < program->instr_count; i++)
        if (program->instrs[i].kind == COD_OP_PIXEL_UNSHUFFLE) {
            const int64_t made = program->tensors[program->instrs[i].outputs[0]].shape.h;
            rows = made < rows ? made : rows;
        }
    return rows;
}

/** What was added comes before what was there. */
static cod_status move_to_front(ir_program *program, size_t original)
{
    const size_t added = program->instr_count - original;
    ir_instr *copy = malloc(program->instr_count * sizeof *copy);
    COD_REQUIRE_MEMORY(copy);
    memcpy(copy, program->instrs + original, added * sizeof *copy);
    memcpy(copy + added, program->instrs, original * sizeof *copy);
    memcpy(program->instrs, copy, program->instr_count * sizeof *copy);
    free(copy);
    return COD_OK;
}

cod_status ir_make_bands(const ir_context *context, ir_program *program)
{
    const size_t original = program->instr_count;
    int input, copies[2];
    COD_TRY(find_input(context, program, &input));
    const int64_t rows = program->tensors[input].shape.h;
    program->band = least_height(program, rows);
    COD_REQUIRE(rows % program->band == 0, "bands of %lld rows for units of %lld", (long long)rows,
                (long long)program->band);
    program->unit = rows / program->band;
    COD_TRY(copy_input(program, input, copies));
    const size_t tensors = program->tensor_count;
    program->images = calloc(tensors, sizeof *program->images);
    COD_REQUIRE_MEMORY(program->images);
    COD_TRY(find_images(program, original));
    for (int repeats = 0; repeats < 2; repeats++)
        if (copies[repeats] != 0)
            program->images[copies[repeats]] =
                (ir_image){.rows = rows, .scale = program->unit, .repeats = repeats == 1};
    find_delays(program);
    for (size_t i = 0; i < original; i++) {
        const ir_instr *instr = &program->instrs[i];
        if (instr->kind != COD_OP_RESIZE)
            continue;
        if (reach(program, instr, 0) > 0 && instr->inputs[0] != copies[1])
            return unsupported(instr, "it sees beyond the border of what is not the input");
        delay_resize(program, instr);
    }
    COD_TRY(find_kept_rows(program));
    for (size_t i = 0; i < original; i++)
        if (!program->instrs[i].prepare)
            COD_TRY(place_instr(program, i));
    for (size_t t = 1; t < tensors; t++)
        if (program->images[t].rows > 0)
            COD_TRY(add_keeping(program, (int)t));
    for (int repeats = 0; repeats < 2; repeats++) {
        const int copy = copies[repeats];
        if (copy == 0)
            continue;
        COD_TRY(add_copy(program, input, rows_of(program, copy, program->images[copy].kept, rows), IR_EACH));
        if (repeats == 1)
            COD_TRY(add_border(program, copy));
    }
    for (size_t t = 1; t < tensors; t++) {
        const ir_image *image = &program->images[t];
        if (image->rows == 0)
            continue;
        program->tensors[t].shape.h = image->kept + image->rows + 2 * image->overlap;
        program->tensors[t].lasting = image->kept > 0;
    }
    return move_to_front(program, original);
}
