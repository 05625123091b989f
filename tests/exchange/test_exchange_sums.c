/*
 * What the ranks of a group decide by the sums of what they told: three agreements and an addition, without publisher,
 * pulls and MPI.
 */
#include "support/test.h"

#include "exchange/agreement_internal.h"

#include <string.h>

enum { RANKS = 3, PULLS = 2, FLAGS = 7 + 9 * PULLS, FIRST = 0, SECOND = 1, DELAY = 2 };

/** A group whose ranks are each alone on their nodes, so that they send each other what they pulled. */
typedef struct group {
    exchange_setup setups[RANKS];
    exchange_agreement ranks[RANKS];
    exchange_publication publications[RANKS];
    exchange_standing pulls[RANKS][PULLS];
    double sums[FLAGS];
    exchange_publications heard;
} group;

static void open_group(group *g)
{
    memset(g, 0, sizeof *g);
    for (int r = 0; r < RANKS; r++) {
        g->setups[r] = (exchange_setup){.rank = r, .size = RANKS, .holders = {.count = 1}};
        assert_ok(exchange_agreement_init(&g->ranks[r], &g->setups[r], PULLS));
    }
}

static void close_group(group *g)
{
    for (int r = 0; r < RANKS; r++)
        exchange_agreement_clear(&g->ranks[r]);
}

static void add_up(group *g)
{
    double told[FLAGS];
    memset(g->sums, 0, sizeof g->sums);
    for (int r = 0; r < RANKS; r++) {
        exchange_agreement_tell(&g->ranks[r], &g->publications[r], g->pulls[r], told);
        for (int i = 0; i < FLAGS; i++)
            g->sums[i] += told[i];
    }
}

/** What all ranks say now acts at `step`. @return what all of them decide of the pull; they must decide alike */
static exchange_decision decide(group *g, int place, int64_t step, exchange_proposal *proposal,
                                exchange_outcome *outcome)
{
    exchange_decision first = EXCHANGE_GO_ON;
    add_up(g);
    for (int r = 0; r < RANKS; r++) {
        exchange_proposal heard = {.peer = EXCHANGE_NO_PEER};
        exchange_outcome became = {0};
        const exchange_decision mine = exchange_agreement_decide(&g->ranks[r], place, step, g->sums, &heard, &became);
        if (r == 0) {
            first = mine;
            *proposal = heard;
            *outcome = became;
        }
        assert_int_equal(mine, first);
        assert_true(heard.peer == proposal->peer && heard.version == proposal->version &&
                    heard.life == proposal->life && heard.following == proposal->following);
        assert_true(became.lost == outcome->lost && became.refused == outcome->refused &&
                    became.bytes == outcome->bytes && became.published_ms == outcome->published_ms);
        assert_int_equal(g->ranks[r].pulls[place].phase, g->ranks[0].pulls[place].phase);
    }
    return first;
}

static void begin(group *g, int place, int64_t step)
{
    for (int r = 0; r < RANKS; r++)
        exchange_agreement_begin(&g->ranks[r], place, step);
}

static bool all_are(const group *g, int place, exchange_phase phase)
{
    return g->ranks[0].pulls[place].phase == phase;
}

/** The reduction of a step has these numbers in these places. */
TEST(each_number_has_its_place)
{
    static const double untouched = -1;
    group g;
    double told[FLAGS + 1];
    open_group(&g);
    g.ranks[0].pulls[SECOND].proposal = (exchange_proposal){.peer = 4, .version = 12, .life = 99, .following = 3};
    for (int r = 0; r < RANKS; r++) {
        g.publications[r] = (exchange_publication){
            .print = 300, .waiting = r > 0, .unfit = r != 1, .interval_passed = true, .left_out = 6};
        g.pulls[r][FIRST] = (exchange_standing){.done = true, .bytes = 50, .published_ms = 77};
        g.pulls[r][SECOND] = (exchange_standing){.lost = true, .refused = true};
    }
    assert_int_equal(exchange_agreement_count(&g.ranks[0]), FLAGS);
    for (int r = 0; r < 2; r++) {
        told[FLAGS] = untouched;
        exchange_agreement_tell(&g.ranks[r], &g.publications[r], g.pulls[r], told);
        const double expected[] = {r == 0,
                                   told[1],
                                   6,
                                   300,
                                   90000,
                                   r,
                                   0, /* of the group */
                                   0,
                                   0,
                                   0,
                                   0,
                                   1,
                                   0,
                                   0,
                                   50,
                                   r == 0 ? 77 : 0, /* of the first pull */
                                   r == 0 ? 5 : 0,
                                   r == 0 ? 12 : 0,
                                   r == 0 ? 99 : 0,
                                   r == 0 ? 3 : 0,
                                   0,
                                   1,
                                   1,
                                   0,
                                   0};
        assert_true(r == 0 ? told[1] > 1e12 : told[1] == 0); /* the first rank's clock */
        assert_memory_equal(told, expected, sizeof expected);
        assert_true(told[FLAGS] == untouched);
    }
    g.setups[0].waits = true; /* versions are taken without these numbers */
    exchange_agreement_tell(&g.ranks[0], &g.publications[0], g.pulls[0], told);
    for (int i = 0; i < FLAGS; i++)
        assert_true(told[i] == (i == 3 ? 300 : i == 4 ? 90000 : 0));
    close_group(&g);
}

TEST(a_group_hears_of_its_publication)
{
    group g;
    open_group(&g);
    for (int r = 0; r < RANKS; r++)
        g.publications[r] = (exchange_publication){
            .print = 65535, .waiting = r > 0, .unfit = r<2, .interval_passed = r> 0, .left_out = (uint64_t)r};
    add_up(&g);
    assert_ok(exchange_agreement_hear(&g.ranks[1], 40, 65535, g.sums, &g.heard));
    /*
     * Who does not wait has met nothing that is not finite; whether the interval has passed is the first rank's to say.
     */
    assert_true(g.heard.step == 40 - DELAY && g.heard.waiting == 2 && g.heard.unfit == 1 && g.heard.left_out == 3);
    assert_true(!g.heard.interval_passed && !g.ranks[1].unlike && g.ranks[1].now_ms > 0);
    g.publications[0].interval_passed = true;
    add_up(&g);
    assert_ok(exchange_agreement_hear(&g.ranks[1], 41, 65535, g.sums, &g.heard));
    assert_true(g.heard.interval_passed);
    close_group(&g);
}

TEST(a_proposal_is_heard_once_by_all)
{
    group g;
    exchange_proposal proposal;
    exchange_outcome outcome;
    open_group(&g);
    assert_int_equal(decide(&g, SECOND, 10, &proposal, &outcome), EXCHANGE_GO_ON);
    g.ranks[0].pulls[SECOND].proposal = (exchange_proposal){.peer = 0, .version = 7, .life = 3, .following = 2};
    g.ranks[1].pulls[SECOND].proposal = (exchange_proposal){.peer = 5, .version = 9}; /* it is not this rank's to say */
    assert_int_equal(decide(&g, FIRST, 11, &proposal, &outcome), EXCHANGE_GO_ON);
    assert_int_equal(decide(&g, SECOND, 11, &proposal, &outcome), EXCHANGE_BEGIN);
    assert_true(proposal.peer == 0 && proposal.version == 7 && proposal.life == 3 && proposal.following == 2);
    /* The phase is the exchange's to begin, where the version is of use; it is not proposed again. */
    assert_true(all_are(&g, SECOND, EXCHANGE_IDLE) && g.ranks[0].pulls[SECOND].proposal.peer == EXCHANGE_NO_PEER);
    assert_int_equal(decide(&g, SECOND, 12, &proposal, &outcome), EXCHANGE_GO_ON);
    close_group(&g);
}

/** From its shards to all shards; the other pull stays where it is. */
TEST(a_version_is_gathered_and_taken_over_by_all_at_once)
{
    group g;
    exchange_proposal proposal;
    exchange_outcome outcome;
    open_group(&g);
    begin(&g, FIRST, 100);
    begin(&g, SECOND, 100);
    for (int r = 0; r < RANKS; r++)
        g.pulls[r][SECOND] = (exchange_standing){.done = r != 1, .bytes = 10, .published_ms = r == 0 ? 5 : 6};
    assert_int_equal(decide(&g, SECOND, 100 + DELAY, &proposal, &outcome), EXCHANGE_GO_ON);
    g.pulls[1][SECOND].done = true;
    assert_int_equal(decide(&g, SECOND, 100 + DELAY - 1, &proposal, &outcome), EXCHANGE_GO_ON); /* said before */
    assert_int_equal(decide(&g, SECOND, 100 + DELAY, &proposal, &outcome), EXCHANGE_GATHER);
    assert_true(!outcome.lost && !outcome.refused && outcome.bytes == 30 && outcome.published_ms == 5);
    assert_true(all_are(&g, SECOND, EXCHANGE_GATHERING) && all_are(&g, FIRST, EXCHANGE_PULLING));
    assert_int_equal(decide(&g, SECOND, 100 + DELAY + 1, &proposal, &outcome), EXCHANGE_GO_ON); /* of the shards */
    assert_int_equal(decide(&g, SECOND, 100 + 2 * DELAY, &proposal, &outcome), EXCHANGE_TAKE_OVER);
    assert_true(!outcome.lost && outcome.bytes == 0 && outcome.published_ms == 5); /* bytes count once */
    assert_true(all_are(&g, SECOND, EXCHANGE_IDLE));
    close_group(&g);
}

TEST(nothing_is_gathered_where_all_have_it)
{
    for (int on_device = 0; on_device <= 1; on_device++) {
        group g;
        exchange_proposal proposal;
        exchange_outcome outcome;
        open_group(&g);
        for (int r = 0; r < RANKS; r++) {
            g.setups[r].holders.count = RANKS;
            g.setups[r].codes_on_device = on_device; /* where decoding is a phase of its own */
            g.pulls[r][FIRST].done = true;
        }
        begin(&g, FIRST, 100);
        assert_int_equal(decide(&g, FIRST, 100 + DELAY, &proposal, &outcome),
                         on_device ? EXCHANGE_GATHER : EXCHANGE_TAKE_OVER);
        close_group(&g);
    }
}

TEST(what_one_rank_lost_is_given_up_by_all)
{
    for (int refused = 0; refused <= 1; refused++) {
        group g;
        exchange_proposal proposal;
        exchange_outcome outcome;
        open_group(&g);
        begin(&g, FIRST, 100);
        g.pulls[0][FIRST] = (exchange_standing){.done = true, .bytes = 10};
        g.pulls[1][FIRST] = (exchange_standing){.lost = true, .refused = refused};
        assert_int_equal(decide(&g, FIRST, 100 + DELAY, &proposal, &outcome), EXCHANGE_GIVE_UP);
        assert_true(outcome.lost && outcome.refused == refused && outcome.bytes == 10 &&
                    all_are(&g, FIRST, EXCHANGE_IDLE));
        close_group(&g);
    }
}

/** What is sent between ranks ends on all of them first. */
TEST(ranks_that_gather_are_not_disturbed)
{
    group g;
    exchange_proposal proposal;
    exchange_outcome outcome;
    open_group(&g);
    begin(&g, FIRST, 100);
    for (int r = 0; r < RANKS; r++)
        g.pulls[r][FIRST] = (exchange_standing){.done = true, .bytes = 10};
    assert_int_equal(decide(&g, FIRST, 110, &proposal, &outcome), EXCHANGE_GATHER);
    g.pulls[0][FIRST].done = false;
    g.pulls[1][FIRST] = (exchange_standing){.lost = true, .refused = true, .bytes = 10};
    assert_int_equal(decide(&g, FIRST, 120, &proposal, &outcome), EXCHANGE_GO_ON);
    g.pulls[0][FIRST].done = true;
    assert_int_equal(decide(&g, FIRST, 121, &proposal, &outcome), EXCHANGE_GIVE_UP);
    assert_true(outcome.lost && outcome.refused && outcome.bytes == 0 && all_are(&g, FIRST, EXCHANGE_IDLE));
    close_group(&g);
}
