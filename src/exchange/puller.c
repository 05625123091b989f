#include "exchange/pace_internal.h"
#include "exchange/puller_internal.h"

#include "core/host_memory.h"
#include "core/log.h"
#include "core/trace.h"

#include <stdlib.h>

static cod_status make_peers(exchange_puller *p)
{
    const exchange_setup *setup = p->setup;
    p->peers = calloc((size_t)(setup->groups * setup->fragments), sizeof *p->peers);
    COD_REQUIRE_MEMORY(p->peers);
    for (int i = 1; i < setup->groups; i++) {
        const int group = (setup->mine + i) % setup->groups;
        if (!cod_exchange_reads(&setup->options, setup->groups, setup->mine, group))
            continue;
        for (int f = 0; f < setup->fragments; f++)
            p->peers[p->peer_count++] =
                (held_peer){.group = group,
                            .fragment = f,
                            .model = setup->models[group],
                            .range = cod_exchange_fragment_range(&setup->options, &setup->models[group], f),
                            .first_shard = exchange_identity(setup, group, f, 0)};
    }
    return COD_OK;
}

cod_status exchange_puller_init(exchange_puller *p, const exchange_setup *setup, cod_coder *coder)
{
    const cod_codec_options codec = exchange_codec_options(&setup->options);
    *p = (exchange_puller){.setup = setup, .coder = coder};
    COD_TRY(make_peers(p));
    p->pull_count = exchange_pulls_for(&setup->options, p->peer_count / setup->fragments);
    p->pulls = calloc((size_t)p->pull_count + 1, sizeof *p->pulls);
    COD_REQUIRE_MEMORY(p->pulls);
    for (int k = 0; k < p->pull_count; k++) {
        p->pulls[k] = (exchange_pull){.place = k, .turn = k};
        COD_TRY(cod_codec_init(&p->pulls[k].decoder, &codec));
    }
    return cod_rooms_init(&p->rooms, p->pull_count, exchange_layout(setup).slot_bytes);
}

static void release(void *buffer)
{
    cod_host_buffer_destroy(NULL, buffer);
}

static void release_shared(void *memory)
{
    cod_group_memory_destroy(memory);
}

/** Leaves a gather that does not end to itself, with its memory. */
static void abandon_gather(exchange_puller *p, exchange_pull *pull)
{
    if (p->setup->codes_on_device) {
        exchange_puller_device_forget_gather(pull);
        cod_request_abandon(&pull->gathering, NULL, NULL);
        return;
    }
    if (p->setup->shared != NULL) {
        cod_request_abandon(&pull->gathering, release_shared, cod_group_memory_keep(p->setup->shared));
        return;
    }
    cod_request_abandon(&pull->gathering, release, pull->peer->incoming);
    pull->peer->incoming = NULL;
}

static void cancel(const exchange_puller *p, const exchange_pull *pull)
{
    cod_transport *transport = p->setup->transports[pull->peer->fragment];
    transport->ops->pull_cancel(transport, pull->place);
}

cod_status exchange_puller_end(exchange_puller *p)
{
    cod_status status = COD_OK;
    for (int k = 0; k < p->pull_count; k++) {
        exchange_pull *pull = &p->pulls[k];
        if (pull->peer != NULL)
            cancel(p, pull);
        if (pull->gathering == NULL)
            continue;
        const cod_status ended =
            cod_comm_wait_for_ranks(p->setup->comm, &pull->gathering, p->setup->options.pull_timeout_s);
        if (pull->gathering != NULL)
            abandon_gather(p, pull);
        status = status == COD_OK ? ended : status;
    }
    return status;
}

void exchange_puller_clear(exchange_puller *p)
{
    for (int k = 0; p->pulls != NULL && k < p->pull_count; k++)
        cod_codec_clear(&p->pulls[k].decoder);
    cod_rooms_clear(&p->rooms);
    free(p->pulls);
    free(p->peers);
}

/* Shards. */

static int first_shard(const exchange_puller *p, const held_peer *peer, int from)
{
    for (int k = from; k < exchange_shards_of(p->setup, peer->group); k++)
        if (k % p->setup->size == p->setup->rank)
            return k;
    return -1;
}

static cod_status start_shard(exchange_puller *p, exchange_pull *pull, int from)
{
    pull->arrived = false;
    pull->pulled = (cod_pulled){0};
    pull->shard = first_shard(p, pull->peer, from);
    if (pull->shard < 0) {
        pull->standing.done = true;
        return COD_OK;
    }
    cod_transport *transport = p->setup->transports[pull->peer->fragment];
    const cod_slot_identity identity =
        exchange_identity(p->setup, pull->peer->group, pull->peer->fragment, pull->shard);
    return transport->ops->pull_start(transport, pull->place, &identity,
                                      exchange_world_rank(p->setup, pull->peer->group, pull->shard), pull->version);
}

cod_status exchange_puller_start(exchange_puller *p, held_peer *peer, uint64_t version, uint64_t life)
{
    exchange_pull *pull = exchange_pull_of(p, peer);
    pull->begun++;
    pull->polled_s = cod_clock_s();
    pull->idle_s = 0;
    pull->peer = peer;
    pull->version = version;
    pull->life = life;
    pull->next.version = 0;
    pull->rest_steps = 0;
    pull->standing = (exchange_standing){0};
    if (p->setup->codes_on_device)
        COD_TRY(exchange_puller_device_begin(p, pull));
    return start_shard(p, pull, 0);
}

cod_status exchange_puller_start_proposed(exchange_puller *p, const exchange_proposal *proposal)
{
    held_peer *peer = &p->peers[proposal->peer];
    COD_TRY(exchange_puller_start(p, peer, proposal->version, proposal->life));
    if (proposal->following == 0)
        return COD_OK;
    exchange_pull_of(p, peer)->next = (exchange_proposal){.peer = proposal->peer,
                                                          .version = proposal->version + (uint64_t)p->setup->fragments,
                                                          .life = proposal->life,
                                                          .following = proposal->following - 1};
    return COD_OK;
}

cod_status exchange_puller_start_following(exchange_puller *p, exchange_pull *pull, bool *began)
{
    /* What was held until now is decoded into, and ranks that are a step behind may still read it. */
    enum { REST_STEPS = 2 };
    const exchange_proposal next = pull->next;
    *began = next.version > 0 && exchange_puller_wants(p, &next);
    if (!*began)
        return COD_OK;
    COD_TRY(exchange_puller_start_proposed(p, &next));
    pull->rest_steps = REST_STEPS;
    return COD_OK;
}

/** What a peer sent is no use: counted, said, and the last good version stays. */
static void refuse(exchange_puller *p, exchange_pull *pull, cod_status why)
{
    p->counters.rejected++;
    pull->standing.lost = pull->standing.refused = true;
    cod_log_warn("group %d: refused version %llu of group %d (%s): %s", p->setup->mine,
                 (unsigned long long)pull->version, pull->peer->group, cod_status_name(why), cod_error_message());
}

static void note_arrival(exchange_puller *p, exchange_pull *pull)
{
    const cod_pulled *pulled = &pull->pulled;
    cod_exchange_peer_counters *counters = &pull->peer->counters;
    p->counters.pulled_bytes += pulled->bytes;
    pull->standing.bytes += pulled->bytes;
    pull->standing.published_ms = pulled->published_ms;
    counters->timed_bytes += pulled->bytes;
    counters->timed_s += pulled->seconds;
    if (p->coder != NULL)
        cod_coder_note_pull(p->coder, pulled->bytes, pulled->seconds);
}

/** Moves the shard's bytes; once they are here, its decoding begins. */
static cod_status move_bytes(exchange_puller *p, exchange_pull *pull)
{
    const held_peer *peer = pull->peer;
    const uint64_t before = pull->pulled.bytes;
    cod_pull_state state;
    cod_transport *transport = p->setup->transports[peer->fragment];
    COD_TRY(transport->ops->pull_poll(transport, pull->place, &state, &pull->pulled));
    if (state == COD_PULL_LOST) {
        p->counters.lost++;
        pull->standing.lost = true;
    }
    if (pull->pulled.bytes != before)
        pull->idle_s = 0;
    if (state != COD_PULL_DONE)
        return COD_OK;
    pull->arrived = true;
    note_arrival(p, pull);
    if (pull->life != EXCHANGE_ANY_LIFE && pull->pulled.life != pull->life)
        return cod_fail(COD_ERR_FORMAT,
                        "shard %d is of another life of its group than the version that was proposed: one of them was "
                        "made before its death, one after it",
                        pull->shard);
    const cod_codec_range range = exchange_range_of(p->setup, peer->group, peer->fragment, pull->shard);
    const cod_codec_key key = exchange_key(p->setup, peer->group, pull->version, pull->pulled.life);
    cod_codec_begin(&pull->decoder, &range, &key);
    return COD_OK;
}

/** Decodes up to `chunks` chunks of the shard that has come. */
static cod_status decode(exchange_puller *p, exchange_pull *pull, uint64_t chunks)
{
    const held_peer *peer = pull->peer;
    const uint64_t first = pull->decoder.range.first - peer->range.first;
    if (p->setup->codes_on_device)
        return exchange_puller_device_open(p, pull, chunks);
    /* What a delta is against: the publisher's version that is held now, or its checksum does not fit. */
    const float *held = peer->version > 0 ? exchange_floats(peer->values) + first : NULL;
    return cod_codec_decode(&pull->decoder, pull->pulled.data, pull->pulled.bytes, held, chunks,
                            exchange_floats(peer->incoming) + first);
}

cod_status exchange_puller_move_some(exchange_puller *p, exchange_pull *pull, uint64_t chunks)
{
    const double begin = cod_clock_s();
    cod_status status = pull->arrived ? COD_OK : move_bytes(p, pull);
    if (status == COD_OK && pull->arrived) {
        pull->idle_s = 0;
        status = decode(p, pull, chunks);
        p->counters.decode_s += cod_clock_s() - begin;
    }
    if (exchange_is_bad_data(status)) {
        refuse(p, pull, status);
        return COD_OK;
    }
    COD_TRY(status);
    return pull->arrived && cod_codec_finished(&pull->decoder) ? start_shard(p, pull, pull->shard + 1) : COD_OK;
}

/** Chunks a step, so that a peer's are through after so many steps. */
static uint64_t chunks_a_step(const exchange_puller *p, const held_peer *peer)
{
    const uint64_t values = p->setup->fragments > 1 ? peer->range.count : peer->model.count,
                   chunks = values / (uint64_t)p->setup->options.chunk_values + 1,
                   steps = (uint64_t)exchange_decoding_steps(&p->setup->options, p->peer_count / p->setup->fragments);
    return (chunks + steps - 1) / steps;
}

/**
 * Whether the pull has not moved for all of its patience. Between two looks at it lies a step of this rank, an
 * evaluation or a pause of the node, in which it cannot show that it moved: of each such time only a part counts, so
 * that several looks must find it where it was. Time in which a pull waits for its turn does not count.
 */
static bool is_stuck(const exchange_puller *p, exchange_pull *pull)
{
    enum { LEAST_LOOKS = 8 };
    const double now = cod_clock_s(), passed = now - pull->polled_s,
                 most = p->setup->options.pull_timeout_s / LEAST_LOOKS;
    if (!pull->pulled.queued)
        pull->idle_s += passed < most ? passed : most;
    pull->polled_s = now;
    return pull->idle_s > p->setup->options.pull_timeout_s;
}

cod_status exchange_puller_move(exchange_puller *p, exchange_pull *pull)
{
    exchange_standing *standing = &pull->standing;
    if (standing->done || standing->lost)
        return COD_OK;
    COD_TRY(exchange_puller_move_some(p, pull, pull->rest_steps > 0 ? 0 : chunks_a_step(p, pull->peer)));
    if (pull->rest_steps > 0)
        pull->rest_steps--;
    if (is_stuck(p, pull) && !standing->done && !standing->lost) {
        p->counters.lost++;
        standing->lost = true;
    }
    return COD_OK;
}

/* All shards. */

/** Where the shards lie that ranks of the group share: decoded, or as plain chunks. */
static cod_status share_shards(exchange_puller *p, exchange_pull *pull)
{
    held_peer *peer = pull->peer;
    const int shards = exchange_shards_of(p->setup, peer->group);
    if (p->setup->codes_on_device)
        return exchange_puller_device_share(p, pull);
    cod_group_part *parts = malloc((size_t)shards * sizeof *parts);
    COD_REQUIRE_MEMORY(parts);
    for (int k = 0; k < shards; k++) {
        const cod_codec_range range = exchange_range_of(p->setup, peer->group, peer->fragment, k);
        parts[k] = (cod_group_part){.root = k % p->setup->size,
                                    .offset = (range.first - peer->range.first) * sizeof(float),
                                    .bytes = range.count * sizeof(float)};
    }
    float *incoming = exchange_floats(peer->incoming);
    const cod_status status =
        p->setup->shared != NULL
            ? cod_group_share_by_node_start(p->setup->group, incoming, parts, (size_t)shards, &pull->gathering)
            : cod_group_share_start(p->setup->group, incoming, parts, (size_t)shards, &pull->gathering);
    free(parts);
    return status;
}

cod_status exchange_puller_gather(exchange_puller *p, exchange_pull *pull)
{
    pull->standing.done = false;
    return exchange_sends_shards(p->setup) ? share_shards(p, pull) : COD_OK;
}

cod_status exchange_puller_move_gather(exchange_puller *p, exchange_pull *pull)
{
    bool shared = true;
    if (pull->standing.done || pull->standing.lost)
        return COD_OK;
    if (pull->gathering != NULL)
        COD_TRY(cod_request_test(&pull->gathering, &shared));
    if (!shared)
        return COD_OK;
    if (!p->setup->codes_on_device) {
        pull->standing.done = true;
        return COD_OK;
    }
    const cod_status status = exchange_puller_device_decode(p, pull, &pull->standing.done);
    if (!exchange_is_bad_data(status))
        return status;
    refuse(p, pull, status);
    return COD_OK;
}

void exchange_puller_note_outcome(exchange_pull *pull, const exchange_outcome *outcome)
{
    held_peer *peer = pull->peer;
    peer->counters.bytes += outcome->bytes;
    if (outcome->refused)
        peer->counters.rejected++;
    else if (outcome->lost)
        peer->counters.lost++;
    else
        peer->incoming_ms = outcome->published_ms;
}

void exchange_puller_take_over(exchange_puller *p, exchange_pull *pull, int64_t step)
{
    held_peer *peer = pull->peer;
    cod_buffer *held = peer->values;
    peer->values = peer->incoming;
    peer->incoming = held;
    if (p->setup->codes_on_device)
        exchange_puller_device_take_over(p, pull);
    peer->version = pull->version;
    /* Not as the slot says: a rank that pulled no shard of a small peer has not seen it. */
    peer->step = (int64_t)pull->version * cod_exchange_spacing(&p->setup->options);
    peer->pulled_at = step;
    peer->counters.pulled++;
    peer->published_ms = peer->incoming_ms;
    p->counters.pulled++;
    pull->look = true;
    pull->peer = NULL;
}

void exchange_puller_give_up(exchange_puller *p, exchange_pull *pull, bool useless)
{
    if (useless)
        pull->peer->refused = pull->version;
    cancel(p, pull);
    pull->look = true;
    pull->peer = NULL;
}

/* What is saved. */

void exchange_puller_pack(exchange_puller *p, exchange_numbers *numbers)
{
    for (int i = 0; i < p->peer_count; i++) {
        held_peer *peer = &p->peers[i];
        exchange_pack_u64(numbers, &peer->version);
        exchange_pack_i64(numbers, &peer->step);
        exchange_pack_i64(numbers, &peer->pulled_at);
        exchange_pack_u64(numbers, &peer->published_ms);
        if (numbers->restoring)
            peer->refused = 0;
    }
}

cod_status exchange_puller_check(const exchange_puller *p)
{
    for (int i = 0; i < p->peer_count; i++) {
        const held_peer *peer = &p->peers[i];
        if (!exchange_is_step_of(p->setup, peer->fragment, peer->version, peer->step) || peer->pulled_at < 0)
            return cod_fail(COD_ERR_FORMAT, "what the checkpoint says of group %d's versions makes no sense",
                            peer->group);
    }
    return COD_OK;
}

cod_status exchange_puller_save(exchange_puller *p)
{
    return p->setup->codes_on_device ? exchange_puller_device_save(p) : COD_OK;
}

float *exchange_puller_saved(const exchange_puller *p, int peer)
{
    return p->setup->codes_on_device ? exchange_puller_device_saved(p, peer) : exchange_floats(p->peers[peer].values);
}

cod_status exchange_puller_restored(exchange_puller *p)
{
    return p->setup->codes_on_device ? exchange_puller_device_restored(p) : COD_OK;
}
