/*
 * A publisher by itself: what it gives to a transport that only remembers, and what it does when its group's ranks
 * report.
 */
#include "support/test.h"

#include "core/host_memory.h"
#include "exchange/publisher_internal.h"

#include <math.h>
#include <string.h>

enum { GROUPS = 2, MINE = 1, FRAGMENTS = 2, RANKS = 3 };
enum { VALUES = 2560, STATES = 10, TOTAL = VALUES + STATES, CHUNK = 256, PERIOD = 12, LIFE = 9 };

/** Has one slot, and keeps what was said of it. */
typedef struct remembering_transport {
    cod_transport base;
    unsigned char slot[8 * TOTAL];
    cod_slot_entry entry; /**< of the last publication that ended */
    int begun, ended;
    uint64_t failures;
} remembering_transport;

static cod_status begin(cod_transport *transport, unsigned char **room)
{
    remembering_transport *t = (remembering_transport *)transport;
    t->begun++;
    *room = t->slot;
    return COD_OK;
}

static cod_status end(cod_transport *transport, const cod_slot_entry *entry)
{
    remembering_transport *t = (remembering_transport *)transport;
    t->ended++;
    t->entry = *entry;
    return COD_OK;
}

static uint64_t failures(cod_transport *transport)
{
    return ((remembering_transport *)transport)->failures;
}

static const cod_transport_ops remembering = {.publish_begin = begin, .publish_end = end, .failures = failures};

/** The publisher of a group of one rank. */
typedef struct fixture {
    exchange_setup setup;
    cod_exchange_model models[GROUPS];
    cod_group_members members[GROUPS];
    remembering_transport transports[FRAGMENTS];
    cod_transport *transport_list[FRAGMENTS];
    exchange_publisher publisher;
    float readers[TOTAL]; /**< what those who decode all of it hold */
} fixture;

static cod_exchange_options options_of(cod_exchange_codec codec)
{
    return (cod_exchange_options){.period = PERIOD,
                                  .fragments = 1,
                                  .codec = (int)codec,
                                  .quality_db = 43,
                                  .rounding = 0.5,
                                  .key_every = 4,
                                  .entropy = COD_CODEC_ZSTD,
                                  .chunk_values = CHUNK,
                                  .slots = 4};
}

static void open_fixture(fixture *f, const cod_exchange_options *options)
{
    static const int world_ranks[] = {0, 1};
    memset(f, 0, sizeof *f);
    for (int g = 0; g < GROUPS; g++) {
        f->models[g] = (cod_exchange_model){.count = VALUES, .state_count = STATES, .hash = 5};
        f->members[g] = (cod_group_members){.size = 1, .world_ranks = &world_ranks[g]};
    }
    for (int i = 0; i < FRAGMENTS; i++) {
        f->transports[i].base.ops = &remembering;
        f->transport_list[i] = &f->transports[i].base;
    }
    f->setup = (exchange_setup){.options = *options,
                                .groups = GROUPS,
                                .mine = MINE,
                                .size = 1,
                                .holders = {.count = 1},
                                .models = f->models,
                                .members = f->members,
                                .run = 3,
                                .life = LIFE,
                                .fragments = cod_exchange_fragments(options),
                                .publishes = true,
                                .waits = options->deterministic,
                                .transports = f->transport_list};
    exchange_publisher *p = &f->publisher;
    assert_ok(exchange_publisher_init(p, &f->setup));
    assert_ok(cod_host_buffer_create(NULL, TOTAL * sizeof(float), &p->snapshot));
    for (int i = 0; i < exchange_publisher_held_count(p); i++)
        assert_ok(cod_host_buffer_create(NULL, TOTAL * sizeof(float), exchange_publisher_held(p, i)));
}

static void close_fixture(fixture *f)
{
    cod_host_buffer_destroy(NULL, f->publisher.snapshot);
    for (int i = 0; i < exchange_publisher_held_count(&f->publisher); i++)
        cod_host_buffer_destroy(NULL, *exchange_publisher_held(&f->publisher, i));
    exchange_publisher_clear(&f->publisher);
}

/** Weights of a step: each value differs, and moves a little from step to step. */
static float weight_of(int64_t step, uint64_t i)
{
    return sinf((float)i) + 0.001F * (float)step * cosf((float)(3 * i));
}

/** Copies the step's weights and begins a publication of them. */
static void begin_at(fixture *f, int64_t step)
{
    cod_exchange_part part;
    assert_ok(exchange_publisher_snapshot(&f->publisher, step, &part));
    assert_true(part.values == f->publisher.snapshot && part.count <= TOTAL && !part.wants_fingerprint);
    for (uint64_t i = 0; i < part.count; i++)
        exchange_floats(part.values)[i] = weight_of(step, part.first + i);
    assert_ok(exchange_publisher_begin(&f->publisher, step, 0));
}

static void publish_at(fixture *f, int64_t step)
{
    begin_at(f, step);
    assert_ok(exchange_publisher_finish(&f->publisher));
}

/**
 * Decodes what was published last, as a reader who holds the version before. @return whether the publisher keeps
 * the same
 */
static bool readers_hold_what_is_kept(fixture *f, uint64_t version)
{
    const int fragment = exchange_fragment_of(&f->setup, version);
    const remembering_transport *t = &f->transports[fragment];
    const cod_codec_range range = exchange_range_of(&f->setup, MINE, fragment, 0);
    const cod_codec_key key = exchange_key(&f->setup, MINE, version, LIFE);
    const cod_codec_options options = exchange_codec_options(&f->setup.options);
    cod_codec decoder;
    static float decoded[TOTAL];
    assert_ok(cod_codec_init(&decoder, &options));
    cod_codec_begin(&decoder, &range, &key);
    assert_ok(cod_codec_decode(&decoder, t->slot, t->entry.bytes, f->readers + range.first, UINT64_MAX, decoded));
    cod_codec_clear(&decoder);
    memcpy(f->readers + range.first, decoded, range.count * sizeof(float));
    const own_version *own = exchange_own_of(&f->publisher, version);
    return t->entry.version == version && own->version == version &&
           memcmp(decoded, exchange_floats(exchange_decoded_of(&f->publisher, version)), range.count * sizeof(float)) ==
               0;
}

/** Whether the own version is kept as it was published, to the bit. */
static bool is_kept_exact(const fixture *f, uint64_t version)
{
    const cod_exchange_range range =
        cod_exchange_fragment_range(&f->setup.options, &f->models[MINE], exchange_fragment_of(&f->setup, version));
    const own_version *own = exchange_own_of(&f->publisher, version);
    bool same = own->version == version;
    for (uint64_t i = 0; i < range.count; i++)
        same = same && exchange_floats(own->values)[i] ==
                           weight_of((int64_t)version * cod_exchange_spacing(&f->setup.options), range.first + i);
    return same;
}

TEST(readers_decode_what_a_merge_subtracts)
{
    const cod_exchange_options options = options_of(COD_EXCHANGE_DELTA);
    fixture f;
    open_fixture(&f, &options);
    uint64_t bytes = 0;
    for (uint64_t v = 1; v <= 6; v++) {
        publish_at(&f, (int64_t)v * PERIOD);
        const cod_slot_entry *entry = &f.transports[0].entry;
        const bool is_key = v % 4 == 1; /* key_every */
        assert_true(entry->reference == (is_key ? 0 : v - 1) && entry->life == LIFE && entry->published_ms > 0);
        assert_true(readers_hold_what_is_kept(&f, v));
        for (int i = 0; i < TOTAL; i++)
            assert_true(fabsf(f.readers[i] - weight_of((int64_t)v * PERIOD, (uint64_t)i)) < 0.05F);
        bytes += entry->bytes;
    }
    const exchange_publisher_counters *counters = &f.publisher.counters;
    assert_true(counters->published == 6 && counters->published_bytes == bytes && counters->skipped == 0);
    close_fixture(&f);
}

/** Deltas are still against what readers hold, which is kept besides. */
TEST(a_merge_may_subtract_what_was_published)
{
    cod_exchange_options options = options_of(COD_EXCHANGE_DELTA);
    options.merge_against = COD_AGAINST_EXACT;
    options.fragments = FRAGMENTS;
    options.quality_db = 18;
    fixture f;
    open_fixture(&f, &options);
    assert_int_equal(exchange_publisher_held_count(&f.publisher), f.publisher.own_count + FRAGMENTS);
    for (uint64_t v = 1; v <= 12; v++) {
        publish_at(&f, (int64_t)v * PERIOD / FRAGMENTS);
        const bool is_key = (v - v % 2) / FRAGMENTS % 4 == 1 - v % 2; /* key_every, of each fragment */
        assert_int_equal(f.transports[v % FRAGMENTS].entry.reference, is_key ? 0 : v - FRAGMENTS);
        assert_true(readers_hold_what_is_kept(&f, v));
        for (uint64_t kept = v; kept > 0 && kept + COD_EXCHANGE_OWN_KEPT * FRAGMENTS > v; kept--)
            assert_true(is_kept_exact(&f, kept));
    }
    close_fixture(&f);
}

/** What readers hold of the version before is overwritten chunk by chunk, so that no delta may follow a skipped one. */
TEST(what_follows_a_skipped_exact_version_is_a_key)
{
    cod_exchange_options options = options_of(COD_EXCHANGE_DELTA);
    options.merge_against = COD_AGAINST_EXACT;
    fixture f;
    open_fixture(&f, &options);
    publish_at(&f, PERIOD);
    begin_at(&f, 2 * PERIOD);
    exchange_floats(f.publisher.snapshot)[TOTAL / 2] = NAN;
    assert_ok(exchange_publisher_finish(&f.publisher));
    assert_true(f.publisher.counters.skipped == 1 && is_kept_exact(&f, 1) && exchange_newest_own(&f.publisher, 0) == 1);
    publish_at(&f, 3 * PERIOD);
    assert_true(f.transports[0].entry.reference == 0 && readers_hold_what_is_kept(&f, 3) && is_kept_exact(&f, 3));
    close_fixture(&f);
}

/** A third of the time until the next publication, from the step after the one that made the snapshot. */
TEST(encoding_is_spread_over_steps)
{
    enum { SPREAD = PERIOD / 3 };
    const cod_exchange_options options = options_of(COD_EXCHANGE_F32);
    fixture f;
    open_fixture(&f, &options);
    begin_at(&f, PERIOD);
    assert_ok(exchange_publisher_advance(&f.publisher, PERIOD));
    assert_true(f.publisher.encoder.done == 0 && f.transports[0].begun == 1);
    for (int64_t step = PERIOD + 1; step <= PERIOD + SPREAD; step++) {
        assert_true(f.transports[0].ended == 0 && exchange_newest_own(&f.publisher, 0) == 0);
        assert_ok(exchange_publisher_advance(&f.publisher, step));
    }
    assert_true(f.transports[0].ended == 1 && exchange_newest_own(&f.publisher, 0) == 1);
    assert_true(readers_hold_what_is_kept(&f, 1));
    close_fixture(&f);
}

TEST(what_is_not_finite_is_skipped)
{
    const cod_exchange_options options = options_of(COD_EXCHANGE_DELTA);
    fixture f;
    open_fixture(&f, &options);
    publish_at(&f, PERIOD);
    assert_true(readers_hold_what_is_kept(&f, 1));
    begin_at(&f, 2 * PERIOD);
    exchange_floats(f.publisher.snapshot)[TOTAL / 2] = NAN;
    assert_ok(exchange_publisher_finish(&f.publisher));
    assert_true(f.transports[0].ended == 1 && f.publisher.counters.skipped == 1 && f.publisher.encoding == NULL);
    assert_true(exchange_newest_own(&f.publisher, 0) == 1);
    publish_at(&f, 3 * PERIOD); /* against what readers do hold */
    assert_true(f.transports[0].entry.reference == 1 && readers_hold_what_is_kept(&f, 3));
    close_fixture(&f);
}

TEST(only_steps_between_which_a_period_lies_are_due)
{
    const cod_exchange_options options = options_of(COD_EXCHANGE_DELTA);
    fixture f;
    open_fixture(&f, &options);
    exchange_publisher *p = &f.publisher;
    assert_true(!exchange_publisher_is_due(p, 0) && !exchange_publisher_is_due(p, PERIOD - 1));
    assert_true(exchange_publisher_is_due(p, PERIOD));
    assert_int_equal(exchange_publisher_begin(p, PERIOD + 1, 0), COD_ERR_ARGUMENT);
    publish_at(&f, PERIOD);
    assert_int_equal(exchange_publisher_begin(p, PERIOD, 0), COD_ERR_ARGUMENT);
    /* The next one was due, and nobody made it. */
    assert_ok(exchange_publisher_advance(p, PERIOD));
    assert_true(p->counters.skipped == 0);
    assert_ok(exchange_publisher_advance(p, 2 * PERIOD));
    assert_true(p->counters.skipped == 1);
    f.setup.publishes = false;
    assert_false(exchange_publisher_is_due(p, PERIOD));
    close_fixture(&f);
}

/** A group that went back to version 2, where its readers may hold what it published up to version 5. */
TEST(numbers_that_readers_may_hold_stand_for_keys)
{
    cod_exchange_options options = options_of(COD_EXCHANGE_DELTA);
    options.key_every = 1000;
    fixture f;
    open_fixture(&f, &options);
    publish_at(&f, PERIOD);
    publish_at(&f, 2 * PERIOD);
    f.publisher.restored = 2;
    f.publisher.left = 5;
    for (uint64_t v = 3; v <= 7; v++) {
        publish_at(&f, (int64_t)v * PERIOD);
        /* 3 is against 2, which was in the checkpoint. */
        assert_int_equal(f.transports[0].entry.reference, v == 3 ? 2 : v <= 6 ? 0 : 6);
    }
    close_fixture(&f);
}

TEST(what_nothing_follows_is_a_key)
{
    cod_exchange_options options = options_of(COD_EXCHANGE_DELTA);
    options.last_step = 3 * PERIOD + 1;
    fixture f;
    open_fixture(&f, &options);
    static const uint64_t references[] = {0, 1, 0};
    for (int v = 1; v <= 3; v++) {
        publish_at(&f, v * PERIOD);
        assert_int_equal(f.transports[0].entry.reference, references[v - 1]);
    }
    close_fixture(&f);
}

TEST(fragments_have_chains_of_their_own)
{
    cod_exchange_options options = options_of(COD_EXCHANGE_DELTA);
    options.fragments = FRAGMENTS;
    fixture f;
    open_fixture(&f, &options);
    for (uint64_t v = 1; v <= 6; v++) {
        const int fragment = (int)(v % FRAGMENTS);
        publish_at(&f, (int64_t)v * PERIOD / FRAGMENTS);
        assert_int_equal(f.transports[fragment].entry.version, v);
        assert_int_equal(f.transports[fragment].entry.reference, v > FRAGMENTS ? v - FRAGMENTS : 0);
        assert_true(readers_hold_what_is_kept(&f, v) && exchange_newest_own(&f.publisher, fragment) == v);
    }
    assert_true(f.transports[0].ended == 3 && f.transports[1].ended == 3);
    close_fixture(&f);
}

TEST(a_merge_takes_the_own_version_of_the_same_number)
{
    const cod_exchange_options options = options_of(COD_EXCHANGE_F32);
    fixture f;
    open_fixture(&f, &options);
    const exchange_publisher *p = &f.publisher;
    assert_null(exchange_own_beside(p, 1)); /* nothing has been published */
    for (int64_t v = 1; v <= 6; v++)
        publish_at(&f, v * PERIOD);
    assert_true(exchange_own_beside(p, 6)->version == 6 && exchange_own_beside(p, 3)->version == 3);
    assert_null(exchange_own_beside(p, 7));               /* comes next */
    assert_true(exchange_own_beside(p, 9)->version == 6); /* too far ahead to wait for */
    assert_true(exchange_own_beside(p, 2)->version == 6); /* no longer kept */
    close_fixture(&f);
}

TEST(bytes_that_repeat_name_no_time_and_no_life)
{
    cod_exchange_options options = options_of(COD_EXCHANGE_DELTA);
    options.deterministic = true;
    fixture f;
    open_fixture(&f, &options);
    publish_at(&f, PERIOD);
    assert_true(f.transports[0].entry.life == 0 && f.transports[0].entry.published_ms == 0);
    close_fixture(&f);
}

/* What the ranks of a group say of a publication. */

/**
 * Version 5 is under way, a delta against version 4; this rank of three has encoded its shard and waits for the
 * rest.
 */
static void await_version_5(fixture *f)
{
    const cod_exchange_options options = options_of(COD_EXCHANGE_DELTA);
    open_fixture(f, &options);
    f->setup.size = RANKS;
    exchange_publisher *p = &f->publisher;
    p->version = 5;
    p->step = 5 * PERIOD;
    p->against = p->chains[0].reference = exchange_own_of(p, 4)->version = 4;
    p->encoding = exchange_own_of(p, 5);
    p->waiting = true;
}

static exchange_publications said(int64_t step, int waiting, int unfit)
{
    return (exchange_publications){.step = step, .waiting = waiting, .unfit = unfit};
}

TEST(a_publication_ends_when_all_ranks_have_encoded)
{
    fixture f;
    await_version_5(&f);
    exchange_publisher *p = &f.publisher;
    own_version *made = exchange_own_of(p, 5);
    const exchange_publications of_the_one_before = said(5 * PERIOD - 1, RANKS, 0),
                                of_some = said(5 * PERIOD, RANKS - 1, 0), of_all = said(5 * PERIOD, RANKS, 0);
    exchange_publisher_hear(p, &of_the_one_before);
    exchange_publisher_hear(p, &of_some);
    assert_true(p->waiting && p->encoding == made && p->chains[0].reference == 4);
    assert_true(exchange_publisher_report(p).waiting && !exchange_publisher_report(p).unfit);
    exchange_publisher_hear(p, &of_all);
    assert_true(!p->waiting && p->encoding == NULL && !exchange_publisher_report(p).waiting);
    assert_true(made->version == 5 && p->chains[0].reference == 5 && p->chains[0].since_key == 1);
    close_fixture(&f);
}

TEST(what_one_rank_could_not_encode_is_skipped_by_all)
{
    fixture f;
    await_version_5(&f);
    exchange_publisher *p = &f.publisher;
    const exchange_publications all = said(5 * PERIOD, RANKS, 1);
    exchange_publisher_hear(p, &all);
    assert_true(!p->waiting && p->encoding == NULL && p->counters.skipped == 1);
    assert_true(p->chains[0].reference == 4 && exchange_own_of(p, 5)->version == 0);
    close_fixture(&f);
}

TEST(the_least_time_passes_for_the_whole_group)
{
    cod_exchange_options options = options_of(COD_EXCHANGE_F32);
    options.min_interval_ms = 1e9;
    fixture f;
    open_fixture(&f, &options);
    exchange_publisher *p = &f.publisher;
    assert_true(p->interval_passed);
    publish_at(&f, PERIOD);
    assert_true(!p->interval_passed && !exchange_publisher_report(p).interval_passed);
    exchange_publications all = {.step = PERIOD, .interval_passed = true};
    exchange_publisher_hear(p, &all); /* said before the publication was begun */
    assert_false(p->interval_passed);
    all.step++;
    exchange_publisher_hear(p, &all);
    assert_true(p->interval_passed);
    close_fixture(&f);
}

TEST(what_storage_left_out_breaks_the_chain)
{
    cod_exchange_options options = options_of(COD_EXCHANGE_DELTA);
    options.fragments = FRAGMENTS;
    fixture f;
    open_fixture(&f, &options);
    exchange_publisher *p = &f.publisher;
    f.transports[1].failures = 1;
    assert_int_equal(exchange_publisher_report(p).left_out, 1);
    p->chains[0].reference = 4;
    p->chains[1].reference = 3;
    exchange_publications all = {0};
    exchange_publisher_hear(p, &all);
    assert_true(p->chains[0].reference == 4 && p->chains[1].reference == 3);
    all.left_out = 1;
    exchange_publisher_hear(p, &all);
    /* The next of each fragment is a key, and deltas follow it. */
    assert_true(p->chains[0].reference == 0 && p->chains[1].reference == 0 && !p->chain_broken);
    p->chains[0].reference = 5;
    exchange_publisher_hear(p, &all); /* told again, of the same one */
    assert_true(p->chains[0].reference == 5);
    close_fixture(&f);

    await_version_5(&f);
    all = said(5 * PERIOD - 1, 0, 0);
    all.left_out = 1;
    exchange_publisher_hear(p, &all);
    all = said(5 * PERIOD, RANKS, 0);
    all.left_out = 1;
    exchange_publisher_hear(p, &all);
    /* Version 5 may be a delta against what was left out. */
    assert_true(exchange_own_of(p, 5)->version == 5 && p->chains[0].reference == 0);
    close_fixture(&f);
}

TEST(a_fingerprint_knows_places_but_no_order)
{
    exchange_publisher one = {0}, other = {0}, moved = {0};
    exchange_note_print(&one, 0, 11);
    exchange_note_print(&one, 512, 22);
    exchange_note_print(&other, 512, 22);
    exchange_note_print(&other, 0, 11);
    exchange_note_print(&moved, 0, 22);
    exchange_note_print(&moved, 512, 11);
    assert_true(one.print == other.print && one.print != moved.print);
}

/** Checkpoints have these numbers in this order. */
TEST(a_publisher_goes_on_from_what_it_saved)
{
    static const uint64_t expected[] = {9, 90, 7, 1, 8, 2, 9, 8, 7, 6, 5, 4, 3, 2};
    enum { OWN = FRAGMENTS * COD_EXCHANGE_OWN_KEPT, COUNT = sizeof expected / sizeof expected[0] };
    _Static_assert((int)COUNT == EXCHANGE_PUBLISHER_NUMBERS + FRAGMENTS * EXCHANGE_CHAIN_NUMBERS,
                   "each number has its place");
    const exchange_setup setup = {.fragments = FRAGMENTS};
    uint64_t saved[COUNT];
    own_version kept[OWN], again[OWN] = {{0}};
    exchange_chain chains[FRAGMENTS] = {{.reference = 7, .since_key = 1}, {.reference = 8, .since_key = 2}};
    exchange_chain chains_again[FRAGMENTS] = {{0}};
    for (int i = 0; i < OWN; i++)
        kept[i] = (own_version){.version = 9 - (uint64_t)i};
    exchange_publisher before = {
        .setup = &setup, .version = 9, .step = 90, .chains = chains, .own = kept, .own_count = OWN};
    exchange_publisher after = {.setup = &setup, .chains = chains_again, .own = again, .own_count = OWN};
    exchange_numbers out = {.next = saved}, in = {.next = saved, .restoring = true};
    exchange_publisher_pack(&before, &out);
    assert_true(out.next == saved + COUNT && before.restored == 0);
    assert_memory_equal(saved, expected, sizeof expected);
    exchange_publisher_pack(&after, &in);
    assert_true(in.next == saved + COUNT && after.version == 9 && after.step == 90 && after.restored == 9);
    assert_memory_equal(chains_again, chains, sizeof chains);
    assert_memory_equal(again, kept, sizeof kept);
}
