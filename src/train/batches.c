#include "train/batches.h"

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

cod_status cod_batches_init(cod_batches *batches, const cod_train_session *session, bool again)
{
    const int64_t count = session->config->train.accumulate;
    *batches = (cod_batches){.session = session, .count = count, .on_device = -1};
    if (!runs_at_once(session))
        COD_TRY(
            cod_slots_init(&batches->slots, session->backend, session->device, batch_values(session) * sizeof(float)));
    if (!again || count == 1)
        return COD_OK;
    batches->kept = malloc((size_t)count * batch_values(session) * sizeof *batches->kept);
    COD_REQUIRE_MEMORY(batches->kept);
    return COD_OK;
}

void cod_batches_clear(cod_batches *batches)
{
    free(batches->kept);
    cod_slots_clear(&batches->slots);
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

/** Queues its copies, through a pinned slot, to where later programs read it. */
static cod_status queue_copies(cod_batches *batches, const float *input, const float *truth)
{
    const cod_view views[2] = {batches->session->input, batches->session->truth};
    const size_t first = cod_view_span_bytes(&views[0]);
    void *host;
    COD_TRY(cod_slots_open(&batches->slots, &host));
    memcpy(host, input, first);
    memcpy((char *)host + first, truth, cod_view_span_bytes(&views[1]));
    return cod_slots_send(&batches->slots, views, 2);
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
