#include "train/batches.h"

#include <stdlib.h>
#include <string.h>

static size_t values_of(const cod_view *view)
{
    return (size_t)cod_shape_count(view->shape);
}

cod_status cod_batches_init(cod_batches *batches, const cod_train_session *session, bool again)
{
    const int64_t count = session->config->train.accumulate;
    *batches = (cod_batches){.session = session, .count = count, .on_device = -1};
    if (!again || count == 1)
        return COD_OK;
    const size_t values = values_of(&session->input) + values_of(&session->truth);
    batches->kept = malloc((size_t)count * values * sizeof *batches->kept);
    COD_REQUIRE_MEMORY(batches->kept);
    return COD_OK;
}

void cod_batches_clear(cod_batches *batches)
{
    free(batches->kept);
    *batches = (cod_batches){0};
}

void cod_batches_begin(cod_batches *batches)
{
    batches->on_device = -1;
}

/** Writes to the device, and on the way to where the host keeps the mini-batch. @param from  NULL = from there */
static cod_status fill(const cod_batches *batches, const cod_view *target, const void *from, float *kept)
{
    const cod_train_session *session = batches->session;
    const size_t bytes = cod_view_span_bytes(target);
    if (from != NULL && kept != NULL)
        memcpy(kept, from, bytes);
    return session->backend->upload(session->device, NULL, target->buffer, target->offset, from != NULL ? from : kept,
                                    bytes);
}

cod_status cod_batches_load(cod_batches *batches, cod_loader *loader, int64_t index, bool first)
{
    const cod_train_session *session = batches->session;
    const size_t input = values_of(&session->input), truth = values_of(&session->truth);
    float *kept = batches->kept != NULL ? batches->kept + (size_t)index * (input + truth) : NULL;
    cod_batch batch;
    if (!first && batches->on_device == index)
        return COD_OK;
    if (first)
        COD_TRY(cod_loader_next(loader, &batch));
    batches->on_device = index;
    COD_TRY(fill(batches, &session->input, first ? cod_view_host(&batch.input) : NULL, kept));
    return fill(batches, &session->truth, first ? cod_view_host(&batch.target) : NULL,
                kept != NULL ? kept + input : NULL);
}
