/* What others see of the exchange: peers' checkpoints and counters. */
#include "distill/exchange_internal.h"

#include <math.h>

uint64_t exchange_newest_own(const cod_exchange *e, int fragment)
{
    uint64_t newest = 0;
    for (int i = fragment; i < e->publisher.own_count; i += e->setup.fragments)
        newest = e->publisher.own[i].version > newest ? e->publisher.own[i].version : newest;
    return newest;
}

uint64_t exchange_left_out(const cod_exchange *e)
{
    uint64_t count = 0;
    for (int f = 0; f < e->setup.fragments; f++)
        if (e->setup.transports[f]->ops->failures != NULL)
            count += e->setup.transports[f]->ops->failures(e->setup.transports[f]);
    return count;
}

int cod_exchange_holders(const cod_exchange *e)
{
    return e->setup.holders.count;
}

int cod_exchange_peer_count(const cod_exchange *e)
{
    return e->puller.peer_count / e->setup.fragments;
}

int cod_exchange_peer_group(const cod_exchange *e, int peer)
{
    return e->puller.peers[peer * e->setup.fragments].group;
}

/** A publisher's clock that is ahead makes its versions new, not younger than that; one that is behind makes them older. */
static double age_of(const cod_exchange *e, const held_peer *p)
{
    if (p->published_ms == 0 || e->agreement.now_ms == 0)
        return NAN;
    return e->agreement.now_ms > p->published_ms ? 1e-3 * (double)(e->agreement.now_ms - p->published_ms) : 0;
}

/** The own publication of the same version, or NULL while that comes next; of groups further apart the newest. */
static const own_version *own_beside(const cod_exchange *e, uint64_t version)
{
    const uint64_t count = (uint64_t)e->publisher.own_count, each = (uint64_t)e->setup.fragments,
                   newest = exchange_newest_own(e, exchange_fragment_of(&e->setup, version));
    const own_version *own = &e->publisher.own[version % count];
    if (own->version != version)
        own = version == newest + each || newest == 0 ? NULL : &e->publisher.own[newest % count];
    return own;
}

void cod_exchange_read_checkpoint(const cod_exchange *e, int peer, int fragment, cod_exchange_checkpoint *out)
{
    const held_peer *p = &e->puller.peers[peer * e->setup.fragments + fragment];
    *out = (cod_exchange_checkpoint){
        .range = p->range, .version = p->version, .step = p->step, .pulled_at = p->pulled_at, .age_s = age_of(e, p)};
    if (p->version == 0)
        return;
    out->values = p->values;
    const own_version *own = own_beside(e, p->version);
    if (own != NULL) {
        out->own = own->values;
        out->own_version = own->version;
    }
}

void cod_exchange_read_peer(const cod_exchange *e, int peer, cod_exchange_peer_counters *out)
{
    const held_peer *first = &e->puller.peers[peer * e->setup.fragments];
    *out = first->counters;
    for (int f = 1; f < e->setup.fragments; f++) {
        const cod_exchange_peer_counters *more = &first[f].counters;
        out->pulled += more->pulled;
        out->rejected += more->rejected;
        out->lost += more->lost;
        out->bytes += more->bytes;
        out->timed_bytes += more->timed_bytes;
        out->timed_s += more->timed_s;
    }
}

const char *cod_exchange_entropy(const cod_exchange *e)
{
    const bool publishes = e->setup.options.codec != COD_EXCHANGE_NONE && e->puller.peer_count > 0;
    return publishes ? cod_coder_name(e->publisher.encoder.options.entropy) : NULL;
}

void cod_exchange_read_counters(const cod_exchange *e, cod_exchange_counters *out)
{
    const exchange_puller_counters *pulls = &e->puller.counters;
    *out = e->counters;
    out->pulled = out->switches = pulls->pulled;
    out->pulled_bytes = pulls->pulled_bytes;
    out->rejected = pulls->rejected;
    out->lost = pulls->lost;
    out->decode_s = pulls->decode_s;
    out->skipped += exchange_left_out(e);
}
