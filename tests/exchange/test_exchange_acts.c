/* What an exchange does with a pull when its group's sums decide: agreement and puller together, without MPI. */
#include "support/test.h"

#include "exchange/exchange_internal.h"

#include <math.h>
#include <string.h>

enum { RANKS = 2, PERIOD = 50, BEGUN = 100, AGREED = 2 };

static int cancelled; /**< the place where a pull was cancelled last; -1 = none */

static void note_cancelled(cod_transport *transport, int place)
{
    (void)transport;
    cancelled = place;
}

/** Two ranks of one node, which hold version 4 of their one peer and pull version 5. */
typedef struct fixture {
    cod_exchange exchange;
    cod_transport_ops ops;
    cod_transport transport, *transports[1];
    cod_buffer values, incoming;
    held_peer peer;
    exchange_pull pull;
    exchange_agreed_pull agreed;
} fixture;

static void pull_version_5(fixture *p)
{
    memset(p, 0, sizeof *p);
    cancelled = -1;
    p->ops.pull_cancel = note_cancelled;
    p->transport.ops = &p->ops;
    p->transports[0] = &p->transport;
    p->peer = (held_peer){.group = 1, .version = 4, .step = 4 * PERIOD, .values = &p->values, .incoming = &p->incoming};
    p->pull = (exchange_pull){.peer = &p->peer, .version = 5};
    p->agreed =
        (exchange_agreed_pull){.phase = EXCHANGE_PULLING, .since = BEGUN, .proposal = {.peer = EXCHANGE_NO_PEER}};
    p->exchange = (cod_exchange){
        .setup = {.size = RANKS, .rank = 1, .fragments = 1, .holders = {.count = RANKS}, .transports = p->transports},
        .puller = {.peers = &p->peer, .peer_count = 1, .pulls = &p->pull, .pull_count = 1},
        .agreement = {.pulls = &p->agreed, .pull_count = 1}};
    const exchange_setup *setup = &p->exchange.setup;
    p->exchange.publisher.setup = p->exchange.puller.setup = p->exchange.agreement.setup = setup;
    p->exchange.setup.options.period = PERIOD;
}

/** Acts on this rank's flags with those of another, whose pull stands so. */
static void hear(fixture *p, exchange_pull other, int64_t step)
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

TEST(a_version_is_held_when_all_ranks_have_it)
{
    fixture p;
    pull_version_5(&p);
    exchange_pull other = p.pull;
    p.pull.standing.done = true;
    p.pull.standing.bytes = 10;
    hear(&p, other, BEGUN + AGREED);
    assert_true(p.agreed.phase == EXCHANGE_PULLING && p.peer.version == 4 && p.peer.values == &p.values);
    other.standing.done = true;
    other.standing.bytes = 20;
    hear(&p, other, BEGUN + AGREED - 1); /* sent before the pull began */
    assert_true(p.agreed.phase == EXCHANGE_PULLING && p.peer.version == 4);
    hear(&p, other, BEGUN + AGREED);
    assert_true(p.agreed.phase == EXCHANGE_IDLE && p.pull.look && p.pull.peer == NULL && cancelled == -1);
    assert_true(p.peer.version == 5 && p.peer.step == 5 * PERIOD && p.peer.pulled_at == BEGUN + AGREED);
    assert_true(p.peer.values == &p.incoming && p.peer.incoming == &p.values);
    assert_true(p.peer.counters.pulled == 1 && p.peer.counters.bytes == 30 && p.exchange.puller.counters.pulled == 1);
}

TEST(what_one_rank_lost_is_given_up_by_all)
{
    for (int refused = 0; refused <= 1; refused++) {
        fixture p;
        pull_version_5(&p);
        exchange_pull other = p.pull;
        p.pull.standing.done = true;
        other.standing.lost = true;
        other.standing.refused = refused;
        hear(&p, other, BEGUN + AGREED);
        assert_true(p.agreed.phase == EXCHANGE_IDLE && p.pull.look && cancelled == p.pull.place);
        assert_true(p.peer.version == 4 && p.peer.values == &p.values);
        /* What is damaged is not asked for again; what was only lost is. */
        assert_int_equal(p.peer.refused, refused ? 5 : 0);
        assert_true(p.peer.counters.rejected == (uint64_t)refused && p.peer.counters.lost == !refused);
    }
}

/** A publisher's clock that is ahead gives 0; without a time, as in deterministic mode, there is no age. */
TEST(a_clock_that_is_ahead_makes_no_age)
{
    static const struct {
        uint64_t published_ms, now_ms;
        double age_s;
    } cases[] = {{5000, 7500, 2.5}, {5000, 5000, 0}, {5000, 4000, 0}, {0, 7500, NAN}, {5000, 0, NAN}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        held_peer peer = {.published_ms = cases[i].published_ms};
        cod_exchange exchange = {
            .setup.fragments = 1, .puller = {.peers = &peer, .peer_count = 1}, .agreement.now_ms = cases[i].now_ms};
        cod_exchange_checkpoint read;
        cod_exchange_read_checkpoint(&exchange, 0, 0, &read);
        assert_true(isnan(cases[i].age_s) ? isnan(read.age_s) : fabs(read.age_s - cases[i].age_s) < 1e-9);
    }
}
