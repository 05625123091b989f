/* Exchanges of groups that are many, or whose ranks differ. */
#include "comm/job.h"

#include "comm/comm_internal.h"
#include "core/log.h"
#include "exchange/exchange_internal.h"
#include "exchange/exchange_run.h"

#include <stdio.h>
#include <string.h>

enum { RUN_NAME = 7, DELTA = COD_EXCHANGE_DELTA };

/**
 * More peers than one pull after another could follow: publications come every 12 steps, and a pull takes 7 at least.
 */
TEST(all_peers_have_their_turn_within_a_period)
{
    enum { GROUPS = 4, PERIOD = 12, VERSIONS = 40 };
    static const int sizes[GROUPS] = {1, 1, 1, 1};
    exchange_run r;
    cod_exchange_options options = run_options(PERIOD);
    int64_t missed = 0, all = 0;
    if (cod_comm_size(job) != GROUPS)
        return;
    options.codec = DELTA; /* each is against the one before: who misses one must wait for a key */
    options.slots = 8;
    run_open(&r, sizes, GROUPS, &options, RUN_NAME);
    run_patiently(&r);
    while (r.step < PERIOD * VERSIONS) {
        run_until(&r, r.step + 1);
        must(cod_group_barrier(cod_comm_world(job)));
    }
    for (int g = 0; g < GROUPS; g++) {
        int64_t first = 0, last = 0;
        for (int64_t v = VERSIONS; v > 0; v--) {
            const bool seen = (r.seen[g] >> v & 1) != 0;
            last = seen && last == 0 ? v : last;
            first = seen ? v : first;
            all += last > 0;
            missed += last > 0 && !seen;
        }
        missed -= first > 0 ? first - 1 : 0; /* before the first that was seen */
        all -= first > 0 ? first - 1 : 0;
    }
    const uint64_t takeovers = r.takeovers;
    run_close(&r);
    if (cod_comm_rank(job) == 0)
        print_message("%llu of %lld versions were taken over\n", (unsigned long long)takeovers, (long long)all);
    check_all(all >= (GROUPS - 1) * VERSIONS / 2 && 10 * missed <= all);
}

/** The transport of the exchange that is watched, and when each group was asked what it publishes. */
static const cod_transport_ops *watched_ops;
static const exchange_run *watched;
static int64_t asked_at[RUN_MAX_GROUPS];
static bool is_asked[RUN_MAX_GROUPS];

static cod_status offer_and_note(cod_transport *transport, const cod_slot_identity *expected, int world_rank,
                                 const cod_slot_wanted *wanted, bool *answered, cod_slot_offered *offered)
{
    if (!is_asked[expected->group])
        asked_at[expected->group] = watched->step;
    const cod_status status = watched_ops->offer(transport, expected, world_rank, wanted, answered, offered);
    is_asked[expected->group] = !*answered;
    return status;
}

/**
 * Two pulls for three peers: who answered while the pull that it belongs to was taking another peer's version is asked
 * again.
 */
TEST(what_is_proposed_was_asked_after_the_last_pull)
{
    enum { GROUPS = 4, PERIOD = 40, VERSIONS = 12 };
    static const int sizes[GROUPS] = {1, 1, 1, 1};
    exchange_run r;
    const cod_exchange_options options = run_options(PERIOD);
    cod_transport_ops ops;
    int64_t ended_at[COD_EXCHANGE_PULLS_MOST] = {0};
    int proposals = 0, old = 0;
    if (cod_comm_size(job) != GROUPS)
        return;
    run_open(&r, sizes, GROUPS, &options, RUN_NAME);
    watched = &r;
    watched_ops = r.exchange->setup.transports[0]->ops;
    ops = *watched_ops;
    ops.offer = offer_and_note;
    r.exchange->setup.transports[0]->ops = &ops;
    for (double missing = 1; missing > 0;) {
        exchange_agreed_pull before[COD_EXCHANGE_PULLS_MOST];
        memcpy(before, r.exchange->agreement.pulls, (size_t)r.exchange->puller.pull_count * sizeof *before);
        run_until(&r, r.step + 1);
        for (int k = 0; k < r.exchange->puller.pull_count; k++) {
            const exchange_agreed_pull *pull = &r.exchange->agreement.pulls[k];
            if (before[k].phase != EXCHANGE_IDLE && pull->phase == EXCHANGE_IDLE)
                ended_at[k] = r.step - 1;
            if (pull->proposal.peer == EXCHANGE_NO_PEER || before[k].proposal.peer != EXCHANGE_NO_PEER)
                continue;
            proposals++;
            old += asked_at[r.exchange->puller.peers[pull->proposal.peer].group] < ended_at[k];
        }
        missing = r.step < PERIOD * VERSIONS || proposals <= GROUPS;
        must(cod_group_reduce(cod_comm_world(job), &missing, 1, COD_REDUCE_SUM));
    }
    const bool two = r.exchange->puller.pull_count == 2;
    r.exchange->setup.transports[0]->ops = watched_ops;
    run_close(&r);
    check_all(two);
    check_all(old == 0);
}

/** Two groups. */
typedef struct split {
    int ranks, sizes[2];
} split;

static char warning[512];

static void keep_warning(void *context, cod_log_level level, const char *line)
{
    (void)context;
    if (level == COD_LOG_WARN)
        snprintf(warning, sizeof warning, "%s", line);
}

/**
 * As of mixed processors: what they compute differs in a bit, and readers would put together what does not belong
 * together.
 */
TEST(ranks_with_other_weights_are_named)
{
    static const split splits[] = {{3, {2, 1}}, {4, {2, 2}}, {4, {1, 3}}};
    for (const split *s = splits; s < splits + sizeof splits / sizeof splits[0]; s++)
        for (int deterministic = 0; deterministic < 2; deterministic++) {
            exchange_run r;
            cod_exchange_options options = run_options(20);
            const int group = s->sizes[0] > 1 ? 0 : 1;
            char named[64];
            if (s->ranks != cod_comm_size(job))
                continue;
            options.deterministic = deterministic != 0;
            run_open(&r, s->sizes, 2, &options, RUN_NAME);
            r.is_odd = cod_group_index(r.group) == group;
            const int odd = cod_group_world_rank(r.group, group, s->sizes[group] - 1);
            warning[0] = '\0';
            cod_log_set_sink(keep_warning, NULL, COD_LOG_WARN);
            run_until(&r, 75);
            const bool none = warning[0] == '\0';
            r.odd_step = cod_comm_rank(job) == odd ? 80 : 0;
            run_until(&r, 130);
            snprintf(named, sizeof named, "the weights of rank %d (", odd);
            const bool first = r.is_odd && cod_group_rank(r.group) == 0;
            const bool told = first ? strstr(warning, named) != NULL : strstr(warning, "weights") == NULL;
            run_close(&r);
            cod_log_set_sink(NULL, NULL, COD_LOG_INFO);
            check_all(none && told);
        }
}

/** A rank's slots as saved when they are full. */
static double full_slots(const exchange_run *r, const int sizes[2])
{
    cod_slot_layout layout = {.slots = (uint32_t)r->options.slots, .groups = 2};
    for (int g = 0; g < 2; g++) {
        const uint64_t bytes = exchange_slot_bytes(&r->options, &r->models[g], sizes[g]);
        layout.slot_bytes = bytes > layout.slot_bytes ? bytes : layout.slot_bytes;
    }
    return (double)(sizeof(cod_slot_header) + cod_slot_window_bytes(&layout));
}

/** `plan` says beforehand what a checkpoint holds at most: what all ranks of a group save, its equal arrays once. */
TEST(a_checkpoint_is_no_longer_than_planned)
{
    static const split splits[] = {{3, {2, 1}}, {4, {2, 2}}, {4, {1, 3}}};
    for (const split *s = splits; s < splits + sizeof splits / sizeof splits[0]; s++) {
        exchange_run r;
        cod_exchange_options options = run_options(20);
        const cod_exchange_array *arrays;
        size_t count;
        double slots = 0, rest = 0;
        if (s->ranks != cod_comm_size(job))
            continue;
        options.merge_against = s->sizes[0] == 2 ? COD_AGAINST_EXACT : COD_AGAINST_DECODED;
        run_open(&r, s->sizes, 2, &options, RUN_NAME);
        run_until(&r, 45);
        must(cod_exchange_state(r.exchange, &arrays, &count));
        for (size_t i = 0; i < count; i++) {
            if (strcmp(arrays[i].name, COD_EXCHANGE_SLOTS) == 0)
                slots += (double)arrays[i].bytes;
            else
                rest += cod_group_rank(r.group) > 0 ? 0 : (double)arrays[i].bytes;
        }
        rest = run_sum(&r, rest);
        const int together = cod_exchange_holders(r.exchange);
        const double full = full_slots(&r, s->sizes);
        const cod_exchange_sizes planned =
            cod_exchange_plan(&r.options, r.models, s->sizes, 2, cod_group_index(r.group), together);
        const double ranks = s->sizes[cod_group_index(r.group)];
        run_close(&r);
        check_all(rest + ranks * full == (double)planned.checkpoint_bytes && slots <= full);
    }
}

/** Whether what this rank's node holds of the exchange is what cod_exchange_plan() counts, to the byte. */
static bool holds_what_is_planned(const exchange_run *r, const int sizes[2])
{
    const cod_exchange *e = r->exchange;
    const int mine = cod_group_index(r->group), together = cod_exchange_holders(e);
    const cod_exchange_sizes planned = cod_exchange_plan(&r->options, r->models, sizes, 2, mine, together);
    uint64_t held = 0;
    for (int i = 0; i < exchange_publisher_held_count(&e->publisher); i++)
        held += (*exchange_publisher_held(&e->publisher, i))->bytes;
    for (int i = 0; i < e->puller.peer_count; i++)
        held += e->puller.peers[i].values->bytes + e->puller.peers[i].incoming->bytes;
    held += exchange_total_of(exchange_own_model(&e->setup)) *
            sizeof(float); /* the snapshot, of which each rank's buffer is a part */
    const uint64_t count = (uint64_t)together, part = planned.own_bytes + planned.held_bytes;
    return held >= count * part && held < count * (part + 2) && e->shared_used >= held && e->shared_used < held + 4096;
}

/**
 * Two and two ranks of a group on two nodes, or two and one: each node has one copy, and the other node's shards once.
 */
TEST(ranks_of_a_node_hold_values_together)
{
    enum { SECOND = 2 };
    static const split splits[] = {{4, {3, 1}}, {5, {4, 1}}};
    for (const split *s = splits; s < splits + sizeof splits / sizeof splits[0]; s++) {
        exchange_run r;
        cod_exchange_options options = run_options(20);
        if (s->ranks != cod_comm_size(job))
            continue;
        options.codec = DELTA;
        options.merge_against = s->ranks == 5 ? COD_AGAINST_EXACT : COD_AGAINST_DECODED;
        for (int k = 0; k < s->ranks; k++)
            job->node_of[k] = k >= SECOND;
        run_open(&r, s->sizes, 2, &options, RUN_NAME);
        const int rank = cod_group_rank(r.group), several = cod_group_size(r.group) > 1;
        const bool shared =
            !several || (r.exchange->setup.shared != NULL && exchange_sends_shards(&r.exchange->setup) &&
                         cod_exchange_holders(r.exchange) == (rank < SECOND ? SECOND : s->sizes[0] - SECOND) &&
                         holds_what_is_planned(&r, s->sizes));
        r.pause_ms = 1;
        run_until(&r, 20);
        run_until_all_hold(&r, 1);
        const uint64_t first = run_held(&r, 1 - cod_group_index(r.group));
        run_until_all_hold(&r, first < 4 ? 4 : first + 1);
        const bool right = r.wrong == 0 && r.takeovers >= 2 && r.publications >= 4;
        run_close(&r);
        for (int k = 0; k < s->ranks; k++)
            job->node_of[k] = 0;
        check_all(shared);
        check_all(right);
    }
}

TEST_GROUP(job_setup, job_teardown)
