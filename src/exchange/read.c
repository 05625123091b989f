/* What others see of the exchange: peers' checkpoints and counters. */
#include "exchange/exchange_internal.h"

#include <math.h>

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

/**
 * A publisher's clock that is ahead makes its versions new, not younger than that; one that is behind makes them older.
 */
static double age_of(const cod_exchange *e, const held_peer *p)
{
    if (p->published_ms == 0 || e->agreement.now_ms == 0)
        return NAN;
    return e->agreement.now_ms > p->published_ms ? 1e-3 * (double)(e->agreement.now_ms - p->published_ms) : 0;
}

void cod_exchange_read_checkpoint(const cod_exchange *e, int peer, int fragment, cod_exchange_checkpoint *out)
{
    const held_peer *p = &e->puller.peers[peer * e->setup.fragments + fragment];
    *out = (cod_exchange_checkpoint){
        .range = p->range, .version = p->version, .step = p->step, .pulled_at = p->pulled_at, .age_s = age_of(e, p)};
    if (p->version == 0)
        return;
    out->values = p->values;
    const own_version *own = exchange_own_beside(&e->publisher, p->version);
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
    return e->setup.publishes ? cod_coder_name(e->publisher.encoder.options.entropy) : NULL;
}

void cod_exchange_read_counters(const cod_exchange *e, cod_exchange_counters *out)
{
    const exchange_publisher_counters *publications = &e->publisher.counters;
    const exchange_puller_counters *pulls = &e->puller.counters;
    *out = (cod_exchange_counters){.published = publications->published,
                                   .pulled = pulls->pulled,
                                   .published_bytes = publications->published_bytes,
                                   .pulled_bytes = pulls->pulled_bytes,
                                   .rejected = pulls->rejected,
                                   .lost = pulls->lost,
                                   .skipped = publications->skipped + exchange_left_out(&e->setup),
                                   .switches = pulls->pulled,
                                   .seconds = e->seconds,
                                   .encode_s = publications->encode_s,
                                   .decode_s = pulls->decode_s};
}
