#include "strategies/pipeline.h"

#include "core/trace.h"

#include <stdlib.h>
#include <string.h>

enum { TAG_VALUES = 1, TAG_GRADIENTS = 2 };

size_t cod_pipeline_in_flight(int stage, int stages, int64_t batches)
{
    const int64_t most = stages - stage;
    return (size_t)(most < batches ? most : batches);
}

size_t cod_passing_bytes(const cod_passing *passing, size_t count, bool gradients)
{
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++) {
        const cod_view *view = gradients ? &passing[i].gradient : &passing[i].values;
        bytes += view->buffer != NULL ? cod_view_span_bytes(view) : 0;
    }
    return bytes;
}

/** Queues copies of what passes between a message and the device. */
static cod_status copy(const cod_train_session *session, const cod_passing *passing, size_t count, bool gradients,
                       cod_buffer *message, bool to_device)
{
    const cod_backend *backend = session->backend;
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        const cod_view *view = gradients ? &passing[i].gradient : &passing[i].values;
        if (view->buffer == NULL)
            continue;
        const size_t bytes = cod_view_span_bytes(view);
        COD_TRY(to_device ? backend->copy(session->device, NULL, view->buffer, view->offset, message, at, bytes)
                          : backend->copy(session->device, NULL, message, at, view->buffer, view->offset, bytes));
        at += bytes;
    }
    return COD_OK;
}

/** Sends the values that the program hands on, or the gradients of those it took. */
static cod_status send(const cod_train_session *session, cod_channel *channel, const cod_passing *passing, size_t count,
                       bool gradients)
{
    cod_buffer *message;
    COD_TRY(cod_channel_room(channel, &message));
    COD_TRY(copy(session, passing, count, gradients, message, false));
    return cod_channel_send(channel);
}

static cod_status receive(const cod_train_session *session, cod_channel *channel, const cod_passing *passing,
                          size_t count, bool gradients)
{
    cod_buffer *message;
    COD_TRY(cod_channel_receive(channel, &message));
    COD_TRY(copy(session, passing, count, gradients, message, true));
    return cod_channel_release(channel);
}

/** Whether a node of the stage reads an input of this name. */
static bool reads(const cod_graph *graph, cod_stage stage, const char *name)
{
    for (size_t i = stage.first; i < stage.end; i++) {
        const cod_node *node = cod_graph_node(graph, i);
        for (int k = 0; k < node->input_count; k++) {
            const cod_node *from = cod_graph_producer(graph, node->inputs[k]);
            if (from->kind == COD_NODE_INPUT && strcmp(from->name, name) == 0)
                return true;
        }
    }
    return false;
}

static cod_status make_slots(cod_pipeline *p, const cod_train_context *context)
{
    const cod_train_session *session = context->session;
    const int64_t batches = context->config->train.accumulate;
    const char *name = session->programs[0].name;
    const size_t wanted = cod_pipeline_in_flight(p->stage, p->stages, batches);
    p->slots = calloc(wanted, sizeof *p->slots);
    COD_REQUIRE_MEMORY(p->slots);
    for (; p->slot_count < wanted; p->slot_count++) {
        cod_pipeline_slot *slot = &p->slots[p->slot_count];
        slot->executable = session->executable;
        if (p->slot_count > 0)
            COD_TRY(cod_train_session_compile_apart(session, &context->session->weights, session->division.stage,
                                                    &slot->executable));
        slot->first = cod_train_program(slot->executable, name, 0);
        slot->later = cod_train_program(slot->executable, name, 1);
    }
    return COD_OK;
}

static cod_status make_channel(cod_channel *channel, const cod_train_context *context, int rank, int tag,
                               const cod_passing *passing, size_t count)
{
    const cod_train_session *session = context->session;
    return cod_channel_init(channel, context->comm, session->backend, session->device, rank, tag,
                            cod_passing_bytes(passing, count, tag == TAG_GRADIENTS));
}

static size_t input_bytes(const cod_pipeline *p, const char *name)
{
    const cod_view view = cod_executable_input(p->slots[0].executable, name);
    return cod_view_span_bytes(&view);
}

/** Makes slots for the data that the stage itself reads, and for losses. */
static cod_status make_transfers(cod_pipeline *p, const cod_train_context *context)
{
    const cod_train_session *session = context->session;
    const size_t bytes =
        (p->reads_input ? input_bytes(p, COD_INPUT_DATA) : 0) + (p->reads_target ? input_bytes(p, COD_INPUT_TRUTH) : 0);
    if (bytes > 0)
        COD_TRY(cod_slots_init(&p->data, session->backend, session->device, bytes));
    return cod_readback_create(session->backend, session->device, NULL, 1, (size_t)context->config->train.accumulate,
                               &p->losses);
}

cod_status cod_pipeline_init(cod_pipeline *p, const cod_train_context *context, int stage, int before, int after)
{
    const cod_graph *graph = context->session->recipe.model.graph;
    const cod_division *division = &context->session->division;
    *p = (cod_pipeline){.stage = stage,
                        .stages = division->stages,
                        .reads_input = reads(graph, division->stage, COD_INPUT_DATA),
                        .reads_target = reads(graph, division->stage, COD_INPUT_TRUTH)};
    COD_TRY(make_slots(p, context));
    COD_TRY(make_transfers(p, context));
    size_t count;
    const cod_passing *taken = cod_program_taken(p->slots[0].first, &count);
    COD_TRY(make_channel(&p->values_in, context, before, TAG_VALUES, taken, count));
    COD_TRY(make_channel(&p->gradients_out, context, before, TAG_GRADIENTS, taken, count));
    const cod_passing *handed = cod_program_handed(p->slots[0].first, &count);
    COD_TRY(make_channel(&p->values_out, context, after, TAG_VALUES, handed, count));
    return make_channel(&p->gradients_in, context, after, TAG_GRADIENTS, handed, count);
}

void cod_pipeline_clear(cod_pipeline *p)
{
    cod_channel *const channels[] = {&p->values_in, &p->values_out, &p->gradients_in, &p->gradients_out};
    for (size_t i = 0; i < sizeof channels / sizeof channels[0]; i++)
        cod_channel_clear(channels[i]);
    cod_slots_clear(&p->data);
    cod_readback_destroy(p->losses);
    for (size_t i = 1; i < p->slot_count; i++)
        cod_executable_destroy(p->slots[i].executable);
    free(p->slots);
    *p = (cod_pipeline){0};
}

/** The slot of mini-batch `batch` of the step, and its program. */
static cod_program *program_of(const cod_pipeline *p, int64_t batch, cod_executable **executable)
{
    const cod_pipeline_slot *slot = &p->slots[(size_t)batch % p->slot_count];
    *executable = slot->executable;
    return batch == 0 ? slot->first : slot->later;
}

/** Loads the data that the stage itself reads; every stage loads the same mini-batches. */
static cod_status load(cod_pipeline *p, const cod_train_context *context, cod_executable *executable)
{
    cod_batch batch;
    cod_view views[2];
    const void *sources[2];
    size_t count = 0;
    if (!p->reads_input && !p->reads_target)
        return COD_OK;
    COD_TRY(cod_loader_next(context->loader, &batch));
    if (p->reads_input) {
        views[count] = cod_executable_input(executable, COD_INPUT_DATA);
        sources[count++] = cod_view_host(&batch.input);
    }
    if (p->reads_target) {
        views[count] = cod_executable_input(executable, COD_INPUT_TRUTH);
        sources[count++] = cod_view_host(&batch.target);
    }
    return cod_slots_write(&p->data, views, sources, count);
}

static cod_status forward(cod_pipeline *p, const cod_train_context *context, int64_t batch)
{
    cod_executable *executable;
    cod_program *program = program_of(p, batch, &executable);
    size_t count;
    COD_TRY(load(p, context, executable));
    const cod_passing *taken = cod_program_taken(program, &count);
    COD_TRY(receive(context->session, &p->values_in, taken, count, false));
    const double begin = cod_clock_s();
    COD_TRY(cod_program_run_forward(program));
    p->computed_s += cod_clock_s() - begin;
    const cod_passing *handed = cod_program_handed(program, &count);
    return send(context->session, &p->values_out, handed, count, false);
}

/** Queues what brings the loss of a mini-batch. */
static cod_status put_loss(cod_pipeline *p, const cod_train_context *context, const cod_executable *executable,
                           int64_t batch)
{
    const cod_view loss = cod_executable_loss_view(executable, context->session->recipe.task_loss);
    COD_TRY(cod_readback_put(p->losses, 0, (size_t)batch, &loss));
    return batch == context->config->train.accumulate - 1 ? cod_readback_close(p->losses, 0) : COD_OK;
}

static cod_status backward(cod_pipeline *p, cod_train_context *context, int64_t batch, cod_bucket_ready ready,
                           void *ready_context)
{
    const int64_t batches = context->config->train.accumulate;
    cod_executable *executable;
    cod_program *program = program_of(p, batch, &executable);
    size_t count;
    const cod_passing *handed = cod_program_handed(program, &count);
    COD_TRY(receive(context->session, &p->gradients_in, handed, count, true));
    const double begin = cod_clock_s();
    COD_TRY(cod_program_run_backward(program, batch == batches - 1 ? ready : NULL, ready_context));
    p->computed_s += cod_clock_s() - begin;
    if (p->stage == p->stages - 1)
        COD_TRY(put_loss(p, context, executable, batch));
    const cod_passing *taken = cod_program_taken(program, &count);
    return send(context->session, &p->gradients_out, taken, count, true);
}

cod_status cod_pipeline_run(cod_pipeline *p, cod_train_context *context, cod_bucket_ready ready, void *ready_context,
                            double *task_loss)
{
    const int64_t batches = context->config->train.accumulate, ahead = (int64_t)p->slot_count - 1;
    const double begin = cod_clock_s();
    *task_loss = 0;
    cod_readback_open(p->losses, 0);
    COD_TRY(cod_channel_expect(&p->values_in, (uint64_t)batches));
    COD_TRY(cod_channel_expect(&p->gradients_in, (uint64_t)batches));
    for (int64_t i = 0; i < batches + ahead; i++) {
        if (i < batches)
            COD_TRY(forward(p, context, i));
        if (i >= ahead)
            COD_TRY(backward(p, context, i - ahead, ready, ready_context));
    }
    for (int64_t i = 0; i < batches && p->stage == p->stages - 1; i++) {
        double loss;
        COD_TRY(cod_readback_get(p->losses, 0, (size_t)i, &loss));
        *task_loss += loss / (double)batches;
    }
    p->elapsed_s += cod_clock_s() - begin;
    p->steps++;
    return COD_OK;
}

cod_status cod_pipeline_flush(cod_pipeline *p)
{
    COD_TRY(cod_channel_flush(&p->values_out));
    return cod_channel_flush(&p->gradients_out);
}
