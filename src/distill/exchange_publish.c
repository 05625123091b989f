/* Publishing: one consistent copy, then its encoding a few chunks a step. */
#include "distill/exchange_internal.h"

#include "core/log.h"
#include "core/memory.h"
#include "core/trace.h"

#include <sched.h>
#include <string.h>
#include <time.h>

bool exchange_is_publication_step(const cod_exchange *e, int64_t step)
{
    return e->options.codec != 0 && step > 0 && step % e->options.period == 0 && e->peer_count > 0;
}

bool cod_exchange_publish_due(const cod_exchange *e, int64_t step)
{
    if (e->events != NULL)
        return exchange_replays_publication(e, step);
    return exchange_is_publication_step(e, step) && (e->options.deterministic || e->interval_passed);
}

uint64_t exchange_wall_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

cod_status exchange_make_snapshot(cod_exchange *e)
{
    e->memory.bytes = e->total * sizeof(float);
    e->snapshot = &e->memory;
    return cod_aligned_alloc(&e->memory.host, e->memory.bytes);
}

cod_status cod_exchange_use_device(cod_exchange *e, const cod_backend *backend, cod_device *device)
{
    cod_buffer *pinned;
    if (cod_backend_runs_at_once(backend))
        return COD_OK;
    e->backend = backend;
    e->device = device;
    COD_TRY(cod_event_create(backend, device, &e->copied));
    COD_TRY(backend->host_buffer_create(device, e->memory.bytes, &pinned));
    e->snapshot = pinned;
    cod_aligned_free(e->memory.host);
    e->memory.host = NULL;
    return COD_OK;
}

void exchange_free_snapshot(cod_exchange *e)
{
    const cod_status ended = cod_event_wait(e->backend, e->copied);
    (void)ended; /* a device that failed has said so to whoever used it */
    cod_event_destroy(e->backend, e->copied);
    if (e->snapshot != &e->memory)
        e->backend->host_buffer_destroy(e->device, e->snapshot);
    cod_aligned_free(e->memory.host);
}

static own_version *own_of(cod_exchange *e, uint64_t version)
{
    return &e->own[version % COD_EXCHANGE_OWN_KEPT];
}

/** Tries the entropy coders on one of the own shard's chunks a publication, each in its turn. */
static cod_status try_coders(cod_exchange *e, uint64_t before)
{
    const uint64_t spread = UINT64_C(0x9E3779B97F4A7C15);
    const uint64_t at = (e->version * spread >> 11) % e->encoder.range.count;
    cod_codec_trial trial;
    if (!exchange_chooses_coder(e) || at < before || at >= e->encoder.done)
        return COD_OK;
    COD_TRY(cod_codec_try_coders(&e->encoder, &trial));
    cod_coder_note_trial(&e->coder, &trial);
    return COD_OK;
}

/** Before a key: readers may come from anywhere then, and what follows is alike. */
static void choose_coder(cod_exchange *e)
{
    if (!exchange_chooses_coder(e) || !cod_coder_decide(&e->coder))
        return;
    if (e->rank == 0)
        cod_log_info("group %d: from version %llu on chunks are shortened by %s, not %s: pulls move %.4g MB/s",
                     cod_group_index(e->group), (unsigned long long)e->version, cod_coder_name(e->coder.current),
                     cod_coder_name(e->encoder.options.entropy), 1e-6 * cod_coder_link(&e->coder));
    e->encoder.options.entropy = e->coder.current;
}

cod_status exchange_encode_some(cod_exchange *e, uint64_t chunks)
{
    const int mine = cod_group_index(e->group);
    const float *snapshot = e->snapshot->host;
    if (e->encoding != NULL)
        COD_TRY(cod_event_wait(e->backend, e->copied));
    const double begin = cod_clock_s();
    for (; e->encoding != NULL && chunks > 0; chunks--) {
        const cod_codec_range range = exchange_shard_range(&e->models[mine], e->encoded_shards, e->size);
        const bool own = e->encoded_shards == e->rank;
        cod_codec *codec = own ? &e->encoder : &e->mirror;
        const cod_codec_key key = exchange_key(e, mine, e->version, exchange_life(e));
        if (codec->done == 0 || codec->range.first != range.first || codec->key.version != e->version)
            cod_codec_begin(codec, &range, &key);
        float *decoded = e->encoding->values + range.first;
        const float *against = e->against > 0 ? own_of(e, e->against)->values + range.first : NULL;
        const uint64_t before = codec->done;
        cod_status status = codec == &e->encoder
                                ? cod_codec_encode(codec, snapshot + range.first, against, 1, e->room,
                                                   cod_codec_bound(&codec->options, &range), decoded)
                                : cod_codec_round_trip(codec, snapshot + range.first, against, 1, decoded);
        if (status == COD_ERR_NUMERIC) {
            /* The slot stays open: nobody reads this version, and training notices a NaN by itself. */
            e->counters.skipped++;
            if (e->reference > 0 && e->encoding == own_of(e, e->reference))
                e->reference = 0; /* it was being replaced */
            e->encoding = NULL;
            break;
        }
        COD_TRY(status);
        if (own && range.count > 0)
            COD_TRY(try_coders(e, before));
        if (!cod_codec_finished(codec))
            continue;
        if (own) {
            const cod_slot_entry entry = {.version = e->version,
                                          .reference = e->against,
                                          .life = exchange_life(e),
                                          .bytes = e->encoder.bytes,
                                          .published_ms = e->published_ms};
            COD_TRY(e->transport->ops->publish_end(e->transport, &entry));
            e->counters.published++;
            e->counters.published_bytes += e->encoder.bytes;
        }
        codec->done = 0;
        if (++e->encoded_shards == e->size) {
            e->encoding->version = e->version;
            e->reference = e->chain_broken ? 0 : e->version;
            e->since_key = e->against > 0 ? e->since_key + 1 : 0;
            e->encoding = NULL;
        }
    }
    e->counters.encode_s += cod_clock_s() - begin;
    return COD_OK;
}

/** Deterministic, replay: waits until those who read this rank have taken what the next slot holds. */
static cod_status wait_for_readers(cod_exchange *e)
{
    const int groups = cod_group_count(e->group), mine = cod_group_index(e->group);
    const uint64_t oldest = e->transport->ops->oldest(e->transport);
    const double begin = cod_clock_s();
    for (int i = 1; i < groups; i++) {
        const int reader = (mine + groups - i) % groups;
        uint64_t taken = 0;
        if (!cod_exchange_reads(&e->options, groups, reader, mine))
            continue;
        while (taken < oldest) {
            const cod_slot_identity identity = exchange_identity(e, reader, 0);
            COD_TRY(e->transport->ops->acknowledged(e->transport, &identity, cod_group_world_rank(e->group, reader, 0),
                                                    (uint32_t)mine, &taken));
            if (cod_clock_s() - begin > exchange_patience_s(e))
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
    return !exchange_waits(e) && version > e->restored && version <= e->left;
}

/** What nothing follows must stand alone: who begins later has no delta's reference. */
static bool is_last(const cod_exchange *e, int64_t step)
{
    return !e->options.deterministic && e->options.last_step > 0 && step + e->options.period > e->options.last_step;
}

cod_status cod_exchange_snapshot(cod_exchange *e, cod_buffer **snapshot)
{
    *snapshot = e->snapshot;
    return exchange_encode_some(e, UINT64_MAX);
}

cod_status cod_exchange_publish(cod_exchange *e, int64_t step)
{
    const double begin = cod_clock_s();
    COD_REQUIRE(step > e->publish_step && step % e->options.period == 0,
                "step %lld is no step to publish after: the last was %lld, the period is %lld", (long long)step,
                (long long)e->publish_step, (long long)e->options.period);
    COD_REQUIRE(e->encoding == NULL, "version %llu is still being encoded from the snapshot",
                (unsigned long long)e->version);
    COD_TRY(cod_event_record(e->backend, e->copied, NULL));
    e->version = (uint64_t)(step / e->options.period);
    e->publish_step = step;
    /* The same on every rank of the group: all make the same publications of the same weights. */
    const bool key = !exchange_makes_deltas(&e->options) || e->since_key + 1 >= (uint64_t)e->options.key_every ||
                     is_ambiguous(e, e->reference) || is_last(e, step);
    e->against = key ? 0 : e->reference;
    if (key)
        choose_coder(e);
    if (exchange_waits(e))
        COD_TRY(wait_for_readers(e));
    e->encoding = own_of(e, e->version);
    e->encoding->version = 0;
    e->chain_broken = false;
    e->encoded_shards = 0;
    e->encoder.done = e->mirror.done = 0;
    e->published_s = cod_clock_s();
    e->published_ms = exchange_waits(e) ? 0 : exchange_wall_ms(); /* bytes that replay name no time */
    e->interval_passed = e->options.min_interval_ms == 0;
    COD_TRY(e->transport->ops->publish_begin(e->transport, &e->room));
    if (e->options.deterministic)
        COD_TRY(exchange_encode_some(e, UINT64_MAX));
    e->counters.seconds += cod_clock_s() - begin;
    return COD_OK;
}
