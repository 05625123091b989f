/* Who reads whom. */
#include "exchange/exchange.h"

#include "core/rng.h"

/** A number for each pair; a reader's peers are those with the smallest. */
static uint64_t lot_of(const cod_exchange_options *options, int reader, int publisher)
{
    cod_rng rng = cod_rng_open(options->seed, (uint32_t)reader, 0, 0, COD_RNG_PEER, (uint32_t)publisher);
    const uint64_t high = cod_rng_u32(&rng);
    return high << 32 | cod_rng_u32(&rng);
}

static bool is_drawn(const cod_exchange_options *options, int groups, int reader, int publisher, int count)
{
    const uint64_t lot = lot_of(options, reader, publisher);
    int before = 0;
    for (int g = 0; g < groups; g++) {
        const uint64_t other = g == reader ? UINT64_MAX : lot_of(options, reader, g);
        before += g != publisher && (other < lot || (other == lot && g < publisher));
    }
    return before < count;
}

bool cod_exchange_reads(const cod_exchange_options *options, int groups, int reader, int publisher)
{
    if (reader == publisher || options->codec == COD_EXCHANGE_NONE)
        return false;
    switch ((cod_exchange_peers)cod_choice_index(options->peers)) {
    case COD_PEERS_RING:
        return publisher == (reader + 1) % groups;
    case COD_PEERS_RANDOM:
        return is_drawn(options, groups, reader, publisher, cod_choice_argument(options->peers));
    case COD_PEERS_AUTO:
        return is_drawn(options, groups, reader, publisher, cod_exchange_peers_allowed(options));
    case COD_PEERS_ALL:
        break;
    }
    return true;
}
