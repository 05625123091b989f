/* What pulls and the group's sums do with a peer's version, without MPI. */
#include "support/test.h"

#include "distill/exchange_internal.h"

#include <string.h>

enum { RANKS = 2, PERIOD = 50, BEGUN = 100, AGREED = 2 };

static int cancelled; /**< the place where a pull was cancelled last; -1 = none */

static void note_cancelled(cod_transport *transport, int place)
{
    (void)transport;
    cancelled = place;
}

/** Two ranks of one node, which hold version 4 of their one peer and pull version 5. */
typedef struct puller {
    cod_exchange exchange;
    cod_transport_ops ops;
    cod_transport transport, *transports[1];
    cod_buffer values, incoming;
    held_peer peer;
    exchange_pull pull;
} puller;

static void pull_version_5(puller *p)
{
    memset(p, 0, sizeof *p);
    cancelled = -1;
    p->ops.pull_cancel = note_cancelled;
    p->transport.ops = &p->ops;
    p->transports[0] = &p->transport;
    p->peer = (held_peer){.group = 1, .version = 4, .step = 4 * PERIOD, .values = &p->values, .incoming = &p->incoming};
    p->pull = (exchange_pull){.phase = PULLING, .phase_since = BEGUN, .peer = &p->peer, .version = 5};
    p->pull.proposed = EXCHANGE_NO_PEER;
    p->exchange = (cod_exchange){.size = RANKS,
                                 .rank = 1,
                                 .fragments = 1,
                                 .holders = {.count = RANKS},
                                 .transports = p->transports,
                                 .peers = &p->peer,
                                 .peer_count = 1,
                                 .pulls = &p->pull,
                                 .pull_count = 1};
    p->exchange.options.period = PERIOD;
}

/** Acts on this rank's flags with those of another, whose pull stands so. */
static void hear(puller *p, exchange_pull other, int64_t step)
{
    double sums[COD_EXCHANGE_FLAGS_MOST], more[COD_EXCHANGE_FLAGS_MOST];
    const exchange_pull mine = p->pull;
    cod_exchange_flags_out(&p->exchange, sums);
    p->pull = other;
    cod_exchange_flags_out(&p->exchange, more);
    p->pull = mine;
    for (size_t i = 0; i < cod_exchange_flag_count(&p->exchange); i++)
        sums[i] += more[i];
    assert_ok(cod_exchange_flags_in(&p->exchange, step, sums));
}

static void a_version_is_held_when_all_ranks_have_it(void **state)
{
    (void)state;
    puller p;
    pull_version_5(&p);
    exchange_pull other = p.pull;
    p.pull.done = true;
    p.pull.bytes = 10;
    hear(&p, other, BEGUN + AGREED);
    assert_true(p.pull.phase == PULLING && p.peer.version == 4 && p.peer.values == &p.values);
    other.done = true;
    other.bytes = 20;
    hear(&p, other, BEGUN + AGREED - 1); /* sent before the pull began */
    assert_true(p.pull.phase == PULLING && p.peer.version == 4);
    hear(&p, other, BEGUN + AGREED);
    assert_true(p.pull.phase == IDLE && p.pull.look && p.pull.peer == NULL && cancelled == -1);
    assert_true(p.peer.version == 5 && p.peer.step == 5 * PERIOD && p.peer.pulled_at == BEGUN + AGREED);
    assert_true(p.peer.values == &p.incoming && p.peer.incoming == &p.values);
    assert_true(p.peer.counters.pulled == 1 && p.peer.counters.bytes == 30 && p.exchange.counters.pulled == 1);
}

static void what_one_rank_lost_is_given_up_by_all(void **state)
{
    (void)state;
    for (int refused = 0; refused <= 1; refused++) {
        puller p;
        pull_version_5(&p);
        exchange_pull other = p.pull;
        p.pull.done = true;
        other.lost = true;
        other.refused = refused;
        hear(&p, other, BEGUN + AGREED);
        assert_true(p.pull.phase == IDLE && p.pull.look && cancelled == p.pull.place);
        assert_true(p.peer.version == 4 && p.peer.values == &p.values);
        /* What is damaged is not asked for again; what was only lost is. */
        assert_int_equal(p.peer.refused, refused ? 5 : 0);
        assert_true(p.peer.counters.rejected == (uint64_t)refused && p.peer.counters.lost == !refused);
    }
}

/** Checkpoints have these numbers in this order. */
static void peers_go_on_from_what_was_saved(void **state)
{
    (void)state;
    static const uint64_t expected[] = {4, 200, 230, 77, 6, 300, 310, 88};
    enum { PEERS = 2, COUNT = sizeof expected / sizeof expected[0] };
    _Static_assert((int)COUNT == PEERS * EXCHANGE_PEER_NUMBERS, "each number has its place");
    uint64_t saved[COUNT];
    held_peer before[PEERS] = {
        {.group = 1, .version = 4, .step = 200, .pulled_at = 230, .published_ms = 77, .refused = 5},
        {.group = 2, .version = 6, .step = 300, .pulled_at = 310, .published_ms = 88}};
    held_peer after[PEERS] = {{.group = 1, .refused = 9}, {.group = 2}};
    exchange_numbers out = {.next = saved}, in = {.next = saved, .restoring = true};
    exchange_peers_pack(before, PEERS, &out);
    assert_true(out.next == saved + COUNT && before[0].refused == 5);
    assert_memory_equal(saved, expected, sizeof expected);
    exchange_peers_pack(after, PEERS, &in);
    assert_true(in.next == saved + COUNT && after[0].refused == 0);
    for (int i = 0; i < PEERS; i++)
        assert_true(after[i].version == before[i].version && after[i].step == before[i].step &&
                    after[i].pulled_at == before[i].pulled_at && after[i].published_ms == before[i].published_ms);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_version_is_held_when_all_ranks_have_it),
        cmocka_unit_test(what_one_rank_lost_is_given_up_by_all),
        cmocka_unit_test(peers_go_on_from_what_was_saved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
