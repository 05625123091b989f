/*
 * Pulling: several versions at a time, of one peer each. Every peer belongs to one pull, which takes its peers in turn, and every pull goes
 * through its phases alone: agreements (exchange_agreement.c) speak of each by its place.
 */
#include "distill/exchange_internal.h"

#include "core/log.h"
#include "core/trace.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

/*
 * Steps from one pull to the next, decoding aside: a question and its answer, two to agree on what is pulled, one until its bytes are
 * here, two to agree that all ranks have theirs, one and two more for ranks that share shards.
 */
enum { STEPS_BESIDE_DECODING = 10 };
/** The part of the time between two publications that decoding is spread over where every peer has a pull of its own. */
enum { DECODING_PART = 4 };

static int64_t longest_decoding(const cod_exchange_options *options)
{
    return (cod_exchange_spacing(options) + DECODING_PART - 1) / DECODING_PART;
}

int exchange_pulls_for(const cod_exchange_options *options, int peers)
{
    if (exchange_will_wait(options)) /* then versions are taken one after another */
        return peers > 0;
    const int held = peers * cod_exchange_fragments(options);
    const int64_t steps = held * (longest_decoding(options) + STEPS_BESIDE_DECODING),
                  pulls = (steps + options->period - 1) / options->period;
    const int most = held < COD_EXCHANGE_PULLS_MOST ? held : COD_EXCHANGE_PULLS_MOST;
    return pulls < most ? (int)pulls : most;
}

int64_t exchange_decoding_steps(const cod_exchange_options *options, int peers)
{
    const int64_t longest = longest_decoding(options);
    const int pulls = exchange_pulls_for(options, peers), held = peers * cod_exchange_fragments(options);
    if (pulls == held)
        return longest;
    /* A tenth of a period is left over, for steps that a pull waits for others. */
    const int64_t steps = 9 * options->period * pulls / (10 * held) - STEPS_BESIDE_DECODING;
    return steps < 1 ? 1 : steps < longest ? steps : longest;
}

/** The least that a pull takes, of a rank alone as of ranks that share shards. */
enum { LEAST_STEPS_ALONE = 8, LEAST_STEPS = STEPS_BESIDE_DECODING + 1 };

int cod_exchange_peers_allowed(const cod_exchange_options *options)
{
    const int64_t period = options->period > LEAST_STEPS ? options->period : LEAST_STEPS,
                  peers = COD_EXCHANGE_PULLS_MOST * period / LEAST_STEPS / cod_exchange_fragments(options);
    return peers < INT_MAX ? (int)peers : INT_MAX;
}

bool cod_exchange_falls_behind(const cod_exchange_options *options, int peers, char *advice, size_t bytes)
{
    const int allowed = cod_exchange_peers_allowed(options);
    if (exchange_will_wait(options) || options->codec == COD_EXCHANGE_NONE || peers == 0)
        return false;
    if (peers > allowed) {
        snprintf(
            advice, bytes,
            "a group reads %d peers, and with exchange.period %lld about %d have their turn within a period: some "
            "of their publications are left out; exchange.peers=auto or random(%d) reads fewer, exchange.period=%d "
            "lets all have their turn",
            peers, (long long)options->period, allowed, allowed,
            (peers * cod_exchange_fragments(options) * LEAST_STEPS + COD_EXCHANGE_PULLS_MOST - 1) /
                COD_EXCHANGE_PULLS_MOST);
        return true;
    }
    const int least = LEAST_STEPS_ALONE;
    if (options->period < least)
        snprintf(advice, bytes,
                 "a pull takes %d steps at least: of publications every %lld steps about one in %lld is used", least,
                 (long long)options->period, (long long)((least + options->period - 1) / options->period));
    return options->period < least;
}

cod_status exchange_pulls_init(cod_exchange *e)
{
    const cod_codec_options codec = exchange_codec_options(&e->options);
    e->pull_count = exchange_pulls_for(&e->options, cod_exchange_peer_count(e));
    e->pulls = calloc((size_t)e->pull_count + 1, sizeof *e->pulls);
    COD_REQUIRE_MEMORY(e->pulls);
    for (int k = 0; k < e->pull_count; k++) {
        e->pulls[k] = (exchange_pull){.place = k, .turn = k, .proposed = EXCHANGE_NO_PEER};
        COD_TRY(cod_codec_init(&e->pulls[k].decoder, &codec));
    }
    return COD_OK;
}

static void cancel(const cod_exchange *e, const exchange_pull *pull)
{
    cod_transport *transport = e->transports[pull->peer->fragment];
    transport->ops->pull_cancel(transport, pull->place);
}

cod_status exchange_pulls_end(cod_exchange *e)
{
    cod_status status = COD_OK;
    for (int k = 0; k < e->pull_count; k++) {
        exchange_pull *pull = &e->pulls[k];
        if (pull->phase == PULLING)
            cancel(e, pull);
        const cod_status ended = cod_request_wait(&pull->gathering, e->options.pull_timeout_s);
        if (pull->gathering != NULL)
            exchange_abandon_gather(e, pull);
        status = status == COD_OK ? ended : status;
    }
    return status;
}

void exchange_pulls_clear(cod_exchange *e)
{
    for (int k = 0; e->pulls != NULL && k < e->pull_count; k++)
        cod_codec_clear(&e->pulls[k].decoder);
    free(e->pulls);
}

void exchange_peers_pack(held_peer *peers, int count, exchange_numbers *numbers)
{
    for (int i = 0; i < count; i++) {
        exchange_pack_u64(numbers, &peers[i].version);
        exchange_pack_i64(numbers, &peers[i].step);
        exchange_pack_i64(numbers, &peers[i].pulled_at);
        exchange_pack_u64(numbers, &peers[i].published_ms);
        if (numbers->restoring)
            peers[i].refused = 0;
    }
}

exchange_pull *exchange_pull_of(const cod_exchange *e, const held_peer *peer)
{
    return &e->pulls[(peer - e->peers) % e->pull_count];
}

/* Shards. */

static int first_shard(const cod_exchange *e, const held_peer *peer, int from)
{
    for (int k = from; k < exchange_shards_of(e, peer->group); k++)
        if (k % e->size == e->rank)
            return k;
    return -1;
}

static cod_status start_shard(cod_exchange *e, exchange_pull *pull, int from)
{
    pull->arrived = false;
    pull->pulled = (cod_pulled){0};
    pull->shard = first_shard(e, pull->peer, from);
    if (pull->shard < 0) {
        pull->done = true;
        return COD_OK;
    }
    cod_transport *transport = e->transports[pull->peer->fragment];
    const cod_slot_identity identity = exchange_identity(e, pull->peer->group, pull->peer->fragment, pull->shard);
    return transport->ops->pull_start(transport, pull->place, &identity,
                                      cod_group_world_rank(e->group, pull->peer->group, pull->shard), pull->version);
}

cod_status exchange_start_pull(cod_exchange *e, held_peer *peer, uint64_t version, uint64_t life, int64_t step)
{
    exchange_pull *pull = exchange_pull_of(e, peer);
    pull->phase = PULLING;
    pull->begun++;
    pull->phase_since = step;
    pull->polled_s = cod_clock_s();
    pull->idle_s = 0;
    pull->peer = peer;
    pull->version = version;
    pull->life = life;
    pull->done = pull->lost = pull->refused = false;
    pull->bytes = pull->published_ms = 0;
    if (e->on_device != NULL)
        COD_TRY(exchange_device_begin(e, pull));
    return start_shard(e, pull, 0);
}

/** What a peer sent is no use: counted, said, and the last good teacher stays. */
static void refuse(cod_exchange *e, exchange_pull *pull, cod_status why)
{
    e->counters.rejected++;
    pull->lost = pull->refused = true;
    cod_log_warn("group %d: refused version %llu of group %d (%s): %s", cod_group_index(e->group),
                 (unsigned long long)pull->version, pull->peer->group, cod_status_name(why), cod_error_message());
}

static bool is_bad_data(cod_status status)
{
    return status == COD_ERR_FORMAT || status == COD_ERR_NUMERIC;
}

static void note_arrival(cod_exchange *e, exchange_pull *pull)
{
    const cod_pulled *pulled = &pull->pulled;
    cod_exchange_peer_counters *counters = &pull->peer->counters;
    e->counters.pulled_bytes += pulled->bytes;
    pull->bytes += pulled->bytes;
    pull->published_ms = pulled->published_ms;
    counters->timed_bytes += pulled->bytes;
    counters->timed_s += pulled->seconds;
    cod_coder_note_pull(&e->publisher.coder, pulled->bytes, pulled->seconds);
}

/** Moves the shard's bytes; once they are here, its decoding begins. */
static cod_status move_bytes(cod_exchange *e, exchange_pull *pull)
{
    const held_peer *peer = pull->peer;
    const uint64_t before = pull->pulled.bytes;
    cod_pull_state state;
    cod_transport *transport = e->transports[peer->fragment];
    COD_TRY(transport->ops->pull_poll(transport, pull->place, &state, &pull->pulled));
    if (state == COD_PULL_LOST) {
        e->counters.lost++;
        pull->lost = true;
    }
    if (pull->pulled.bytes != before)
        pull->idle_s = 0;
    if (state != COD_PULL_DONE)
        return COD_OK;
    pull->arrived = true;
    note_arrival(e, pull);
    if (pull->life != EXCHANGE_ANY_LIFE && pull->pulled.life != pull->life)
        return cod_fail(COD_ERR_FORMAT,
                        "shard %d is of another life of its group than the version that was proposed: one of them was "
                        "made before its death, one after it",
                        pull->shard);
    const cod_codec_range range = exchange_shard_range(&e->options, &peer->model, peer->fragment, pull->shard,
                                                       exchange_shards_of(e, peer->group));
    const cod_codec_key key = exchange_key(e, peer->group, pull->version, pull->pulled.life);
    cod_codec_begin(&pull->decoder, &range, &key);
    return COD_OK;
}

/** Decodes up to `chunks` chunks of the shard that has come. */
static cod_status decode(cod_exchange *e, exchange_pull *pull, uint64_t chunks)
{
    const held_peer *peer = pull->peer;
    const uint64_t first = pull->decoder.range.first - peer->range.first;
    if (e->on_device != NULL)
        return exchange_device_open(e, pull, chunks);
    /* What a delta is against: the publisher's version that is held now, or its checksum does not fit. */
    const float *held = peer->version > 0 ? exchange_floats(peer->values) + first : NULL;
    return cod_codec_decode(&pull->decoder, pull->pulled.data, pull->pulled.bytes, held, chunks,
                            exchange_floats(peer->incoming) + first);
}

cod_status exchange_move_pull(cod_exchange *e, exchange_pull *pull, uint64_t chunks)
{
    const double begin = cod_clock_s();
    cod_status status = pull->arrived ? COD_OK : move_bytes(e, pull);
    if (status == COD_OK && pull->arrived) {
        pull->idle_s = 0;
        status = decode(e, pull, chunks);
        e->counters.decode_s += cod_clock_s() - begin;
    }
    if (is_bad_data(status)) {
        refuse(e, pull, status);
        return COD_OK;
    }
    COD_TRY(status);
    return pull->arrived && cod_codec_finished(&pull->decoder) ? start_shard(e, pull, pull->shard + 1) : COD_OK;
}

/* All shards. */

/** Where the shards lie that ranks of the group share: decoded, or as plain chunks. */
static cod_status share_shards(cod_exchange *e, exchange_pull *pull)
{
    held_peer *peer = pull->peer;
    const int shards = exchange_shards_of(e, peer->group);
    if (e->on_device != NULL)
        return exchange_device_share(e, pull);
    cod_group_part *parts = malloc((size_t)shards * sizeof *parts);
    COD_REQUIRE_MEMORY(parts);
    for (int k = 0; k < shards; k++) {
        const cod_codec_range range = exchange_shard_range(&e->options, &peer->model, peer->fragment, k, shards);
        parts[k] = (cod_group_part){.root = k % e->size,
                                    .offset = (range.first - peer->range.first) * sizeof(float),
                                    .bytes = range.count * sizeof(float)};
    }
    float *incoming = exchange_floats(peer->incoming);
    const cod_status status =
        e->shared != NULL ? cod_group_share_by_node_start(e->group, incoming, parts, (size_t)shards, &pull->gathering)
                          : cod_group_share_start(e->group, incoming, parts, (size_t)shards, &pull->gathering);
    free(parts);
    return status;
}

cod_status exchange_start_gather(cod_exchange *e, exchange_pull *pull, int64_t step)
{
    pull->phase = GATHERING;
    pull->phase_since = step;
    pull->done = false;
    return exchange_sends_shards(e) ? share_shards(e, pull) : COD_OK;
}

cod_status exchange_move_gather(cod_exchange *e, exchange_pull *pull)
{
    bool shared = true;
    if (pull->gathering != NULL)
        COD_TRY(cod_request_test(&pull->gathering, &shared));
    if (!shared)
        return COD_OK;
    if (e->on_device == NULL) {
        pull->done = true;
        return COD_OK;
    }
    const cod_status status = exchange_device_decode(e, pull, &pull->done);
    if (!is_bad_data(status))
        return status;
    refuse(e, pull, status);
    return COD_OK;
}

void exchange_take_over(cod_exchange *e, exchange_pull *pull, int64_t step)
{
    held_peer *peer = pull->peer;
    cod_buffer *held = peer->values;
    peer->values = peer->incoming;
    peer->incoming = held;
    if (e->on_device != NULL)
        exchange_device_take_over(e, pull);
    peer->version = pull->version;
    /* Not as the slot says: a rank that pulled no shard of a small peer has not seen it. */
    peer->step = (int64_t)pull->version * cod_exchange_spacing(&e->options);
    peer->pulled_at = step;
    peer->counters.pulled++;
    peer->published_ms = peer->incoming_ms;
    e->counters.pulled++;
    e->counters.switches++;
    pull->phase = IDLE;
    pull->look = true;
    pull->peer = NULL;
}

void exchange_give_up(cod_exchange *e, exchange_pull *pull, bool useless)
{
    if (useless)
        pull->peer->refused = pull->version;
    cancel(e, pull);
    pull->phase = IDLE;
    pull->look = true;
    pull->peer = NULL;
}

/* News, of which rank 0 speaks. */

/**
 * How new a version is of use: where weights are merged, one whose own counterpart is there or comes next. A group that is
 * behind would else be given versions that its own never meet.
 */
static uint64_t newest_of_use(const cod_exchange *e, const held_peer *peer)
{
    if (e->options.merge != COD_MERGE_DELAY_CORRECTED || peer->model.hash != e->models[cod_group_index(e->group)].hash)
        return UINT64_MAX;
    return exchange_newest_own(e, peer->fragment) + (uint64_t)e->fragments;
}

/** Whether to ask for news after this step: some times from one publication to the next. A question moves 0.75 kB over TCP with 8 slots. */
static bool is_looking_step(const cod_exchange *e, int64_t step)
{
    enum { LOOKS = 4 };
    const int64_t each = cod_exchange_spacing(&e->options) / LOOKS;
    return each <= 1 || step % each == 0;
}

/**
 * Whether a fragment's next version comes before those of its peer's others, as they come in turn. The others are asked for once a
 * period each: then one that was left out holds up none.
 */
static bool is_expected(const cod_exchange *e, const held_peer *peer, int64_t step)
{
    const held_peer *first = peer - peer->fragment;
    const int64_t spacing = cod_exchange_spacing(&e->options);
    if (step % spacing == 0 && step / spacing % e->fragments == peer->fragment)
        return true;
    for (int f = 0; f < e->fragments; f++)
        if (first[f].version < peer->version)
            return false;
    return true;
}

/** What a peer says is of no use: said once. */
static void note_foreign(cod_exchange *e, held_peer *peer)
{
    const held_peer *first = peer - peer->fragment;
    bool said = false;
    for (int f = 0; f < e->fragments; f++)
        said = said || first[f].foreign;
    if (!said) {
        cod_log_warn("group %d: group %d's checkpoints are of no use: %s", cod_group_index(e->group), peer->group,
                     cod_error_message());
        e->counters.rejected++;
        peer->counters.rejected++;
    }
    peer->foreign = true;
}

/** Asks a peer, or looks for its answer. */
static cod_status ask(cod_exchange *e, const exchange_pull *pull, held_peer *peer, uint64_t *version, uint64_t *life)
{
    cod_transport *transport = e->transports[peer->fragment];
    const cod_slot_identity expected = exchange_identity(e, peer->group, peer->fragment, 0);
    bool answered = false;
    if (!peer->asked)
        peer->asked_before = pull->begun;
    const cod_status status =
        transport->ops->offer(transport, &expected, cod_group_world_rank(e->group, peer->group, 0), peer->version,
                              peer->refused, newest_of_use(e, peer), &answered, version, life);
    peer->asked = status == COD_OK && !answered;
    return status;
}

/** Proposes what a peer has that is new. @param asking  whether to ask where it has not been asked */
static cod_status look_at(cod_exchange *e, exchange_pull *pull, held_peer *peer, bool asking)
{
    uint64_t version = 0, life = 0;
    if (!asking && !peer->asked)
        return COD_OK;
    cod_status status = ask(e, pull, peer, &version, &life);
    /* An answer that came while another peer was pulled is old: what it offers may soon be replaced. */
    if (status == COD_OK && !peer->asked && peer->asked_before != pull->begun)
        status = ask(e, pull, peer, &version, &life);
    if (is_bad_data(status)) {
        note_foreign(e, peer);
        return COD_OK;
    }
    COD_TRY(status);
    peer->foreign = peer->foreign && version == 0;
    if (version > peer->version && version > peer->refused) {
        pull->proposed = (int)(peer - e->peers);
        pull->proposed_version = version;
        pull->proposed_life = life & EXCHANGE_LIFE_MASK; /* what a peer says may be anything */
    }
    return COD_OK;
}

/** All its peers are asked at once, so that what is proposed is fresh; of those that answer, each gets its turn. */
static cod_status look_for_news(cod_exchange *e, exchange_pull *pull, int64_t step)
{
    const bool asking = pull->look || is_looking_step(e, step);
    pull->look = false;
    for (int k = 0; k < e->peer_count && pull->proposed == EXCHANGE_NO_PEER; k += e->pull_count) {
        const held_peer *peer = &e->peers[pull->turn];
        COD_TRY(look_at(e, pull, &e->peers[pull->turn], asking && is_expected(e, peer, step)));
        pull->turn += e->pull_count;
        if (pull->turn >= e->peer_count)
            pull->turn = pull->place;
    }
    return COD_OK;
}

/** Chunks a step, so that a peer's are through after so many steps. */
static uint64_t chunks_a_step(const cod_exchange *e, const held_peer *peer)
{
    const uint64_t values = e->fragments > 1 ? peer->range.count : peer->model.count,
                   chunks = values / (uint64_t)e->options.chunk_values + 1,
                   steps = (uint64_t)exchange_decoding_steps(&e->options, cod_exchange_peer_count(e));
    return (chunks + steps - 1) / steps;
}

/**
 * Whether the pull has not moved for all of its patience. Between two looks at it lies a step of this rank, an evaluation or a pause of
 * the node, in which it cannot show that it moved: of each such time only a part counts, so that several looks must find it where it was.
 * Time in which a pull waits for its turn does not count.
 */
static bool is_stuck(const cod_exchange *e, exchange_pull *pull)
{
    enum { LEAST_LOOKS = 8 };
    const double now = cod_clock_s(), passed = now - pull->polled_s, most = e->options.pull_timeout_s / LEAST_LOOKS;
    if (!pull->pulled.queued)
        pull->idle_s += passed < most ? passed : most;
    pull->polled_s = now;
    return pull->idle_s > e->options.pull_timeout_s;
}

static cod_status move(cod_exchange *e, exchange_pull *pull, int64_t step)
{
    if (pull->phase == IDLE)
        return e->rank == 0 && pull->proposed == EXCHANGE_NO_PEER ? look_for_news(e, pull, step) : COD_OK;
    if (pull->phase == PULLING && !pull->done && !pull->lost) {
        COD_TRY(exchange_move_pull(e, pull, chunks_a_step(e, pull->peer)));
        if (is_stuck(e, pull) && !pull->done && !pull->lost) {
            e->counters.lost++;
            pull->lost = true;
        }
    }
    return pull->phase == GATHERING && !pull->done && !pull->lost ? exchange_move_gather(e, pull) : COD_OK;
}

cod_status exchange_move_pulls(cod_exchange *e, int64_t step)
{
    for (int k = 0; k < e->pull_count; k++)
        COD_TRY(move(e, &e->pulls[k], step));
    return COD_OK;
}
