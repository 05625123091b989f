/* What others see of the exchange: peers' checkpoints and counters. */
#include "distill/exchange_internal.h"

#include <math.h>

uint64_t exchange_newest_own(const cod_exchange *e)
{
    uint64_t newest = 0;
    for (int i = 0; i < COD_EXCHANGE_OWN_KEPT; i++)
        newest = e->publisher.own[i].version > newest ? e->publisher.own[i].version : newest;
    return newest;
}

uint64_t exchange_left_out(const cod_exchange *e)
{
    return e->transport->ops->failures != NULL ? e->transport->ops->failures(e->transport) : 0;
}

int cod_exchange_holders(const cod_exchange *e)
{
    return e->holders.count;
}

int cod_exchange_peer_count(const cod_exchange *e)
{
    return e->peer_count;
}

int cod_exchange_peer_group(const cod_exchange *e, int peer)
{
    return e->peers[peer].group;
}

/** A publisher's clock that is ahead makes its versions new, not younger than that; one that is behind makes them older. */
static double age_of(const cod_exchange *e, const held_peer *p)
{
    if (p->published_ms == 0 || e->now_ms == 0)
        return NAN;
    return e->now_ms > p->published_ms ? 1e-3 * (double)(e->now_ms - p->published_ms) : 0;
}

/** The own publication of the same version, or NULL while that comes next; of groups further apart the newest. */
static const own_version *own_beside(const cod_exchange *e, uint64_t version)
{
    const own_version *own = &e->publisher.own[version % COD_EXCHANGE_OWN_KEPT];
    const uint64_t newest = exchange_newest_own(e);
    if (own->version != version)
        own = version == newest + 1 || newest == 0 ? NULL : &e->publisher.own[newest % COD_EXCHANGE_OWN_KEPT];
    return own;
}

void cod_exchange_read_checkpoint(const cod_exchange *e, int peer, cod_exchange_checkpoint *out)
{
    const held_peer *p = &e->peers[peer];
    *out = (cod_exchange_checkpoint){
        .version = p->version, .step = p->step, .pulled_at = p->pulled_at, .age_s = age_of(e, p)};
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
    *out = e->peers[peer].counters;
}

const char *cod_exchange_entropy(const cod_exchange *e)
{
    const bool publishes = e->options.codec != COD_EXCHANGE_NONE && e->peer_count > 0;
    return publishes ? cod_coder_name(e->publisher.encoder.options.entropy) : NULL;
}

void cod_exchange_read_counters(const cod_exchange *e, cod_exchange_counters *out)
{
    *out = e->counters;
    out->skipped += exchange_left_out(e);
}
