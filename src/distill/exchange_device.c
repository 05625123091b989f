/*
 * Coding on a device, by its ops QUANTISE and DEQUANTISE: versions stay in its memory, and plain chunks go between it and the host, which
 * shortens, seals and checks them. What is shared in a group are a version's plain chunks, so that each of its ranks decodes all of it.
 */
#include "core/fingerprint.h"
#include "distill/chunk_table_internal.h"
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

typedef struct peer_coding {
    chunk_table chunks;
    cod_plan *decode[2]; /**< from the version in `values` to that in `incoming`, and the other way round */
    int turn;            /**< which of them is next */
} peer_coding;

struct exchange_device {
    size_t room; /**< of a payload */

    /* Publishing. */
    own_coding *own;              /**< [fragments] */
    cod_buffer *heads, *payloads; /**< of all shards of one fragment, with room for the largest */
    cod_buffer *heads_host;       /**< pinned: all headers of one */
    cod_buffer *payloads_host;    /**< pinned: the own shard's payloads of one */
    cod_event *fetched;
    bool fetching;
    int looks;     /**< at what is being fetched */
    size_t sealed; /**< chunks of the own shard */

    peer_coding *peers; /**< [peer_count] */
    float **mirrors;    /**< [own kept + peers] of the host, for checkpoints; NULL = none yet */
};

/** Room for the version that is being pulled. */
struct exchange_device_pull {
    cod_buffer *host;             /**< pinned: headers, then payloads, packed for each shard */
    cod_buffer *heads, *payloads; /**< the same on the device */
    cod_buffer *prints;           /**< what DEQUANTISE says of them */
    cod_buffer *prints_host;      /**< pinned */
    cod_event *decoded;
    bool sent;
    size_t opened, packed; /**< chunks of the current shard, and the bytes of their payloads */
};

/** The values of a fragment, with which the buffer begins. */
static cod_view vector_of(cod_buffer *buffer, const chunk_table *table)
{
    return cod_view_dense(buffer, 0, COD_F32, (cod_shape){1, 1, 1, (int64_t)table->range.count});
}

static cod_view rows_of(cod_buffer *buffer, size_t rows, size_t bytes)
{
    return cod_view_dense(buffer, 0, COD_U8, (cod_shape){1, 1, (int64_t)rows, (int64_t)bytes});
}

static cod_status plan_quantise(cod_exchange *e, const own_coding *own, bool delta, cod_plan **out)
{
    const exchange_device *d = e->on_device;
    const size_t chunks = chunk_table_count(&own->chunks);
    const cod_view decoded = vector_of(own->decoded, &own->chunks);
    const cod_op op = {
        .kind = COD_OP_QUANTISE,
        .attr = {.quality_db = e->options.quality_db, .rounding = (float)e->options.rounding},
        .inputs = {vector_of(e->publisher.snapshot, &own->chunks), rows_of(own->plan, chunks, COD_CHUNK_HEADER_BYTES),
                   delta ? decoded : (cod_view){0}},
        .outputs = {rows_of(d->heads, chunks, COD_CHUNK_HEADER_BYTES), rows_of(d->payloads, chunks, d->room), decoded},
        .name = "publication"};
    return e->backend->plan_create(e->device, &op, out);
}

static cod_status plan_dequantise(cod_exchange *e, int peer, cod_buffer *held, cod_buffer *incoming, cod_plan **out)
{
    const exchange_device *d = e->on_device;
    const exchange_device_pull *in = exchange_pull_of(e, &e->peers[peer])->on_device;
    const chunk_table *table = &d->peers[peer].chunks;
    const size_t chunks = chunk_table_count(table);
    const cod_op op = {.kind = COD_OP_DEQUANTISE,
                       .inputs = {rows_of(in->heads, chunks, COD_CHUNK_HEADER_BYTES),
                                  rows_of(in->payloads, 1, chunks * d->room), vector_of(held, table)},
                       .outputs = {vector_of(incoming, table), rows_of(in->prints, chunks, sizeof(uint64_t))},
                       .name = "checkpoint of a peer"};
    return e->backend->plan_create(e->device, &op, out);
}

/** A buffer of the device, or pinned memory; no chunks take a little, too. */
static cod_status buffer_of(const cod_exchange *e, bool pinned, size_t bytes, cod_buffer **out)
{
    bytes = bytes > 0 ? bytes : COD_CODEC_PLAIN_ALIGNMENT;
    return pinned ? e->backend->host_buffer_create(e->device, bytes, out)
                  : e->backend->buffer_create(e->device, bytes, out);
}

/** Makes what publications of a fragment need. */
static cod_status make_own(cod_exchange *e, int fragment, own_coding *own)
{
    COD_TRY(chunk_table_init(e, cod_group_index(e->group), fragment, &own->chunks));
    const size_t heads = chunk_table_count(&own->chunks) * COD_CHUNK_HEADER_BYTES;
    COD_TRY(buffer_of(e, false, own->chunks.range.count * sizeof(float), &own->decoded));
    return buffer_of(e, false, heads, &own->plan);
}

static size_t own_shard_chunks(const cod_exchange *e, const own_coding *own)
{
    return own->chunks.first[e->rank + 1] - own->chunks.first[e->rank];
}

static cod_status make_publishing(cod_exchange *e)
{
    exchange_device *d = e->on_device;
    size_t all = 0, own = 0;
    d->own = calloc((size_t)e->fragments, sizeof *d->own);
    COD_REQUIRE_MEMORY(d->own);
    for (int f = 0; f < e->fragments; f++) {
        COD_TRY(make_own(e, f, &d->own[f]));
        const size_t of_fragment = chunk_table_count(&d->own[f].chunks), of_shard = own_shard_chunks(e, &d->own[f]);
        all = of_fragment > all ? of_fragment : all;
        own = of_shard > own ? of_shard : own;
    }
    COD_TRY(buffer_of(e, false, all * COD_CHUNK_HEADER_BYTES, &d->heads));
    COD_TRY(buffer_of(e, false, all * d->room, &d->payloads));
    COD_TRY(buffer_of(e, true, all * COD_CHUNK_HEADER_BYTES, &d->heads_host));
    COD_TRY(buffer_of(e, true, own * d->room, &d->payloads_host));
    COD_TRY(cod_event_create(e->backend, e->device, &d->fetched));
    for (int f = 0; f < e->fragments; f++) {
        own_coding *fragment = &d->own[f];
        chunk_table_plan(e, &fragment->chunks, d->heads_host->host);
        COD_TRY(e->backend->upload(e->device, NULL, fragment->plan, 0, d->heads_host->host,
                                   chunk_table_count(&fragment->chunks) * COD_CHUNK_HEADER_BYTES));
        COD_TRY(plan_quantise(e, fragment, false, &fragment->key));
        COD_TRY(plan_quantise(e, fragment, true, &fragment->delta));
    }
    return COD_OK;
}

/** @param chunks  of the largest fragment that it pulls */
static cod_status make_pull(const cod_exchange *e, size_t chunks, exchange_device_pull *in)
{
    const size_t heads = chunks * COD_CHUNK_HEADER_BYTES, payloads = chunks * e->on_device->room,
                 prints = chunks * sizeof(uint64_t);
    COD_TRY(buffer_of(e, true, heads + payloads, &in->host));
    COD_TRY(buffer_of(e, false, heads, &in->heads));
    COD_TRY(buffer_of(e, false, payloads, &in->payloads));
    COD_TRY(buffer_of(e, false, prints, &in->prints));
    COD_TRY(buffer_of(e, true, prints, &in->prints_host));
    return cod_event_create(e->backend, e->device, &in->decoded);
}

static cod_status make_pulling(cod_exchange *e)
{
    exchange_device *d = e->on_device;
    d->peers = calloc((size_t)e->peer_count + 1, sizeof *d->peers);
    COD_REQUIRE_MEMORY(d->peers);
    for (int i = 0; i < e->peer_count; i++)
        COD_TRY(chunk_table_init(e, e->peers[i].group, e->peers[i].fragment, &d->peers[i].chunks));
    for (int k = 0; k < e->pull_count; k++) {
        exchange_device_pull *in = calloc(1, sizeof *in);
        COD_REQUIRE_MEMORY(in);
        e->pulls[k].on_device = in;
        size_t most = 0;
        for (int i = k; i < e->peer_count; i += e->pull_count) {
            const size_t chunks = chunk_table_count(&d->peers[i].chunks);
            most = chunks > most ? chunks : most;
        }
        COD_TRY(make_pull(e, most, in));
    }
    for (int i = 0; i < e->peer_count; i++) {
        cod_buffer *a = e->peers[i].values, *b = e->peers[i].incoming;
        COD_TRY(plan_dequantise(e, i, a, b, &d->peers[i].decode[0]));
        COD_TRY(plan_dequantise(e, i, b, a, &d->peers[i].decode[1]));
    }
    return COD_OK;
}

bool cod_exchange_codes_on(const cod_backend *backend, cod_device *device)
{
    cod_buffer *bytes = NULL;
    cod_plan *plan = NULL;
    if (cod_backend_runs_at_once(backend) || !backend->supports(device, COD_U8) ||
        backend->buffer_create(device, 4096, &bytes) != COD_OK)
        return false;
    const cod_view heads = cod_view_dense(bytes, 0, COD_U8, (cod_shape){1, 1, 1, COD_CHUNK_HEADER_BYTES}),
                   payloads = cod_view_dense(bytes, 1024, COD_U8, (cod_shape){1, 1, 1, 1024}),
                   values = cod_view_dense(bytes, 2048, COD_F32, (cod_shape){1, 1, 1, 16}),
                   prints = cod_view_dense(bytes, 3072, COD_U8, (cod_shape){1, 1, 1, sizeof(uint64_t)});
    const cod_op op = {.kind = COD_OP_DEQUANTISE,
                       .inputs = {heads, payloads},
                       .outputs = {values, prints},
                       .name = "a question whether there is one"};
    const bool codes = backend->plan_create(device, &op, &plan) == COD_OK;
    if (codes)
        backend->plan_destroy(plan);
    backend->buffer_destroy(device, bytes);
    return codes;
}

cod_status exchange_device_create(cod_exchange *e)
{
    const cod_codec_options options = exchange_codec_options(&e->options);
    if (e->options.codec == COD_EXCHANGE_NONE || e->peer_count == 0 || !cod_exchange_codes_on(e->backend, e->device))
        return exchange_make_values(e);
    exchange_device *d = calloc(1, sizeof *d);
    COD_REQUIRE_MEMORY(d);
    e->on_device = d;
    d->room = (size_t)cod_codec_plain_room(&options);
    COD_TRY(exchange_make_values(e));
    COD_TRY(make_publishing(e));
    return make_pulling(e);
}

static void destroy_plan(const cod_exchange *e, cod_plan *plan)
{
    if (plan != NULL)
        e->backend->plan_destroy(plan);
}

static void destroy_buffer(const cod_exchange *e, bool pinned, cod_buffer *buffer)
{
    if (buffer != NULL && pinned)
        e->backend->host_buffer_destroy(e->device, buffer);
    else if (buffer != NULL)
        e->backend->buffer_destroy(e->device, buffer);
}

static void destroy_event(const cod_exchange *e, cod_event *event)
{
    const cod_status ended = cod_event_wait(e->backend, event);
    (void)ended; /* a device that failed has said so to whoever used it */
    cod_event_destroy(e->backend, event);
}

static void destroy_pull(const cod_exchange *e, exchange_pull *pull)
{
    exchange_device_pull *in = pull->on_device;
    if (in == NULL)
        return;
    destroy_event(e, in->decoded);
    destroy_buffer(e, true, in->host);
    destroy_buffer(e, true, in->prints_host);
    destroy_buffer(e, false, in->heads);
    destroy_buffer(e, false, in->payloads);
    destroy_buffer(e, false, in->prints);
    free(in);
    pull->on_device = NULL;
}

void exchange_device_destroy(cod_exchange *e)
{
    exchange_device *d = e->on_device;
    if (d == NULL)
        return;
    destroy_event(e, d->fetched);
    for (int k = 0; k < e->pull_count; k++)
        destroy_pull(e, &e->pulls[k]);
    for (int f = 0; f < e->fragments && d->own != NULL; f++) {
        destroy_plan(e, d->own[f].key);
        destroy_plan(e, d->own[f].delta);
        destroy_buffer(e, false, d->own[f].decoded);
        destroy_buffer(e, false, d->own[f].plan);
        chunk_table_clear(&d->own[f].chunks);
    }
    free(d->own);
    for (int i = 0; i < e->peer_count && d->peers != NULL; i++) {
        destroy_plan(e, d->peers[i].decode[0]);
        destroy_plan(e, d->peers[i].decode[1]);
        chunk_table_clear(&d->peers[i].chunks);
    }
    destroy_buffer(e, true, d->heads_host);
    destroy_buffer(e, true, d->payloads_host);
    destroy_buffer(e, false, d->heads);
    destroy_buffer(e, false, d->payloads);
    for (int i = 0; i < e->publisher.own_count + e->peer_count && d->mirrors != NULL; i++)
        free(d->mirrors[i]);
    free(d->mirrors);
    free(d->peers);
}

void exchange_device_forget_gather(exchange_pull *pull)
{
    pull->on_device->host = NULL;
}

/* Publishing. */

/** Of the fragment that was begun last. */
static own_coding *own_now(const cod_exchange *e)
{
    return &e->on_device->own[exchange_fragment_of(e, e->publisher.version)];
}

cod_status exchange_device_quantise(cod_exchange *e)
{
    exchange_device *d = e->on_device;
    const own_coding *own = own_now(e);
    d->fetching = false;
    COD_TRY(e->backend->plan_run(e->publisher.against > 0 ? own->delta : own->key, NULL));
    COD_TRY(e->backend->copy(e->device, NULL, d->heads_host, 0, d->heads, 0,
                             chunk_table_count(&own->chunks) * COD_CHUNK_HEADER_BYTES));
    return cod_event_record(e->backend, e->copied, NULL);
}

static unsigned char *own_head(const cod_exchange *e, size_t k)
{
    return (unsigned char *)e->on_device->heads_host->host +
           (own_now(e)->chunks.first[e->rank] + k) * COD_CHUNK_HEADER_BYTES;
}

/** Queues the copies of the own shard's payloads, as long as they are, and of what readers will decode to where it is kept. */
static cod_status start_fetching(cod_exchange *e)
{
    exchange_device *d = e->on_device;
    const own_coding *own = own_now(e);
    const size_t first = own->chunks.first[e->rank];
    const unsigned char *heads = d->heads_host->host;
    for (size_t k = 0; k < chunk_table_count(&own->chunks); k++)
        if (cod_load_u64(heads + k * COD_CHUNK_HEADER_BYTES + COD_CHUNK_AT_CHECKSUM) == COD_FINGERPRINT_NONE)
            return cod_fail(COD_ERR_NUMERIC, "a value to be published is NaN or infinity");
    for (size_t k = 0; k < own_shard_chunks(e, own); k++) {
        COD_TRY(e->backend->copy(e->device, NULL, d->payloads_host, k * d->room, d->payloads, (first + k) * d->room,
                                 cod_load_u32(own_head(e, k) + COD_CHUNK_AT_STORED_BYTES)));
        chunk_table_to_model(&own->chunks, own_head(e, k));
    }
    COD_TRY(e->backend->copy(e->device, NULL, e->publisher.encoding->values, 0, own->decoded, 0,
                             own->chunks.range.count * sizeof(float)));
    COD_TRY(cod_event_record(e->backend, d->fetched, NULL));
    const cod_codec_range range = chunk_table_range(e, &own->chunks, e->rank);
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
    return *fetched ? cod_event_wait(e->backend, d->fetched) : COD_OK;
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
                           table->prints[table->first[e->rank] + k], e->publisher.room, capacity));
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
    return e->backend->copy(e->device, NULL, own->decoded, 0, exchange_own_of(e, reference)->values, 0,
                            own->chunks.range.count * sizeof(float));
}

/* Pulling. */

static peer_coding *coding_of(const cod_exchange *e, const exchange_pull *pull)
{
    return &e->on_device->peers[pull->peer - e->peers];
}

/** Byte of the host's room where a shard's payloads begin; those of all the peer's chunks lie behind the headers. */
static size_t payloads_at(const cod_exchange *e, const chunk_table *chunks, size_t shard)
{
    return chunk_table_count(chunks) * COD_CHUNK_HEADER_BYTES + chunks->first[shard] * e->on_device->room;
}

cod_status exchange_device_begin(cod_exchange *e, exchange_pull *pull)
{
    pull->on_device->sent = false;
    /* Where a version was given up, its copies may be under way. */
    return cod_event_wait(e->backend, pull->on_device->decoded);
}

cod_status exchange_device_open(cod_exchange *e, exchange_pull *pull, uint64_t chunks)
{
    exchange_device_pull *in = pull->on_device;
    const chunk_table *table = &coding_of(e, pull)->chunks;
    unsigned char *bytes = in->host->host;
    const size_t shard = (size_t)pull->shard;
    cod_codec *decoder = &pull->decoder;
    if (decoder->range.count == 0)
        return cod_codec_open(decoder, pull->pulled.data, pull->pulled.bytes, NULL, NULL, NULL);
    if (decoder->done == 0)
        in->opened = in->packed = 0;
    for (; chunks > 0 && !cod_codec_finished(decoder); chunks--) {
        const size_t k = table->first[shard] + in->opened++;
        unsigned char *head = bytes + k * COD_CHUNK_HEADER_BYTES;
        COD_TRY(cod_codec_open(decoder, pull->pulled.data, pull->pulled.bytes,
                               pull->peer->version > 0 ? &table->prints[k] : NULL, head,
                               bytes + payloads_at(e, table, shard) + in->packed));
        chunk_table_to_fragment(table, head);
        cod_store_u64(head + COD_CHUNK_AT_CHECKSUM, table->first[shard] * e->on_device->room + in->packed);
        in->packed += (size_t)cod_codec_plain_bytes(cod_load_u32(head + COD_CHUNK_AT_STORED_BYTES));
    }
    return COD_OK;
}

cod_status exchange_device_share(cod_exchange *e, exchange_pull *pull)
{
    const size_t room = e->on_device->room;
    const chunk_table *table = &coding_of(e, pull)->chunks;
    const size_t shards = (size_t)table->shards;
    cod_group_part *parts = malloc(2 * shards * sizeof *parts);
    COD_REQUIRE_MEMORY(parts);
    for (size_t s = 0; s < shards; s++) {
        const size_t first = table->first[s], count = table->first[s + 1] - first;
        const int root = (int)s % e->size;
        parts[2 * s] = (cod_group_part){
            .root = root, .offset = first * COD_CHUNK_HEADER_BYTES, .bytes = count * COD_CHUNK_HEADER_BYTES};
        parts[2 * s + 1] = (cod_group_part){.root = root, .offset = payloads_at(e, table, s), .bytes = count * room};
    }
    const cod_status status =
        cod_group_share_start(e->group, pull->on_device->host->host, parts, 2 * shards, &pull->gathering);
    free(parts);
    return status;
}

/** Queues the copies of headers and payloads to the device, as long as these are, and what decodes them. */
static cod_status send(cod_exchange *e, exchange_pull *pull)
{
    exchange_device_pull *in = pull->on_device;
    const size_t room = e->on_device->room;
    const peer_coding *coding = coding_of(e, pull);
    const chunk_table *table = &coding->chunks;
    const unsigned char *heads = in->host->host;
    const size_t prints = chunk_table_count(table) * sizeof(uint64_t);
    COD_TRY(e->backend->copy(e->device, NULL, in->heads, 0, in->host, 0,
                             chunk_table_count(table) * COD_CHUNK_HEADER_BYTES));
    for (size_t s = 0; s < (size_t)table->shards; s++) {
        const size_t first = table->first[s], end = table->first[s + 1];
        if (first == end)
            continue;
        const unsigned char *last = heads + (end - 1) * COD_CHUNK_HEADER_BYTES;
        const size_t to =
            (size_t)cod_load_u64(last + COD_CHUNK_AT_CHECKSUM) + cod_load_u32(last + COD_CHUNK_AT_STORED_BYTES);
        COD_TRY(e->backend->copy(e->device, NULL, in->payloads, first * room, in->host, payloads_at(e, table, s),
                                 to - first * room));
    }
    COD_TRY(e->backend->plan_run(coding->decode[coding->turn], NULL));
    COD_TRY(e->backend->copy(e->device, NULL, in->prints_host, 0, in->prints, 0, prints));
    in->sent = true;
    return cod_event_record(e->backend, in->decoded, NULL);
}

cod_status exchange_device_decode(cod_exchange *e, exchange_pull *pull, bool *done)
{
    const exchange_device_pull *in = pull->on_device;
    const uint64_t *prints = in->prints_host->host;
    bool reached;
    if (!in->sent)
        COD_TRY(send(e, pull));
    COD_TRY(cod_event_query(e->backend, in->decoded, &reached));
    if (!reached)
        return COD_OK;
    for (size_t k = 0; k < chunk_table_count(&coding_of(e, pull)->chunks); k++)
        if (prints[k] == COD_FINGERPRINT_NONE)
            return cod_fail(COD_ERR_NUMERIC, "chunk %zu holds NaN or infinity", k);
    *done = true;
    return COD_OK;
}

void exchange_device_take_over(cod_exchange *e, exchange_pull *pull)
{
    peer_coding *coding = coding_of(e, pull);
    memcpy(coding->chunks.prints, pull->on_device->prints_host->host,
           chunk_table_count(&coding->chunks) * sizeof(uint64_t));
    coding->turn = 1 - coding->turn;
}

/* Checkpoints. */

static cod_buffer *value_at(const cod_exchange *e, int i)
{
    return i < e->publisher.own_count ? e->publisher.own[i].values : e->peers[i - e->publisher.own_count].values;
}

cod_status exchange_device_save(cod_exchange *e, float ***values)
{
    exchange_device *d = e->on_device;
    const int count = e->publisher.own_count + e->peer_count;
    if (d->mirrors == NULL) {
        d->mirrors = calloc((size_t)count, sizeof *d->mirrors);
        COD_REQUIRE_MEMORY(d->mirrors);
    }
    for (int i = 0; i < count; i++) {
        cod_buffer *value = value_at(e, i);
        if (d->mirrors[i] == NULL)
            d->mirrors[i] = malloc(value->bytes);
        COD_REQUIRE_MEMORY(d->mirrors[i]);
        COD_TRY(e->backend->download(e->device, NULL, d->mirrors[i], value, 0, value->bytes));
    }
    *values = d->mirrors;
    return COD_OK;
}

cod_status exchange_device_restore(cod_exchange *e)
{
    exchange_device *d = e->on_device;
    for (int i = 0; i < e->publisher.own_count + e->peer_count; i++) {
        cod_buffer *value = value_at(e, i);
        COD_TRY(e->backend->upload(e->device, NULL, value, 0, d->mirrors[i], value->bytes));
    }
    for (int f = 0; f < e->fragments; f++) {
        own_coding *own = &d->own[f];
        const uint64_t reference = e->publisher.chains[f].reference;
        if (reference == 0)
            continue;
        const float *values = d->mirrors[reference % (uint64_t)e->publisher.own_count];
        COD_TRY(e->backend->upload(e->device, NULL, own->decoded, 0, values, own->chunks.range.count * sizeof(float)));
        chunk_table_find_prints(e, values, &own->chunks, d->heads_host->host);
    }
    for (int i = 0; i < e->peer_count; i++)
        chunk_table_find_prints(e, d->mirrors[e->publisher.own_count + i], &d->peers[i].chunks,
                                exchange_pull_of(e, &e->peers[i])->on_device->host->host);
    return COD_OK;
}
