/* Running programs. */
#include "nn/compile_internal.h"

#include "core/queue.h"
#include "core/trace.h"

#include <stdlib.h>
#include <string.h>

cod_queue *cod_program_queue(const cod_program *program)
{
    return program->executable->options.queue;
}

void cod_program_await(cod_program *program, cod_event *event)
{
    program->awaited = event;
}

/** What is queued later waits for the awaited event, which is forgotten. */
static cod_status await(cod_program *program)
{
    cod_event *const event = program->awaited;
    program->awaited = NULL;
    return cod_queue_wait(program->executable->weights->backend, cod_program_queue(program), event);
}

/** Queues an instruction; on a backend without queues it is done then, and its time is told. */
static cod_status run_plan(cod_program *program, size_t index)
{
    const cod_backend *backend = program->executable->weights->backend;
    const double start = cod_trace_begin();
    COD_TRY(backend->plan_run(program->plans[index], cod_program_queue(program)));
    if (cod_backend_runs_at_once(backend))
        cod_trace_end(start, "op", program->names[index]);
    return COD_OK;
}

/** Sets whose values [0] and states [1] are not those that the program's plans were prepared for. */
static void find_changed(const cod_program *program, cod_sets changed[2])
{
    const cod_weights *weights = program->executable->weights;
    memcpy(changed, program->unprepared, sizeof program->unprepared);
    for (int s = 0; s < (int)cod_graph_set_count(weights->graph); s++) {
        const cod_weights_set *now = &weights->sets[s], *before = &program->prepared[s];
        changed[0] |= now->version != before->version ? cod_set_of(s) : 0;
        changed[1] |= now->state_version != before->state_version ? cod_set_of(s) : 0;
    }
}

static bool depends_on(const cod_program *program, size_t index, const cod_sets changed[2])
{
    return ((program->depends[index][0] & changed[0]) | (program->depends[index][1] & changed[1])) != 0;
}

/** Sets whose values an optimiser wrote last, all of them; none where the backend makes no use of that. */
static cod_sets sets_updated(const cod_program *program)
{
    const cod_weights *weights = program->executable->weights;
    cod_sets updated = 0;
    for (int s = 0; s < (int)cod_graph_set_count(weights->graph); s++)
        updated |= weights->sets[s].updated == weights->sets[s].version ? cod_set_of(s) : 0;
    return weights->backend->plans_prepare_updated != NULL ? updated : 0;
}

/** Whether a plan reads parameters of these sets as they are: not folded, nor others. */
static bool reads_only(const cod_program *program, size_t index, cod_sets sets)
{
    return (program->depends[index][0] & ~sets) == 0 && program->depends[index][1] == 0;
}

/**
 * Prepares the plans that depend on what has changed: of these those that read updated parameters alone, or the others.
 */
static cod_status prepare_plans(const cod_program *program, const cod_sets changed[2], bool updated)
{
    const cod_weights *weights = program->executable->weights;
    const cod_backend *backend = weights->backend;
    const cod_sets sets = sets_updated(program);
    size_t count = 0;
    for (size_t i = 0; i < program->ir.instr_count; i++)
        if (program->plans[i] != NULL && depends_on(program, i, changed) && reads_only(program, i, sets) == updated)
            program->stale[count++] = program->plans[i];
    if (count == 0)
        return COD_OK;
    return (updated ? backend->plans_prepare_updated : backend->plans_prepare)(weights->device, program->stale, count,
                                                                               cod_program_queue(program));
}

/** Queues all that depends on changed parameters alone: first ops that make weights of other weights, then packing. */
static cod_status queue_preparation(cod_program *program, const cod_sets changed[2])
{
    if ((changed[0] | changed[1]) == 0)
        return COD_OK;
    for (size_t i = 0; i < program->ir.instr_count; i++)
        if (program->ir.instrs[i].prepare && depends_on(program, i, changed))
            COD_TRY(run_plan(program, i));
    COD_TRY(prepare_plans(program, changed, false));
    return prepare_plans(program, changed, true);
}

cod_status cod_program_prepare(cod_program *program)
{
    const cod_weights *weights = program->executable->weights;
    cod_sets changed[2];
    find_changed(program, changed);
    COD_TRY(cod_scalars_flush(program->executable->scalars, cod_program_queue(program)));
    COD_TRY(queue_preparation(program, changed));
    memcpy(program->prepared, weights->sets, sizeof program->prepared);
    memset(program->unprepared, 0, sizeof program->unprepared);
    return COD_OK;
}

/**
 * Whether a recording can begin with all preparation that the changes call for. That is so where each step of training
 * calls for the same: it reads values that an update wrote last and, in a program that moves states itself, states.
 */
static bool prepares_in_recording(const cod_program *program, const cod_sets changed[2])
{
    const cod_sets sets = sets_updated(program);
    bool prepares = false;
    if (!cod_backend_records(program->executable->weights->backend))
        return false;
    for (size_t i = 0; i < program->ir.instr_count; i++) {
        const cod_sets *depends = program->depends[i];
        if (program->plans[i] == NULL || !depends_on(program, i, changed))
            continue;
        if ((depends[0] & ~sets) != 0 || (depends[1] != 0 && program->moved == 0))
            return false;
        prepares = true;
    }
    return prepares;
}

/** As cod_program_prepare(), but leaves it to the recording that is queued next where that can begin with it. */
static cod_status prepare_run(cod_program *program)
{
    const cod_weights *weights = program->executable->weights;
    cod_sets changed[2];
    find_changed(program, changed);
    if (!prepares_in_recording(program, changed))
        return cod_program_prepare(program);
    memcpy(program->unprepared, changed, sizeof program->unprepared);
    memcpy(program->prepared, weights->sets, sizeof program->prepared);
    return cod_scalars_flush(program->executable->scalars, cod_program_queue(program));
}

/** Some segments, as cod_queue_work has them. */
typedef struct section {
    cod_program *program;
    size_t first, end;
    cod_sets changed[2]; /**< sets whose values and states were changed: what depends on them is prepared first */
    cod_sequel *sequel;  /**< of the last segments; NULL = none */
} section;

/** Queues the instructions of some segments, before them what prepares weights, and behind them the sequel. */
static cod_status run_instructions(void *context)
{
    const section *some = context;
    cod_program *program = some->program;
    COD_TRY(queue_preparation(program, some->changed));
    for (size_t i = program->segments[some->first].first; i < program->segments[some->end - 1].end; i++)
        if (program->plans[i] != NULL && !program->ir.instrs[i].prepare)
            COD_TRY(run_plan(program, i));
    return some->sequel != NULL ? some->sequel->work(some->sequel->context) : COD_OK;
}

/** Where the recording of some segments is kept. */
static cod_status find_replay(const section *some, cod_replay **out)
{
    cod_recordings *all = some->sequel != NULL ? &some->sequel->recordings : &some->program->recordings;
    for (size_t i = 0; i < all->count; i++) {
        const struct cod_recorded *recorded = &all->list[i];
        if (recorded->program != some->program || recorded->first != some->first || recorded->end != some->end ||
            memcmp(recorded->changed, some->changed, sizeof some->changed) != 0)
            continue;
        *out = &all->list[i].replay;
        return COD_OK;
    }
    struct cod_recorded *more = realloc(all->list, (all->count + 1) * sizeof *more);
    COD_REQUIRE_MEMORY(more);
    all->list = more;
    more[all->count] =
        (struct cod_recorded){some->program, some->first, some->end, {some->changed[0], some->changed[1]}, {0}};
    *out = &more[all->count++].replay;
    return COD_OK;
}

void cod_recordings_clear(const cod_backend *backend, cod_recordings *recordings)
{
    for (size_t i = 0; i < recordings->count; i++)
        cod_replay_clear(backend, &recordings->list[i].replay);
    free(recordings->list);
    *recordings = (cod_recordings){0};
}

/** Queues segments, by their recording where the backend makes such. */
static cod_status queue_segments(cod_program *program, size_t first, size_t end, cod_sequel *sequel)
{
    const cod_weights *weights = program->executable->weights;
    section some = {program, first, end, {program->unprepared[0], program->unprepared[1]}, sequel};
    cod_replay *replay = NULL;
    if (program->segments[first].first == program->segments[end - 1].end && sequel == NULL)
        return COD_OK;
    COD_TRY(find_replay(&some, &replay));
    COD_TRY(cod_queue_replay(weights->backend, weights->device, cod_program_queue(program), run_instructions, &some,
                             replay));
    memset(program->unprepared, 0, sizeof program->unprepared);
    return COD_OK;
}

static cod_status run_segments(cod_program *program, size_t first, size_t end, cod_sequel *sequel)
{
    cod_trace_range_begin(program->name);
    const cod_status status = queue_segments(program, first, end, sequel);
    cod_trace_range_end();
    return status;
}

/** Runs the segments between two instructions, and signals every bucket where somebody hears it; then the sequel. */
static cod_status run_between(cod_program *program, size_t from, size_t until, cod_bucket_ready ready, void *context,
                              cod_sequel *sequel)
{
    const cod_backend *backend = program->executable->weights->backend;
    const segment *segments = program->segments;
    for (size_t first = 0, end; first < program->segment_count; first = end) {
        end = first + 1;
        if (segments[first].first < from || segments[first].end > until)
            continue;
        while (end < program->segment_count && segments[end].end <= until &&
               (segments[end - 1].bucket < 0 || ready == NULL) && (!segments[end].awaits || program->awaited == NULL))
            end++;
        if (segments[first].awaits)
            COD_TRY(await(program));
        COD_TRY(run_segments(program, first, end, end == program->segment_count ? sequel : NULL));
        if (segments[end - 1].bucket < 0 || ready == NULL)
            continue;
        COD_TRY(cod_event_record(backend, segments[end - 1].complete, cod_program_queue(program)));
        COD_TRY(ready(context, (size_t)segments[end - 1].bucket, segments[end - 1].complete));
    }
    return COD_OK;
}

/** What a run needs before its first instruction. */
static cod_status begin(cod_program *program)
{
    cod_executable *executable = program->executable;
    COD_TRY(prepare_run(program));
    cod_weights_states_changed(executable->weights, program->moved);
    return program->awaited_by == SIZE_MAX ? await(program) : COD_OK;
}

cod_status cod_program_run(cod_program *program, cod_bucket_ready ready, void *context)
{
    COD_TRY(begin(program));
    if (program->observes)
        compile_ranges_changed(program->executable);
    return run_between(program, 0, program->ir.instr_count, ready, context, NULL);
}

cod_status cod_program_run_followed(cod_program *program, cod_sequel *sequel)
{
    COD_TRY(begin(program));
    return run_between(program, 0, program->ir.instr_count, NULL, NULL, sequel);
}

cod_status cod_program_run_forward(cod_program *program)
{
    COD_TRY(begin(program));
    return run_between(program, 0, program->ir.backward, NULL, NULL, NULL);
}

cod_status cod_program_run_backward(cod_program *program, cod_bucket_ready ready, void *context)
{
    return run_between(program, program->ir.backward, program->ir.instr_count, ready, context, NULL);
}

int64_t cod_program_delay(const cod_program *program)
{
    const ir_program *ir = &program->ir;
    const ir_image *last = &ir->images[ir_root(ir, ir->instrs[ir->instr_count - 1].outputs[0])];
    return last->delay * last->scale;
}

/** Zeros some rows of a tensor. */
static cod_status blank_rows(const cod_program *program, int tensor, int64_t first, int64_t last)
{
    const cod_executable *executable = program->executable;
    const ir_tensor *t = &program->ir.tensors[tensor];
    const size_t row = (size_t)(t->shape.w * t->shape.c) * cod_dtype_bytes(t->dtype);
    cod_buffer *buffer = t->place == IR_ARENA ? executable->arena : executable->io;
    if (first == last)
        return COD_OK;
    return executable->weights->backend->copy(executable->weights->device, cod_program_queue(program), buffer,
                                              t->offset + (size_t)first * row, program->zeros, 0,
                                              (size_t)(last - first) * row);
}

static cod_status begin_picture(const cod_program *program)
{
    for (size_t t = 1; t < program->ir.tensor_count; t++)
        if (program->ir.tensors[t].lasting && program->ir.tensors[t].root == (int)t)
            COD_TRY(blank_rows(program, (int)t, 0, program->ir.tensors[t].shape.h));
    return COD_OK;
}

/** Runs an instruction where any of its rows is in the picture, and zeros those that are not. */
static cod_status run_rows(cod_program *program, size_t index, int64_t step, int64_t height)
{
    const int tensor = ir_root(&program->ir, program->ir.instrs[index].outputs[0]);
    const ir_image *image = &program->ir.images[tensor];
    const int64_t top = (step * program->ir.band - image->delay) * image->scale,
                  end = height / program->ir.unit * image->scale;
    const int64_t above = top < 0 ? -top : 0, below = top + image->rows > end ? top + image->rows - end : 0;
    const int64_t first = image->kept + image->overlap, last = first + image->rows;
    if (image->repeats)
        return run_plan(program, index);
    if (above + below >= image->rows)
        return blank_rows(program, tensor, first, last);
    COD_TRY(run_plan(program, index));
    COD_TRY(blank_rows(program, tensor, first, first + above));
    return blank_rows(program, tensor, last - below, last);
}

cod_status cod_program_run_band(cod_program *program, int64_t step, int64_t height)
{
    COD_REQUIRE(program->ir.band > 0, "program '%s' does not run in bands", program->name);
    COD_REQUIRE(height % program->ir.unit == 0, "program '%s': a picture of %lld rows; wants a multiple of %lld",
                program->name, (long long)height, (long long)program->ir.unit);
    COD_TRY(cod_program_prepare(program));
    if (step == 0)
        COD_TRY(begin_picture(program));
    for (size_t i = 0; i < program->ir.instr_count; i++) {
        const ir_instr *instr = &program->ir.instrs[i];
        if (instr->prepare || (instr->when == IR_FIRST && step > 0))
            continue;
        COD_TRY(instr->when == IR_EACH ? run_rows(program, i, step, height) : run_plan(program, i));
    }
    return COD_OK;
}

cod_status cod_program_run_op(cod_program *program, size_t index)
{
    COD_TRY(cod_program_prepare(program));
    return run_plan(program, program->entries[index]);
}
