/* The exchange as a whole, and pulling; see exchange_publish.c and exchange_state.c for the rest. */
#include "distill/exchange_internal.h"

#include "core/hash.h"
#include "core/log.h"
#include "core/trace.h"
#include "distill/file.h"
#include "distill/rma.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Of the first rank: INTERVAL, PEER, VERSION, LIFE, PUBLISHED (the time of what is being pulled), NOW (its clock). */
enum {
    FLAG_INTERVAL,
    FLAG_PEER,
    FLAG_VERSION,
    FLAG_LIFE,
    FLAG_DONE,
    FLAG_LOST,
    FLAG_REFUSED,
    FLAG_BYTES,
    FLAG_PUBLISHED,
    FLAG_NOW,
    FLAG_LEFT_OUT,
    FLAG_COUNT,
    AGREEMENT_DELAY = 2
};
_Static_assert((int)FLAG_COUNT == (int)COD_EXCHANGE_FLAGS, "each flag has a number");
enum { NO_PEER = -1 };
/* The part of a period that a publication and a pull are spread over; encoding takes twice as long as decoding. */
enum { ENCODING = 3, DECODING = 4 };
enum { STORAGE_PATIENCE_S = 10 };
#define LIFE_MASK (UINT64_MAX >> 11) /* exact as a double, in which it rides in the reductions */

int exchange_shards_of(const cod_exchange *e, int group)
{
    return cod_group_members_of(e->group, group).size;
}

cod_slot_identity exchange_identity(const cod_exchange *e, int group, int shard)
{
    const cod_codec_range range = exchange_shard_range(&e->models[group], shard, exchange_shards_of(e, group));
    return (cod_slot_identity){.run = e->run,
                               .model = e->models[group].hash,
                               .group = (uint32_t)group,
                               .shard = (uint32_t)shard,
                               .shards = (uint32_t)exchange_shards_of(e, group),
                               .first = range.first,
                               .count = range.count,
                               .exact_from = range.exact_from};
}

cod_codec_key exchange_key(const cod_exchange *e, int group, uint64_t version, uint64_t life)
{
    const uint64_t run = life == 0 ? e->run : cod_hash(&life, sizeof life, e->run);
    return (cod_codec_key){.run = run, .publisher = (uint64_t)group, .version = version};
}

static cod_slot_layout common_layout(const cod_exchange *e)
{
    const cod_codec_options codec = exchange_codec_options(&e->options);
    cod_slot_layout layout = {.slots = (uint32_t)e->options.slots, .groups = (uint32_t)cod_group_count(e->group)};
    for (int g = 0; g < cod_group_count(e->group); g++) {
        const uint64_t bytes = exchange_slot_bytes(&codec, &e->models[g], exchange_shards_of(e, g));
        layout.slot_bytes = bytes > layout.slot_bytes ? bytes : layout.slot_bytes;
    }
    return layout;
}

static cod_status make_peers(cod_exchange *e)
{
    const int groups = cod_group_count(e->group), mine = cod_group_index(e->group);
    e->peers = calloc((size_t)groups, sizeof *e->peers);
    COD_REQUIRE_MEMORY(e->peers);
    for (int i = 1; i < groups; i++) {
        const int group = (mine + i) % groups;
        if (!cod_exchange_reads(&e->options, groups, mine, group))
            continue;
        held_peer *peer = &e->peers[e->peer_count++];
        peer->group = group;
        peer->model = e->models[peer->group];
    }
    return COD_OK;
}

static cod_status make_buffers(cod_exchange *e)
{
    const cod_codec_options codec = exchange_codec_options(&e->options);
    COD_TRY(cod_codec_init(&e->encoder, &codec));
    COD_TRY(cod_codec_init(&e->mirror, &codec));
    COD_TRY(cod_codec_init(&e->decoder, &codec));
    COD_TRY(make_peers(e));
    return exchange_make_values(e);
}

/** Names this process of the group, all its ranks by what the first one drew. */
static cod_status draw_life(cod_exchange *e)
{
    const uint64_t drawn[] = {exchange_wall_ms(), (uint64_t)getpid(), (uint64_t)(1e9 * cod_clock_s())};
    e->life = (cod_hash(drawn, sizeof drawn, e->run) & LIFE_MASK) | 1;
    return cod_group_broadcast(e->group, &e->life, sizeof e->life, 0);
}

cod_status cod_exchange_create(cod_comm *comm, cod_group *group, const cod_exchange_options *options,
                               const cod_exchange_model *models, uint64_t run, cod_exchange **out)
{
    cod_exchange *e = calloc(1, sizeof *e);
    COD_REQUIRE_MEMORY(e);
    *out = e;
    const size_t groups = (size_t)cod_group_count(group);
    e->comm = comm;
    e->group = group;
    e->options = *options;
    e->run = run;
    e->rank = cod_group_rank(group);
    e->size = cod_group_size(group);
    e->proposed = NO_PEER;
    e->interval_passed = true;
    cod_coder_init(&e->coder);
    e->models = malloc(groups * sizeof *models);
    COD_REQUIRE_MEMORY(e->models);
    memcpy(e->models, models, groups * sizeof *models);
    const cod_exchange_model *mine = &models[cod_group_index(group)];
    e->total = mine->count + mine->state_count;
    COD_TRY(cod_group_agree(cod_comm_world(comm), make_buffers(e), NULL));
    COD_TRY(draw_life(e));
    const cod_slot_layout layout = common_layout(e);
    const cod_slot_identity identity = exchange_identity(e, cod_group_index(group), e->rank);
    if (options->transport == COD_TRANSPORT_RMA)
        return cod_rma_create(comm, &identity, &layout, &e->transport);
    const cod_file_options shared = {.folder = options->directory,
                                     .key_file = options->key_file,
                                     .patience_s = fmax(options->pull_timeout_s, STORAGE_PATIENCE_S),
                                     .anew = options->anew};
    const cod_status status = cod_file_transport_create(&shared, &identity, &layout, &e->transport);
    COD_TRY(cod_group_agree(cod_comm_world(comm), status, NULL));
    double left = (double)e->transport->ops->left(e->transport);
    COD_TRY(cod_group_reduce(group, &left, 1, COD_REDUCE_MAX));
    e->left = (uint64_t)left;
    return COD_OK;
}

cod_status cod_exchange_destroy(cod_exchange *e)
{
    if (e == NULL)
        return COD_OK;
    cod_status status = cod_request_wait(&e->gathering, e->options.pull_timeout_s);
    if (e->gathering != NULL)
        exchange_abandon_gather(e);
    if (e->transport != NULL) {
        const cod_status ended = e->transport->ops->destroy(e->transport);
        status = status == COD_OK ? ended : status;
    }
    exchange_device_destroy(e);
    exchange_free_values(e);
    cod_event_destroy(e->backend, e->copied);
    free(e->on_device);
    cod_codec_clear(&e->encoder);
    cod_codec_clear(&e->mirror);
    cod_codec_clear(&e->decoder);
    free(e->events);
    free(e->peers);
    free(e->models);
    free(e->arrays);
    free(e->numbers);
    free(e);
    return status;
}

/* Pulling. */

static int first_shard(const cod_exchange *e, const held_peer *peer, int from)
{
    for (int k = from; k < exchange_shards_of(e, peer->group); k++)
        if (k % e->size == e->rank)
            return k;
    return -1;
}

static cod_status start_shard(cod_exchange *e, int from)
{
    e->arrived = false;
    e->shard = first_shard(e, e->pulling, from);
    if (e->shard < 0) {
        e->done = true;
        return COD_OK;
    }
    const cod_slot_identity identity = exchange_identity(e, e->pulling->group, e->shard);
    return e->transport->ops->pull_start(e->transport, &identity,
                                         cod_group_world_rank(e->group, e->pulling->group, e->shard), e->pull_version);
}

cod_status exchange_start_pull(cod_exchange *e, held_peer *peer, uint64_t version, uint64_t life, int64_t step)
{
    e->phase = PULLING;
    e->phase_since = step;
    e->polled_s = cod_clock_s();
    e->idle_s = 0;
    e->pulling = peer;
    e->pull_version = version;
    e->pull_life = life;
    e->done = e->lost = e->refused = false;
    e->pull_bytes = e->pull_published_ms = 0;
    if (e->on_device != NULL)
        COD_TRY(exchange_device_begin(e));
    return start_shard(e, 0);
}

/** What a peer sent is no use: counted, said, and the last good teacher stays. */
static void refuse(cod_exchange *e, cod_status why)
{
    e->counters.rejected++;
    e->lost = e->refused = true;
    cod_log_warn("group %d: refused version %llu of group %d (%s): %s", cod_group_index(e->group),
                 (unsigned long long)e->pull_version, e->pulling->group, cod_status_name(why), cod_error_message());
}

static bool is_bad_data(cod_status status)
{
    return status == COD_ERR_FORMAT || status == COD_ERR_NUMERIC;
}

static void note_arrival(cod_exchange *e)
{
    cod_exchange_peer_counters *counters = &e->pulling->counters;
    e->counters.pulled_bytes += e->pulled.bytes;
    e->pull_bytes += e->pulled.bytes;
    e->pull_published_ms = e->pulled.published_ms;
    counters->timed_bytes += e->pulled.bytes;
    counters->timed_s += e->pulled.seconds;
    cod_coder_note_pull(&e->coder, e->pulled.bytes, e->pulled.seconds);
}

/** Decodes up to `chunks` chunks of the shard that has come. */
static cod_status decode(cod_exchange *e, uint64_t chunks)
{
    const held_peer *peer = e->pulling;
    const uint64_t first = e->decoder.range.first;
    /* What a delta is against: the publisher's version that is held now, or its checksum does not fit. */
    const float *held = peer->version > 0 ? exchange_floats(peer->values) + first : NULL;
    return cod_codec_decode(&e->decoder, e->pulled.data, e->pulled.bytes, held, chunks,
                            exchange_floats(peer->incoming) + first);
}

cod_status exchange_move_pull(cod_exchange *e, uint64_t chunks)
{
    const double begin = cod_clock_s();
    held_peer *peer = e->pulling;
    if (!e->arrived) {
        cod_pull_state state;
        const uint64_t before = e->pulled.bytes;
        const cod_status status = e->transport->ops->pull_poll(e->transport, &state, &e->pulled);
        if (is_bad_data(status)) {
            refuse(e, status);
            return COD_OK;
        }
        COD_TRY(status);
        if (state == COD_PULL_LOST) {
            e->counters.lost++;
            e->lost = true;
        }
        if (e->pulled.bytes != before)
            e->idle_s = 0;
        if (state != COD_PULL_DONE)
            return COD_OK;
        e->arrived = true;
        note_arrival(e);
        if (e->pull_life != EXCHANGE_ANY_LIFE && e->pulled.life != e->pull_life) {
            refuse(e,
                   cod_fail(COD_ERR_FORMAT,
                            "shard %d is of another life of its group than the version that was proposed: one of them "
                            "was made before its death, one after it",
                            e->shard));
            return COD_OK;
        }
        const cod_codec_range range = exchange_shard_range(&peer->model, e->shard, exchange_shards_of(e, peer->group));
        const cod_codec_key key = exchange_key(e, peer->group, e->pull_version, e->pulled.life);
        cod_codec_begin(&e->decoder, &range, &key);
    }
    const cod_status status = e->on_device != NULL ? exchange_device_open(e, chunks) : decode(e, chunks);
    e->idle_s = 0;
    e->counters.decode_s += cod_clock_s() - begin;
    if (is_bad_data(status)) {
        refuse(e, status);
        return COD_OK;
    }
    COD_TRY(status);
    return cod_codec_finished(&e->decoder) ? start_shard(e, e->shard + 1) : COD_OK;
}

/** Where the shards lie that ranks of the group share: decoded, or as plain chunks. */
static cod_status share_shards(cod_exchange *e)
{
    held_peer *peer = e->pulling;
    const int shards = exchange_shards_of(e, peer->group);
    if (e->on_device != NULL)
        return exchange_device_share(e);
    cod_group_part *parts = malloc((size_t)shards * sizeof *parts);
    COD_REQUIRE_MEMORY(parts);
    for (int k = 0; k < shards; k++) {
        const cod_codec_range range = exchange_shard_range(&peer->model, k, shards);
        parts[k] = (cod_group_part){
            .root = k % e->size, .offset = range.first * sizeof(float), .bytes = range.count * sizeof(float)};
    }
    const cod_status status =
        cod_group_share_start(e->group, exchange_floats(peer->incoming), parts, (size_t)shards, &e->gathering);
    free(parts);
    return status;
}

cod_status exchange_start_gather(cod_exchange *e, int64_t step)
{
    e->phase = GATHERING;
    e->phase_since = step;
    e->done = false;
    return e->size > 1 ? share_shards(e) : COD_OK;
}

cod_status exchange_move_gather(cod_exchange *e)
{
    bool shared = true;
    if (e->gathering != NULL)
        COD_TRY(cod_request_test(&e->gathering, &shared));
    if (!shared)
        return COD_OK;
    if (e->on_device == NULL) {
        e->done = true;
        return COD_OK;
    }
    const cod_status status = exchange_device_decode(e, &e->done);
    if (!is_bad_data(status))
        return status;
    refuse(e, status);
    return COD_OK;
}

void exchange_take_over(cod_exchange *e, int64_t step)
{
    held_peer *peer = e->pulling;
    cod_buffer *held = peer->values;
    peer->values = peer->incoming;
    peer->incoming = held;
    if (e->on_device != NULL)
        exchange_device_take_over(e);
    peer->version = e->pull_version;
    /* Not as the slot says: a rank that pulled no shard of a small peer has not seen it. */
    peer->step = (int64_t)e->pull_version * e->options.period;
    peer->pulled_at = step;
    peer->counters.pulled++;
    peer->published_ms = peer->incoming_ms;
    e->counters.pulled++;
    e->counters.switches++;
    e->phase = IDLE;
    e->pulling = NULL;
}

static void give_up(cod_exchange *e)
{
    e->pulling->refused = e->pull_version;
    e->transport->ops->pull_cancel(e->transport);
    e->phase = IDLE;
    e->pulling = NULL;
}

/**
 * How new a version is of use: where weights are merged, one whose own counterpart is there or comes next. A group that is
 * behind would else be given versions that its own never meet.
 */
static uint64_t newest_of_use(const cod_exchange *e, const held_peer *peer)
{
    if (e->options.merge != COD_MERGE_DELAY_CORRECTED || peer->model.hash != e->models[cod_group_index(e->group)].hash)
        return UINT64_MAX;
    return exchange_newest_own(e) + 1;
}

/**
 * Whether to look for news after this step: some times a period, two steps a peer, of which one asks and one has the answer. Looking
 * in every step moved a third as many bytes as the checkpoints themselves; a look moves 0.75 kB over TCP with 8 slots.
 */
static bool is_looking_step(const cod_exchange *e, int64_t step)
{
    enum { LOOKS = 4 };
    const int64_t each = e->options.period / LOOKS, asking = 2 * (int64_t)e->peer_count;
    return each <= asking || step % each < asking;
}

/** Rank 0: looks in turn whether a peer has something newer, and proposes it. */
static cod_status look_for_news(cod_exchange *e, int64_t step)
{
    if (e->proposed != NO_PEER || !is_looking_step(e, step))
        return COD_OK;
    held_peer *peer = &e->peers[e->turn];
    const cod_slot_identity expected = exchange_identity(e, peer->group, 0);
    uint64_t version, life = 0;
    const cod_status status =
        e->transport->ops->offer(e->transport, &expected, cod_group_world_rank(e->group, peer->group, 0), peer->version,
                                 peer->refused, newest_of_use(e, peer), &version, &life);
    if (is_bad_data(status)) {
        if (!peer->foreign) {
            cod_log_warn("group %d: group %d's checkpoints are of no use: %s", cod_group_index(e->group), peer->group,
                         cod_error_message());
            e->counters.rejected++;
            peer->counters.rejected++;
        }
        peer->foreign = true;
        e->turn = (e->turn + 1) % e->peer_count;
        return COD_OK;
    }
    COD_TRY(status);
    peer->foreign = peer->foreign && version == 0;
    if (version > peer->version && version > peer->refused) {
        e->proposed = e->turn;
        e->proposed_version = version;
        e->proposed_life = life & LIFE_MASK; /* what a peer says may be anything */
    }
    e->turn = (e->turn + 1) % e->peer_count;
    return COD_OK;
}

/** Chunks a step, so that `values` are through after about 1/`part` of a period. */
static uint64_t chunks_a_step(const cod_exchange *e, uint64_t values, int part)
{
    const uint64_t chunks = values / (uint64_t)e->options.chunk_values + 1,
                   steps = (uint64_t)(e->options.period + part - 1) / (uint64_t)part;
    return (chunks + steps - 1) / steps;
}

/**
 * Whether the pull has not moved for all of its patience. Between two looks at it lies a step of this rank, an evaluation or a pause of
 * the node, in which it cannot show that it moved: of each such time only a part counts, so that several looks must find it where it was.
 */
static bool pull_is_stuck(cod_exchange *e)
{
    enum { LEAST_LOOKS = 8 };
    const double now = cod_clock_s(), passed = now - e->polled_s, most = e->options.pull_timeout_s / LEAST_LOOKS;
    e->idle_s += passed < most ? passed : most;
    e->polled_s = now;
    return e->idle_s > e->options.pull_timeout_s;
}

static cod_status move_phase(cod_exchange *e, int64_t step)
{
    if (e->phase == IDLE)
        return e->rank == 0 && e->peer_count > 0 ? look_for_news(e, step) : COD_OK;
    if (e->phase == PULLING && !e->done && !e->lost) {
        COD_TRY(exchange_move_pull(e, chunks_a_step(e, e->pulling->model.count, DECODING)));
        if (pull_is_stuck(e) && !e->done && !e->lost) {
            e->counters.lost++;
            e->lost = true;
        }
    }
    return e->phase == GATHERING && !e->done && !e->lost ? exchange_move_gather(e) : COD_OK;
}

cod_status cod_exchange_advance(cod_exchange *e, int64_t step)
{
    const double begin = cod_clock_s();
    if (e->options.deterministic) {
        if (e->version > 0 && step == e->publish_step + e->options.lag_steps)
            COD_TRY(exchange_take_all(e, step));
    } else {
        e->counters.skipped += exchange_is_publication_step(e, step) && e->publish_step != step;
        /*
         * Not in the step that made the snapshot. On a device it has only queued the copy; at the end of the second step after it the
         * host reads a loss that was queued behind the copy, so that from the third on it does not wait. Whether the copy is done is
         * not asked: encoding must take the same steps on all ranks of the group, as its end decides what is merged when.
         */
        if (step > e->publish_step + (e->copied != NULL ? EXCHANGE_COPY_STEPS : 0))
            COD_TRY(exchange_encode_some(e, chunks_a_step(e, e->total, ENCODING)));
        COD_TRY(e->events != NULL ? exchange_replay_step(e, step) : move_phase(e, step));
    }
    e->counters.seconds += cod_clock_s() - begin;
    return COD_OK;
}

void cod_exchange_flags_out(const cod_exchange *e, double out[COD_EXCHANGE_FLAGS])
{
    memset(out, 0, COD_EXCHANGE_FLAGS * sizeof *out);
    if (exchange_waits(e))
        return;
    if (e->rank == 0) {
        out[FLAG_INTERVAL] = 1e3 * (cod_clock_s() - e->published_s) >= e->options.min_interval_ms;
        out[FLAG_PEER] = e->proposed + 1;
        out[FLAG_VERSION] = (double)e->proposed_version;
        out[FLAG_LIFE] = (double)e->proposed_life;
        out[FLAG_PUBLISHED] = (double)e->pull_published_ms;
        out[FLAG_NOW] = (double)exchange_wall_ms();
    }
    out[FLAG_DONE] = e->done;
    out[FLAG_LOST] = e->lost;
    out[FLAG_REFUSED] = e->refused;
    out[FLAG_BYTES] = (double)e->pull_bytes;
    out[FLAG_LEFT_OUT] = (double)exchange_left_out(e);
}

/** What all ranks of the group together pulled of a version, and how that ended. */
static void note_outcome(cod_exchange *e, const double in[COD_EXCHANGE_FLAGS])
{
    held_peer *peer = e->pulling;
    peer->counters.bytes += (uint64_t)in[FLAG_BYTES];
    if (in[FLAG_REFUSED] > 0)
        peer->counters.rejected++;
    else if (in[FLAG_LOST] > 0)
        peer->counters.lost++;
    else
        peer->incoming_ms = (uint64_t)in[FLAG_PUBLISHED];
}

/**
 * Readers never have a version of which any rank's shard was left out, nor then the deltas that follow: the next publication is a
 * key, of all ranks. @param count  of all ranks since the start
 */
static void note_left_out(cod_exchange *e, double count)
{
    if (count <= e->left_out)
        return;
    e->left_out = count;
    e->reference = 0;
    e->chain_broken = e->encoding != NULL; /* what is under way may be a delta against it */
}

cod_status cod_exchange_flags_in(cod_exchange *e, int64_t step, const double in[COD_EXCHANGE_FLAGS])
{
    if (exchange_waits(e))
        return COD_OK;
    /* Flags that were sent before the present phase began speak of the one before. */
    const bool current = step - AGREEMENT_DELAY >= e->phase_since;
    note_left_out(e, in[FLAG_LEFT_OUT]);
    e->now_ms = (uint64_t)in[FLAG_NOW];
    if (in[FLAG_INTERVAL] > 0 && step - AGREEMENT_DELAY > e->publish_step)
        e->interval_passed = true;
    if (e->phase == IDLE && in[FLAG_PEER] > 0) {
        held_peer *peer = &e->peers[(int)in[FLAG_PEER] - 1];
        const uint64_t version = (uint64_t)in[FLAG_VERSION];
        e->proposed = NO_PEER;
        if (version > peer->version && version > peer->refused)
            return exchange_start_pull(e, peer, version, (uint64_t)in[FLAG_LIFE], step);
        return COD_OK;
    }
    if (!current || e->phase == IDLE)
        return COD_OK;
    const bool all_done = (int)in[FLAG_DONE] == e->size;
    if (e->phase == PULLING && (all_done || in[FLAG_LOST] > 0))
        note_outcome(e, in);
    /* Ranks that still gather may not be disturbed: what one refuses then, all refuse. */
    const bool settled = e->phase == PULLING || (int)(in[FLAG_DONE] + in[FLAG_LOST]) == e->size;
    if (in[FLAG_LOST] > 0 && !settled)
        return COD_OK;
    if (in[FLAG_LOST] > 0 && e->phase == GATHERING)
        e->pulling->counters.rejected++;
    if (in[FLAG_LOST] > 0)
        give_up(e);
    else if (all_done && e->phase == PULLING && (e->size > 1 || e->on_device != NULL))
        return exchange_start_gather(e, step);
    else if (all_done)
        exchange_take_over(e, step);
    return COD_OK;
}
