/* What was published, and where it is held. */
#include "exchange/publisher_internal.h"

own_version *exchange_own_of(const exchange_publisher *p, uint64_t version)
{
    return &p->own[version % (uint64_t)p->own_count];
}

uint64_t exchange_newest_own(const exchange_publisher *p, int fragment)
{
    uint64_t newest = 0;
    for (int i = fragment; i < p->own_count; i += p->setup->fragments)
        newest = p->own[i].version > newest ? p->own[i].version : newest;
    return newest;
}

const own_version *exchange_own_beside(const exchange_publisher *p, uint64_t version)
{
    const uint64_t next = (uint64_t)p->setup->fragments,
                   newest = exchange_newest_own(p, exchange_fragment_of(p->setup, version));
    const own_version *own = exchange_own_of(p, version);
    if (own->version == version)
        return own;
    return version == newest + next || newest == 0 ? NULL : exchange_own_of(p, newest);
}

cod_buffer *exchange_decoded_of(const exchange_publisher *p, uint64_t version)
{
    cod_buffer *decoded = p->chains[exchange_fragment_of(p->setup, version)].decoded;
    return decoded != NULL ? decoded : exchange_own_of(p, version)->values;
}

int exchange_publisher_held_count(const exchange_publisher *p)
{
    return p->own_count + (exchange_keeps_exact(&p->setup->options) ? p->setup->fragments : 0);
}

cod_buffer **exchange_publisher_held(const exchange_publisher *p, int i)
{
    return i < p->own_count ? &p->own[i].values : &p->chains[i - p->own_count].decoded;
}

exchange_chain *exchange_chain_now(const exchange_publisher *p)
{
    return &p->chains[exchange_fragment_now(p)];
}

void exchange_note_print(exchange_publisher *p, uint64_t first, uint64_t fingerprint)
{
    p->print += fingerprint * (2 * first + 1);
}
