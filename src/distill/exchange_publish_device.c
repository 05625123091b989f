/*
 * Publishing from a device, by its op QUANTISE: versions stay in its memory, and plain chunks come to the host, which shortens and seals
 * them.
 */
#include "core/fingerprint.h"
#include "distill/exchange_device_internal.h"
#include "distill/exchange_internal.h"

#include <stdlib.h>
#include <string.h>

/** What publications of one fragment need. */
typedef struct own_coding {
    chunk_table chunks;  /**< prints: of `decoded` */
    cod_buffer *decoded; /**< [range.count] f32: what readers hold of it by now; its next delta's reference */
    cod_buffer *plan;    /**< headers */
    cod_plan *key, *delta;
} own_coding;

struct exchange_device {
    size_t room; /**< of a payload */

    own_coding *own;              /**< [fragments] */
    cod_buffer *heads, *payloads; /**< of all shards of one fragment, with room for the largest */
    cod_buffer *heads_host;       /**< pinned: all headers of one */
    cod_buffer *payloads_host;    /**< pinned: the own shard's payloads of one */
    cod_event *fetched;
    bool fetching;
    int looks;     /**< at what is being fetched */
    size_t sealed; /**< chunks of the own shard */

    float **mirrors; /**< [own_count] of the host, for checkpoints; NULL = none yet */
};

static cod_status plan_quantise(cod_exchange *e, const own_coding *own, bool delta, cod_plan **out)
{
    const exchange_device *d = e->on_device;
    const size_t chunks = chunk_table_count(&own->chunks);
    const cod_view decoded = device_vector_of(own->decoded, &own->chunks);
    const cod_op op = {
        .kind = COD_OP_QUANTISE,
        .attr = {.quality_db = e->setup.options.quality_db, .rounding = (float)e->setup.options.rounding},
        .inputs = {device_vector_of(e->publisher.snapshot, &own->chunks),
                   device_rows_of(own->plan, chunks, COD_CHUNK_HEADER_BYTES), delta ? decoded : (cod_view){0}},
        .outputs = {device_rows_of(d->heads, chunks, COD_CHUNK_HEADER_BYTES),
                    device_rows_of(d->payloads, chunks, d->room), decoded},
        .name = "publication"};
    return e->setup.backend->plan_create(e->setup.device, &op, out);
}

/** Makes what publications of a fragment need. */
static cod_status make_own(cod_exchange *e, int fragment, own_coding *own)
{
    COD_TRY(chunk_table_init(&e->setup, e->setup.mine, fragment, &own->chunks));
    const size_t heads = chunk_table_count(&own->chunks) * COD_CHUNK_HEADER_BYTES;
    COD_TRY(device_buffer_of(&e->setup, false, own->chunks.range.count * sizeof(float), &own->decoded));
    return device_buffer_of(&e->setup, false, heads, &own->plan);
}

static size_t own_shard_chunks(const cod_exchange *e, const own_coding *own)
{
    return own->chunks.first[e->setup.rank + 1] - own->chunks.first[e->setup.rank];
}

static cod_status make_publishing(cod_exchange *e)
{
    exchange_device *d = e->on_device;
    size_t all = 0, own = 0;
    d->own = calloc((size_t)e->setup.fragments, sizeof *d->own);
    COD_REQUIRE_MEMORY(d->own);
    for (int f = 0; f < e->setup.fragments; f++) {
        COD_TRY(make_own(e, f, &d->own[f]));
        const size_t of_fragment = chunk_table_count(&d->own[f].chunks), of_shard = own_shard_chunks(e, &d->own[f]);
        all = of_fragment > all ? of_fragment : all;
        own = of_shard > own ? of_shard : own;
    }
    COD_TRY(device_buffer_of(&e->setup, false, all * COD_CHUNK_HEADER_BYTES, &d->heads));
    COD_TRY(device_buffer_of(&e->setup, false, all * d->room, &d->payloads));
    COD_TRY(device_buffer_of(&e->setup, true, all * COD_CHUNK_HEADER_BYTES, &d->heads_host));
    COD_TRY(device_buffer_of(&e->setup, true, own * d->room, &d->payloads_host));
    COD_TRY(cod_event_create(e->setup.backend, e->setup.device, &d->fetched));
    for (int f = 0; f < e->setup.fragments; f++) {
        own_coding *fragment = &d->own[f];
        chunk_table_plan(&e->setup, &fragment->chunks, d->heads_host->host);
        COD_TRY(e->setup.backend->upload(e->setup.device, NULL, fragment->plan, 0, d->heads_host->host,
                                         chunk_table_count(&fragment->chunks) * COD_CHUNK_HEADER_BYTES));
        COD_TRY(plan_quantise(e, fragment, false, &fragment->key));
        COD_TRY(plan_quantise(e, fragment, true, &fragment->delta));
    }
    return COD_OK;
}

cod_status exchange_device_create(cod_exchange *e)
{
    const cod_codec_options options = exchange_codec_options(&e->setup.options);
    exchange_device *d = calloc(1, sizeof *d);
    COD_REQUIRE_MEMORY(d);
    e->on_device = d;
    d->room = (size_t)cod_codec_plain_room(&options);
    return make_publishing(e);
}

void exchange_device_destroy(cod_exchange *e)
{
    exchange_device *d = e->on_device;
    if (d == NULL)
        return;
    device_event_destroy(&e->setup, d->fetched);
    for (int f = 0; f < e->setup.fragments && d->own != NULL; f++) {
        device_plan_destroy(&e->setup, d->own[f].key);
        device_plan_destroy(&e->setup, d->own[f].delta);
        device_buffer_destroy(&e->setup, false, d->own[f].decoded);
        device_buffer_destroy(&e->setup, false, d->own[f].plan);
        chunk_table_clear(&d->own[f].chunks);
    }
    free(d->own);
    device_buffer_destroy(&e->setup, true, d->heads_host);
    device_buffer_destroy(&e->setup, true, d->payloads_host);
    device_buffer_destroy(&e->setup, false, d->heads);
    device_buffer_destroy(&e->setup, false, d->payloads);
    for (int i = 0; i < e->publisher.own_count && d->mirrors != NULL; i++)
        free(d->mirrors[i]);
    free(d->mirrors);
    free(d);
    e->on_device = NULL;
}

/* Publishing. */

/** Of the fragment that was begun last. */
static own_coding *own_now(const cod_exchange *e)
{
    return &e->on_device->own[exchange_fragment_of(&e->setup, e->publisher.version)];
}

cod_status exchange_device_quantise(cod_exchange *e)
{
    exchange_device *d = e->on_device;
    const own_coding *own = own_now(e);
    d->fetching = false;
    COD_TRY(e->setup.backend->plan_run(e->publisher.against > 0 ? own->delta : own->key, NULL));
    COD_TRY(e->setup.backend->copy(e->setup.device, NULL, d->heads_host, 0, d->heads, 0,
                                   chunk_table_count(&own->chunks) * COD_CHUNK_HEADER_BYTES));
    return cod_event_record(e->setup.backend, e->copied, NULL);
}

static unsigned char *own_head(const cod_exchange *e, size_t k)
{
    return (unsigned char *)e->on_device->heads_host->host +
           (own_now(e)->chunks.first[e->setup.rank] + k) * COD_CHUNK_HEADER_BYTES;
}

/** Queues the copies of the own shard's payloads, as long as they are, and of what readers will decode to where it is kept. */
static cod_status start_fetching(cod_exchange *e)
{
    exchange_device *d = e->on_device;
    const own_coding *own = own_now(e);
    const size_t first = own->chunks.first[e->setup.rank];
    const unsigned char *heads = d->heads_host->host;
    for (size_t k = 0; k < chunk_table_count(&own->chunks); k++)
        if (cod_load_u64(heads + k * COD_CHUNK_HEADER_BYTES + COD_CHUNK_AT_CHECKSUM) == COD_FINGERPRINT_NONE)
            return cod_fail(COD_ERR_NUMERIC, "a value to be published is NaN or infinity");
    for (size_t k = 0; k < own_shard_chunks(e, own); k++) {
        COD_TRY(e->setup.backend->copy(e->setup.device, NULL, d->payloads_host, k * d->room, d->payloads,
                                       (first + k) * d->room,
                                       cod_load_u32(own_head(e, k) + COD_CHUNK_AT_STORED_BYTES)));
        chunk_table_to_model(&own->chunks, own_head(e, k));
    }
    COD_TRY(e->setup.backend->copy(e->setup.device, NULL, e->publisher.encoding->values, 0, own->decoded, 0,
                                   own->chunks.range.count * sizeof(float)));
    COD_TRY(cod_event_record(e->setup.backend, d->fetched, NULL));
    const cod_codec_range range = chunk_table_range(&e->setup, &own->chunks, e->setup.rank);
    cod_codec_begin(&e->publisher.encoder, &range, &e->publisher.key);
    d->fetching = true;
    d->looks = 0;
    d->sealed = 0;
    return COD_OK;
}

cod_status exchange_device_fetch(cod_exchange *e, bool at_once, bool *fetched)
{
    exchange_device *d = e->on_device;
    *fetched = at_once || (d->fetching && d->looks++ >= EXCHANGE_COPY_STEPS);
    if (!d->fetching)
        COD_TRY(start_fetching(e));
    return *fetched ? cod_event_wait(e->setup.backend, d->fetched) : COD_OK;
}

cod_status exchange_device_seal(cod_exchange *e)
{
    exchange_device *d = e->on_device;
    const chunk_table *table = &own_now(e)->chunks;
    const uint64_t before = e->publisher.encoder.done,
                   capacity = cod_codec_bound(&e->publisher.encoder.options, &e->publisher.encoder.range);
    const size_t k = d->sealed++;
    COD_TRY(cod_codec_seal(&e->publisher.encoder, own_head(e, k),
                           (const unsigned char *)d->payloads_host->host + k * d->room,
                           table->prints[table->first[e->setup.rank] + k], e->publisher.room, capacity));
    return exchange_try_coders(e, before);
}

void exchange_device_end(cod_exchange *e)
{
    chunk_table *table = &own_now(e)->chunks;
    const unsigned char *heads = e->on_device->heads_host->host;
    for (size_t k = 0; k < chunk_table_count(table); k++) {
        table->prints[k] = cod_load_u64(heads + k * COD_CHUNK_HEADER_BYTES + COD_CHUNK_AT_CHECKSUM);
        exchange_note_print(&e->publisher, k, table->prints[k]);
    }
}

cod_status exchange_device_skip(cod_exchange *e)
{
    const own_coding *own = own_now(e);
    const uint64_t reference = exchange_chain_now(e)->reference;
    if (reference == 0)
        return COD_OK;
    return e->setup.backend->copy(e->setup.device, NULL, own->decoded, 0, exchange_own_of(e, reference)->values, 0,
                                  own->chunks.range.count * sizeof(float));
}

/* Checkpoints. */

cod_status exchange_device_save(cod_exchange *e)
{
    exchange_device *d = e->on_device;
    const int count = e->publisher.own_count;
    if (d->mirrors == NULL) {
        d->mirrors = calloc((size_t)count, sizeof *d->mirrors);
        COD_REQUIRE_MEMORY(d->mirrors);
    }
    for (int i = 0; i < count; i++) {
        cod_buffer *value = e->publisher.own[i].values;
        if (d->mirrors[i] == NULL)
            d->mirrors[i] = malloc(value->bytes);
        COD_REQUIRE_MEMORY(d->mirrors[i]);
        COD_TRY(e->setup.backend->download(e->setup.device, NULL, d->mirrors[i], value, 0, value->bytes));
    }
    return COD_OK;
}

float *exchange_device_saved(const cod_exchange *e, int own)
{
    return e->on_device->mirrors[own];
}

cod_status exchange_device_restore(cod_exchange *e)
{
    exchange_device *d = e->on_device;
    for (int i = 0; i < e->publisher.own_count; i++) {
        cod_buffer *value = e->publisher.own[i].values;
        COD_TRY(e->setup.backend->upload(e->setup.device, NULL, value, 0, d->mirrors[i], value->bytes));
    }
    for (int f = 0; f < e->setup.fragments; f++) {
        own_coding *own = &d->own[f];
        const uint64_t reference = e->publisher.chains[f].reference;
        if (reference == 0)
            continue;
        const float *values = d->mirrors[reference % (uint64_t)e->publisher.own_count];
        COD_TRY(e->setup.backend->upload(e->setup.device, NULL, own->decoded, 0, values,
                                         own->chunks.range.count * sizeof(float)));
        chunk_table_find_prints(&e->setup, values, &own->chunks, d->heads_host->host);
    }
    return COD_OK;
}
