#include "train/batches.h"

#include <stdlib.h>
#include <string.h>

/** Bytes of all parts of a kept mini-batch. */
static size_t kept_bytes(const cod_feed *feed)
{
    return feed->bytes[COD_FEED_INPUT] + feed->bytes[COD_FEED_TRUTH] + feed->bytes[COD_FEED_TURNS];
}

cod_status cod_batches_init(cod_batches *batches, const cod_train_session *session, const cod_samples *samples,
                            bool again)
{
    const int64_t count = session->config->train.accumulate;
    const cod_view views[] = {session->input, session->truth};
    *batches = (cod_batches){.session = session, .count = count, .on_device = -1};
    COD_TRY(cod_feed_init(&batches->feed, session->backend, session->device, views, samples,
                          (cod_data_transfer)session->config->data.transfer));
    if (!again || count == 1)
        return COD_OK;
    batches->kept = malloc((size_t)count * kept_bytes(&batches->feed));
    COD_REQUIRE_MEMORY(batches->kept);
    return COD_OK;
}

void cod_batches_clear(cod_batches *batches)
{
    free(batches->kept);
    cod_feed_clear(&batches->feed);
    *batches = (cod_batches){0};
}

void cod_batches_begin(cod_batches *batches)
{
    batches->on_device = -1;
}

/** Copies the parts to `kept`, where they are given; afterwards `parts` are those there. */
static void keep(const cod_feed *feed, char *kept, bool given, const void *parts[COD_FEED_PARTS])
{
    for (int i = 0; i < COD_FEED_PARTS; kept += feed->bytes[i++]) {
        if (given && feed->bytes[i] > 0)
            memcpy(kept, parts[i], feed->bytes[i]);
        parts[i] = kept;
    }
}

cod_status cod_batches_load(cod_batches *batches, cod_loader *loader, int64_t index, bool first)
{
    const cod_feed *feed = &batches->feed;
    char *kept = batches->kept != NULL ? batches->kept + (size_t)index * kept_bytes(feed) : NULL;
    if (!first && batches->on_device == index)
        return COD_OK;
    batches->on_device = index;
    if (first) {
        cod_batch batch;
        COD_TRY(cod_loader_next(loader, &batch));
        batches->parts[COD_FEED_INPUT] = cod_view_host(&batch.input);
        batches->parts[COD_FEED_TRUTH] = cod_view_host(&batch.target);
        batches->parts[COD_FEED_TURNS] = batch.turns;
    }
    if (kept != NULL)
        keep(feed, kept, first, batches->parts);
    if (!cod_feed_takes_bytes(feed))
        batches->host = (cod_mini_batch){batches->parts[COD_FEED_INPUT], batches->parts[COD_FEED_TRUTH]};
    return cod_feed_write(&batches->feed, batches->parts);
}
