/*
 * Coding on a device, by its ops QUANTISE and DEQUANTISE: versions stay in its memory, and plain chunks go between it and the host, which
 * shortens, seals and checks them. What is shared in a group are a version's plain chunks, so that each of its ranks decodes all of it.
 */
#include "core/fingerprint.h"
#include "distill/exchange_internal.h"

#include <stdlib.h>
#include <string.h>

/** The chunks of a model, shard after shard. */
typedef struct chunk_table {
    int shards;
    size_t *first;    /**< [shards + 1] number of a shard's first chunk */
    uint64_t *prints; /**< [first[shards]] fingerprints of the chunks of the version that is held */
} chunk_table;

typedef struct peer_coding {
    chunk_table chunks;
    cod_plan *decode[2]; /**< from the version in `values` to that in `incoming`, and the other way round */
    int turn;            /**< which of them is next */
} peer_coding;

struct exchange_device {
    size_t room; /**< of a payload */

    /* Publishing. */
    chunk_table own;     /**< prints: of `decoded` */
    cod_buffer *decoded; /**< [total] f32: what readers hold of the version coded last; the next delta's reference */
    cod_buffer *plan, *heads, *payloads; /**< of all shards */
    cod_buffer *heads_host;              /**< pinned: all headers */
    cod_buffer *payloads_host;           /**< pinned: the own shard's payloads */
    cod_plan *key, *delta;
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

static cod_status chunk_table_init(const cod_exchange *e, int group, chunk_table *table)
{
    const cod_codec_options options = exchange_codec_options(&e->options);
    table->shards = exchange_shards_of(e, group);
    table->first = calloc((size_t)table->shards + 1, sizeof *table->first);
    COD_REQUIRE_MEMORY(table->first);
    for (int s = 0; s < table->shards; s++) {
        const cod_codec_range range = exchange_shard_range(&e->options, &e->models[group], 0, s, table->shards);
        table->first[s + 1] = table->first[s] + (size_t)cod_codec_chunk_count(&options, &range);
    }
    table->prints = calloc(table->first[table->shards] + 1, sizeof *table->prints);
    COD_REQUIRE_MEMORY(table->prints);
    return COD_OK;
}

static void chunk_table_clear(chunk_table *table)
{
    free(table->first);
    free(table->prints);
}

static size_t chunks_of(const chunk_table *table)
{
    return table->first[table->shards];
}

/** Writes the headers of a model's chunks. @param[out] heads  [chunks] */
static void plan_heads(const cod_exchange *e, int group, const chunk_table *table, unsigned char *heads)
{
    const cod_codec_options options = exchange_codec_options(&e->options);
    for (int s = 0; s < table->shards; s++) {
        const cod_codec_range range = exchange_shard_range(&e->options, &e->models[group], 0, s, table->shards);
        cod_codec_plan(&options, &range, heads + table->first[s] * COD_CHUNK_HEADER_BYTES);
    }
}

/** Fingerprints of values of the host. */
static void find_prints(const cod_exchange *e, int group, const float *values, chunk_table *table, unsigned char *heads)
{
    plan_heads(e, group, table, heads);
    for (size_t k = 0; k < chunks_of(table); k++) {
        const unsigned char *head = heads + k * COD_CHUNK_HEADER_BYTES;
        table->prints[k] =
            cod_fingerprint(values + cod_load_u64(head + COD_CHUNK_AT_FIRST), cod_load_u32(head + COD_CHUNK_AT_COUNT));
    }
}

static cod_view vector_of(cod_buffer *buffer)
{
    return cod_view_dense(buffer, 0, COD_F32, (cod_shape){1, 1, 1, (int64_t)(buffer->bytes / sizeof(float))});
}

static cod_view rows_of(cod_buffer *buffer, size_t rows, size_t bytes)
{
    return cod_view_dense(buffer, 0, COD_U8, (cod_shape){1, 1, (int64_t)rows, (int64_t)bytes});
}

static cod_status plan_quantise(cod_exchange *e, bool delta, cod_plan **out)
{
    const exchange_device *d = e->on_device;
    const size_t chunks = chunks_of(&d->own);
    const cod_view decoded = vector_of(d->decoded);
    const cod_op op = {
        .kind = COD_OP_QUANTISE,
        .attr = {.quality_db = e->options.quality_db, .rounding = (float)e->options.rounding},
        .inputs = {vector_of(e->publisher.snapshot), rows_of(d->plan, chunks, COD_CHUNK_HEADER_BYTES),
                   delta ? decoded : (cod_view){0}},
        .outputs = {rows_of(d->heads, chunks, COD_CHUNK_HEADER_BYTES), rows_of(d->payloads, chunks, d->room), decoded},
        .name = "publication"};
    return e->backend->plan_create(e->device, &op, out);
}

static cod_status plan_dequantise(cod_exchange *e, int peer, cod_buffer *held, cod_buffer *incoming, cod_plan **out)
{
    const exchange_device *d = e->on_device;
    const exchange_device_pull *in = exchange_pull_of(e, &e->peers[peer])->on_device;
    const size_t chunks = chunks_of(&d->peers[peer].chunks);
    const cod_op op = {.kind = COD_OP_DEQUANTISE,
                       .inputs = {rows_of(in->heads, chunks, COD_CHUNK_HEADER_BYTES),
                                  rows_of(in->payloads, 1, chunks * d->room), vector_of(held)},
                       .outputs = {vector_of(incoming), rows_of(in->prints, chunks, sizeof(uint64_t))},
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

static cod_status make_publishing(cod_exchange *e)
{
    exchange_device *d = e->on_device;
    const int mine = cod_group_index(e->group);
    COD_TRY(chunk_table_init(e, mine, &d->own));
    const size_t chunks = chunks_of(&d->own), heads = chunks * COD_CHUNK_HEADER_BYTES;
    const size_t own = d->own.first[e->rank + 1] - d->own.first[e->rank];
    COD_TRY(buffer_of(e, false, e->total * sizeof(float), &d->decoded));
    COD_TRY(buffer_of(e, false, heads, &d->plan));
    COD_TRY(buffer_of(e, false, heads, &d->heads));
    COD_TRY(buffer_of(e, false, chunks * d->room, &d->payloads));
    COD_TRY(buffer_of(e, true, heads, &d->heads_host));
    COD_TRY(buffer_of(e, true, own * d->room, &d->payloads_host));
    COD_TRY(cod_event_create(e->backend, e->device, &d->fetched));
    plan_heads(e, mine, &d->own, d->heads_host->host);
    COD_TRY(e->backend->upload(e->device, NULL, d->plan, 0, d->heads_host->host, heads));
    COD_TRY(plan_quantise(e, false, &d->key));
    return plan_quantise(e, true, &d->delta);
}

/** @param chunks  of the largest model that it pulls */
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
        COD_TRY(chunk_table_init(e, e->peers[i].group, &d->peers[i].chunks));
    for (int k = 0; k < e->pull_count; k++) {
        exchange_device_pull *in = calloc(1, sizeof *in);
        COD_REQUIRE_MEMORY(in);
        e->pulls[k].on_device = in;
        size_t most = 0;
        for (int i = k; i < e->peer_count; i += e->pull_count) {
            const size_t chunks = chunks_of(&d->peers[i].chunks);
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
    if (e->options.codec == COD_EXCHANGE_NONE || e->peer_count == 0 || e->fragments > 1 ||
        !cod_exchange_codes_on(e->backend, e->device))
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
    destroy_plan(e, d->key);
    destroy_plan(e, d->delta);
    for (int i = 0; i < e->peer_count && d->peers != NULL; i++) {
        destroy_plan(e, d->peers[i].decode[0]);
        destroy_plan(e, d->peers[i].decode[1]);
        chunk_table_clear(&d->peers[i].chunks);
    }
    destroy_buffer(e, true, d->heads_host);
    destroy_buffer(e, true, d->payloads_host);
    cod_buffer *const others[] = {d->decoded, d->plan, d->heads, d->payloads};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        destroy_buffer(e, false, others[i]);
    for (int i = 0; i < e->publisher.own_count + e->peer_count && d->mirrors != NULL; i++)
        free(d->mirrors[i]);
    free(d->mirrors);
    chunk_table_clear(&d->own);
    free(d->peers);
}

void exchange_device_forget_gather(exchange_pull *pull)
{
    pull->on_device->host = NULL;
}

/* Publishing. */

cod_status exchange_device_quantise(cod_exchange *e)
{
    exchange_device *d = e->on_device;
    d->fetching = false;
    COD_TRY(e->backend->plan_run(e->publisher.against > 0 ? d->delta : d->key, NULL));
    COD_TRY(e->backend->copy(e->device, NULL, d->heads_host, 0, d->heads, 0, d->heads->bytes));
    return cod_event_record(e->backend, e->copied, NULL);
}

static const unsigned char *own_head(const cod_exchange *e, size_t k)
{
    const exchange_device *d = e->on_device;
    return (const unsigned char *)d->heads_host->host + (d->own.first[e->rank] + k) * COD_CHUNK_HEADER_BYTES;
}

/** Queues the copies of the own shard's payloads, as long as they are, and of what readers will decode to where it is kept. */
static cod_status start_fetching(cod_exchange *e)
{
    exchange_device *d = e->on_device;
    const size_t first = d->own.first[e->rank], count = d->own.first[e->rank + 1] - first;
    const unsigned char *heads = d->heads_host->host;
    for (size_t k = 0; k < chunks_of(&d->own); k++)
        if (cod_load_u64(heads + k * COD_CHUNK_HEADER_BYTES + COD_CHUNK_AT_CHECKSUM) == COD_FINGERPRINT_NONE)
            return cod_fail(COD_ERR_NUMERIC, "a value to be published is NaN or infinity");
    for (size_t k = 0; k < count; k++)
        COD_TRY(e->backend->copy(e->device, NULL, d->payloads_host, k * d->room, d->payloads, (first + k) * d->room,
                                 cod_load_u32(own_head(e, k) + COD_CHUNK_AT_STORED_BYTES)));
    COD_TRY(e->backend->copy(e->device, NULL, e->publisher.encoding->values, 0, d->decoded, 0, d->decoded->bytes));
    COD_TRY(cod_event_record(e->backend, d->fetched, NULL));
    const int mine = cod_group_index(e->group);
    const cod_codec_range range = exchange_shard_range(&e->options, &e->models[mine], 0, e->rank, e->size);
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
    const uint64_t before = e->publisher.encoder.done,
                   capacity = cod_codec_bound(&e->publisher.encoder.options, &e->publisher.encoder.range);
    const size_t k = d->sealed++;
    COD_TRY(cod_codec_seal(&e->publisher.encoder, own_head(e, k),
                           (const unsigned char *)d->payloads_host->host + k * d->room,
                           d->own.prints[d->own.first[e->rank] + k], e->publisher.room, capacity));
    return exchange_try_coders(e, before);
}

void exchange_device_end(cod_exchange *e)
{
    exchange_device *d = e->on_device;
    const unsigned char *heads = d->heads_host->host;
    for (size_t k = 0; k < chunks_of(&d->own); k++) {
        d->own.prints[k] = cod_load_u64(heads + k * COD_CHUNK_HEADER_BYTES + COD_CHUNK_AT_CHECKSUM);
        exchange_note_print(&e->publisher, k, d->own.prints[k]);
    }
}

cod_status exchange_device_skip(cod_exchange *e)
{
    exchange_device *d = e->on_device;
    const uint64_t reference = exchange_chain_now(e)->reference;
    if (reference == 0)
        return COD_OK;
    return e->backend->copy(e->device, NULL, d->decoded, 0, exchange_own_of(e, reference)->values, 0,
                            d->decoded->bytes);
}

/* Pulling. */

static peer_coding *coding_of(const cod_exchange *e, const exchange_pull *pull)
{
    return &e->on_device->peers[pull->peer - e->peers];
}

/** Byte of the host's room where a shard's payloads begin; those of all the peer's chunks lie behind the headers. */
static size_t payloads_at(const cod_exchange *e, const chunk_table *chunks, size_t shard)
{
    return chunks_of(chunks) * COD_CHUNK_HEADER_BYTES + chunks->first[shard] * e->on_device->room;
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
    const size_t prints = chunks_of(table) * sizeof(uint64_t);
    COD_TRY(e->backend->copy(e->device, NULL, in->heads, 0, in->host, 0, chunks_of(table) * COD_CHUNK_HEADER_BYTES));
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
    for (size_t k = 0; k < chunks_of(&coding_of(e, pull)->chunks); k++)
        if (prints[k] == COD_FINGERPRINT_NONE)
            return cod_fail(COD_ERR_NUMERIC, "chunk %zu holds NaN or infinity", k);
    *done = true;
    return COD_OK;
}

void exchange_device_take_over(cod_exchange *e, exchange_pull *pull)
{
    peer_coding *coding = coding_of(e, pull);
    memcpy(coding->chunks.prints, pull->on_device->prints_host->host, chunks_of(&coding->chunks) * sizeof(uint64_t));
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
    const uint64_t reference = e->publisher.chains[0].reference;
    if (reference > 0) {
        const float *values = d->mirrors[reference % (uint64_t)e->publisher.own_count];
        COD_TRY(e->backend->upload(e->device, NULL, d->decoded, 0, values, d->decoded->bytes));
        find_prints(e, cod_group_index(e->group), values, &d->own, d->heads_host->host);
    }
    for (int i = 0; i < e->peer_count; i++)
        find_prints(e, e->peers[i].group, d->mirrors[e->publisher.own_count + i], &d->peers[i].chunks,
                    exchange_pull_of(e, &e->peers[i])->on_device->host->host);
    return COD_OK;
}
