/* The rule beside a link that is computed: a queue of a rate behind a way of a length, looked at every millisecond. */
#include "comm/window_flow_internal.h"

#include "support/test.h"

#define LOOK_S      1e-3
#define GIGABIT     125e6
#define TEN_MEGABIT 1.25e6

typedef struct link_model {
    double rate, way_s, now_s;
    double free_s;   /**< when the last byte asked for leaves the queue */
    window_flow all; /**< all runs */
} link_model;

typedef struct flow_run {
    window_flow flow;
    window_piece pieces[WINDOW_FLOW_PIECES];
    double here_s[WINDOW_FLOW_PIECES]; /**< when each piece is to come */
    size_t left;                       /**< bytes to ask for */
} flow_run;

/** One look of one run. */
static void look(flow_run *run, link_model *link)
{
    const double now_s = link->now_s;
    for (int i = 0; i < WINDOW_FLOW_PIECES; i++)
        if (run->pieces[i].bytes > 0 && run->here_s[i] <= now_s)
            window_flow_arrived(&run->flow, &link->all, &run->pieces[i], now_s);
    for (int i = 0; i < WINDOW_FLOW_PIECES; i++) {
        const size_t bytes = run->pieces[i].bytes > 0 ? 0 : window_flow_next(&run->flow, &link->all, run->left);
        if (bytes == 0)
            continue;
        window_flow_asked(&run->flow, &link->all, &run->pieces[i], bytes, now_s);
        run->left -= bytes;
        link->free_s = (link->free_s > now_s ? link->free_s : now_s) + (double)bytes / link->rate;
        run->here_s[i] = link->free_s + link->way_s;
    }
}

typedef struct outcome {
    double share;  /**< of the link's rate */
    double most_s; /**< what the link takes for the bytes that are in flight, at most */
    size_t most;   /**< those bytes */
} outcome;

/** Gets `bytes` by each of the runs, all at once, beside one that never comes, or NULL. */
static outcome get_beside(flow_run *runs, int count, size_t bytes, link_model *link, window_flow *stopped)
{
    const double begin_s = link->now_s;
    outcome out = {0};
    for (int r = 0; r < count; r++)
        runs[r].left = bytes;
    size_t in_flight = 0;
    for (size_t left = bytes; left > 0 || in_flight > 0; link->now_s += LOOK_S) {
        left = in_flight = 0;
        if (stopped != NULL)
            window_flow_look(stopped, &link->all, link->now_s);
        for (int r = 0; r < count; r++)
            look(&runs[r], link);
        for (int r = 0; r < count; r++)
            left += runs[r].left, in_flight += runs[r].flow.in_flight;
        out.most = link->all.in_flight > out.most ? link->all.in_flight : out.most;
    }
    out.share = (double)count * (double)bytes / (link->now_s - begin_s) / link->rate;
    out.most_s = (double)out.most / link->rate;
    return out;
}

static outcome get(flow_run *runs, int count, size_t bytes, link_model *link)
{
    return get_beside(runs, count, bytes, link, NULL);
}

/** 100 ms of a gigabit are 12.5 MB. */
TEST(a_fast_and_long_link_is_filled)
{
    enum { BYTES = 400 * 1000 * 1000 };
    static const double ways_s[] = {0.05, 0.1};
    for (size_t w = 0; w < sizeof ways_s / sizeof ways_s[0]; w++) {
        flow_run run = {0};
        link_model link = {.rate = GIGABIT, .way_s = ways_s[w]};
        (void)get(&run, 1, BYTES, &link);
        /* The second get begins with what the first has learnt. */
        const outcome out = get(&run, 1, BYTES, &link);
        assert_true(out.most > 4 * 1024 * 1024 && out.share > 0.9);
        /* Nor does it queue more than the link holds and a little. */
        assert_true(out.most_s < 2.2 * ways_s[w] + 0.05);
    }
}

TEST(little_waits_before_a_slow_link)
{
    enum { MOST = 16, BYTES = 4 * 1000 * 1000 };
    for (int count = 1; count <= MOST; count *= 4) {
        flow_run runs[MOST] = {0};
        link_model link = {.rate = TEN_MEGABIT, .way_s = 1e-3};
        for (int again = 0; again < 3; again++) {
            const outcome out = get(runs, count, BYTES, &link);
            /*
             * WINDOW_FLOW_LEAST of each takes 13 ms; what waits behind those of the others adds as much to the round
             * trip.
             */
            assert_true(out.share > 0.95 && out.most_s < 0.1 + 0.025 * count);
        }
    }
}

TEST(a_slower_link_gets_less_and_a_longer_one_more)
{
    enum { BYTES = 100 * 1000 * 1000 };
    flow_run run = {0};
    link_model link = {.rate = GIGABIT, .way_s = 0.02};
    (void)get(&run, 1, BYTES, &link);
    const size_t before = window_flow_limit(&run.flow);
    link.rate /= 100;
    (void)get(&run, 1, BYTES / 4, &link);
    assert_true(window_flow_limit(&run.flow) < before / 20);
    link.rate *= 100;
    (void)get(&run, 1, BYTES, &link);
    assert_true(window_flow_limit(&run.flow) > before / 2);
    /* Five times as long: the shortest round trip that was ever seen must not stay what is believed. */
    link.way_s = 0.1;
    (void)get(&run, 1, BYTES, &link);
    assert_true(get(&run, 1, BYTES, &link).share > 0.7);
    assert_true(window_flow_limit(&run.flow) > 2 * before);
}

TEST(a_stopped_rank_holds_up_no_other)
{
    enum { BYTES = 100 * 1000 * 1000 };
    flow_run runs[2] = {0};
    link_model link = {.rate = GIGABIT, .way_s = 0.05};
    (void)get(&runs[1], 1, BYTES, &link);
    (void)get(&runs[0], 1, BYTES, &link);
    /* All that it was asked for never comes. */
    window_piece lost;
    for (size_t bytes; (bytes = window_flow_next(&runs[1].flow, &link.all, SIZE_MAX)) > 0;)
        window_flow_asked(&runs[1].flow, &link.all, &lost, bytes, link.now_s);
    assert_true(link.all.in_flight > window_flow_limit(&link.all) / 2);
    assert_true(get_beside(&runs[0], 1, BYTES, &link, &runs[1].flow).share > 0.3);
    assert_true(get_beside(&runs[0], 1, BYTES, &link, &runs[1].flow).share > 0.9);
    /* It goes on after all. */
    assert_true(runs[1].flow.silent && link.all.in_flight == 0);
    const size_t in_flight = runs[1].flow.in_flight;
    window_flow_arrived(&runs[1].flow, &link.all, &lost, 1e6);
    assert_true(!runs[1].flow.silent && link.all.in_flight == runs[1].flow.in_flight && link.all.in_flight < in_flight);
}

TEST(the_limit_has_bounds)
{
    window_flow flow = {0}, all = {0};
    window_piece piece;
    assert_int_equal(window_flow_limit(&flow), WINDOW_FLOW_LEAST);
    assert_int_equal(window_flow_next(&flow, &all, 7), 7);
    window_flow_asked(&flow, &all, &piece, 7, 0);
    window_flow_arrived(&flow, &all, &piece, 1000);
    assert_int_equal(window_flow_limit(&flow), WINDOW_FLOW_LEAST);
    assert_true(piece.bytes == 0 && flow.in_flight == 0 && all.in_flight == 0);
    /* At the least, one piece at a time goes on. */
    assert_int_equal(window_flow_next(&flow, &all, SIZE_MAX), WINDOW_FLOW_LEAST);
    window_flow_asked(&flow, &all, &piece, WINDOW_FLOW_LEAST, 1000);
    assert_int_equal(window_flow_next(&flow, &all, SIZE_MAX), 0);
    window_flow_arrived(&flow, &all, &piece, 1000);
    flow.rate = flow.round_trip_s = all.rate = all.round_trip_s = 1e12;
    assert_int_equal(window_flow_limit(&flow), WINDOW_FLOW_MOST);
    int pieces = 0;
    for (size_t bytes; (bytes = window_flow_next(&flow, &all, SIZE_MAX)) > 0; pieces++)
        window_flow_asked(&flow, &all, &piece, bytes, 0);
    assert_int_equal(pieces, WINDOW_FLOW_PIECES - 1);
    assert_true(flow.in_flight > WINDOW_FLOW_MOST - WINDOW_FLOW_PIECE_MOST && flow.in_flight <= WINDOW_FLOW_MOST);
    /* All have as much in flight as they may: one piece of another rank is still asked for. */
    window_flow other = {.rate = 1e12, .round_trip_s = 1};
    window_flow_asked(&other, &all, &piece, window_flow_next(&other, &all, SIZE_MAX), 0);
    assert_int_equal(other.in_flight, WINDOW_FLOW_LEAST);
    assert_int_equal(window_flow_next(&other, &all, SIZE_MAX), 0);
}
