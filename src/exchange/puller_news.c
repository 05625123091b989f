/* What peers have that is new, of which the group's first rank speaks. */
#include "exchange/puller_internal.h"

#include "core/log.h"

bool exchange_puller_wants(const exchange_puller *p, const exchange_proposal *proposal)
{
    const held_peer *peer = &p->peers[proposal->peer];
    return proposal->version > peer->version && proposal->version > peer->refused &&
           exchange_is_version_of(p->setup, peer->fragment, proposal->version);
}

/**
 * How new a version is of use: where weights are merged, one whose own counterpart is there or comes next. A group that
 * is behind would else be given versions that its own never meet.
 */
static uint64_t newest_of_use(const exchange_puller *p, const held_peer *peer, const uint64_t *newest_own)
{
    if (p->setup->options.merge != COD_MERGE_DELAY_CORRECTED || peer->model.hash != exchange_own_model(p->setup)->hash)
        return UINT64_MAX;
    return newest_own[peer->fragment] + (uint64_t)p->setup->fragments;
}

/**
 * Whether to ask for news after this step: some times from one publication to the next. A question moves 0.75 kB over
 * TCP with 8 slots.
 */
static bool is_looking_step(const exchange_puller *p, int64_t step)
{
    enum { LOOKS = 4 };
    const int64_t each = cod_exchange_spacing(&p->setup->options) / LOOKS;
    return each <= 1 || step % each == 0;
}

/**
 * Whether a fragment's next version comes before those of its peer's others, as they come in turn. The others are asked
 * for once a period each: then one that was left out holds up none.
 */
static bool is_expected(const exchange_puller *p, const held_peer *peer, int64_t step)
{
    const held_peer *first = peer - peer->fragment;
    const int64_t spacing = cod_exchange_spacing(&p->setup->options);
    if (step % spacing == 0 && step / spacing % p->setup->fragments == peer->fragment)
        return true;
    for (int f = 0; f < p->setup->fragments; f++)
        if (first[f].version < peer->version)
            return false;
    return true;
}

/** What a peer says is of no use: said once. */
static void note_foreign(exchange_puller *p, held_peer *peer)
{
    const held_peer *first = peer - peer->fragment;
    bool said = false;
    for (int f = 0; f < p->setup->fragments; f++)
        said = said || first[f].foreign;
    if (!said) {
        cod_log_warn("group %d: group %d's checkpoints are of no use: %s", p->setup->mine, peer->group,
                     cod_error_message());
        p->counters.rejected++;
        peer->counters.rejected++;
    }
    peer->foreign = true;
}

/** Asks a peer, or looks for its answer. */
static cod_status ask(const exchange_puller *p, const exchange_pull *pull, held_peer *peer, uint64_t newest,
                      cod_slot_offered *offered)
{
    const cod_slot_wanted wanted = {
        .held = peer->version, .after = peer->refused, .at_most = newest, .spacing = (uint64_t)p->setup->fragments};
    cod_transport *transport = p->setup->transports[peer->fragment];
    bool answered = false;
    if (!peer->asked)
        peer->asked_before = pull->begun;
    const cod_status status = transport->ops->offer(
        transport, &peer->first_shard, exchange_world_rank(p->setup, peer->group, 0), &wanted, &answered, offered);
    peer->asked = status == COD_OK && !answered;
    return status;
}

/** Finds what a peer has that is new. @param asking  whether to ask where it has not been asked */
static cod_status look_at(exchange_puller *p, const exchange_pull *pull, held_peer *peer, bool asking,
                          const uint64_t *newest_own, exchange_proposal *out)
{
    cod_slot_offered offered = {0};
    if (!asking && !peer->asked)
        return COD_OK;
    const uint64_t newest = newest_of_use(p, peer, newest_own);
    cod_status status = ask(p, pull, peer, newest, &offered);
    /* An answer that came while another peer was pulled is old: what it offers may soon be replaced. */
    if (status == COD_OK && !peer->asked && peer->asked_before != pull->begun)
        status = ask(p, pull, peer, newest, &offered);
    if (status == COD_OK && offered.version != 0 && !exchange_is_version_of(p->setup, peer->fragment, offered.version))
        status = cod_fail(COD_ERR_FORMAT, "its version %llu cannot be one of fragment %d",
                          (unsigned long long)offered.version, peer->fragment);
    if (exchange_is_bad_data(status)) {
        note_foreign(p, peer);
        return COD_OK;
    }
    COD_TRY(status);
    peer->foreign = peer->foreign && offered.version == 0;
    /* What a peer says of its life may be anything. */
    const exchange_proposal found = {.peer = (int)(peer - p->peers),
                                     .version = offered.version,
                                     .life = offered.life & EXCHANGE_LIFE_MASK,
                                     .following = offered.following};
    if (exchange_puller_wants(p, &found))
        *out = found;
    return COD_OK;
}

/** All its peers are asked at once, so that what is proposed is fresh; of those that answer, each gets its turn. */
cod_status exchange_puller_look(exchange_puller *p, exchange_pull *pull, int64_t step, const uint64_t *newest_own,
                                exchange_proposal *out)
{
    const bool asking = pull->look || is_looking_step(p, step);
    pull->look = false;
    for (int k = 0; k < p->peer_count && out->peer == EXCHANGE_NO_PEER; k += p->pull_count) {
        const held_peer *peer = &p->peers[pull->turn];
        COD_TRY(look_at(p, pull, &p->peers[pull->turn], asking && is_expected(p, peer, step), newest_own, out));
        pull->turn += p->pull_count;
        if (pull->turn >= p->peer_count)
            pull->turn = pull->place;
    }
    return COD_OK;
}
