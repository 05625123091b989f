#include "comm/job.h"

#include "core/chunk_format.h"
#include "core/trace.h"
#include "exchange/exchange_internal.h"
#include "exchange/exchange_run.h"
#include "exchange/slot.h"
#include "support/clock.h"
#include "support/late.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RUN_NAME = 7 };
enum { INT8 = COD_EXCHANGE_INT8, DELTA = COD_EXCHANGE_DELTA };

/** How the job's ranks can be split. */
typedef struct split {
    int ranks;
    int sizes[RUN_MAX_GROUPS];
    size_t groups;
} split;

static const split splits[] = {{2, {1, 1}, 2}, {3, {1, 1, 1}, 3}, {3, {2, 1}, 2}, {4, {2, 2}, 2}, {4, {1, 3}, 2}};

#define EACH_SPLIT(s)                                                                                                  \
    for (const split *s = splits; s < splits + sizeof splits / sizeof splits[0]; s++)                                  \
        if (s->ranks == cod_comm_size(job))

static bool holds_all(const exchange_run *r, uint64_t version)
{
    for (int i = 0; i < cod_exchange_peer_count(r->exchange); i++)
        if (run_held(r, cod_exchange_peer_group(r->exchange, i)) < version)
            return false;
    return true;
}

/**
 * Of what is coded on a device, less than half of f32's bytes go between it and the host: all that is published and
 * taken over.
 */
static bool moves_codes(const exchange_run *r, size_t copied)
{
    uint64_t largest = 0;
    for (int g = 0; g < RUN_MAX_GROUPS; g++) {
        const uint64_t values = r->models[g].count + r->models[g].state_count;
        largest = values > largest ? values : largest;
    }
    const uint64_t most = (r->publications + r->takeovers + (uint64_t)cod_exchange_peer_count(r->exchange)) * largest;
    return !r->late || (copied > 0 && copied < most * sizeof(float) / 2);
}

TEST(groups_take_over_what_their_peers_published)
{
    EACH_SPLIT(s)
    {
        exchange_run r;
        cod_exchange_options options = run_options(20);
        options.codec = DELTA;
        options.slots = 8;
        const size_t copied = cod_late_copied_bytes();
        const double begin = cod_clock_s();
        run_open(&r, s->sizes, s->groups, &options, RUN_NAME);
        run_until_all_hold(&r, 6);
        const bool codes = moves_codes(&r, cod_late_copied_bytes() - copied);
        const cod_exchange_counters counters = run_counters(&r);
        const uint64_t takeovers = r.takeovers, own = r.with_own, begun = (uint64_t)r.step / 20;
        const double most_s = cod_clock_s() - begin + 1; /* ages are of the wall's clock */
        uint64_t from_peers = 0;
        bool told = true, aged = false;
        for (int i = 0; i < cod_exchange_peer_count(r.exchange); i++) {
            cod_exchange_peer_counters peer;
            cod_exchange_checkpoint held;
            cod_exchange_read_peer(r.exchange, i, &peer);
            cod_exchange_read_checkpoint(r.exchange, i, 0, &held);
            from_peers += peer.pulled;
            told =
                told && peer.rejected == 0 && peer.bytes > 1000 * peer.pulled && held.age_s >= 0 && held.age_s < most_s;
            aged = aged || held.age_s > 0;
            told = told && (peer.timed_s > 0) == (peer.timed_bytes > 0);
            told = told && (peer.timed_bytes > 0 || cod_group_rank(r.group) > 0);
        }
        const bool due = r.publications == begun && (counters.published == begun || counters.published == begun - 1);
        run_close(&r);
        if (cod_comm_rank(job) == 0)
            print_message("%zu groups: %llu taken over, %llu with one's own, %llu lost, slowest step %.2f ms\n",
                          s->groups, (unsigned long long)takeovers, (unsigned long long)own,
                          (unsigned long long)counters.lost, 1e3 * r.slowest_s);
        check_all(due);
        check_all(codes);
        check_all(told && aged && from_peers == takeovers);
        check_all(counters.rejected == 0 && (counters.skipped == 0 || run_is_on_files()));
        check_all(counters.pulled == takeovers && counters.switches == takeovers);
        check_all(counters.published_bytes > 0 && takeovers > 0);
    }
}

TEST(groups_of_unequal_speed_do_not_wait)
{
    EACH_SPLIT(s)
    {
        exchange_run r;
        cod_exchange_options options = run_options(20);
        /*
         * With steps of 1 ms a version in 3 slots lives 40 ms, about as long as the slow group's pull; in 8 slots, 140.
         */
        options.slots = 8;
        run_open(&r, s->sizes, s->groups, &options, RUN_NAME);
        const bool slow = cod_group_index(r.group) == 0;
        r.pause_ms *= slow ? 4 : 1;
        run_until_all_hold(&r, 2);
        run_close(&r);
    }
}

/**
 * A step, an evaluation or a checkpoint of this rank that takes longer than a pull's patience says nothing of the pull.
 */
TEST(steps_longer_than_the_patience_lose_nothing)
{
    EACH_SPLIT(s)
    {
        exchange_run r;
        cod_exchange_options options = run_options(4);
        options.slots = 16;
        options.pull_timeout_s = 0.1;
        run_open(&r, s->sizes, s->groups, &options, RUN_NAME);
        r.pause_ms = 115;
        run_until_all_hold(&r, 1);
        must(r.takeovers > 0 ? COD_OK : cod_fail(COD_ERR_PEER, "nothing was taken over"));
        run_close(&r);
    }
}

/**
 * As after a pause of the node: one group is some periods behind, which must not end merging. The groups step together
 * from then on, so that it stays so far behind whatever the machine's load.
 */
TEST(a_group_that_is_behind_still_meets_its_peers)
{
    enum { PERIOD = 20, BEHIND = 4 };
    EACH_SPLIT(s)
    {
        exchange_run r;
        cod_exchange_options options = run_options(PERIOD);
        options.merge = COD_MERGE_DELAY_CORRECTED;
        options.slots = 16;
        run_open(&r, s->sizes, s->groups, &options, RUN_NAME);
        const bool late = cod_group_index(r.group) == 0;
        if (!late)
            run_until(&r, BEHIND * PERIOD);
        for (double missing = 1; missing > 0;) {
            run_until(&r, r.step + 1);
            missing = !holds_all(&r, 8);
            must(cod_group_reduce(cod_comm_world(job), &missing, 1, COD_REDUCE_SUM));
        }
        const uint64_t takeovers = r.takeovers, meetings = r.meetings, peers = s->groups - 1;
        run_close(&r);
        if (late && cod_comm_rank(job) == 0)
            print_message("%llu of %llu versions met one's own\n", (unsigned long long)meetings,
                          (unsigned long long)takeovers);
        check_all(!late || meetings + peers >= takeovers); /* the last of each may have come too late */
    }
}

/** Deltas lead from one version to the next: a reader that lost one must find its way at a key, on bytes that fit. */
TEST(who_lost_a_delta_goes_on_from_a_key)
{
    EACH_SPLIT(s)
    {
        exchange_run r;
        cod_exchange_options options = run_options(10);
        options.codec = DELTA;
        options.key_every = 4;
        run_open(&r, s->sizes, s->groups, &options, RUN_NAME);
        const bool late = cod_group_index(r.group) == 0;
        r.pause_ms *= late ? 2 : 1;
        run_until(&r, late ? 20 : 80);
        must(cod_group_barrier(cod_comm_world(job)));
        run_until(&r, late ? 20 : 140); /* six periods of the others, in a window of three versions */
        must(cod_group_barrier(cod_comm_world(job)));
        run_until_all_hold(&r, 16);
        const uint64_t rejected = run_counters(&r).rejected;
        run_close(&r);
        check_all(rejected == 0);
    }
}

/**
 * All groups step together until each publishes by this coder and its peers have taken over `more` versions since then.
 */
static void run_until_coder(exchange_run *r, const char *entropy, uint64_t more)
{
    uint64_t since = 0;
    for (double missing = 1; missing > 0;) {
        run_until(r, r->step + 1);
        if (since == 0 && strcmp(cod_exchange_entropy(r->exchange), entropy) == 0)
            since = (uint64_t)(r->step / r->options.period);
        missing = since == 0 || !holds_all(r, since + more);
        must(cod_group_reduce(cod_comm_world(job), &missing, 1, COD_REDUCE_SUM));
    }
}

/** The link is said to be beyond all measure, so that how fast anything is here decides nothing. */
TEST(a_coder_changes_at_a_key_and_readers_follow)
{
    EACH_SPLIT(s)
    {
        exchange_run r;
        cod_exchange_options options = run_options(10);
        options.codec = COD_EXCHANGE_AUTO;
        options.key_every = 4;
        options.slots = 8;
        run_open(&r, s->sizes, s->groups, &options, RUN_NAME);
        const bool begins_small = strcmp(cod_exchange_entropy(r.exchange), "zstd") == 0;
        cod_coder *coder = &r.exchange->publisher.coder;
        coder->link_bytes = 1e30;
        coder->link_s = 1;
        run_until_coder(&r, "none", 2);
        const int64_t changed = r.step;
        coder->link_bytes = 1;
        coder->link_s = 1e30;
        run_until_coder(&r, "zstd", 2);
        const uint64_t rejected = run_counters(&r).rejected, takeovers = r.takeovers;
        run_close(&r);
        check_all(begins_small && changed > 4 * options.period); /* not before the second key */
        check_all(rejected == 0 && takeovers >= 4);
    }
}

TEST(what_must_repeat_keeps_its_coder)
{
    EACH_SPLIT(s)
    {
        exchange_run r;
        cod_exchange_options options = run_options(10);
        options.codec = COD_EXCHANGE_AUTO;
        options.deterministic = true;
        run_open(&r, s->sizes, s->groups, &options, RUN_NAME);
        r.pause_ms = 0;
        r.exchange->publisher.coder.link_bytes = 1e30;
        r.exchange->publisher.coder.link_s = 1;
        r.exchange->publisher.coder.trials = 100;
        run_until(&r, 95);
        const bool kept = strcmp(cod_exchange_entropy(r.exchange), "zstd") == 0, all = holds_all(&r, 9);
        run_close(&r);
        check_all(kept && all);
    }
}

TEST(every_coding_travels)
{
    EACH_SPLIT(s)
    {
        for (int codec = 1; codec <= 4; codec++) {
            exchange_run r;
            cod_exchange_options options = run_options(10);
            options.codec = codec;
            options.entropy = codec % 3;
            options.peers = codec == 2 ? COD_PEERS_RING : codec == 3 ? COD_PEERS_RANDOM + 256 : COD_PEERS_ALL;
            options.deterministic = true;
            run_open(&r, s->sizes, s->groups, &options, RUN_NAME);
            r.pause_ms = 0;
            run_until(&r, 45);
            const bool all = holds_all(&r, 4), own = r.with_own == r.takeovers;
            run_close(&r);
            check_all(all && own);
        }
    }
}

/** By a clock that moves so much with each step, whatever that took. */
TEST(a_minimum_interval_leaves_publications_out)
{
    enum { PERIOD = 2, STEPS = 400, STEP_MS = 1, INTERVAL_MS = 30, AGREEMENT_STEPS = 4 };
    EACH_SPLIT(s)
    {
        exchange_run r;
        cod_exchange_options options = run_options(PERIOD);
        options.min_interval_ms = INTERVAL_MS;
        cod_test_clock_stop_after(0);
        run_open(&r, s->sizes, s->groups, &options, RUN_NAME);
        while (r.step < STEPS) {
            run_until(&r, r.step + 1);
            cod_test_clock_pass(1e-3 * STEP_MS);
        }
        const cod_exchange_counters counters = run_counters(&r);
        const uint64_t publications = r.publications, accounted = publications + counters.skipped, due = STEPS / PERIOD;
        cod_test_clock_go();
        run_until_all_hold(&r, due);
        run_close(&r);
        check_all(publications <= STEPS * STEP_MS / INTERVAL_MS + 1);
        check_all(publications >= STEPS / (INTERVAL_MS / STEP_MS + PERIOD + AGREEMENT_STEPS));
        check_all((accounted == due || (accounted > due && run_is_on_files())) && counters.skipped > 0);
    }
}

/** No values, rooms, slots or state; the groups' steps go on. */
TEST(what_publishes_nothing_holds_nothing)
{
    enum { PERIOD = 10 };
    EACH_SPLIT(s)
    {
        exchange_run r;
        cod_exchange_options options = run_options(PERIOD);
        options.codec = COD_EXCHANGE_NONE;
        run_open(&r, s->sizes, s->groups, &options, RUN_NAME);
        run_until(&r, 3 * PERIOD);
        const bool saves_none = run_save(&r).count == 0;
        const cod_exchange *e = r.exchange;
        const bool holds_none = e->publisher.snapshot == NULL && e->publisher.own[0].values == NULL &&
                                e->setup.transports[0] == NULL && e->setup.shared == NULL &&
                                e->puller.rooms.count == 0 && r.device_bytes == 0;
        const bool reads_none = cod_exchange_peer_count(e) == 0 && cod_exchange_entropy(e) == NULL;
        const cod_exchange_counters counters = run_counters(&r);
        const cod_exchange_sizes planned =
            cod_exchange_plan(&r.options, r.models, s->sizes, (int)s->groups, cod_group_index(r.group), 1);
        run_close(&r);
        check_all(holds_none);
        check_all(reads_none && saves_none);
        check_all(planned.memory_bytes == 0 && planned.checkpoint_bytes == 0 && planned.peers == 0);
        check_all(counters.published == 0 && counters.skipped == 0 && r.publications == 0 && r.takeovers == 0);
    }
}

TEST(a_state_of_another_period_is_refused)
{
    EACH_SPLIT(s)
    {
        exchange_run r;
        cod_exchange_options options = run_options(10);
        run_open(&r, s->sizes, s->groups, &options, RUN_NAME);
        run_until(&r, 20);
        run_saved saved = run_save(&r);
        run_close(&r);
        options.period = 20;
        run_open(&r, s->sizes, s->groups, &options, RUN_NAME);
        const cod_status status = run_fill(&r, &saved);
        const bool named = strstr(cod_error_message(), "exchange.period 10, not 20") != NULL;
        run_close(&r);
        check_all(status == COD_ERR_FORMAT && named);
    }
}

/** Deterministic steps at a speed that differs from run to run; the digest of all that was taken over. */
static uint64_t deterministic_digest(const split *s, int codec, int64_t steps, int64_t restart_at, int round)
{
    exchange_run r;
    cod_exchange_options options = run_options(10);
    options.codec = codec;
    options.deterministic = true;
    options.lag_steps = 7;
    run_open(&r, s->sizes, s->groups, &options, RUN_NAME);
    r.pause_ms = (cod_comm_rank(job) + round) % 2 ? 0.1 : 1;
    if (restart_at > 0) {
        run_until(&r, restart_at);
        run_saved saved = run_save(&r);
        const uint64_t digest = r.digest;
        run_close(&r);
        options.anew = round > 0; /* also where none of the files is left */
        run_open(&r, s->sizes, s->groups, &options, RUN_NAME);
        r.pause_ms = (cod_comm_rank(job) + round) % 2 ? 0.1 : 1;
        run_restore(&r, &saved);
        r.step = restart_at;
        r.digest = digest;
    }
    run_until(&r, steps);
    const bool all = holds_all(&r, (uint64_t)(steps - 7) / 10);
    run_close(&r);
    check_all(all);
    return r.digest;
}

TEST(a_deterministic_exchange_replays_bit_for_bit)
{
    EACH_SPLIT(s)
    {
        for (int codec = INT8; codec <= DELTA; codec++) {
            /* Five versions in three slots: those from before a restart are replaced after it. */
            const uint64_t first = deterministic_digest(s, codec, 58, 0, 0);
            check_all(deterministic_digest(s, codec, 58, 0, 1) == first);
            /* Between a publication and its use, right after a publication, and after a use. */
            check_all(deterministic_digest(s, codec, 58, 33, 0) == first);
            check_all(deterministic_digest(s, codec, 58, 30, 1) == first);
            check_all(deterministic_digest(s, codec, 58, 37, 0) == first);
        }
    }
}

/** A group that is slower than the others' patience for a pull, because it evaluates, say, is waited for. */
TEST(a_slow_group_does_not_end_a_deterministic_run)
{
    EACH_SPLIT(s)
    {
        exchange_run r;
        cod_exchange_options options = run_options(4);
        options.deterministic = true;
        options.lag_steps = 1;
        options.pull_timeout_s = 0.1;
        run_open(&r, s->sizes, s->groups, &options, RUN_NAME);
        r.pause_ms = cod_group_index(r.group) == 0 ? 60 : 1;
        while (r.step < 10) {
            cod_test_clock_stop_after(10 * options.pull_timeout_s); /* which is not the end of a wait */
            run_until(&r, r.step + 1);
        }
        cod_test_clock_go();
        const bool held = holds_all(&r, 2);
        run_close(&r);
        check_all(held);
    }
}

/** What a faulty or lying peer makes of its first version. */
typedef enum fault { FLIPPED, GARBAGE, NOT_FINITE, HALF, FAULTS } fault;

/** Spoils the slot that holds the first version; its header stays as it was. */
static void spoil_first_slot(exchange_run *r, fault how)
{
    const cod_exchange_array *arrays;
    size_t count;
    must(cod_exchange_state(r->exchange, &arrays, &count));
    for (size_t i = 0; i < count; i++) {
        if (strcmp(arrays[i].name, COD_EXCHANGE_SLOTS) != 0)
            continue;
        /* On files the slot is the newest version's, behind a window without slots. */
        cod_slot_header header;
        memcpy(&header, arrays[i].data, sizeof header);
        unsigned char *slot = (unsigned char *)arrays[i].data + sizeof header + cod_slot_data_at(&header.layout, 0);
        const uint64_t bytes = header.entries[0].bytes;
        if (how == FLIPPED)
            slot[bytes / 2] ^= 0x10;
        for (uint64_t at = 0; how == GARBAGE && at < bytes; at++)
            slot[at] = (unsigned char)(at * 131 >> 3);
        if (how == NOT_FINITE)
            memset(slot + COD_CHUNK_HEADER_BYTES, 0xFF, 64);
        if (how == HALF)
            memset(slot + bytes / 2, 0, bytes - bytes / 2);
        must(cod_exchange_restored(r->exchange, arrays[i].data, arrays[i].bytes));
        break;
    }
    must(cod_exchange_state(r->exchange, &arrays, &count)); /* waits until files are as restored */
}

TEST(spoiled_bytes_are_refused_and_training_goes_on)
{
    EACH_SPLIT(s)
    for (fault how = FLIPPED; how < FAULTS; how++) {
        exchange_run r;
        cod_exchange_options options = run_options(20);
        options.codec = DELTA; /* of the first version nothing is known: the second, a delta, is of no use either */
        options.key_every = 2;
        run_open(&r, s->sizes, s->groups, &options, RUN_NAME);
        run_patiently(&r);
        const bool faulty = cod_group_index(r.group) == 0;
        if (faulty) {
            const cod_exchange_array *arrays;
            size_t count;
            run_until(&r, 20);
            must(cod_exchange_state(r.exchange, &arrays, &count)); /* all ranks: the publication is complete */
            if (cod_group_rank(r.group) == 0)
                spoil_first_slot(&r, how);
        }
        must(cod_group_barrier(cod_comm_world(job)));
        double refused = 0;
        for (int64_t steps = 40; !faulty && steps <= 2000 && refused == 0; steps += 20) {
            run_until(&r, steps);
            refused = run_sum(&r, (double)run_counters(&r).rejected);
        }
        run_until(&r, r.step + (faulty ? 0 : 10)); /* the group hears of it, and refuses it no second time */
        refused = run_sum(&r, (double)run_counters(&r).rejected);
        bool nothing = faulty || (refused == 1 && run_held(&r, 0) == 0);
        for (int i = 0; i < cod_exchange_peer_count(r.exchange); i++) {
            cod_exchange_peer_counters peer;
            cod_exchange_read_peer(r.exchange, i, &peer);
            nothing = nothing && (faulty || peer.rejected == (cod_exchange_peer_group(r.exchange, i) == 0));
        }
        must(cod_group_barrier(cod_comm_world(job)));
        run_until_all_hold(&r, 2);
        run_close(&r);
        if (!nothing)
            print_error("rank %d, fault %d\n", cod_comm_rank(job), (int)how);
        check_all(nothing);
    }
}

TEST(what_is_not_finite_is_not_published)
{
    EACH_SPLIT(s)
    {
        exchange_run r;
        cod_exchange_options options = run_options(20);
        options.codec = DELTA;
        options.slots = 8;
        run_open(&r, s->sizes, s->groups, &options, RUN_NAME);
        const bool faulty = cod_group_index(r.group) == 0;
        r.spoiled_step = 60;
        run_until_all_hold(&r, 4);
        const cod_exchange_counters counters = run_counters(&r);
        const bool left_out = faulty || (r.seen[0] & 8) == 0;
        run_close(&r);
        check_all(counters.skipped == (faulty ? 1 : 0) || (counters.skipped >= faulty && run_is_on_files()));
        check_all(left_out);
    }
}

/** One group believes that the others train what they do not. */
TEST(another_models_checkpoints_are_foreign)
{
    EACH_SPLIT(s)
    {
        exchange_run r;
        const cod_exchange_options options = run_options(20);
        run_misled = cod_comm_rank(job) < s->sizes[0];
        run_open(&r, s->sizes, s->groups, &options, RUN_NAME);
        run_patiently(&r);
        run_misled = false;
        const bool odd = cod_group_index(r.group) == 0;
        double refused = 0;
        const double expected = odd ? (double)(s->groups - 1) : 0;
        for (int64_t steps = 100; steps <= 2000 && (steps == 100 || refused < expected); steps += 100) {
            run_until(&r, steps);
            refused = run_sum(&r, (double)run_counters(&r).rejected);
        }
        bool alone = refused == expected;
        for (int g = 0; odd && g < (int)s->groups; g++)
            alone = alone && run_held(&r, g) == 0;
        run_close(&r);
        check_all(alone);
    }
}

TEST(another_runs_checkpoints_are_foreign)
{
    EACH_SPLIT(s)
    {
        exchange_run r;
        cod_exchange_options options = run_options(20);
        const bool odd = cod_comm_rank(job) < s->sizes[0];
        run_open(&r, s->sizes, s->groups, &options, odd ? RUN_NAME + 1 : RUN_NAME);
        run_patiently(&r);
        const double expected = odd ? (double)(s->groups - 1) : 1;
        double refused = 0;
        bool alone = false;
        for (int64_t steps = 100; steps <= 2000 && !alone; steps += 100) {
            run_until(&r, steps);
            refused = run_sum(&r, (double)run_counters(&r).rejected);
            alone = refused == expected;
            for (int g = 0; g < (int)s->groups; g++)
                if (g != cod_group_index(r.group))
                    alone = alone && (run_held(&r, g) == 0) == (odd || g == 0);
        }
        run_close(&r);
        check_all(alone);
    }
}

TEST_GROUP(job_setup, job_teardown)
