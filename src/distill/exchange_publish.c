/* Publishing: one consistent copy, then its encoding a few chunks a step. */
#include "distill/exchange_internal.h"

#include "core/fingerprint.h"
#include "core/log.h"
#include "core/trace.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

cod_status exchange_publisher_init(exchange_publisher *p, const cod_exchange_options *options)
{
    const cod_codec_options codec = exchange_codec_options(options);
    p->fragments = cod_exchange_fragments(options);
    p->own_count = COD_EXCHANGE_OWN_KEPT * p->fragments;
    p->interval_passed = true;
    p->own = calloc((size_t)p->own_count, sizeof *p->own);
    p->chains = calloc((size_t)p->fragments, sizeof *p->chains);
    COD_REQUIRE_MEMORY(p->own);
    COD_REQUIRE_MEMORY(p->chains);
    cod_coder_init(&p->coder);
    COD_TRY(cod_codec_init(&p->encoder, &codec));
    return cod_codec_init(&p->mirror, &codec);
}

void exchange_publisher_clear(exchange_publisher *p)
{
    cod_codec_clear(&p->encoder);
    cod_codec_clear(&p->mirror);
    free(p->own);
    free(p->chains);
}

void exchange_publisher_pack(exchange_publisher *p, exchange_numbers *numbers)
{
    exchange_pack_u64(numbers, &p->version);
    exchange_pack_i64(numbers, &p->step);
    for (int f = 0; f < p->fragments; f++) {
        exchange_pack_u64(numbers, &p->chains[f].reference);
        exchange_pack_u64(numbers, &p->chains[f].since_key);
    }
    for (int i = 0; i < p->own_count; i++)
        exchange_pack_u64(numbers, &p->own[i].version);
    if (numbers->restoring)
        p->restored = p->version;
}

void exchange_note_print(exchange_publisher *p, uint64_t first, uint64_t fingerprint)
{
    p->print += fingerprint * (2 * first + 1);
}

void exchange_note_left_out(exchange_publisher *p, double count)
{
    if (count <= p->left_out)
        return;
    p->left_out = count;
    for (int f = 0; f < p->fragments; f++) /* which of them was left out is not told */
        p->chains[f].reference = 0;
    p->chain_broken = p->encoding != NULL; /* what is under way may be a delta against it */
}

bool exchange_is_publication_step(const cod_exchange *e, int64_t step)
{
    return e->options.codec != 0 && step > 0 && step % cod_exchange_spacing(&e->options) == 0 && e->peer_count > 0;
}

bool cod_exchange_publish_due(const cod_exchange *e, int64_t step)
{
    if (e->events != NULL)
        return exchange_replays_publication(e, step);
    return exchange_is_publication_step(e, step) && (e->options.deterministic || e->publisher.interval_passed);
}

uint64_t exchange_wall_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

cod_status cod_exchange_use_device(cod_exchange *e, const cod_backend *backend, cod_device *device)
{
    const bool at_once = cod_backend_runs_at_once(backend);
    double devices = !at_once;
    /* One rank may have a device, and another could not open its own: then nobody shares. */
    if (e->shared != NULL)
        COD_TRY(cod_group_reduce(e->group, &devices, 1, COD_REDUCE_SUM));
    if (devices == 0 || (at_once && e->shared == NULL))
        return COD_OK;
    exchange_free_values(e);
    if (at_once)
        return exchange_make_values(e);
    e->backend = backend;
    e->device = device;
    COD_TRY(cod_event_create(backend, device, &e->copied));
    return exchange_device_create(e);
}

own_version *exchange_own_of(cod_exchange *e, uint64_t version)
{
    return &e->publisher.own[version % (uint64_t)e->publisher.own_count];
}

exchange_chain *exchange_chain_now(const cod_exchange *e)
{
    return &e->publisher.chains[exchange_fragment_of(e, e->publisher.version)];
}

uint64_t exchange_first_now(const cod_exchange *e)
{
    return cod_exchange_fragment_range(&e->options, &e->models[cod_group_index(e->group)],
                                       exchange_fragment_of(e, e->publisher.version))
        .first;
}

/** What moves the fragment that was begun last. */
static cod_transport *transport_now(const cod_exchange *e)
{
    return e->transports[exchange_fragment_of(e, e->publisher.version)];
}

cod_status exchange_try_coders(cod_exchange *e, uint64_t before)
{
    const uint64_t spread = UINT64_C(0x9E3779B97F4A7C15);
    const uint64_t at = (e->publisher.version * spread >> 11) % e->publisher.encoder.range.count;
    cod_codec_trial trial;
    if (!exchange_chooses_coder(e) || at < before || at >= e->publisher.encoder.done)
        return COD_OK;
    COD_TRY(cod_codec_try_coders(&e->publisher.encoder, &trial));
    cod_coder_note_trial(&e->publisher.coder, &trial);
    return COD_OK;
}

/** Before a key: readers may come from anywhere then, and what follows is alike. */
static void choose_coder(cod_exchange *e)
{
    if (!exchange_chooses_coder(e) || !cod_coder_decide(&e->publisher.coder))
        return;
    if (e->rank == 0)
        cod_log_info("group %d: from version %llu on chunks are shortened by %s, not %s: pulls move %.4g MB/s",
                     cod_group_index(e->group), (unsigned long long)e->publisher.version,
                     cod_coder_name(e->publisher.coder.current), cod_coder_name(e->publisher.encoder.options.entropy),
                     1e-6 * cod_coder_link(&e->publisher.coder));
    e->publisher.encoder.options.entropy = e->publisher.coder.current;
}

/** The own shard is encoded: readers may have it. */
static cod_status end_shard(cod_exchange *e)
{
    const cod_slot_entry entry = {.version = e->publisher.version,
                                  .reference = e->publisher.against,
                                  .life = exchange_life(e),
                                  .bytes = e->publisher.encoder.bytes,
                                  .published_ms = e->publisher.published_ms};
    COD_TRY(transport_now(e)->ops->publish_end(transport_now(e), &entry));
    e->counters.published++;
    e->counters.published_bytes += e->publisher.encoder.bytes;
    return COD_OK;
}

/** What readers decode is known of all of the model. */
static void end_publication(cod_exchange *e)
{
    e->publisher.encoding->version = e->publisher.version;
    exchange_chain *chain = exchange_chain_now(e);
    chain->reference = e->publisher.chain_broken ? 0 : e->publisher.version;
    chain->since_key = e->publisher.against > 0 ? chain->since_key + 1 : 0;
    e->publisher.encoding = NULL;
    e->publisher.print_of = e->publisher.print * UINT64_C(0x9E3779B97F4A7C15) >> (64 - EXCHANGE_PRINT_BITS);
}

/** A value is not finite. The slot stays open: nobody reads this version, and training notices a NaN by itself. */
static void skip_publication(cod_exchange *e)
{
    e->counters.skipped++;
    exchange_chain *chain = exchange_chain_now(e);
    if (chain->reference > 0 && e->publisher.encoding == exchange_own_of(e, chain->reference))
        chain->reference = 0; /* it was being replaced */
    e->publisher.encoding = NULL;
}

void exchange_end_waiting(cod_exchange *e, double waiting, double unfit)
{
    if ((int)waiting != e->size)
        return;
    e->publisher.waiting = false;
    if (unfit > 0)
        skip_publication(e);
    else
        end_publication(e);
}

/** This rank has done its part. */
static void wait_for_group(exchange_publisher *p, bool unfit)
{
    p->waiting = true;
    p->unfit = unfit;
}

static bool is_of_this_node(const cod_exchange *e, int shard)
{
    return cod_group_node_of(e->group, shard) == cod_group_node_of(e->group, e->rank);
}

/** Whether this rank encodes the shard: its own, and its part of the mirrors that its node needs. */
static bool encodes(const cod_exchange *e, int shard)
{
    int mirrors = 0;
    if (e->shared == NULL || shard == e->rank)
        return true;
    if (is_of_this_node(e, shard))
        return false;
    for (int k = 0; k < shard; k++)
        mirrors += !is_of_this_node(e, k);
    return mirrors % e->holders.count == e->holders.place;
}

/** From that shard on; of the own group. */
static int next_encoded(const cod_exchange *e, int shard)
{
    while (shard < e->size && !encodes(e, shard))
        shard++;
    return shard;
}

/** Encodes a chunk of the shard that is next, of the own one to its bytes. */
static cod_status encode_chunk(cod_exchange *e)
{
    const int mine = cod_group_index(e->group);
    const int fragment = exchange_fragment_of(e, e->publisher.version);
    const cod_codec_range range =
        exchange_shard_range(&e->options, &e->models[mine], fragment, e->publisher.encoded_shards, e->size);
    const uint64_t at = range.first - exchange_first_now(e);
    const bool own = e->publisher.encoded_shards == e->rank;
    cod_codec *codec = own ? &e->publisher.encoder : &e->publisher.mirror;
    if (codec->done == 0 || codec->range.first != range.first || codec->key.version != e->publisher.version)
        cod_codec_begin(codec, &range, &e->publisher.key);
    const float *values =
        exchange_floats(e->publisher.snapshot) + range.first - exchange_snapshot_range(e, fragment).first;
    const float *against =
        e->publisher.against > 0 ? exchange_floats(exchange_own_of(e, e->publisher.against)->values) + at : NULL;
    float *decoded = exchange_floats(e->publisher.encoding->values) + at;
    const uint64_t before = codec->done;
    if (own)
        COD_TRY(cod_codec_encode(codec, values, against, 1, e->publisher.room, cod_codec_bound(&codec->options, &range),
                                 decoded));
    else
        COD_TRY(cod_codec_round_trip(codec, values, against, 1, decoded));
    if (e->shared == NULL)
        exchange_note_print(&e->publisher, range.first + before,
                            cod_fingerprint(decoded + before, codec->done - before));
    if (own && range.count > 0)
        COD_TRY(exchange_try_coders(e, before));
    if (!cod_codec_finished(codec))
        return COD_OK;
    if (own)
        COD_TRY(end_shard(e));
    codec->done = 0;
    e->publisher.encoded_shards = next_encoded(e, e->publisher.encoded_shards + 1);
    if (e->publisher.encoded_shards == e->size && e->shared != NULL)
        wait_for_group(&e->publisher, false);
    else if (e->publisher.encoded_shards == e->size)
        end_publication(e);
    return COD_OK;
}

/** What QUANTISE made: fetched first, then each chunk of the own shard is sealed. */
static cod_status seal_some(cod_exchange *e, uint64_t chunks)
{
    bool fetched;
    COD_TRY(exchange_device_fetch(e, chunks == UINT64_MAX, &fetched));
    for (; fetched && chunks > 0 && !cod_codec_finished(&e->publisher.encoder); chunks--)
        COD_TRY(exchange_device_seal(e));
    if (!fetched || !cod_codec_finished(&e->publisher.encoder))
        return COD_OK;
    COD_TRY(end_shard(e));
    exchange_device_end(e);
    end_publication(e);
    return COD_OK;
}

/** Whether this rank has some of the publication left to encode. */
static bool is_encoding(const exchange_publisher *p)
{
    return p->encoding != NULL && !p->waiting;
}

cod_status exchange_encode_some(cod_exchange *e, uint64_t chunks)
{
    if (!is_encoding(&e->publisher))
        return COD_OK;
    COD_TRY(cod_event_wait(e->backend, e->copied));
    const double begin = cod_clock_s();
    cod_status status = e->on_device != NULL ? seal_some(e, chunks) : COD_OK;
    for (; e->on_device == NULL && is_encoding(&e->publisher) && chunks > 0 && status == COD_OK; chunks--)
        status = encode_chunk(e);
    if (status == COD_ERR_NUMERIC && e->shared != NULL) {
        wait_for_group(&e->publisher, true);
        status = COD_OK;
    } else if (status == COD_ERR_NUMERIC) {
        skip_publication(e);
        status = e->on_device != NULL ? exchange_device_skip(e) : COD_OK;
    }
    e->counters.encode_s += cod_clock_s() - begin;
    return status;
}

cod_status exchange_finish_publication(cod_exchange *e)
{
    if (e->publisher.encoding != NULL && e->shared != NULL && exchange_sends_shards(e))
        COD_TRY(cod_group_barrier(e->group)); /* mirrors are made of what other ranks put into the snapshot */
    COD_TRY(exchange_encode_some(e, UINT64_MAX));
    if (!e->publisher.waiting)
        return COD_OK;
    double unfit = e->publisher.unfit;
    COD_TRY(cod_group_reduce(e->group, &unfit, 1, COD_REDUCE_SUM));
    exchange_end_waiting(e, e->size, unfit);
    return COD_OK;
}

/** Deterministic, replay: waits until those who read this rank have taken what the next slot holds. */
static cod_status wait_for_readers(cod_exchange *e)
{
    const int groups = cod_group_count(e->group), mine = cod_group_index(e->group);
    const int fragment = exchange_fragment_of(e, e->publisher.version);
    cod_transport *transport = transport_now(e);
    const uint64_t oldest = transport->ops->oldest(transport);
    exchange_waiting waiting = exchange_wait_begin();
    for (int i = 1; i < groups; i++) {
        const int reader = (mine + groups - i) % groups;
        uint64_t taken = 0;
        if (!cod_exchange_reads(&e->options, groups, reader, mine))
            continue;
        while (taken < oldest) {
            const cod_slot_identity identity = exchange_identity(e, reader, fragment, 0);
            COD_TRY(transport->ops->acknowledged(transport, &identity, cod_group_world_rank(e->group, reader, 0),
                                                 (uint32_t)mine, &taken));
            if (exchange_wait_is_over(e, &waiting, reader, "take", oldest))
                return cod_fail(COD_ERR_PEER,
                                "group %d did not take version %llu within %.0f s, for which this group waits", reader,
                                (unsigned long long)oldest, exchange_patience_s(e));
            sched_yield();
        }
    }
    return COD_OK;
}

/**
 * Whether readers may hold another version of this number: one that this group published, was killed and now, resumed from
 * before it, has made again. In step with it they were resumed, too.
 */
static bool is_ambiguous(const cod_exchange *e, uint64_t version)
{
    return !exchange_waits(e) && version > e->publisher.restored && version <= e->publisher.left;
}

/** What nothing follows must stand alone: who begins later has no delta's reference. */
static bool is_last(const cod_exchange *e, int64_t step)
{
    return !e->options.deterministic && e->options.last_step > 0 && step + e->options.period > e->options.last_step;
}

cod_status cod_exchange_snapshot(cod_exchange *e, int64_t step, cod_exchange_part *part)
{
    const int fragment = exchange_fragment_of(e, (uint64_t)(step / cod_exchange_spacing(&e->options)));
    const cod_codec_range range = exchange_snapshot_range(e, fragment);
    *part = (cod_exchange_part){
        .values = e->publisher.snapshot,
        .first = range.first,
        .count = range.count,
        .fragment = cod_exchange_fragment_range(&e->options, &e->models[cod_group_index(e->group)], fragment),
        .wants_fingerprint = e->shared != NULL};
    COD_TRY(exchange_finish_publication(e));
    if (e->shared != NULL) /* the other ranks' parts lie beside this one's */
        *e->publisher.snapshot =
            (cod_buffer){.host = e->publisher.snapshot_of_node + range.first - part->fragment.first,
                         .bytes = range.count * sizeof(float)};
    return COD_OK;
}

cod_status cod_exchange_publish(cod_exchange *e, int64_t step, uint64_t fingerprint)
{
    const double begin = cod_clock_s();
    const int64_t spacing = cod_exchange_spacing(&e->options);
    COD_REQUIRE(step > e->publisher.step && step % spacing == 0,
                "step %lld is no step to publish after: the last was %lld, one comes every %lld", (long long)step,
                (long long)e->publisher.step, (long long)spacing);
    COD_REQUIRE(e->publisher.encoding == NULL, "version %llu is still being encoded from the snapshot",
                (unsigned long long)e->publisher.version);
    if (e->on_device == NULL)
        COD_TRY(cod_event_record(e->backend, e->copied, NULL));
    e->publisher.version = (uint64_t)(step / spacing);
    e->publisher.key = exchange_key(e, cod_group_index(e->group), e->publisher.version, exchange_life(e));
    e->publisher.step = step;
    /* The same on every rank of the group: all make the same publications of the same weights. */
    const exchange_chain *chain = exchange_chain_now(e);
    const bool key = !exchange_makes_deltas(&e->options) || chain->since_key + 1 >= (uint64_t)e->options.key_every ||
                     is_ambiguous(e, chain->reference) || is_last(e, step);
    e->publisher.against = key ? 0 : chain->reference;
    if (key)
        choose_coder(e);
    if (exchange_waits(e))
        COD_TRY(wait_for_readers(e));
    e->publisher.encoding = exchange_own_of(e, e->publisher.version);
    e->publisher.encoding->version = 0;
    e->publisher.print = e->shared != NULL ? fingerprint : 0;
    e->publisher.chain_broken = false;
    e->publisher.encoded_shards = next_encoded(e, 0);
    e->publisher.encoder.done = e->publisher.mirror.done = 0;
    e->publisher.published_s = cod_clock_s();
    e->publisher.published_ms = exchange_waits(e) ? 0 : exchange_wall_ms(); /* bytes that replay name no time */
    e->publisher.interval_passed = e->options.min_interval_ms == 0;
    COD_TRY(transport_now(e)->ops->publish_begin(transport_now(e), &e->publisher.room));
    if (e->on_device != NULL)
        COD_TRY(exchange_device_quantise(e));
    if (e->options.deterministic)
        COD_TRY(exchange_finish_publication(e));
    e->counters.seconds += cod_clock_s() - begin;
    return COD_OK;
}
