/* What a group does with a version that it gave up, and with the sums that its ranks told each other. */
#include "comm/job.h"

#include "exchange/exchange_internal.h"
#include "exchange/exchange_run.h"

#include <stdlib.h>

enum { RUN_NAME = 7, PERIOD = 200, MADE = 60, AGREED = 2 };

/** Versions are complete so many steps after they were begun; none is replaced before the next period ends. */
static void open_pair(exchange_run *r)
{
    static const int sizes[] = {1, 1};
    cod_exchange_options options = run_options(PERIOD);
    options.codec = COD_EXCHANGE_DELTA;
    options.key_every = 1000; /* all but the first are deltas */
    options.lag_steps = MADE / 3;
    run_open(r, sizes, 2, &options, RUN_NAME);
    run_patiently(r);
}

/** Steps until the version is held, while no group begins the next one. */
static void take(exchange_run *r, int64_t version)
{
    run_until(r, version * PERIOD + MADE);
    must(cod_group_barrier(cod_comm_world(job)));
    run_until(r, (version + 1) * PERIOD - 1);
    must(cod_group_barrier(cod_comm_world(job)));
}

static const cod_transport_ops *real_ops;
static uint64_t losing; /**< the version whose first pull is lost */
static int starts;      /**< pulls of that version */

static cod_status count_start(cod_transport *transport, int place, const cod_slot_identity *expected, int world_rank,
                              uint64_t version)
{
    starts += version == losing;
    return real_ops->pull_start(transport, place, expected, world_rank, version);
}

static cod_status lose_first(cod_transport *transport, int place, cod_pull_state *state, cod_pulled *out)
{
    COD_TRY(real_ops->pull_poll(transport, place, state, out));
    if (starts == 1)
        *state = COD_PULL_LOST;
    return COD_OK;
}

/** A delta, so that without it no later one is of use until a key comes. */
TEST(what_was_lost_is_asked_for_again)
{
    exchange_run r;
    open_pair(&r);
    const int peer = 1 - cod_group_index(r.group);
    cod_transport_ops ops = *(real_ops = r.exchange->setup.transports[0]->ops);
    ops.pull_start = count_start;
    ops.pull_poll = lose_first;
    losing = 2;
    starts = 0;
    take(&r, 1);
    const bool first = run_held(&r, peer) == 1;
    r.exchange->setup.transports[0]->ops = &ops;
    take(&r, 2);
    r.exchange->setup.transports[0]->ops = real_ops;
    const bool again = starts == 2 && run_counters(&r).lost == 1 && run_held(&r, peer) == 2;
    run_close(&r);
    check_all(first);
    check_all(again);
}

/** Sums as they come when the group's one rank proposes that, and its pull stands so. */
static void hear_of(exchange_run *r, const exchange_proposal *proposal, const exchange_standing *as, int64_t step)
{
    double sums[COD_EXCHANGE_FLAGS_MOST];
    exchange_proposal *proposes = &r->exchange->agreement.pulls[0].proposal;
    exchange_standing *stands = &r->exchange->puller.pulls[0].standing;
    const exchange_proposal proposed = *proposes;
    const exchange_standing stood = *stands;
    *proposes = *proposal;
    *stands = *as;
    cod_exchange_flags_out(r->exchange, sums);
    *proposes = proposed;
    *stands = stood;
    must(cod_exchange_flags_in(r->exchange, step, sums));
}

/** Proposes the version. @return whether a pull of it began */
static bool propose(exchange_run *r, uint64_t version, int64_t step)
{
    const exchange_proposal proposal = {.version = version};
    const exchange_standing stands = r->exchange->puller.pulls[0].standing;
    hear_of(r, &proposal, &stands, step);
    const exchange_agreed_pull *agreed = &r->exchange->agreement.pulls[0];
    return agreed->phase == EXCHANGE_PULLING && agreed->since == step &&
           r->exchange->puller.pulls[0].version == version;
}

/** A device decodes when all have their shards, which sums that a test makes up leave out. */
static void skip_on_device(void)
{
    if (getenv("COD_TEST_LATE") != NULL)
        skip();
}

/** Hears that the pull which is under way stands so. */
static void hear_outcome(exchange_run *r, bool done, bool lost, bool refused, int64_t step)
{
    static const exchange_proposal none = {.peer = EXCHANGE_NO_PEER};
    exchange_standing as = r->exchange->puller.pulls[0].standing;
    as.done = done;
    as.lost = lost;
    as.refused = refused;
    hear_of(r, &none, &as, step);
}

TEST(sums_decide_what_pulls_do)
{
    enum { HELD = 1, NEXT = 2, LATER = 3 };
    exchange_run r;
    skip_on_device();
    open_pair(&r);
    take(&r, HELD);
    const held_peer *peer = &r.exchange->puller.peers[0];
    const exchange_agreed_pull *pull = &r.exchange->agreement.pulls[0];
    int64_t step = r.step;

    const bool known = pull->phase == EXCHANGE_IDLE && peer->version == HELD && !propose(&r, HELD, step);

    bool lost = propose(&r, NEXT, ++step);
    hear_outcome(&r, false, true, false, step + AGREED - 1); /* sent before the pull began */
    lost = lost && pull->phase == EXCHANGE_PULLING;
    hear_outcome(&r, false, true, false, step += AGREED);
    lost = lost && pull->phase == EXCHANGE_IDLE && peer->refused == 0 && peer->counters.lost == 1;

    bool done = propose(&r, NEXT, ++step);
    hear_outcome(&r, false, false, false, step += AGREED);
    done = done && pull->phase == EXCHANGE_PULLING; /* nobody has it yet */
    cod_transport *transport = r.exchange->setup.transports[0];
    transport->ops->pull_cancel(transport, 0); /* of a pull that is done no get is under way */
    hear_outcome(&r, true, false, false, step += AGREED);

    done = done && pull->phase == EXCHANGE_IDLE && peer->version == NEXT && peer->counters.pulled == 2;

    bool refused = propose(&r, LATER, ++step);
    hear_outcome(&r, false, true, true, step += AGREED);
    refused = refused && pull->phase == EXCHANGE_IDLE && peer->refused == LATER && peer->counters.rejected == 1;
    refused = refused && peer->counters.lost == 1 && !propose(&r, LATER, ++step);

    run_close(&r);
    check_all(known);
    check_all(lost);
    check_all(done);
    check_all(refused);
}

/** Each step's reduction is as long as the run's pulls need, and nothing is written behind that. */
TEST(as_much_is_told_as_pulls_need)
{
    enum { OF_GROUP = 7, OF_PULL = 9 };
    static const double untouched = -1;
    exchange_run r;
    open_pair(&r);
    double told[COD_EXCHANGE_FLAGS_MOST + 1];
    for (size_t i = 0; i <= COD_EXCHANGE_FLAGS_MOST; i++)
        told[i] = untouched;
    cod_exchange_flags_out(r.exchange, told);
    const size_t count = cod_exchange_flag_count(r.exchange);
    const bool one = r.exchange->puller.pull_count == 1 && count == OF_GROUP + OF_PULL;
    const bool within = told[count - 1] != untouched && told[count] == untouched;
    run_close(&r);
    check_all(one);
    check_all(within);
}

/**
 * One group stands still while the other publishes a key and two deltas. Then it takes them one after the other in one
 * pull, which is never idle between them; exchange_run checks the values of each.
 */
TEST(deltas_that_wait_are_taken_in_one_pull)
{
    enum { WAITING = 3 }; /* as many as there are slots */
    exchange_run r;
    open_pair(&r);
    r.exchange->setup.options.merge = COD_MERGE_NONE; /* where weights are merged, versions wait for the own ones */
    const bool reads = cod_group_index(r.group) == 0;
    const exchange_agreed_pull *pull = &r.exchange->agreement.pulls[0];
    if (!reads)
        run_until(&r, WAITING * PERIOD + MADE);
    must(cod_group_barrier(cod_comm_world(job)));
    int idle = 0;
    int64_t first = 0, last = 0;
    while (reads && last == 0 && r.step < PERIOD - 1) {
        run_until(&r, r.step + 1);
        const uint64_t held = run_held(&r, 1);
        first = first == 0 && held >= 1 ? r.step : first;
        last = held == WAITING ? r.step : 0;
        idle += held >= 1 && held < WAITING && pull->phase == EXCHANGE_IDLE;
    }
    must(cod_group_barrier(cod_comm_world(job)));
    const bool all = !reads || (last > first && idle == 0 && run_counters(&r).pulled == WAITING);
    const bool sound = r.wrong == 0 && run_counters(&r).lost == 0 && run_counters(&r).rejected == 0;
    run_close(&r);
    check_all(all);
    check_all(sound);
}

/** Of the deltas of one proposal the second is lost: the first stays, and the rest is proposed anew. */
TEST(a_pull_of_several_ends_at_what_is_lost)
{
    enum { FIRST = 2, LOST = 3 };
    exchange_run r;
    skip_on_device();
    open_pair(&r);
    take(&r, 1);
    const held_peer *peer = &r.exchange->puller.peers[0];
    const exchange_agreed_pull *pull = &r.exchange->agreement.pulls[0];
    cod_transport *transport = r.exchange->setup.transports[0];
    int64_t step = r.step;
    const exchange_proposal proposal = {.version = FIRST, .following = 2};
    hear_of(&r, &proposal, &r.exchange->puller.pulls[0].standing, ++step);
    transport->ops->pull_cancel(transport, 0); /* of a pull that is done no get is under way */
    hear_outcome(&r, true, false, false, step += AGREED);
    const bool follows = peer->version == FIRST && pull->phase == EXCHANGE_PULLING && pull->since == step &&
                         r.exchange->puller.pulls[0].version == LOST;
    hear_outcome(&r, false, true, false, step + AGREED - 1); /* said of the first */
    const bool goes_on = pull->phase == EXCHANGE_PULLING;
    hear_outcome(&r, false, true, false, step += AGREED);
    const bool ends = peer->version == FIRST && pull->phase == EXCHANGE_IDLE && peer->counters.lost == 1;
    const bool again = propose(&r, LOST, ++step) && r.exchange->puller.pulls[0].next.version == 0;
    run_close(&r);
    check_all(follows);
    check_all(goes_on);
    check_all(ends);
    check_all(again);
}

TEST_GROUP(job_setup, job_teardown)
