#include "nn/compile_internal.h"

#include "core/queue.h"

#include <stdlib.h>
#include <string.h>

/** Gives inputs, outputs and losses their fixed places, and scalars theirs among those kept. */
static cod_status assign_io(ir_context *context, const cod_program_spec *specs, size_t count, cod_scalars *kept,
                            cod_arena *arena)
{
    cod_graph *graph = context->graph;
    const size_t nodes = cod_graph_node_count(graph), scalars = cod_graph_scalar_count(graph);
    const size_t wide = cod_dtype_bytes(ir_wide_dtype(context));
    size_t **const tables[] = {&context->input_offset, &context->output_offset, &context->loss_offset,
                               &context->scalar_index, &context->pass_offset,   &context->range_index,
                               &context->affine_offset};
    const size_t lengths[] = {nodes, context->value_count, context->value_count, scalars, context->value_count, nodes,
                              nodes};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        *tables[i] = cod_arena_alloc(arena, lengths[i] * sizeof(size_t));
        COD_REQUIRE_MEMORY(*tables[i]);
        for (size_t k = 0; k < lengths[i]; k++)
            (*tables[i])[k] = SIZE_MAX;
    }
    for (size_t i = 0; i < scalars; i++)
        COD_TRY(cod_scalars_reserve(kept, 1, &context->scalar_index[i]));
    compile_assign_ranges(context);
    compile_assign_constants(context);
    for (size_t i = 0; i < nodes; i++) {
        const cod_node *node = cod_graph_node(graph, i);
        if (node->kind == COD_NODE_LOSS) {
            context->loss_offset[node->output] = context->io_bytes;
            context->io_bytes += COD_ALIGNMENT;
        } else if (node->kind == COD_NODE_INPUT) {
            context->input_offset[i] = context->io_bytes;
            context->io_bytes += cod_align_up((size_t)cod_shape_count(context->shapes[node->output]) * wide);
        }
    }
    for (size_t i = 0; i < count * COD_PROGRAM_MAX_OUTPUTS; i++) {
        const cod_value value = specs[i / COD_PROGRAM_MAX_OUTPUTS].outputs[i % COD_PROGRAM_MAX_OUTPUTS];
        if (value == 0 || context->output_offset[value] != SIZE_MAX)
            continue;
        const cod_node_kind kind = cod_graph_producer(graph, value)->kind;
        if (kind == COD_NODE_INPUT || kind == COD_NODE_LOSS) { /* has its place already */
            context->output_offset[value] =
                kind == COD_NODE_LOSS
                    ? context->loss_offset[value]
                    : context->input_offset[cod_graph_producer(graph, value) - cod_graph_node(graph, 0)];
            continue;
        }
        context->output_offset[value] = context->io_bytes;
        context->io_bytes += cod_align_up((size_t)cod_shape_count(context->shapes[value]) * wide);
    }
    return COD_OK;
}

/** The part of the trained elements that a stage's program has gradients for. */
static cod_status stage_range(const cod_executable *executable, const cod_program_spec *spec, size_t *first,
                              size_t *count)
{
    cod_stage_range range;
    COD_TRY(cod_stage_find_range(executable->context.graph, &executable->weights->layout, &spec->stage, false, &range));
    *first = range.first;
    *count = range.count;
    return COD_OK;
}

/** Cuts the trained set's gradients into ranges from the end backwards, the order in which backward completes them. */
static cod_status make_buckets(cod_program *program, const cod_program_spec *spec)
{
    cod_executable *executable = program->executable;
    cod_graph *graph = executable->context.graph;
    size_t first = 0, count = 0;
    const int set = cod_graph_set_index(graph, spec->trains);
    const cod_set_range *range = &executable->weights->sets[set].range;
    first = range->first;
    count = range->count;
    if (cod_stage_is_part(&spec->stage))
        COD_TRY(stage_range(executable, spec, &first, &count));
    const size_t params = cod_graph_param_count(graph), element = cod_dtype_bytes(executable->context.param_dtype);
    program->buckets = cod_arena_alloc(&executable->memory, (params + 1) * sizeof *program->buckets);
    COD_REQUIRE_MEMORY(program->buckets);
    size_t end = first + count;
    for (size_t i = params; i-- > 0 && end > first;) {
        const cod_param *param = cod_graph_param(graph, i);
        if (param->is_state || param->set != set || param->offset >= end)
            continue;
        const size_t bytes = (end - param->offset) * element;
        if (param->offset == first ||
            (executable->options.bucket_bytes > 0 && bytes >= executable->options.bucket_bytes)) {
            program->buckets[program->bucket_count++] = (cod_bucket){param->offset, end - param->offset};
            end = param->offset;
        }
    }
    return COD_OK;
}

/** [bucket] the last instruction that writes a gradient of it; 0 where none does. */
static cod_status find_ready(cod_program *program, int **ready)
{
    const cod_graph *graph = program->executable->context.graph;
    *ready = cod_arena_alloc(&program->executable->memory, (program->bucket_count + 1) * sizeof **ready);
    COD_REQUIRE_MEMORY(*ready);
    for (size_t b = 0; b < program->bucket_count; b++) {
        const cod_bucket *bucket = &program->buckets[b];
        for (size_t i = 0; i < cod_graph_param_count(graph); i++) {
            const cod_param *param = cod_graph_param(graph, i);
            if (!param->is_state && param->offset >= bucket->first && param->offset - bucket->first < bucket->count &&
                program->ir.grad_ready[i] > (*ready)[b])
                (*ready)[b] = program->ir.grad_ready[i];
        }
    }
    return COD_OK;
}

/**
 * Adds the instructions up to `end`; cut where the forward pass ends, as stages run the passes apart, and where an
 * input is awaited.
 */
static void add_segment(cod_program *program, size_t *at, size_t end, int bucket)
{
    const size_t one = program->ir.backward, other = program->awaited_by;
    const size_t cuts[] = {one < other ? one : other, one < other ? other : one};
    for (int i = 0; i < 2; i++) {
        if (*at >= cuts[i] || cuts[i] >= end)
            continue;
        program->segments[program->segment_count++] =
            (segment){.first = *at, .end = cuts[i], .bucket = -1, .awaits = *at == other};
        *at = cuts[i];
    }
    program->segments[program->segment_count++] =
        (segment){.first = *at, .end = end, .bucket = bucket, .awaits = *at == other && *at < end};
    *at = end;
}

/** The first instruction that reads an input of this name; of those that run as one plan, the first. */
static size_t find_reader(const cod_program *program, const char *name)
{
    const ir_program *ir = &program->ir;
    const cod_view input = name != NULL ? cod_executable_input(program->executable, name) : (cod_view){0};
    if (input.buffer == NULL)
        return SIZE_MAX;
    for (size_t i = 0; i < ir->instr_count; i++)
        for (size_t k = 0; k < COD_OP_MAX_INPUTS; k++) {
            const ir_tensor *root = &ir->tensors[ir_root(ir, ir->instrs[i].inputs[k])];
            if (ir->instrs[i].inputs[k] == 0 || root->place != IR_IO || root->offset != input.offset)
                continue;
            while (i > 0 && ir->instrs[i].joins)
                i--;
            return i;
        }
    return SIZE_MAX;
}

static cod_status make_segments(cod_program *program)
{
    const cod_weights *weights = program->executable->weights;
    int *ready = NULL;
    COD_TRY(find_ready(program, &ready));
    program->segments =
        cod_arena_alloc(&program->executable->memory, (program->bucket_count + 3) * sizeof *program->segments);
    COD_REQUIRE_MEMORY(program->segments);
    size_t at = 0;
    for (size_t done = 0; done < program->bucket_count; done++) {
        size_t next = program->bucket_count; /* the earliest bucket that is not signalled yet; ties in bucket order */
        for (size_t b = 0; b < program->bucket_count; b++)
            if (ready[b] >= 0 && (next == program->bucket_count || ready[b] < ready[next]))
                next = b;
        const size_t end = (size_t)ready[next] + 1 > at ? (size_t)ready[next] + 1 : at;
        add_segment(program, &at, end, (int)next);
        ready[next] = -1;
    }
    if (at < program->ir.instr_count)
        add_segment(program, &at, program->ir.instr_count, -1);
    for (size_t i = 0; i < program->segment_count; i++)
        if (program->segments[i].bucket >= 0)
            COD_TRY(cod_event_create(weights->backend, weights->device, &program->segments[i].complete));
    return COD_OK;
}

static cod_status make_passing(cod_program *program, const ir_passing *passing, size_t count, cod_passing **out)
{
    *out = cod_arena_alloc(&program->executable->memory, (count + 1) * sizeof **out);
    COD_REQUIRE_MEMORY(*out);
    for (size_t i = 0; i < count; i++)
        (*out)[i] = (cod_passing){.value = passing[i].value,
                                  .values = compile_view(program->executable, &program->ir, passing[i].tensor),
                                  .gradient = compile_view(program->executable, &program->ir, passing[i].gradient)};
    return COD_OK;
}

/** Zeros for all rows of any tensor. */
static cod_status make_zeros(cod_program *program)
{
    size_t longest = 0;
    for (size_t t = 1; t < program->ir.tensor_count; t++) {
        const ir_tensor *tensor = &program->ir.tensors[t];
        const size_t bytes = (size_t)cod_shape_count(tensor->shape) * cod_dtype_bytes(tensor->dtype);
        longest = bytes > longest ? bytes : longest;
    }
    const cod_weights *weights = program->executable->weights;
    return weights->backend->buffer_create(weights->device, longest, &program->zeros);
}

static cod_status check_options(cod_graph *graph, const cod_weights *weights, const cod_compile_options *options)
{
    COD_TRY(cod_graph_status(graph));
    COD_REQUIRE(weights->graph == graph, "the weights belong to another graph");
    const cod_layout layout = cod_graph_layout(graph);
    COD_REQUIRE(layout.trainable == weights->layout.trainable && layout.state == weights->layout.state,
                "parameters were added to the graph after its weights were made");
    COD_REQUIRE((options->activation == COD_F64) == (weights->dtype == COD_F64), "f64 activations need f64 weights");
    COD_REQUIRE(options->activation == COD_F32 || options->activation == COD_BF16 || options->activation == COD_F64,
                "activations cannot be %s", cod_dtype_name(options->activation));
    if (!weights->backend->supports(weights->device, options->activation))
        return cod_fail(COD_ERR_UNSUPPORTED, "backend '%s' does not compute in %s on this machine",
                        weights->backend->name, cod_dtype_name(options->activation));
    if (options->int8_ranges != NULL && !weights->backend->supports(weights->device, COD_S8))
        return cod_fail(COD_ERR_UNSUPPORTED, "backend '%s' does not compute on 8-bit integers on this machine (%s)",
                        weights->backend->name, weights->backend->describe(weights->device));
    for (size_t i = 0; i < options->input_count; i++) {
        COD_REQUIRE(!options->bands || options->inputs[i].shape.n == 1,
                    "a program in bands runs one picture at a time");
        bool known = false;
        for (size_t n = 0; n < cod_graph_node_count(graph); n++)
            known = known || (cod_graph_node(graph, n)->kind == COD_NODE_INPUT &&
                              strcmp(cod_graph_node(graph, n)->name, options->inputs[i].name) == 0);
        COD_REQUIRE(known, "the graph has no input '%s'", options->inputs[i].name);
    }
    return COD_OK;
}

static bool is_output_of_another(const cod_program_spec *specs, size_t count, const cod_program_spec *spec,
                                 cod_value value)
{
    for (size_t i = 0; i < count * COD_PROGRAM_MAX_OUTPUTS; i++)
        if (&specs[i / COD_PROGRAM_MAX_OUTPUTS] != spec &&
            specs[i / COD_PROGRAM_MAX_OUTPUTS].outputs[i % COD_PROGRAM_MAX_OUTPUTS] == value)
            return true;
    return false;
}

static bool is_kept_by_another(const cod_program_spec *specs, size_t count, const cod_program_spec *spec, cod_span span)
{
    for (size_t i = 0; i < count * COD_PROGRAM_MAX_SPANS; i++) {
        const cod_program_spec *other = &specs[i / COD_PROGRAM_MAX_SPANS];
        const cod_span kept = other->keeps[i % COD_PROGRAM_MAX_SPANS];
        if (other != spec && kept.from == span.from && kept.to == span.to)
            return true;
    }
    return false;
}

/**
 * What a program names must be of the graph: values, and losses that are losses; what it is given another must have.
 */
static cod_status check_spec(const cod_graph *graph, const cod_program_spec *specs, size_t count,
                             const cod_program_spec *spec)
{
    COD_REQUIRE(spec->name != NULL, "a program needs a name");
    for (const cod_program_spec *other = specs; other < spec; other++)
        COD_REQUIRE(strcmp(other->name, spec->name) != 0, "two programs are called '%s'", spec->name);
    for (size_t i = 0; i < COD_PROGRAM_MAX_LOSSES; i++) {
        const cod_node *node = cod_graph_producer(graph, spec->losses[i]);
        COD_REQUIRE(spec->losses[i] == 0 || (node != NULL && node->kind == COD_NODE_LOSS),
                    "program '%s': value %d is not a loss of the graph", spec->name, spec->losses[i]);
    }
    for (size_t i = 0; i < COD_PROGRAM_MAX_OUTPUTS; i++)
        COD_REQUIRE(spec->outputs[i] == 0 || cod_graph_producer(graph, spec->outputs[i]) != NULL,
                    "program '%s': output %d is not a value of the graph", spec->name, spec->outputs[i]);
    for (size_t i = 0; i < COD_PROGRAM_MAX_GIVEN; i++)
        COD_REQUIRE(spec->given[i] == 0 || is_output_of_another(specs, count, spec, spec->given[i]),
                    "program '%s': given value %d is no output of another program", spec->name, spec->given[i]);
    for (size_t i = 0; i < COD_PROGRAM_MAX_SPANS; i++)
        COD_REQUIRE(spec->resumes[i].to == 0 || is_kept_by_another(specs, count, spec, spec->resumes[i]),
                    "program '%s': the span to value %d is kept by no other program", spec->name, spec->resumes[i].to);
    const cod_stage *stage = &spec->stage;
    const size_t nodes = cod_graph_node_count(graph);
    if (!cod_stage_is_part(stage))
        return COD_OK;
    COD_REQUIRE(spec->keeps[0].to == 0 && spec->resumes[0].to == 0, "program '%s': a stage has no spans", spec->name);
    COD_REQUIRE(spec->outputs[0] == 0, "program '%s': a stage has what it hands on, and no outputs", spec->name);
    COD_REQUIRE(stage->first < stage->end && stage->end <= nodes, "program '%s': no nodes are from %zu to %zu of %zu",
                spec->name, stage->first, stage->end, nodes);
    COD_REQUIRE((stage->first == 0 || cod_stage_may_begin(graph, stage->first)) &&
                    (stage->end == nodes || cod_stage_may_begin(graph, stage->end)),
                "program '%s': a stage begins with a layer that has weights", spec->name);
    return COD_OK;
}

/** The program's instructions in their final order, before memory is planned. */
static cod_status lower_program(cod_program *program, const cod_program_spec *spec)
{
    cod_executable *executable = program->executable;
    ir_context *context = &executable->context;
    const cod_weights *weights = executable->weights;
    program->ir.grad_ready = calloc(cod_graph_param_count(context->graph) + 1, sizeof(int));
    COD_REQUIRE_MEMORY(program->ir.grad_ready);
    COD_TRY(ir_lower(context, spec, &program->ir));
    if (spec->trains != NULL) {
        program->moved = cod_set_of(cod_graph_set_index(context->graph, spec->trains));
        COD_TRY(make_buckets(program, spec));
    }
    program->moved |= program->ir.moved;
    if (executable->options.bands)
        return ir_make_bands(context, &program->ir);
    if (executable->options.no_fusion)
        return COD_OK;
    if (weights->backend->op_fuses != NULL && spec->trains != NULL && !cod_stage_is_part(&spec->stage))
        COD_TRY(ir_slice(&program->ir, executable->options.slices));
    if (weights->backend->op_fuses != NULL)
        COD_TRY(
            ir_fuse(context, weights->backend, weights->device, program->buckets, program->bucket_count, &program->ir));
    if (executable->options.recompute && spec->trains != NULL)
        COD_TRY(ir_recompute(context, &program->ir));
    return ir_work_in_place(&program->ir);
}

static cod_status compile_programs(cod_executable *executable, const cod_program_spec *specs, size_t count)
{
    ir_context *context = &executable->context;
    const cod_backend *backend = executable->weights->backend;
    const size_t nodes = cod_graph_node_count(context->graph);
    context->value_count = nodes + 1;
    context->shapes = cod_arena_alloc(&executable->memory, context->value_count * sizeof *context->shapes);
    executable->programs = cod_arena_alloc(&executable->memory, count * sizeof *executable->programs);
    COD_REQUIRE_MEMORY(context->shapes);
    COD_REQUIRE_MEMORY(executable->programs);
    COD_TRY(ir_infer_shapes(context));
    executable->scalars = executable->options.scalars;
    executable->own_scalars = executable->scalars == NULL;
    if (executable->own_scalars)
        COD_TRY(cod_scalars_create(backend, executable->weights->device, &executable->scalars));
    if (backend->op_fuses == NULL || executable->options.no_fusion) {
        context->kept = cod_arena_alloc(&executable->memory, nodes * sizeof *context->kept);
        COD_REQUIRE_MEMORY(context->kept);
    }
    COD_TRY(assign_io(context, specs, count, executable->scalars, &executable->memory));
    executable->program_count = count;
    size_t arena_bytes = 0;
    for (size_t i = 0; i < count; i++) {
        cod_program *program = &executable->programs[i];
        program->executable = executable;
        program->name = cod_arena_strdup(&executable->memory, specs[i].name);
        COD_REQUIRE_MEMORY(program->name);
        COD_REQUIRE(specs[i].trains == NULL || executable->weights->grads != NULL,
                    "program '%s' needs a gradient buffer", specs[i].name);
        program->observes = specs[i].observes;
        COD_TRY(lower_program(program, &specs[i]));
        COD_TRY(ir_plan_memory(&program->ir));
        arena_bytes = program->ir.arena_bytes > arena_bytes ? program->ir.arena_bytes : arena_bytes;
    }
    if (executable->options.memory != NULL)
        *executable->options.memory = (cod_compile_memory){arena_bytes, context->io_bytes};
    COD_TRY(backend->buffer_create(executable->weights->device, arena_bytes, &executable->arena));
    COD_TRY(backend->buffer_create(executable->weights->device, context->io_bytes, &executable->io));
    COD_TRY(compile_write_ranges(executable, executable->options.int8_ranges));
    COD_TRY(compile_write_constants(executable));
    for (size_t i = 0; i < count; i++) {
        executable->programs[i].awaited_by = find_reader(&executable->programs[i], specs[i].awaited);
        COD_TRY(make_segments(&executable->programs[i]));
        COD_TRY(compile_plans(&executable->programs[i]));
        COD_TRY(make_passing(&executable->programs[i], executable->programs[i].ir.taken,
                             executable->programs[i].ir.taken_count, &executable->programs[i].taken));
        COD_TRY(make_passing(&executable->programs[i], executable->programs[i].ir.handed,
                             executable->programs[i].ir.handed_count, &executable->programs[i].handed));
        if (executable->options.bands)
            COD_TRY(make_zeros(&executable->programs[i]));
    }
    return COD_OK;
}

cod_status cod_compile(cod_graph *graph, cod_weights *weights, const cod_compile_options *options,
                       const cod_program_spec *specs, size_t count, cod_executable **out)
{
    COD_TRY(check_options(graph, weights, options));
    for (size_t i = 0; i < count; i++)
        COD_TRY(check_spec(graph, specs, count, &specs[i]));
    cod_executable *executable = calloc(1, sizeof *executable);
    COD_REQUIRE_MEMORY(executable);
    executable->weights = weights;
    executable->options = *options;
    executable->context = (ir_context){.graph = graph, .options = &executable->options, .param_dtype = weights->dtype};
    const cod_status status = compile_programs(executable, specs, count);
    executable->options.inputs = NULL; /* the caller's; not needed any more */
    executable->options.input_count = 0;
    executable->options.int8_ranges = NULL;
    executable->options.memory = NULL;
    executable->options.scalars = NULL;
    if (status != COD_OK) {
        cod_executable_destroy(executable);
        return status;
    }
    *out = executable;
    return COD_OK;
}

void cod_executable_destroy(cod_executable *executable)
{
    if (executable == NULL)
        return;
    const cod_backend *backend = executable->weights->backend;
    for (size_t i = 0; i < executable->program_count; i++) {
        cod_program *program = &executable->programs[i];
        for (size_t k = 0; k < program->segment_count; k++) {
            cod_event_destroy(backend, program->segments[k].complete);
        }
        cod_recordings_clear(backend, &program->recordings);
        if (program->zeros != NULL)
            backend->buffer_destroy(executable->weights->device, program->zeros);
        for (size_t k = 0; program->plans != NULL && k < program->ir.instr_count; k++)
            if (program->plans[k] != NULL)
                backend->plan_destroy(program->plans[k]);
        ir_program_clear(&program->ir);
    }
    if (executable->arena != NULL)
        backend->buffer_destroy(executable->weights->device, executable->arena);
    if (executable->io != NULL)
        backend->buffer_destroy(executable->weights->device, executable->io);
    if (executable->own_scalars)
        cod_scalars_destroy(executable->scalars);
    cod_arena_clear(&executable->memory);
    free(executable);
}
