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

cod_status cod_batches_init(cod_batches *batches, const cod_train_session *session, bool again)
{
    const int64_t count = session->config->train.accumulate;
    *batches = (cod_batches){.session = session, .count = count, .on_device = -1};
    COD_TRY(cod_slots_init(&batches->slots, session->backend, session->device, batch_values(session) * sizeof(float)));
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

cod_status cod_batches_load(cod_batches *batches, cod_loader *loader, int64_t index, bool first)
{
    const cod_train_session *session = batches->session;
    const size_t input = values_of(&session->input), truth = values_of(&session->truth);
    float *kept = batches->kept != NULL ? batches->kept + (size_t)index * (input + truth) : NULL;
    if (!first && batches->on_device == index)
        return COD_OK;
    batches->on_device = index;
    if (first) {
        cod_batch batch;
        COD_TRY(cod_loader_next(loader, &batch));
        batches->host = (cod_mini_batch){cod_view_host(&batch.input), cod_view_host(&batch.target)};
    }
    if (first && kept != NULL) {
        memcpy(kept, batches->host.input, input * sizeof *kept);
        memcpy(kept + input, batches->host.truth, truth * sizeof *kept);
    }
    if (kept != NULL)
        batches->host = (cod_mini_batch){kept, kept + input};
    const cod_view views[] = {session->input, session->truth};
    const void *const sources[] = {batches->host.input, batches->host.truth};
    return cod_slots_write(&batches->slots, views, sources, 2);
}
