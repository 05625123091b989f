/* Publishing: one consistent copy, then its encoding a few chunks a step. */
#include "exchange/pace_internal.h"
#include "exchange/publisher_internal.h"

#include "core/fingerprint.h"
#include "core/log.h"
#include "core/trace.h"

#include <stdlib.h>
#include <string.h>

cod_status exchange_publisher_init(exchange_publisher *p, const exchange_setup *setup)
{
    const cod_codec_options codec = exchange_codec_options(&setup->options);
    *p = (exchange_publisher){
        .setup = setup, .own_count = COD_EXCHANGE_OWN_KEPT * setup->fragments, .interval_passed = true};
    p->own = calloc((size_t)p->own_count, sizeof *p->own);
    p->chains = calloc((size_t)setup->fragments, sizeof *p->chains);
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
    for (int f = 0; f < p->setup->fragments; f++) {
        exchange_pack_u64(numbers, &p->chains[f].reference);
        exchange_pack_u64(numbers, &p->chains[f].since_key);
    }
    for (int i = 0; i < p->own_count; i++)
        exchange_pack_u64(numbers, &p->own[i].version);
    if (numbers->restoring)
        p->restored = p->version;
}

cod_status exchange_publisher_check(const exchange_publisher *p)
{
    bool sound = exchange_is_step_of(p->setup, exchange_fragment_now(p), p->version, p->step);
    for (int f = 0; f < p->setup->fragments; f++) {
        const exchange_chain *chain = &p->chains[f];
        sound = sound && chain->since_key <= p->version && chain->reference <= p->version &&
                (chain->reference == 0 || exchange_fragment_of(p->setup, chain->reference) == f);
    }
    for (int i = 0; i < p->own_count; i++) {
        const uint64_t version = p->own[i].version;
        sound = sound && version <= p->version && (version == 0 || exchange_own_of(p, version) == &p->own[i]);
    }
    return sound ? COD_OK : cod_fail(COD_ERR_FORMAT, "what the checkpoint says of the group's versions makes no sense");
}

/**
 * Makes the next publication of all ranks a key: readers never get a version of which any rank's shard was left out,
 * so they cannot use deltas that follow it.
 *
 * @param count  shards that were left out since the start, of all ranks
 */
static void note_left_out(exchange_publisher *p, double count)
{
    if (count <= p->left_out)
        return;
    p->left_out = count;
    for (int f = 0; f < p->setup->fragments; f++) /* which of them was left out is not told */
        p->chains[f].reference = 0;
    p->chain_broken = p->encoding != NULL; /* what is under way may be a delta against it */
}

bool exchange_publisher_is_due(const exchange_publisher *p, int64_t step)
{
    return p->setup->publishes && step > 0 && step % cod_exchange_spacing(&p->setup->options) == 0;
}

/** Whether the entropy coder is chosen by what is measured: bytes that replay must not depend on time. */
static bool chooses_coder(const exchange_publisher *p)
{
    return p->setup->options.codec == COD_EXCHANGE_AUTO && !p->setup->waits;
}

/** The life that chunks are sealed with: 0 where a repeated run must publish the same bytes. */
static uint64_t life_of(const exchange_publisher *p)
{
    return p->setup->waits ? 0 : p->setup->life;
}

/** Of the fragment that was begun last. */
static cod_transport *transport_now(const exchange_publisher *p)
{
    return p->setup->transports[exchange_fragment_now(p)];
}

/**
 * Tries all entropy coders on the chunk of the own shard that was encoded last, where it is the one chosen for this
 * version.
 *
 * @param before  values of the shard that were encoded before that chunk
 */
static cod_status try_coders(exchange_publisher *p, uint64_t before)
{
    const uint64_t spread = UINT64_C(0x9E3779B97F4A7C15);
    cod_codec_trial trial;
    if (!chooses_coder(p) || p->encoder.done == before)
        return COD_OK;
    const uint64_t at = (p->version * spread >> 11) % p->encoder.range.count;
    if (at < before || at >= p->encoder.done)
        return COD_OK;
    COD_TRY(cod_codec_try_coders(&p->encoder, &trial));
    cod_coder_note_trial(&p->coder, &trial);
    return COD_OK;
}

/**
 * Changes the entropy coder where measurements ask for it: before a key, so that a key and its deltas have one coder.
 */
static void choose_coder(exchange_publisher *p)
{
    if (!chooses_coder(p) || !cod_coder_decide(&p->coder))
        return;
    if (p->setup->rank == 0)
        cod_log_info("group %d: from version %llu on chunks are shortened by %s, not %s: pulls move %.4g MB/s",
                     p->setup->mine, (unsigned long long)p->version, cod_coder_name(p->coder.current),
                     cod_coder_name(p->encoder.options.entropy), 1e-6 * cod_coder_link(&p->coder));
    p->encoder.options.entropy = p->coder.current;
}

/** The own shard is encoded: readers may pull it. */
static cod_status end_shard(exchange_publisher *p)
{
    const cod_slot_entry entry = {.version = p->version,
                                  .reference = p->against,
                                  .life = life_of(p),
                                  .bytes = p->encoder.bytes,
                                  .published_ms = p->published_ms};
    COD_TRY(transport_now(p)->ops->publish_end(transport_now(p), &entry));
    p->counters.published++;
    p->counters.published_bytes += p->encoder.bytes;
    return COD_OK;
}

/** All shards are encoded: readers may decode the version, and a merge may subtract it. */
static void end_publication(exchange_publisher *p)
{
    p->encoding->version = p->version;
    exchange_chain *chain = exchange_chain_now(p);
    chain->reference = p->chain_broken ? 0 : p->version;
    chain->since_key = p->against > 0 ? chain->since_key + 1 : 0;
    p->encoding = NULL;
    p->print_of = p->print * UINT64_C(0x9E3779B97F4A7C15) >> (64 - EXCHANGE_PRINT_BITS);
}

/** A value is not finite. The slot stays open: nobody reads this version, and training notices a NaN by itself. */
static void skip_publication(exchange_publisher *p)
{
    p->counters.skipped++;
    exchange_chain *chain = exchange_chain_now(p);
    if (chain->reference > 0 && (chain->decoded != NULL || p->encoding == exchange_own_of(p, chain->reference)))
        chain->reference = 0; /* what readers hold of it was being replaced */
    p->encoding = NULL;
}

/**
 * Values held once: acts on what all ranks said of the publication under way.
 *
 * @param waiting,unfit  how many ranks have encoded their shard; how many of them met a value that is not finite
 */
static void end_waiting(exchange_publisher *p, int waiting, int unfit)
{
    if (waiting != p->setup->size)
        return;
    p->waiting = false;
    if (unfit > 0)
        skip_publication(p);
    else
        end_publication(p);
}

exchange_publication exchange_publisher_report(const exchange_publisher *p)
{
    const double since_ms = 1e3 * (cod_clock_s() - p->published_s);
    return (exchange_publication){.print = p->print_of,
                                  .waiting = p->waiting,
                                  .unfit = p->unfit,
                                  .interval_passed =
                                      since_ms >= p->setup->options.min_interval_ms / p->setup->fragments,
                                  .left_out = exchange_left_out(p->setup)};
}

void exchange_publisher_hear(exchange_publisher *p, const exchange_publications *all)
{
    if (p->waiting && all->step >= p->step) /* else it may be of the publication before */
        end_waiting(p, all->waiting, all->unfit);
    if (p->setup->waits)
        return;
    note_left_out(p, all->left_out);
    if (all->interval_passed && all->step > p->step)
        p->interval_passed = true;
}

/** This rank has encoded its shards; exchange_publisher_hear() ends the publication when all ranks have. */
static void wait_for_group(exchange_publisher *p, bool unfit)
{
    p->waiting = true;
    p->unfit = unfit;
}

static bool is_of_this_node(const exchange_publisher *p, int shard)
{
    return cod_group_node_of(p->setup->group, shard) == cod_group_node_of(p->setup->group, p->setup->rank);
}

/** Whether this rank encodes the shard: its own, and its part of the mirrors that its node needs. */
static bool encodes(const exchange_publisher *p, int shard)
{
    int mirrors = 0;
    if (p->setup->shared == NULL || shard == p->setup->rank)
        return true;
    if (is_of_this_node(p, shard))
        return false;
    for (int k = 0; k < shard; k++)
        mirrors += !is_of_this_node(p, k);
    return mirrors % p->setup->holders.count == p->setup->holders.place;
}

/**
 * The first shard of the own group, from `shard` on, that this rank encodes; the number of shards where there is none.
 */
static int next_encoded(const exchange_publisher *p, int shard)
{
    while (shard < p->setup->size && !encodes(p, shard))
        shard++;
    return shard;
}

/** Encodes a chunk of the shard that is next, of the own one to its bytes. */
static cod_status encode_chunk(exchange_publisher *p)
{
    const int fragment = exchange_fragment_now(p);
    const cod_codec_range range = exchange_range_of(p->setup, p->setup->mine, fragment, p->encoded_shards);
    const uint64_t at =
        range.first - cod_exchange_fragment_range(&p->setup->options, exchange_own_model(p->setup), fragment).first;
    const bool own = p->encoded_shards == p->setup->rank;
    cod_codec *codec = own ? &p->encoder : &p->mirror;
    if (codec->done == 0 || codec->range.first != range.first || codec->key.version != p->version)
        cod_codec_begin(codec, &range, &p->key);
    const float *values =
        exchange_floats(p->snapshot) + range.first - exchange_snapshot_range(p->setup, fragment).first;
    const float *against = p->against > 0 ? exchange_floats(exchange_decoded_of(p, p->against)) + at : NULL;
    float *decoded = exchange_floats(exchange_decoded_of(p, p->version)) + at;
    const uint64_t before = codec->done;
    if (own)
        COD_TRY(
            cod_codec_encode(codec, values, against, 1, p->room, cod_codec_bound(&codec->options, &range), decoded));
    else
        COD_TRY(cod_codec_round_trip(codec, values, against, 1, decoded));
    if (exchange_keeps_exact(&p->setup->options))
        memcpy(exchange_floats(p->encoding->values) + at + before, values + before,
               (codec->done - before) * sizeof *values);
    if (p->setup->shared == NULL)
        exchange_note_print(p, range.first + before, cod_fingerprint(decoded + before, codec->done - before));
    if (own)
        COD_TRY(try_coders(p, before));
    if (!cod_codec_finished(codec))
        return COD_OK;
    if (own)
        COD_TRY(end_shard(p));
    codec->done = 0;
    p->encoded_shards = next_encoded(p, p->encoded_shards + 1);
    if (p->encoded_shards == p->setup->size && p->setup->shared != NULL)
        wait_for_group(p, false);
    else if (p->encoded_shards == p->setup->size)
        end_publication(p);
    return COD_OK;
}

/**
 * What QUANTISE made: fetched first, then each chunk of the own shard is sealed. The publication ends on all ranks of
 * the group in the same step, because own versions that are complete decide what is merged.
 */
static cod_status seal_some(exchange_publisher *p, uint64_t chunks)
{
    bool fetched;
    COD_TRY(exchange_publisher_device_fetch(p, chunks == UINT64_MAX, &fetched));
    for (; fetched && chunks > 0 && !exchange_publisher_device_sealed(p); chunks--) {
        const uint64_t before = p->encoder.done;
        COD_TRY(exchange_publisher_device_seal(p));
        COD_TRY(try_coders(p, before));
    }
    if (!fetched || !exchange_publisher_device_sealed(p))
        return COD_OK;
    COD_TRY(end_shard(p));
    exchange_publisher_device_end(p);
    end_publication(p);
    return COD_OK;
}

/** Whether this rank has some of the publication left to encode. */
static bool is_encoding(const exchange_publisher *p)
{
    return p->encoding != NULL && !p->waiting;
}

cod_status exchange_publisher_encode(exchange_publisher *p, uint64_t chunks)
{
    if (!is_encoding(p))
        return COD_OK;
    COD_TRY(cod_event_wait(p->setup->backend, p->copied));
    const double begin = cod_clock_s();
    cod_status status = p->setup->codes_on_device ? seal_some(p, chunks) : COD_OK;
    for (; !p->setup->codes_on_device && is_encoding(p) && chunks > 0 && status == COD_OK; chunks--)
        status = encode_chunk(p);
    if (status == COD_ERR_NUMERIC && p->setup->shared != NULL) {
        wait_for_group(p, true);
        status = COD_OK;
    } else if (status == COD_ERR_NUMERIC) {
        skip_publication(p);
        status = p->setup->codes_on_device ? exchange_publisher_device_skip(p) : COD_OK;
    }
    p->counters.encode_s += cod_clock_s() - begin;
    return status;
}

cod_status exchange_publisher_finish(exchange_publisher *p)
{
    if (p->encoding != NULL && p->setup->shared != NULL && exchange_sends_shards(p->setup))
        COD_TRY(cod_group_barrier(p->setup->group)); /* mirrors are made of what other ranks put into the snapshot */
    COD_TRY(exchange_publisher_encode(p, UINT64_MAX));
    if (!p->waiting)
        return COD_OK;
    double unfit = p->unfit;
    COD_TRY(cod_group_reduce(p->setup->group, &unfit, 1, COD_REDUCE_SUM));
    end_waiting(p, p->setup->size, (int)unfit);
    return COD_OK;
}

/**
 * Whether readers may hold another version of this number: the group published it, was killed, resumed from an
 * earlier step and has made it again. Groups that wait for each other are resumed together, so that their readers
 * hold none.
 */
static bool is_ambiguous(const exchange_publisher *p, uint64_t version)
{
    return !p->setup->waits && version > p->restored && version <= p->left;
}

/**
 * Whether this is the run's last publication, which is a key: readers that begin after it have no reference for a
 * delta.
 */
static bool is_last(const exchange_publisher *p, int64_t step)
{
    return !p->setup->options.deterministic && p->setup->options.last_step > 0 &&
           step + p->setup->options.period > p->setup->options.last_step;
}

cod_status exchange_publisher_snapshot(exchange_publisher *p, int64_t step, cod_exchange_part *part)
{
    const int fragment = exchange_fragment_of(p->setup, (uint64_t)(step / cod_exchange_spacing(&p->setup->options)));
    const cod_codec_range range = exchange_snapshot_range(p->setup, fragment);
    *part = (cod_exchange_part){
        .values = p->snapshot,
        .first = range.first,
        .count = range.count,
        .fragment = cod_exchange_fragment_range(&p->setup->options, exchange_own_model(p->setup), fragment),
        .wants_fingerprint = p->setup->shared != NULL};
    COD_TRY(exchange_publisher_finish(p));
    if (p->setup->shared != NULL) /* the other ranks' parts lie beside this one's */
        *p->snapshot = (cod_buffer){.host = p->snapshot_of_node + range.first - part->fragment.first,
                                    .bytes = range.count * sizeof(float)};
    return COD_OK;
}

cod_status exchange_publisher_begin(exchange_publisher *p, int64_t step, uint64_t fingerprint)
{
    const int64_t spacing = cod_exchange_spacing(&p->setup->options);
    COD_REQUIRE(step > p->step && step % spacing == 0,
                "step %lld is no step to publish after: the last was %lld, one comes every %lld", (long long)step,
                (long long)p->step, (long long)spacing);
    COD_REQUIRE(p->encoding == NULL, "version %llu is still being encoded from the snapshot",
                (unsigned long long)p->version);
    if (!p->setup->codes_on_device)
        COD_TRY(cod_event_record(p->setup->backend, p->copied, NULL));
    p->version = (uint64_t)(step / spacing);
    p->key = exchange_key(p->setup, p->setup->mine, p->version, life_of(p));
    p->step = step;
    /* The same on every rank of the group: all make the same publications of the same weights. */
    const exchange_chain *chain = exchange_chain_now(p);
    const bool key = !exchange_makes_deltas(&p->setup->options) ||
                     chain->since_key + 1 >= (uint64_t)p->setup->options.key_every ||
                     is_ambiguous(p, chain->reference) || is_last(p, step);
    p->against = key ? 0 : chain->reference;
    if (key)
        choose_coder(p);
    p->encoding = exchange_own_of(p, p->version);
    p->encoding->version = 0;
    p->print = p->setup->shared != NULL ? fingerprint : 0;
    p->chain_broken = false;
    p->encoded_shards = next_encoded(p, 0);
    p->encoder.done = p->mirror.done = 0;
    p->published_s = cod_clock_s();
    p->published_ms = p->setup->waits ? 0 : exchange_wall_ms(); /* bytes that replay name no time */
    p->interval_passed = p->setup->options.min_interval_ms == 0;
    COD_TRY(transport_now(p)->ops->publish_begin(transport_now(p), &p->room));
    return p->setup->codes_on_device ? exchange_publisher_device_quantise(p) : COD_OK;
}

/** Chunks a step, so that the publication is through after its part of the time until the next one. */
static uint64_t chunks_a_step(const exchange_publisher *p)
{
    const uint64_t values = exchange_snapshot_range(p->setup, exchange_fragment_now(p)).count,
                   chunks = values / (uint64_t)p->setup->options.chunk_values + 1,
                   steps = (uint64_t)exchange_encoding_steps(&p->setup->options);
    return (chunks + steps - 1) / steps;
}

cod_status exchange_publisher_advance(exchange_publisher *p, int64_t step)
{
    p->counters.skipped += exchange_publisher_is_due(p, step) && p->step != step;
    /*
     * Encoding begins after the step that made the snapshot. On a device that step has only queued the copy; at the
     * end of the second step after it the host reads a loss that was queued behind the copy, so that from the third
     * on it need not wait. The copy's event is not asked: encoding must take the same steps on all ranks of the
     * group, because its end decides what is merged when. Where ranks hold values together, a rank that is behind may
     * in these steps still read the own version that is written over.
     */
    const int64_t copying = p->copied != NULL || p->setup->shared != NULL ? EXCHANGE_COPY_STEPS : 0;
    return step > p->step + copying ? exchange_publisher_encode(p, chunks_a_step(p)) : COD_OK;
}

cod_status exchange_publisher_save(exchange_publisher *p)
{
    return p->setup->codes_on_device ? exchange_publisher_device_save(p) : COD_OK;
}

float *exchange_publisher_saved(const exchange_publisher *p, int i)
{
    return p->setup->codes_on_device ? exchange_publisher_device_saved(p, i)
                                     : exchange_floats(*exchange_publisher_held(p, i));
}

cod_status exchange_publisher_restored(exchange_publisher *p)
{
    return p->setup->codes_on_device ? exchange_publisher_device_restored(p) : COD_OK;
}
