/*
 * Pulling on a device: versions stay in its memory, decoded there by op DEQUANTISE. What is shared in a group are a
 * version's plain chunks, so that each of its ranks decodes all of it.
 */
#include "core/fingerprint.h"
#include "exchange/device_internal.h"
#include "exchange/puller_internal.h"

#include <stdlib.h>
#include <string.h>

typedef struct peer_coding {
    chunk_table chunks;
    cod_plan *decode[2]; /**< from the version in `values` to that in `incoming`, and the other way round */
    int turn;            /**< which of them is next */
} peer_coding;

struct exchange_puller_device {
    size_t room;        /**< of a payload */
    peer_coding *peers; /**< [peer_count] */
    float **mirrors;    /**< [peer_count] of the host, for checkpoints; NULL = none yet */
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

static cod_status plan_dequantise(exchange_puller *p, int peer, cod_buffer *held, cod_buffer *incoming, cod_plan **out)
{
    const exchange_puller_device *d = p->on_device;
    const exchange_device_pull *in = exchange_pull_of(p, &p->peers[peer])->on_device;
    const chunk_table *table = &d->peers[peer].chunks;
    const size_t chunks = chunk_table_count(table);
    const cod_op op = {
        .kind = COD_OP_DEQUANTISE,
        .inputs = {device_rows_of(in->heads, chunks, COD_CHUNK_HEADER_BYTES),
                   device_rows_of(in->payloads, 1, chunks * d->room), device_vector_of(held, table)},
        .outputs = {device_vector_of(incoming, table), device_rows_of(in->prints, chunks, sizeof(uint64_t))},
        .name = "checkpoint of a peer"};
    return p->setup->backend->plan_create(p->setup->device, &op, out);
}

/** @param chunks  of the largest fragment that it pulls */
static cod_status make_pull(const exchange_puller *p, size_t chunks, exchange_device_pull *in)
{
    const size_t heads = chunks * COD_CHUNK_HEADER_BYTES, payloads = chunks * p->on_device->room,
                 prints = chunks * sizeof(uint64_t);
    COD_TRY(device_buffer_of(p->setup, true, heads + payloads, &in->host));
    COD_TRY(device_buffer_of(p->setup, false, heads, &in->heads));
    COD_TRY(device_buffer_of(p->setup, false, payloads, &in->payloads));
    COD_TRY(device_buffer_of(p->setup, false, prints, &in->prints));
    COD_TRY(device_buffer_of(p->setup, true, prints, &in->prints_host));
    return cod_event_create(p->setup->backend, p->setup->device, &in->decoded);
}

cod_status exchange_puller_use_device(exchange_puller *p)
{
    const cod_codec_options options = exchange_codec_options(&p->setup->options);
    exchange_puller_device *d = calloc(1, sizeof *d);
    COD_REQUIRE_MEMORY(d);
    p->on_device = d;
    d->room = (size_t)cod_codec_plain_room(&options);
    d->peers = calloc((size_t)p->peer_count + 1, sizeof *d->peers);
    COD_REQUIRE_MEMORY(d->peers);
    for (int i = 0; i < p->peer_count; i++)
        COD_TRY(chunk_table_init(p->setup, p->peers[i].group, p->peers[i].fragment, &d->peers[i].chunks));
    for (int k = 0; k < p->pull_count; k++) {
        exchange_device_pull *in = calloc(1, sizeof *in);
        COD_REQUIRE_MEMORY(in);
        p->pulls[k].on_device = in;
        size_t most = 0;
        for (int i = k; i < p->peer_count; i += p->pull_count) {
            const size_t chunks = chunk_table_count(&d->peers[i].chunks);
            most = chunks > most ? chunks : most;
        }
        COD_TRY(make_pull(p, most, in));
    }
    for (int i = 0; i < p->peer_count; i++) {
        cod_buffer *a = p->peers[i].values, *b = p->peers[i].incoming;
        COD_TRY(plan_dequantise(p, i, a, b, &d->peers[i].decode[0]));
        COD_TRY(plan_dequantise(p, i, b, a, &d->peers[i].decode[1]));
    }
    return COD_OK;
}

static void destroy_pull(const exchange_puller *p, exchange_pull *pull)
{
    exchange_device_pull *in = pull->on_device;
    if (in == NULL)
        return;
    device_event_destroy(p->setup, in->decoded);
    device_buffer_destroy(p->setup, true, in->host);
    device_buffer_destroy(p->setup, true, in->prints_host);
    device_buffer_destroy(p->setup, false, in->heads);
    device_buffer_destroy(p->setup, false, in->payloads);
    device_buffer_destroy(p->setup, false, in->prints);
    free(in);
    pull->on_device = NULL;
}

void exchange_puller_leave_device(exchange_puller *p)
{
    exchange_puller_device *d = p->on_device;
    if (d == NULL)
        return;
    for (int k = 0; k < p->pull_count; k++)
        destroy_pull(p, &p->pulls[k]);
    for (int i = 0; i < p->peer_count && d->peers != NULL; i++) {
        device_plan_destroy(p->setup, d->peers[i].decode[0]);
        device_plan_destroy(p->setup, d->peers[i].decode[1]);
        chunk_table_clear(&d->peers[i].chunks);
    }
    for (int i = 0; i < p->peer_count && d->mirrors != NULL; i++)
        free(d->mirrors[i]);
    free(d->mirrors);
    free(d->peers);
    free(d);
    p->on_device = NULL;
}

void exchange_puller_device_forget_gather(exchange_pull *pull)
{
    pull->on_device->host = NULL;
}

static peer_coding *coding_of(const exchange_puller *p, const exchange_pull *pull)
{
    return &p->on_device->peers[pull->peer - p->peers];
}

/** Byte of the host's room where a shard's payloads begin; those of all the peer's chunks lie behind the headers. */
static size_t payloads_at(const exchange_puller *p, const chunk_table *chunks, size_t shard)
{
    return chunk_table_count(chunks) * COD_CHUNK_HEADER_BYTES + chunks->first[shard] * p->on_device->room;
}

cod_status exchange_puller_device_begin(exchange_puller *p, exchange_pull *pull)
{
    pull->on_device->sent = false;
    /* Where a version was given up, its copies may be under way. */
    return cod_event_wait(p->setup->backend, pull->on_device->decoded);
}

cod_status exchange_puller_device_open(exchange_puller *p, exchange_pull *pull, uint64_t chunks)
{
    exchange_device_pull *in = pull->on_device;
    const chunk_table *table = &coding_of(p, pull)->chunks;
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
                               bytes + payloads_at(p, table, shard) + in->packed));
        chunk_table_to_fragment(table, head);
        cod_store_u64(head + COD_CHUNK_AT_CHECKSUM, table->first[shard] * p->on_device->room + in->packed);
        in->packed += (size_t)cod_codec_plain_bytes(cod_load_u32(head + COD_CHUNK_AT_STORED_BYTES));
    }
    return COD_OK;
}

cod_status exchange_puller_device_share(exchange_puller *p, exchange_pull *pull)
{
    const size_t room = p->on_device->room;
    const chunk_table *table = &coding_of(p, pull)->chunks;
    const size_t shards = (size_t)table->shards;
    cod_group_part *parts = malloc(2 * shards * sizeof *parts);
    COD_REQUIRE_MEMORY(parts);
    for (size_t s = 0; s < shards; s++) {
        const size_t first = table->first[s], count = table->first[s + 1] - first;
        const int root = (int)s % p->setup->size;
        parts[2 * s] = (cod_group_part){
            .root = root, .offset = first * COD_CHUNK_HEADER_BYTES, .bytes = count * COD_CHUNK_HEADER_BYTES};
        parts[2 * s + 1] = (cod_group_part){.root = root, .offset = payloads_at(p, table, s), .bytes = count * room};
    }
    const cod_status status =
        cod_group_share_start(p->setup->group, pull->on_device->host->host, parts, 2 * shards, &pull->gathering);
    free(parts);
    return status;
}

/** Queues the copies of headers and payloads to the device, as long as these are, and what decodes them. */
static cod_status send(exchange_puller *p, exchange_pull *pull)
{
    exchange_device_pull *in = pull->on_device;
    const size_t room = p->on_device->room;
    const peer_coding *coding = coding_of(p, pull);
    const chunk_table *table = &coding->chunks;
    const unsigned char *heads = in->host->host;
    const size_t prints = chunk_table_count(table) * sizeof(uint64_t);
    COD_TRY(p->setup->backend->copy(p->setup->device, NULL, in->heads, 0, in->host, 0,
                                    chunk_table_count(table) * COD_CHUNK_HEADER_BYTES));
    for (size_t s = 0; s < (size_t)table->shards; s++) {
        const size_t first = table->first[s], end = table->first[s + 1];
        if (first == end)
            continue;
        const unsigned char *last = heads + (end - 1) * COD_CHUNK_HEADER_BYTES;
        const size_t to =
            (size_t)cod_load_u64(last + COD_CHUNK_AT_CHECKSUM) + cod_load_u32(last + COD_CHUNK_AT_STORED_BYTES);
        COD_TRY(p->setup->backend->copy(p->setup->device, NULL, in->payloads, first * room, in->host,
                                        payloads_at(p, table, s), to - first * room));
    }
    COD_TRY(p->setup->backend->plan_run(coding->decode[coding->turn], NULL));
    COD_TRY(p->setup->backend->copy(p->setup->device, NULL, in->prints_host, 0, in->prints, 0, prints));
    in->sent = true;
    return cod_event_record(p->setup->backend, in->decoded, NULL);
}

cod_status exchange_puller_device_decode(exchange_puller *p, exchange_pull *pull, bool *done)
{
    const exchange_device_pull *in = pull->on_device;
    const uint64_t *prints = in->prints_host->host;
    bool reached;
    if (!in->sent)
        COD_TRY(send(p, pull));
    COD_TRY(cod_event_query(p->setup->backend, in->decoded, &reached));
    if (!reached)
        return COD_OK;
    for (size_t k = 0; k < chunk_table_count(&coding_of(p, pull)->chunks); k++)
        if (prints[k] == COD_FINGERPRINT_NONE)
            return cod_fail(COD_ERR_NUMERIC, "chunk %zu holds NaN or infinity", k);
    *done = true;
    return COD_OK;
}

void exchange_puller_device_take_over(exchange_puller *p, exchange_pull *pull)
{
    peer_coding *coding = coding_of(p, pull);
    memcpy(coding->chunks.prints, pull->on_device->prints_host->host,
           chunk_table_count(&coding->chunks) * sizeof(uint64_t));
    coding->turn = 1 - coding->turn;
}

cod_status exchange_puller_device_save(exchange_puller *p)
{
    exchange_puller_device *d = p->on_device;
    if (d->mirrors == NULL) {
        d->mirrors = calloc((size_t)p->peer_count, sizeof *d->mirrors);
        COD_REQUIRE_MEMORY(d->mirrors);
    }
    for (int i = 0; i < p->peer_count; i++)
        COD_TRY(device_mirror(p->setup, p->peers[i].values, &d->mirrors[i]));
    return COD_OK;
}

float *exchange_puller_device_saved(const exchange_puller *p, int peer)
{
    return p->on_device->mirrors[peer];
}

cod_status exchange_puller_device_restored(exchange_puller *p)
{
    exchange_puller_device *d = p->on_device;
    for (int i = 0; i < p->peer_count; i++) {
        held_peer *peer = &p->peers[i];
        COD_TRY(p->setup->backend->upload(p->setup->device, NULL, peer->values, 0, d->mirrors[i], peer->values->bytes));
        chunk_table_find_prints(p->setup, d->mirrors[i], &d->peers[i].chunks,
                                exchange_pull_of(p, peer)->on_device->host->host);
    }
    return COD_OK;
}
