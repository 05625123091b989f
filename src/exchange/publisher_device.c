/*
 * Publishing from a device, by its op QUANTISE: versions stay in its memory, and plain chunks come to the host, which
 * shortens and seals them.
 */
#include "core/fingerprint.h"
#include "exchange/device_internal.h"
#include "exchange/publisher_internal.h"

#include <stdlib.h>

/** What publications of one fragment need. */
typedef struct own_coding {
    chunk_table chunks; /**< prints: of `decoded` */
    /**
     * [range.count] f32: what readers hold of it by now; its next delta's reference. The chain's, where that has one.
     */
    cod_buffer *decoded;
    cod_buffer *plan; /**< headers */
    cod_plan *key, *delta;
    size_t longest; /**< chunks of the group's longest shard */
} own_coding;

struct exchange_publisher_device {
    size_t room; /**< of a payload */

    own_coding *own;              /**< [fragments] */
    cod_buffer *heads, *payloads; /**< of all shards of one fragment, with room for the largest */
    cod_buffer *heads_host;       /**< pinned: all headers of one */
    cod_buffer *payloads_host;    /**< pinned: the own shard's payloads of one */
    cod_event *fetched;
    bool fetching;
    int looks;     /**< at what is being fetched */
    size_t sealed; /**< calls of exchange_publisher_device_seal() */

    float **mirrors; /**< [exchange_publisher_held_count()] of the host, for checkpoints; NULL = none yet */
};

static cod_status plan_quantise(exchange_publisher *p, const own_coding *own, bool delta, cod_plan **out)
{
    const exchange_publisher_device *d = p->on_device;
    const size_t chunks = chunk_table_count(&own->chunks);
    const cod_view decoded = device_vector_of(own->decoded, &own->chunks);
    const cod_op op = {
        .kind = COD_OP_QUANTISE,
        .attr = {.quality_db = p->setup->options.quality_db, .rounding = (float)p->setup->options.rounding},
        .inputs = {device_vector_of(p->snapshot, &own->chunks),
                   device_rows_of(own->plan, chunks, COD_CHUNK_HEADER_BYTES), delta ? decoded : (cod_view){0}},
        .outputs = {device_rows_of(d->heads, chunks, COD_CHUNK_HEADER_BYTES),
                    device_rows_of(d->payloads, chunks, d->room), decoded},
        .name = "publication"};
    return p->setup->backend->plan_create(p->setup->device, &op, out);
}

/** Makes what publications of a fragment need. */
static cod_status make_own(exchange_publisher *p, int fragment, own_coding *own)
{
    COD_TRY(chunk_table_init(p->setup, p->setup->mine, fragment, &own->chunks));
    const size_t heads = chunk_table_count(&own->chunks) * COD_CHUNK_HEADER_BYTES;
    for (int s = 0; s < own->chunks.shards; s++) {
        const size_t chunks = own->chunks.first[s + 1] - own->chunks.first[s];
        own->longest = chunks > own->longest ? chunks : own->longest;
    }
    own->decoded = p->chains[fragment].decoded;
    if (own->decoded == NULL)
        COD_TRY(device_buffer_of(p->setup, false, own->chunks.range.count * sizeof(float), &own->decoded));
    return device_buffer_of(p->setup, false, heads, &own->plan);
}

static size_t own_shard_chunks(const exchange_publisher *p, const own_coding *own)
{
    return own->chunks.first[p->setup->rank + 1] - own->chunks.first[p->setup->rank];
}

static cod_status make_publishing(exchange_publisher *p)
{
    exchange_publisher_device *d = p->on_device;
    size_t all = 0, own = 0;
    d->own = calloc((size_t)p->setup->fragments, sizeof *d->own);
    COD_REQUIRE_MEMORY(d->own);
    for (int f = 0; f < p->setup->fragments; f++) {
        COD_TRY(make_own(p, f, &d->own[f]));
        const size_t of_fragment = chunk_table_count(&d->own[f].chunks), of_shard = own_shard_chunks(p, &d->own[f]);
        all = of_fragment > all ? of_fragment : all;
        own = of_shard > own ? of_shard : own;
    }
    COD_TRY(device_buffer_of(p->setup, false, all * COD_CHUNK_HEADER_BYTES, &d->heads));
    COD_TRY(device_buffer_of(p->setup, false, all * d->room, &d->payloads));
    COD_TRY(device_buffer_of(p->setup, true, all * COD_CHUNK_HEADER_BYTES, &d->heads_host));
    COD_TRY(device_buffer_of(p->setup, true, own * d->room, &d->payloads_host));
    COD_TRY(cod_event_create(p->setup->backend, p->setup->device, &d->fetched));
    for (int f = 0; f < p->setup->fragments; f++) {
        own_coding *fragment = &d->own[f];
        chunk_table_plan(p->setup, &fragment->chunks, d->heads_host->host);
        COD_TRY(p->setup->backend->upload(p->setup->device, NULL, fragment->plan, 0, d->heads_host->host,
                                          chunk_table_count(&fragment->chunks) * COD_CHUNK_HEADER_BYTES));
        COD_TRY(plan_quantise(p, fragment, false, &fragment->key));
        COD_TRY(plan_quantise(p, fragment, true, &fragment->delta));
    }
    return COD_OK;
}

cod_status exchange_publisher_use_device(exchange_publisher *p)
{
    const cod_codec_options options = exchange_codec_options(&p->setup->options);
    exchange_publisher_device *d = calloc(1, sizeof *d);
    COD_REQUIRE_MEMORY(d);
    p->on_device = d;
    d->room = (size_t)cod_codec_plain_room(&options);
    return make_publishing(p);
}

void exchange_publisher_leave_device(exchange_publisher *p)
{
    exchange_publisher_device *d = p->on_device;
    if (d == NULL)
        return;
    device_event_destroy(p->setup, d->fetched);
    for (int f = 0; f < p->setup->fragments && d->own != NULL; f++) {
        device_plan_destroy(p->setup, d->own[f].key);
        device_plan_destroy(p->setup, d->own[f].delta);
        if (p->chains[f].decoded == NULL)
            device_buffer_destroy(p->setup, false, d->own[f].decoded);
        device_buffer_destroy(p->setup, false, d->own[f].plan);
        chunk_table_clear(&d->own[f].chunks);
    }
    free(d->own);
    device_buffer_destroy(p->setup, true, d->heads_host);
    device_buffer_destroy(p->setup, true, d->payloads_host);
    device_buffer_destroy(p->setup, false, d->heads);
    device_buffer_destroy(p->setup, false, d->payloads);
    for (int i = 0; i < exchange_publisher_held_count(p) && d->mirrors != NULL; i++)
        free(d->mirrors[i]);
    free(d->mirrors);
    free(d);
    p->on_device = NULL;
}

/* Publishing. */

/** Of the fragment that was begun last. */
static own_coding *own_now(const exchange_publisher *p)
{
    return &p->on_device->own[exchange_fragment_now(p)];
}

cod_status exchange_publisher_device_quantise(exchange_publisher *p)
{
    exchange_publisher_device *d = p->on_device;
    const own_coding *own = own_now(p);
    d->fetching = false;
    COD_TRY(p->setup->backend->plan_run(p->against > 0 ? own->delta : own->key, NULL));
    COD_TRY(p->setup->backend->copy(p->setup->device, NULL, d->heads_host, 0, d->heads, 0,
                                    chunk_table_count(&own->chunks) * COD_CHUNK_HEADER_BYTES));
    return cod_event_record(p->setup->backend, p->copied, NULL);
}

static unsigned char *own_head(const exchange_publisher *p, size_t k)
{
    return (unsigned char *)p->on_device->heads_host->host +
           (own_now(p)->chunks.first[p->setup->rank] + k) * COD_CHUNK_HEADER_BYTES;
}

/**
 * Queues the copies of the own shard's payloads, as long as they are, and of what a merge subtracts to where it is
 * kept.
 */
static cod_status start_fetching(exchange_publisher *p)
{
    exchange_publisher_device *d = p->on_device;
    const own_coding *own = own_now(p);
    const size_t first = own->chunks.first[p->setup->rank];
    const unsigned char *heads = d->heads_host->host;
    for (size_t k = 0; k < chunk_table_count(&own->chunks); k++)
        if (cod_load_u64(heads + k * COD_CHUNK_HEADER_BYTES + COD_CHUNK_AT_CHECKSUM) == COD_FINGERPRINT_NONE)
            return cod_fail(COD_ERR_NUMERIC, "a value to be published is NaN or infinity");
    for (size_t k = 0; k < own_shard_chunks(p, own); k++) {
        COD_TRY(p->setup->backend->copy(p->setup->device, NULL, d->payloads_host, k * d->room, d->payloads,
                                        (first + k) * d->room,
                                        cod_load_u32(own_head(p, k) + COD_CHUNK_AT_STORED_BYTES)));
        chunk_table_to_model(&own->chunks, own_head(p, k));
    }
    cod_buffer *kept = exchange_keeps_exact(&p->setup->options) ? p->snapshot : own->decoded;
    COD_TRY(p->setup->backend->copy(p->setup->device, NULL, p->encoding->values, 0, kept, 0,
                                    own->chunks.range.count * sizeof(float)));
    COD_TRY(cod_event_record(p->setup->backend, d->fetched, NULL));
    const cod_codec_range range = chunk_table_range(p->setup, &own->chunks, p->setup->rank);
    cod_codec_begin(&p->encoder, &range, &p->key);
    d->fetching = true;
    d->looks = 0;
    d->sealed = 0;
    return COD_OK;
}

cod_status exchange_publisher_device_fetch(exchange_publisher *p, bool at_once, bool *fetched)
{
    exchange_publisher_device *d = p->on_device;
    *fetched = at_once || (d->fetching && d->looks++ >= EXCHANGE_COPY_STEPS);
    if (!d->fetching)
        COD_TRY(start_fetching(p));
    return *fetched ? cod_event_wait(p->setup->backend, d->fetched) : COD_OK;
}

cod_status exchange_publisher_device_seal(exchange_publisher *p)
{
    exchange_publisher_device *d = p->on_device;
    const chunk_table *table = &own_now(p)->chunks;
    const uint64_t capacity = cod_codec_bound(&p->encoder.options, &p->encoder.range);
    const size_t k = d->sealed++;
    if (cod_codec_finished(&p->encoder))
        return COD_OK;
    return cod_codec_seal(&p->encoder, own_head(p, k), (const unsigned char *)d->payloads_host->host + k * d->room,
                          table->prints[table->first[p->setup->rank] + k], p->room, capacity);
}

bool exchange_publisher_device_sealed(const exchange_publisher *p)
{
    return p->on_device->sealed == own_now(p)->longest;
}

void exchange_publisher_device_end(exchange_publisher *p)
{
    chunk_table *table = &own_now(p)->chunks;
    const unsigned char *heads = p->on_device->heads_host->host;
    for (size_t k = 0; k < chunk_table_count(table); k++) {
        table->prints[k] = cod_load_u64(heads + k * COD_CHUNK_HEADER_BYTES + COD_CHUNK_AT_CHECKSUM);
        exchange_note_print(p, k, table->prints[k]);
    }
}

cod_status exchange_publisher_device_skip(exchange_publisher *p)
{
    const own_coding *own = own_now(p);
    const uint64_t reference = exchange_chain_now(p)->reference;
    if (reference == 0)
        return COD_OK;
    return p->setup->backend->copy(p->setup->device, NULL, own->decoded, 0, exchange_own_of(p, reference)->values, 0,
                                   own->chunks.range.count * sizeof(float));
}

/* Checkpoints. */

cod_status exchange_publisher_device_save(exchange_publisher *p)
{
    exchange_publisher_device *d = p->on_device;
    const int count = exchange_publisher_held_count(p);
    if (d->mirrors == NULL) {
        d->mirrors = calloc((size_t)count, sizeof *d->mirrors);
        COD_REQUIRE_MEMORY(d->mirrors);
    }
    for (int i = 0; i < count; i++)
        COD_TRY(device_mirror(p->setup, *exchange_publisher_held(p, i), &d->mirrors[i]));
    return COD_OK;
}

float *exchange_publisher_device_saved(const exchange_publisher *p, int i)
{
    return p->on_device->mirrors[i];
}

cod_status exchange_publisher_device_restored(exchange_publisher *p)
{
    exchange_publisher_device *d = p->on_device;
    for (int i = 0; i < exchange_publisher_held_count(p); i++) {
        cod_buffer *value = *exchange_publisher_held(p, i);
        COD_TRY(p->setup->backend->upload(p->setup->device, NULL, value, 0, d->mirrors[i], value->bytes));
    }
    for (int f = 0; f < p->setup->fragments; f++) {
        own_coding *own = &d->own[f];
        const uint64_t reference = p->chains[f].reference;
        if (reference == 0)
            continue;
        const bool apart = p->chains[f].decoded != NULL;
        const float *values = d->mirrors[apart ? (uint64_t)(p->own_count + f) : reference % (uint64_t)p->own_count];
        COD_TRY(p->setup->backend->upload(p->setup->device, NULL, own->decoded, 0, values,
                                          own->chunks.range.count * sizeof(float)));
        chunk_table_find_prints(p->setup, values, &own->chunks, d->heads_host->host);
    }
    return COD_OK;
}
