/* What a group does with a version that it gave up, and with the sums that its ranks told each other. */
#include "comm/job.h"

#include "distill/exchange_internal.h"
#include "distill/exchange_run.h"

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
static void what_was_lost_is_asked_for_again(void **state)
{
    (void)state;
    exchange_run r;
    open_pair(&r);
    const int peer = 1 - cod_group_index(r.group);
    cod_transport_ops ops = *(real_ops = r.exchange->transports[0]->ops);
    ops.pull_start = count_start;
    ops.pull_poll = lose_first;
    losing = 2;
    starts = 0;
    take(&r, 1);
    const bool first = run_held(&r, peer) == 1;
    r.exchange->transports[0]->ops = &ops;
    take(&r, 2);
    r.exchange->transports[0]->ops = real_ops;
    const bool again = starts == 2 && run_counters(&r).lost == 1 && run_held(&r, peer) == 2;
    run_close(&r);
    check_all(first);
    check_all(again);
}

/** Sums as they come when the pull, proposal and outcome alike, stands so on the group's one rank. */
static void hear_of(exchange_run *r, const exchange_pull *as, int64_t step)
{
    double sums[COD_EXCHANGE_FLAGS_MOST];
    exchange_pull *pull = &r->exchange->pulls[0];
    const exchange_pull now = *pull;
    *pull = *as;
    cod_exchange_flags_out(r->exchange, sums);
    *pull = now;
    must(cod_exchange_flags_in(r->exchange, step, sums));
}

/** Proposes the version. @return whether a pull of it began */
static bool propose(exchange_run *r, uint64_t version, int64_t step)
{
    exchange_pull proposal = r->exchange->pulls[0];
    proposal.proposed = 0;
    proposal.proposed_version = version;
    hear_of(r, &proposal, step);
    const exchange_pull *pull = &r->exchange->pulls[0];
    return pull->phase == PULLING && pull->version == version && pull->phase_since == step;
}

/** How the pull that is under way stands on a rank. */
static exchange_pull outcome(const exchange_run *r, bool done, bool lost, bool refused)
{
    exchange_pull pull = r->exchange->pulls[0];
    pull.done = done;
    pull.lost = lost;
    pull.refused = refused;
    return pull;
}

static void sums_decide_what_pulls_do(void **state)
{
    (void)state;
    enum { HELD = 1, NEXT = 2, LATER = 3 };
    exchange_run r;
    open_pair(&r);
    take(&r, HELD);
    const held_peer *peer = &r.exchange->peers[0];
    const exchange_pull *pull = &r.exchange->pulls[0];
    int64_t step = r.step;

    const bool known = pull->phase == IDLE && peer->version == HELD && !propose(&r, HELD, step);

    bool lost = propose(&r, NEXT, ++step);
    exchange_pull as = outcome(&r, false, true, false);
    hear_of(&r, &as, step + AGREED - 1); /* sent before the pull began */
    lost = lost && pull->phase == PULLING;
    hear_of(&r, &as, step += AGREED);
    lost = lost && pull->phase == IDLE && peer->refused == 0 && peer->counters.lost == 1;

    bool done = propose(&r, NEXT, ++step);
    as = outcome(&r, false, false, false);
    hear_of(&r, &as, step += AGREED);
    done = done && pull->phase == PULLING; /* nobody has it yet */
    cod_transport *transport = r.exchange->transports[0];
    transport->ops->pull_cancel(transport, pull->place); /* of a pull that is done no get is under way */
    as = outcome(&r, true, false, false);
    hear_of(&r, &as, step += AGREED);

    done = done && pull->phase == IDLE && peer->version == NEXT && peer->counters.pulled == 2;

    bool refused = propose(&r, LATER, ++step);
    as = outcome(&r, false, true, true);
    hear_of(&r, &as, step += AGREED);
    refused = refused && pull->phase == IDLE && peer->refused == LATER && peer->counters.rejected == 1;
    refused = refused && peer->counters.lost == 1 && !propose(&r, LATER, ++step);

    run_close(&r);
    check_all(known);
    check_all(lost);
    check_all(done);
    check_all(refused);
}

/** Each step's reduction is as long as the run's pulls need, and nothing is written behind that. */
static void as_much_is_told_as_pulls_need(void **state)
{
    (void)state;
    enum { OF_GROUP = 7, OF_PULL = 8 };
    static const double untouched = -1;
    exchange_run r;
    open_pair(&r);
    double told[COD_EXCHANGE_FLAGS_MOST + 1];
    for (size_t i = 0; i <= COD_EXCHANGE_FLAGS_MOST; i++)
        told[i] = untouched;
    cod_exchange_flags_out(r.exchange, told);
    const size_t count = cod_exchange_flag_count(r.exchange);
    const bool one = r.exchange->pull_count == 1 && count == OF_GROUP + OF_PULL;
    const bool within = told[count - 1] != untouched && told[count] == untouched;
    run_close(&r);
    check_all(one);
    check_all(within);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_much_is_told_as_pulls_need),
                                       cmocka_unit_test(what_was_lost_is_asked_for_again),
                                       cmocka_unit_test(sums_decide_what_pulls_do)};
    return cmocka_run_group_tests(tests, job_setup, job_teardown);
}
