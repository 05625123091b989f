#include "train/batches.h"

#include "core/queue.h"

#include <stdlib.h>
#include <string.h>

static size_t values_of(const cod_view *view)
{
    return (size_t)cod_shape_count(view->shape);
}

/** Of input and truth together. */
static size_t batch_values(const cod_train_session *session)
{
    return values_of(&session->input) + values_of(&session->truth);
}

static bool runs_at_once(const cod_train_session *session)
{
    return session->backend->queue_create == NULL;
}

/** What a device needs to get one mini-batch while it computes with another. */
static cod_status make_slots(cod_batches *batches)
{
    const cod_train_session *session = batches->session;
    const cod_backend *backend = session->backend;
    const size_t bytes = COD_BATCHES_SLOTS * batch_values(session) * sizeof(float);
    COD_TRY(cod_queue_create(backend, session->device, &batches->queue));
    COD_TRY(backend->host_buffer_create(session->device, bytes, &batches->pinned));
    COD_TRY(backend->buffer_create(session->device, bytes, &batches->staged));
    for (int i = 0; i < COD_BATCHES_SLOTS; i++) {
        COD_TRY(cod_event_create(backend, session->device, &batches->arrived[i]));
        COD_TRY(cod_event_create(backend, session->device, &batches->taken[i]));
    }
    return COD_OK;
}

cod_status cod_batches_init(cod_batches *batches, const cod_train_session *session, bool again)
{
    const int64_t count = session->config->train.accumulate;
    *batches = (cod_batches){.session = session, .count = count, .on_device = -1};
    if (!runs_at_once(session))
        COD_TRY(make_slots(batches));
    if (!again || count == 1)
        return COD_OK;
    batches->kept = malloc((size_t)count * batch_values(session) * sizeof *batches->kept);
    COD_REQUIRE_MEMORY(batches->kept);
    return COD_OK;
}

void cod_batches_clear(cod_batches *batches)
{
    const cod_train_session *session = batches->session;
    free(batches->kept);
    if (session != NULL && !runs_at_once(session)) {
        cod_queue_destroy(session->backend, batches->queue);
        if (batches->staged != NULL)
            session->backend->buffer_destroy(session->device, batches->staged);
        if (batches->pinned != NULL)
            session->backend->host_buffer_destroy(session->device, batches->pinned);
        for (int i = 0; i < COD_BATCHES_SLOTS; i++) {
            cod_event_destroy(session->backend, batches->arrived[i]);
            cod_event_destroy(session->backend, batches->taken[i]);
        }
    }
    *batches = (cod_batches){0};
}

void cod_batches_begin(cod_batches *batches)
{
    batches->on_device = -1;
}

/** Writes a mini-batch to a backend that runs at once. */
static cod_status write_at_once(const cod_train_session *session, const float *input, const float *truth)
{
    COD_TRY(session->backend->upload(session->device, NULL, session->input.buffer, session->input.offset, input,
                                     cod_view_span_bytes(&session->input)));
    return session->backend->upload(session->device, NULL, session->truth.buffer, session->truth.offset, truth,
                                    cod_view_span_bytes(&session->truth));
}

/** Copies it through a pinned slot in the copy queue, and then, in the order of the programs, to where these read it. */
static cod_status queue_copies(cod_batches *batches, const float *input, const float *truth)
{
    const cod_train_session *session = batches->session;
    const cod_backend *backend = session->backend;
    cod_device *device = session->device;
    const size_t slot = batches->loaded++ % COD_BATCHES_SLOTS, bytes = batch_values(session) * sizeof(float);
    const size_t first = cod_view_span_bytes(&session->input), second = cod_view_span_bytes(&session->truth);
    const size_t offset = slot * bytes;
    char *const host = (char *)batches->pinned->host + offset;
    COD_TRY(cod_event_wait(backend, batches->arrived[slot]));
    memcpy(host, input, first);
    memcpy(host + first, truth, second);
    COD_TRY(cod_queue_wait(backend, batches->queue, batches->taken[slot]));
    COD_TRY(backend->copy(device, batches->queue, batches->staged, offset, batches->pinned, offset, bytes));
    COD_TRY(cod_event_record(backend, batches->arrived[slot], batches->queue));
    COD_TRY(cod_queue_wait(backend, NULL, batches->arrived[slot]));
    COD_TRY(backend->copy(device, NULL, session->input.buffer, session->input.offset, batches->staged, offset, first));
    COD_TRY(backend->copy(device, NULL, session->truth.buffer, session->truth.offset, batches->staged, offset + first,
                          second));
    return cod_event_record(backend, batches->taken[slot], NULL);
}

cod_status cod_batches_load(cod_batches *batches, cod_loader *loader, int64_t index, bool first)
{
    const cod_train_session *session = batches->session;
    const size_t input = values_of(&session->input), truth = values_of(&session->truth);
    float *kept = batches->kept != NULL ? batches->kept + (size_t)index * (input + truth) : NULL;
    const float *parts[2] = {kept, kept + (kept != NULL ? input : 0)};
    if (!first && batches->on_device == index)
        return COD_OK;
    batches->on_device = index;
    if (first) {
        cod_batch batch;
        COD_TRY(cod_loader_next(loader, &batch));
        parts[0] = cod_view_host(&batch.input);
        parts[1] = cod_view_host(&batch.target);
    }
    if (first && kept != NULL) {
        memcpy(kept, parts[0], input * sizeof *kept);
        memcpy(kept + input, parts[1], truth * sizeof *kept);
    }
    return runs_at_once(session) ? write_at_once(session, parts[0], parts[1])
                                 : queue_copies(batches, parts[0], parts[1]);
}
