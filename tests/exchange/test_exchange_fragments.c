/* Publications of a fragment at a time: each is pulled, held and compared by itself. */
#include "comm/job.h"

#include "comm/comm_internal.h"
#include "exchange/exchange_internal.h"
#include "exchange/exchange_run.h"
#include "support/late.h"

#include <stdio.h>
#include <string.h>

enum { RUN_NAME = 9, PERIOD = 40, FRAGMENTS = 4, LAG = 7 };

typedef struct split {
    int ranks;
    int sizes[RUN_MAX_GROUPS];
    size_t groups;
} split;

static const split splits[] = {{2, {1, 1}, 2}, {3, {2, 1}, 2}, {4, {2, 2}, 2}};

#define EACH_SPLIT(s)                                                                                                  \
    for (const split *s = splits; s < splits + sizeof splits / sizeof splits[0]; s++)                                  \
        if (s->ranks == cod_comm_size(job))

static cod_exchange_options fragment_options(int64_t fragments)
{
    cod_exchange_options options = run_options(PERIOD);
    options.codec = COD_EXCHANGE_DELTA;
    options.slots = 8;
    options.fragments = fragments;
    options.lag_steps = LAG;
    return options;
}

TEST(fragments_are_whole_chunks_and_all_of_the_model)
{
    const cod_exchange_model model = {.count = 5000, .state_count = 37};
    for (int64_t fragments = 1; fragments <= 8; fragments++) {
        const cod_exchange_options options = fragment_options(fragments);
        uint64_t end = 0, least = UINT64_MAX, most = 0;
        for (int f = 0; f < fragments; f++) {
            const cod_exchange_range range = cod_exchange_fragment_range(&options, &model, f);
            assert_true(range.first == end && range.first % (uint64_t)options.chunk_values == 0);
            end = range.first + range.count;
            least = range.count < least ? range.count : least;
            most = range.count > most ? range.count : most;
        }
        assert_true(end == model.count + model.state_count);
        assert_true(least > 0 && most < least + 2 * (uint64_t)options.chunk_values);
    }
}

/** Of what is coded on a device, less than half of f32's bytes go between it and the host: a fragment each time. */
static bool moves_codes(const exchange_run *r, size_t copied)
{
    uint64_t largest = 0;
    for (int g = 0; g < RUN_MAX_GROUPS; g++)
        for (int f = 0; f < FRAGMENTS; f++) {
            const uint64_t count = cod_exchange_fragment_range(&r->options, &r->models[g], f).count;
            largest = count > largest ? count : largest;
        }
    const uint64_t most = (r->publications + r->takeovers + (uint64_t)r->exchange->puller.peer_count) * largest;
    return !r->late || (copied > 0 && copied < most * sizeof(float) / 2);
}

/**
 * Whether the memory of a device that an exchange takes is what cod_exchange_plan() counts, but for pulls of small
 * fragments alone.
 */
static bool takes_what_is_planned(const exchange_run *r, const split *s)
{
    const cod_exchange_sizes planned =
        cod_exchange_plan(&r->options, r->models, s->sizes, (int)s->groups, cod_group_index(r->group), 1);
    return !r->late || (r->device_bytes <= planned.device_bytes &&
                        r->device_bytes >= planned.device_bytes - planned.device_bytes / 20);
}

/** Values, versions, steps and own publications beside them are checked at each (exchange_run.c). */
static void fragments_are_taken_over(int merge_against)
{
    EACH_SPLIT(s)
    {
        exchange_run r;
        cod_exchange_options options = fragment_options(FRAGMENTS);
        options.merge_against = merge_against;
        const size_t copied = cod_late_copied_bytes();
        run_open(&r, s->sizes, s->groups, &options, RUN_NAME);
        const bool planned = takes_what_is_planned(&r, s);
        run_until_all_hold(&r, 6 * FRAGMENTS);
        const bool codes = moves_codes(&r, cod_late_copied_bytes() - copied);
        const cod_exchange_counters counters = run_counters(&r);
        const uint64_t takeovers = r.takeovers, due = (uint64_t)r.step / (PERIOD / FRAGMENTS);
        const uint64_t publications = r.publications;
        run_close(&r);
        check_all(counters.rejected == 0);
        check_all(counters.pulled == takeovers && takeovers >= FRAGMENTS);
        check_all(publications == due);
        check_all(codes && planned);
    }
}

TEST(fragments_are_taken_over_as_their_peers_published_them)
{
    fragments_are_taken_over(COD_AGAINST_DECODED);
}

TEST(exact_own_fragments_stand_beside_what_is_taken_over)
{
    fragments_are_taken_over(COD_AGAINST_EXACT);
}

/**
 * A fragment's deltas are against its own last version: readers refuse them after a resume with another, and go on at
 * its next key.
 */
TEST(deltas_against_another_reference_are_refused)
{
    enum { CHANGED = 2, KEY_EVERY = 8 };
    if (run_is_on_files()) /* a run does not know then which versions before a resume were keys */
        return;
    EACH_SPLIT(s)
    {
        exchange_run r;
        cod_exchange_options options = fragment_options(FRAGMENTS);
        options.key_every = KEY_EVERY;
        run_open(&r, s->sizes, s->groups, &options, RUN_NAME);
        run_until_all_hold(&r, 2 * FRAGMENTS);
        const exchange_chain *chain = &r.exchange->publisher.chains[CHANGED];
        while (chain->since_key >= KEY_EVERY / 2)
            run_until(&r, r.step + 1);
        run_saved saved = run_save(&r);
        const int64_t step = r.step;
        char name[48];
        snprintf(name, sizeof name, "exchange.own.%d",
                 (int)(chain->reference % (uint64_t)r.exchange->publisher.own_count));
        for (size_t i = 0; i < saved.count; i++)
            if (strcmp(saved.name[i], name) == 0)
                *(float *)saved.data[i] += 1;
        run_close(&r);
        run_open(&r, s->sizes, s->groups, &options, RUN_NAME);
        run_restore(&r, &saved);
        r.step = step;
        r.is_odd = true; /* own versions are not what they should be */
        run_until(&r, step + 12 * PERIOD);
        uint64_t rejected[FRAGMENTS] = {0};
        for (int i = 0; i < r.exchange->puller.peer_count; i++)
            rejected[r.exchange->puller.peers[i].fragment] += r.exchange->puller.peers[i].counters.rejected;
        run_close(&r);
        for (int f = 0; f < FRAGMENTS; f++)
            check_all((rejected[f] > 0) == (f == CHANGED));
    }
}

/** Bytes that a rank published by then. */
static uint64_t published_bytes(const split *s, int64_t fragments)
{
    exchange_run r;
    cod_exchange_options options = fragment_options(fragments);
    options.codec = COD_EXCHANGE_F32;
    options.entropy = COD_CODEC_PLAIN;
    options.deterministic = true;
    run_open(&r, s->sizes, s->groups, &options, RUN_NAME);
    r.pause_ms = 0;
    run_until(&r, 4 * PERIOD + LAG);
    const uint64_t bytes = run_counters(&r).published_bytes;
    const bool all = r.takeovers == 4 * (uint64_t)fragments && r.with_own == r.takeovers;
    run_close(&r);
    check_all(all);
    return bytes;
}

TEST(as_many_bytes_travel_in_fragments)
{
    EACH_SPLIT(s)
    {
        const uint64_t whole = published_bytes(s, 1), cut = published_bytes(s, FRAGMENTS);
        /* Headers of chunks alone: a rank's shards are not whole chunks. */
        check_all(cut >= whole && cut - whole <= 4 * FRAGMENTS * 2 * 64);
    }
}

/**
 * All fragments are pulled into one set of rooms, as large as `plan` says, and none is made beside it where no pull is
 * given up.
 */
TEST(fragments_are_pulled_into_the_same_rooms)
{
    EACH_SPLIT(s)
    {
        exchange_run r;
        cod_exchange_options options = fragment_options(FRAGMENTS);
        options.deterministic = true;
        cod_slot_layout layout = {.slots = (uint32_t)options.slots, .groups = (uint32_t)s->groups};
        run_open(&r, s->sizes, s->groups, &options, RUN_NAME);
        for (size_t g = 0; g < s->groups; g++) {
            const uint64_t bytes = exchange_slot_bytes(&r.options, &r.models[g], s->sizes[g]);
            layout.slot_bytes = bytes > layout.slot_bytes ? bytes : layout.slot_bytes;
        }
        const cod_rooms *rooms = &r.exchange->puller.rooms;
        const cod_room *room = rooms->rooms[0];
        run_until(&r, 4 * PERIOD + LAG);
        const bool same = rooms->count == 1 && rooms->rooms[0] == room && r.takeovers == 4 * FRAGMENTS;
        const uint64_t published = run_is_on_files() ? 3 * layout.slot_bytes : 2 * cod_slot_window_bytes(&layout);
        const cod_exchange_sizes planned = cod_exchange_plan(
            &r.options, r.models, s->sizes, (int)s->groups, cod_group_index(r.group), cod_exchange_holders(r.exchange));
        const bool as_planned = planned.slot_bytes == FRAGMENTS * published + layout.slot_bytes &&
                                rooms->bytes >= layout.slot_bytes && rooms->bytes < layout.slot_bytes + 64;
        run_close(&r);
        check_all(same);
        check_all(as_planned);
    }
}

/** The digest of all that was taken over, and when. */
static uint64_t digest_of(const split *s, int merge_against, int64_t restart_at, int round)
{
    exchange_run r;
    cod_exchange_options options = fragment_options(FRAGMENTS);
    options.deterministic = true;
    options.merge_against = merge_against;
    run_open(&r, s->sizes, s->groups, &options, RUN_NAME);
    r.pause_ms = (cod_comm_rank(job) + round) % 2 ? 0.1 : 1;
    if (restart_at > 0) {
        run_until(&r, restart_at);
        run_saved saved = run_save(&r);
        const uint64_t digest = r.digest;
        run_close(&r);
        run_open(&r, s->sizes, s->groups, &options, RUN_NAME);
        run_restore(&r, &saved);
        r.step = restart_at;
        r.digest = digest;
    }
    run_until(&r, 6 * PERIOD);
    const uint64_t digest = r.digest;
    const bool has_own = r.takeovers > 0 && r.with_own == r.takeovers; /* groups are never apart */
    run_close(&r);
    check_all(has_own);
    return digest;
}

TEST(deterministic_fragments_resume_bit_for_bit)
{
    EACH_SPLIT(s)
    {
        const uint64_t first = digest_of(s, COD_AGAINST_DECODED, 0, 0);
        check_all(digest_of(s, COD_AGAINST_DECODED, 0, 1) == first);
        /* In the middle of a round; between a publication and its use. */
        check_all(digest_of(s, COD_AGAINST_DECODED, 2 * PERIOD + PERIOD / FRAGMENTS + LAG + 1, 0) == first);
        check_all(digest_of(s, COD_AGAINST_DECODED, 3 * PERIOD + 2 * PERIOD / FRAGMENTS + 2, 1) == first);
        const uint64_t exact = digest_of(s, COD_AGAINST_EXACT, 0, 0);
        check_all(exact != first);
        check_all(digest_of(s, COD_AGAINST_EXACT, 3 * PERIOD + 2 * PERIOD / FRAGMENTS + 2, 1) == exact);
    }
}

/**
 * Each rank of a node has its part of the snapshot of each fragment, and mirrors the other node's shards from their
 * parts.
 */
TEST(on_two_nodes_fragments_are_those_of_one)
{
    enum { RANKS = 4, SECOND = 2 };
    static const split s = {RANKS, {3, 1}, 2};
    if (cod_comm_size(job) != RANKS)
        return;
    for (int against = COD_AGAINST_DECODED; against <= COD_AGAINST_EXACT; against++) {
        const uint64_t on_one = digest_of(&s, against, 0, 0);
        for (int k = SECOND; k < RANKS; k++)
            job->node_of[k] = 1;
        const uint64_t on_two = digest_of(&s, against, 0, 1);
        const uint64_t resumed = digest_of(&s, against, 2 * PERIOD + PERIOD / FRAGMENTS + LAG + 1, 0);
        for (int k = SECOND; k < RANKS; k++)
            job->node_of[k] = 0;
        check_all(on_two == on_one && resumed == on_one);
    }
}

TEST(a_state_of_other_fragments_is_refused)
{
    EACH_SPLIT(s)
    {
        exchange_run r;
        const cod_exchange_options options = fragment_options(FRAGMENTS);
        run_open(&r, s->sizes, s->groups, &options, RUN_NAME);
        run_until(&r, 2 * PERIOD);
        run_saved saved = run_save(&r);
        uint64_t *numbers = saved.data[0];
        numbers[0] += UINT64_C(1) << EXCHANGE_PERIOD_BITS;
        run_close(&r);
        run_open(&r, s->sizes, s->groups, &options, RUN_NAME);
        const cod_status status = run_fill(&r, &saved);
        const bool named = strstr(cod_error_message(), "exchange.fragments 5, not 4") != NULL;
        run_close(&r);
        check_all(status == COD_ERR_FORMAT && named);
    }
}

/** A version that the reader has to give up: its fragment goes on at the next key, the others lose nothing. */
TEST(a_fragment_that_is_lost_comes_again)
{
    enum { LOST = 1 };
    EACH_SPLIT(s)
    {
        exchange_run r;
        cod_exchange_options options = fragment_options(FRAGMENTS);
        options.key_every = 4;
        run_open(&r, s->sizes, s->groups, &options, RUN_NAME);
        run_until_all_hold(&r, FRAGMENTS);
        /* As damaged bytes do: what is there of this fragment now is never asked for again. */
        r.exchange->puller.peers[LOST].refused = r.exchange->puller.peers[LOST].version + FRAGMENTS;
        run_until_all_hold(&r, 7 * FRAGMENTS);
        const uint64_t wrong = r.wrong, rejected = run_counters(&r).rejected;
        run_close(&r);
        check_all(wrong == 0 && rejected == 0);
    }
}

TEST_GROUP(job_setup, job_teardown)
