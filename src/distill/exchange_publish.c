/* Publishing: one consistent copy, then its encoding a few chunks a step. */
#include "distill/exchange_internal.h"

#include "core/fingerprint.h"
#include "core/log.h"
#include "core/trace.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

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
    return e->setup.options.codec != 0 && step > 0 && step % cod_exchange_spacing(&e->setup.options) == 0 &&
           e->puller.peer_count > 0;
}

bool cod_exchange_publish_due(const cod_exchange *e, int64_t step)
{
    if (e->events != NULL)
        return exchange_replays_publication(e, step);
    return exchange_is_publication_step(e, step) && (e->setup.options.deterministic || e->publisher.interval_passed);
}

own_version *exchange_own_of(cod_exchange *e, uint64_t version)
{
    return &e->publisher.own[version % (uint64_t)e->publisher.own_count];
}

exchange_chain *exchange_chain_now(const cod_exchange *e)
{
    return &e->publisher.chains[exchange_fragment_of(&e->setup, e->publisher.version)];
}

uint64_t exchange_first_now(const cod_exchange *e)
{
    return cod_exchange_fragment_range(&e->setup.options, exchange_own_model(&e->setup),
                                       exchange_fragment_of(&e->setup, e->publisher.version))
        .first;
}

/** What moves the fragment that was begun last. */
static cod_transport *transport_now(const cod_exchange *e)
{
    return e->setup.transports[exchange_fragment_of(&e->setup, e->publisher.version)];
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
    if (e->setup.rank == 0)
        cod_log_info("group %d: from version %llu on chunks are shortened by %s, not %s: pulls move %.4g MB/s",
                     e->setup.mine, (unsigned long long)e->publisher.version,
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

void exchange_end_waiting(cod_exchange *e, int waiting, int unfit)
{
    if (waiting != e->setup.size)
        return;
    e->publisher.waiting = false;
    if (unfit > 0)
        skip_publication(e);
    else
        end_publication(e);
}

exchange_publication exchange_publication_of(const cod_exchange *e)
{
    const exchange_publisher *p = &e->publisher;
    const double since_ms = 1e3 * (cod_clock_s() - p->published_s);
    return (exchange_publication){.print = p->print_of,
                                  .waiting = p->waiting,
                                  .unfit = p->unfit,
                                  .interval_passed = since_ms >= e->setup.options.min_interval_ms / e->setup.fragments,
                                  .left_out = exchange_left_out(e)};
}

void exchange_hear_publications(cod_exchange *e, const exchange_publications *all)
{
    exchange_publisher *p = &e->publisher;
    if (p->waiting && all->step >= p->step) /* else it may be of the publication before */
        exchange_end_waiting(e, all->waiting, all->unfit);
    if (e->setup.waits)
        return;
    exchange_note_left_out(p, all->left_out);
    if (all->interval_passed && all->step > p->step)
        p->interval_passed = true;
}

/** This rank has done its part. */
static void wait_for_group(exchange_publisher *p, bool unfit)
{
    p->waiting = true;
    p->unfit = unfit;
}

static bool is_of_this_node(const cod_exchange *e, int shard)
{
    return cod_group_node_of(e->setup.group, shard) == cod_group_node_of(e->setup.group, e->setup.rank);
}

/** Whether this rank encodes the shard: its own, and its part of the mirrors that its node needs. */
static bool encodes(const cod_exchange *e, int shard)
{
    int mirrors = 0;
    if (e->setup.shared == NULL || shard == e->setup.rank)
        return true;
    if (is_of_this_node(e, shard))
        return false;
    for (int k = 0; k < shard; k++)
        mirrors += !is_of_this_node(e, k);
    return mirrors % e->setup.holders.count == e->setup.holders.place;
}

/** From that shard on; of the own group. */
static int next_encoded(const cod_exchange *e, int shard)
{
    while (shard < e->setup.size && !encodes(e, shard))
        shard++;
    return shard;
}

/** Encodes a chunk of the shard that is next, of the own one to its bytes. */
static cod_status encode_chunk(cod_exchange *e)
{
    const int fragment = exchange_fragment_of(&e->setup, e->publisher.version);
    const cod_codec_range range = exchange_range_of(&e->setup, e->setup.mine, fragment, e->publisher.encoded_shards);
    const uint64_t at = range.first - exchange_first_now(e);
    const bool own = e->publisher.encoded_shards == e->setup.rank;
    cod_codec *codec = own ? &e->publisher.encoder : &e->publisher.mirror;
    if (codec->done == 0 || codec->range.first != range.first || codec->key.version != e->publisher.version)
        cod_codec_begin(codec, &range, &e->publisher.key);
    const float *values =
        exchange_floats(e->publisher.snapshot) + range.first - exchange_snapshot_range(&e->setup, fragment).first;
    const float *against =
        e->publisher.against > 0 ? exchange_floats(exchange_own_of(e, e->publisher.against)->values) + at : NULL;
    float *decoded = exchange_floats(e->publisher.encoding->values) + at;
    const uint64_t before = codec->done;
    if (own)
        COD_TRY(cod_codec_encode(codec, values, against, 1, e->publisher.room, cod_codec_bound(&codec->options, &range),
                                 decoded));
    else
        COD_TRY(cod_codec_round_trip(codec, values, against, 1, decoded));
    if (e->setup.shared == NULL)
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
    if (e->publisher.encoded_shards == e->setup.size && e->setup.shared != NULL)
        wait_for_group(&e->publisher, false);
    else if (e->publisher.encoded_shards == e->setup.size)
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
    COD_TRY(cod_event_wait(e->setup.backend, e->copied));
    const double begin = cod_clock_s();
    cod_status status = e->setup.codes_on_device ? seal_some(e, chunks) : COD_OK;
    for (; !e->setup.codes_on_device && is_encoding(&e->publisher) && chunks > 0 && status == COD_OK; chunks--)
        status = encode_chunk(e);
    if (status == COD_ERR_NUMERIC && e->setup.shared != NULL) {
        wait_for_group(&e->publisher, true);
        status = COD_OK;
    } else if (status == COD_ERR_NUMERIC) {
        skip_publication(e);
        status = e->setup.codes_on_device ? exchange_device_skip(e) : COD_OK;
    }
    e->counters.encode_s += cod_clock_s() - begin;
    return status;
}

cod_status exchange_finish_publication(cod_exchange *e)
{
    if (e->publisher.encoding != NULL && e->setup.shared != NULL && exchange_sends_shards(&e->setup))
        COD_TRY(cod_group_barrier(e->setup.group)); /* mirrors are made of what other ranks put into the snapshot */
    COD_TRY(exchange_encode_some(e, UINT64_MAX));
    if (!e->publisher.waiting)
        return COD_OK;
    double unfit = e->publisher.unfit;
    COD_TRY(cod_group_reduce(e->setup.group, &unfit, 1, COD_REDUCE_SUM));
    exchange_end_waiting(e, e->setup.size, (int)unfit);
    return COD_OK;
}

/** Deterministic, replay: waits until those who read this rank have taken what the next slot holds. */
static cod_status wait_for_readers(cod_exchange *e)
{
    const int groups = e->setup.groups, mine = e->setup.mine;
    const int fragment = exchange_fragment_of(&e->setup, e->publisher.version);
    cod_transport *transport = transport_now(e);
    const uint64_t oldest = transport->ops->oldest(transport);
    exchange_waiting waiting = exchange_wait_begin();
    for (int i = 1; i < groups; i++) {
        const int reader = (mine + groups - i) % groups;
        uint64_t taken = 0;
        if (!cod_exchange_reads(&e->setup.options, groups, reader, mine))
            continue;
        const cod_slot_identity identity = exchange_identity(&e->setup, reader, fragment, 0);
        while (taken < oldest) {
            COD_TRY(transport->ops->acknowledged(transport, &identity, exchange_world_rank(&e->setup, reader, 0),
                                                 (uint32_t)mine, &taken));
            if (exchange_wait_is_over(&e->setup, &waiting, reader, "take", oldest))
                return cod_fail(COD_ERR_PEER,
                                "group %d did not take version %llu within %.0f s, for which this group waits", reader,
                                (unsigned long long)oldest, exchange_patience_s(&e->setup));
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
    return !e->setup.waits && version > e->publisher.restored && version <= e->publisher.left;
}

/** What nothing follows must stand alone: who begins later has no delta's reference. */
static bool is_last(const cod_exchange *e, int64_t step)
{
    return !e->setup.options.deterministic && e->setup.options.last_step > 0 &&
           step + e->setup.options.period > e->setup.options.last_step;
}

cod_status cod_exchange_snapshot(cod_exchange *e, int64_t step, cod_exchange_part *part)
{
    const int fragment = exchange_fragment_of(&e->setup, (uint64_t)(step / cod_exchange_spacing(&e->setup.options)));
    const cod_codec_range range = exchange_snapshot_range(&e->setup, fragment);
    *part = (cod_exchange_part){
        .values = e->publisher.snapshot,
        .first = range.first,
        .count = range.count,
        .fragment = cod_exchange_fragment_range(&e->setup.options, exchange_own_model(&e->setup), fragment),
        .wants_fingerprint = e->setup.shared != NULL};
    COD_TRY(exchange_finish_publication(e));
    if (e->setup.shared != NULL) /* the other ranks' parts lie beside this one's */
        *e->publisher.snapshot =
            (cod_buffer){.host = e->publisher.snapshot_of_node + range.first - part->fragment.first,
                         .bytes = range.count * sizeof(float)};
    return COD_OK;
}

cod_status cod_exchange_publish(cod_exchange *e, int64_t step, uint64_t fingerprint)
{
    const double begin = cod_clock_s();
    const int64_t spacing = cod_exchange_spacing(&e->setup.options);
    COD_REQUIRE(step > e->publisher.step && step % spacing == 0,
                "step %lld is no step to publish after: the last was %lld, one comes every %lld", (long long)step,
                (long long)e->publisher.step, (long long)spacing);
    COD_REQUIRE(e->publisher.encoding == NULL, "version %llu is still being encoded from the snapshot",
                (unsigned long long)e->publisher.version);
    if (!e->setup.codes_on_device)
        COD_TRY(cod_event_record(e->setup.backend, e->copied, NULL));
    e->publisher.version = (uint64_t)(step / spacing);
    e->publisher.key = exchange_key(&e->setup, e->setup.mine, e->publisher.version, exchange_life(e));
    e->publisher.step = step;
    /* The same on every rank of the group: all make the same publications of the same weights. */
    const exchange_chain *chain = exchange_chain_now(e);
    const bool key = !exchange_makes_deltas(&e->setup.options) ||
                     chain->since_key + 1 >= (uint64_t)e->setup.options.key_every ||
                     is_ambiguous(e, chain->reference) || is_last(e, step);
    e->publisher.against = key ? 0 : chain->reference;
    if (key)
        choose_coder(e);
    if (e->setup.waits)
        COD_TRY(wait_for_readers(e));
    e->publisher.encoding = exchange_own_of(e, e->publisher.version);
    e->publisher.encoding->version = 0;
    e->publisher.print = e->setup.shared != NULL ? fingerprint : 0;
    e->publisher.chain_broken = false;
    e->publisher.encoded_shards = next_encoded(e, 0);
    e->publisher.encoder.done = e->publisher.mirror.done = 0;
    e->publisher.published_s = cod_clock_s();
    e->publisher.published_ms = e->setup.waits ? 0 : exchange_wall_ms(); /* bytes that replay name no time */
    e->publisher.interval_passed = e->setup.options.min_interval_ms == 0;
    COD_TRY(transport_now(e)->ops->publish_begin(transport_now(e), &e->publisher.room));
    if (e->setup.codes_on_device)
        COD_TRY(exchange_device_quantise(e));
    if (e->setup.options.deterministic)
        COD_TRY(exchange_finish_publication(e));
    e->counters.seconds += cod_clock_s() - begin;
    return COD_OK;
}
