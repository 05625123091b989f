/*
 * A puller by itself: it pulls what a codec and the file transport's publisher put into a folder, one version after
 * another.
 */
#include "support/folder.h"
#include "support/patience.h"
#include "support/test.h"

#include "core/host_memory.h"
#include "core/trace.h"
#include "exchange/file.h"
#include "exchange/puller_internal.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MINE, PEER, GROUPS };
enum { VALUES = 1000, STATES = 10, TOTAL = VALUES + STATES, PERIOD = 50, LOOKS_AT = 48, LIFE = 9, PUBLISHED_MS = 77 };

/** The puller of group 0, and what group 1 publishes. */
typedef struct fixture {
    exchange_setup setup;
    cod_exchange_model models[GROUPS];
    cod_group_members members[GROUPS];
    cod_transport *reader, *publisher;
    cod_rooms unused; /**< of the publisher, which pulls nothing */
    cod_codec encoder;
    exchange_puller puller;
    float values[TOTAL];
} fixture;

static cod_transport *open_transport(fixture *f, int group, cod_rooms *rooms)
{
    char folder[4096];
    snprintf(folder, sizeof folder, "%s", cod_test_at("x"));
    const cod_slot_layout layout = exchange_layout(&f->setup);
    const cod_slot_identity identity = exchange_identity(&f->setup, group, 0, 0);
    const cod_file_options options = {
        .folder = folder, .key_file = "", .patience_s = COD_TEST_PATIENCE_S, .anew = true, .rooms = rooms};
    cod_transport *transport = NULL;
    assert_ok(cod_file_transport_create(&options, &identity, &layout, &transport));
    return transport;
}

static void open_fixture(fixture *f)
{
    static const int world_ranks[] = {0, 1};
    memset(f, 0, sizeof *f);
    for (int g = 0; g < GROUPS; g++) {
        f->models[g] = (cod_exchange_model){.count = VALUES, .state_count = STATES, .hash = 5};
        f->members[g] = (cod_group_members){.size = 1, .world_ranks = &world_ranks[g]};
    }
    f->setup = (exchange_setup){.options = {.period = PERIOD,
                                            .codec = COD_EXCHANGE_F32,
                                            .chunk_values = 256,
                                            .slots = 4,
                                            .pull_timeout_s = COD_TEST_PATIENCE_S},
                                .groups = GROUPS,
                                .mine = MINE,
                                .size = 1,
                                .holders = {.count = 1},
                                .models = f->models,
                                .members = f->members,
                                .run = 3,
                                .fragments = 1,
                                .transports = &f->reader};
    assert_ok(exchange_puller_init(&f->puller, &f->setup, NULL));
    assert_true(f->puller.peer_count == 1 && f->puller.pull_count == 1 && f->puller.peers[0].group == PEER);
    assert_ok(cod_host_buffer_create(NULL, TOTAL * sizeof(float), &f->puller.peers[0].values));
    assert_ok(cod_host_buffer_create(NULL, TOTAL * sizeof(float), &f->puller.peers[0].incoming));
    f->reader = open_transport(f, MINE, &f->puller.rooms);
    f->publisher = open_transport(f, PEER, &f->unused);
    const cod_codec_options codec = exchange_codec_options(&f->setup.options);
    assert_ok(cod_codec_init(&f->encoder, &codec));
}

static void close_fixture(fixture *f)
{
    assert_ok(exchange_puller_end(&f->puller));
    assert_ok(f->reader->ops->destroy(f->reader));
    assert_ok(f->publisher->ops->destroy(f->publisher));
    cod_codec_clear(&f->encoder);
    cod_host_buffer_destroy(NULL, f->puller.peers[0].values);
    cod_host_buffer_destroy(NULL, f->puller.peers[0].incoming);
    exchange_puller_clear(&f->puller);
}

/** @param damaged  the byte that is turned behind the publisher's back; -1 = none */
static void publish(fixture *f, uint64_t version, int damaged)
{
    static float decoded[TOTAL];
    unsigned char *room;
    for (int i = 0; i < TOTAL; i++)
        f->values[i] = (float)(1000 * (int)version + i);
    const cod_codec_range range = exchange_range_of(&f->setup, PEER, 0, 0);
    const cod_codec_key key = exchange_key(&f->setup, PEER, version, LIFE);
    cod_codec_begin(&f->encoder, &range, &key);
    assert_ok(f->publisher->ops->publish_begin(f->publisher, &room));
    assert_ok(cod_codec_encode(&f->encoder, f->values, NULL, UINT64_MAX, room,
                               cod_codec_bound(&f->encoder.options, &range), decoded));
    if (damaged >= 0)
        room[damaged] ^= 1;
    const cod_slot_entry entry = {
        .version = version, .life = LIFE, .bytes = f->encoder.bytes, .published_ms = PUBLISHED_MS};
    assert_ok(f->publisher->ops->publish_end(f->publisher, &entry));
    f->publisher->ops->oldest(f->publisher); /* waits until it is there */
}

/** Looks until there is something new, or the peer has answered so often. */
static exchange_proposal look_often(fixture *f, uint64_t newest_own, int answers)
{
    exchange_proposal found = {.peer = EXCHANGE_NO_PEER};
    const double begin = cod_clock_s();
    while (found.peer == EXCHANGE_NO_PEER && answers > 0 && cod_clock_s() - begin < COD_TEST_PATIENCE_S) {
        const bool asked = f->puller.peers[0].asked;
        assert_ok(exchange_puller_look(&f->puller, &f->puller.pulls[0], LOOKS_AT, &newest_own, &found));
        answers -= asked && !f->puller.peers[0].asked;
        usleep(1000);
    }
    return found;
}

static exchange_proposal look(fixture *f, uint64_t newest_own)
{
    return look_often(f, newest_own, INT_MAX);
}

static bool finds_nothing(fixture *f)
{
    enum { ANSWERS = 5 };
    return look_often(f, UINT64_MAX - 1, ANSWERS).peer == EXCHANGE_NO_PEER;
}

/** Pulls until it is done or lost. */
static exchange_standing pull(fixture *f, uint64_t version, uint64_t life)
{
    exchange_pull *p = &f->puller.pulls[0];
    assert_ok(exchange_puller_start(&f->puller, &f->puller.peers[0], version, life));
    assert_true(!p->standing.done && !p->standing.lost && p->standing.bytes == 0);
    while (!p->standing.done && !p->standing.lost)
        assert_ok(exchange_puller_move(&f->puller, p));
    return p->standing;
}

TEST_IN_FOLDER(a_new_version_is_found_pulled_and_held)
{
    static const float nothing[TOTAL];
    fixture f;
    open_fixture(&f);
    exchange_pull *p = &f.puller.pulls[0];
    held_peer *peer = &f.puller.peers[0];
    cod_buffer *held = peer->values, *incoming = peer->incoming;
    publish(&f, 1, -1);
    const exchange_proposal found = look(&f, UINT64_MAX - 1);
    assert_true(found.peer == 0 && found.version == 1 && found.life == LIFE);
    const exchange_standing standing = pull(&f, found.version, found.life);
    assert_true(standing.done && !standing.lost && standing.published_ms == PUBLISHED_MS);
    assert_true(standing.bytes == f.encoder.bytes && f.puller.counters.pulled_bytes == f.encoder.bytes);
    /* Until the group says so, nothing else is held than before. */
    assert_true(peer->version == 0 && peer->values == held && p->peer == peer);
    assert_memory_equal(held->host, nothing, sizeof nothing);
    const exchange_outcome outcome = {.bytes = 3 * standing.bytes, .published_ms = standing.published_ms};
    exchange_puller_note_outcome(p, &outcome);
    exchange_puller_take_over(&f.puller, p, 64);
    assert_true(peer->version == 1 && peer->step == PERIOD && peer->pulled_at == 64 && peer->values == incoming);
    assert_memory_equal(peer->values->host, f.values, sizeof f.values);
    assert_true(peer->published_ms == PUBLISHED_MS && peer->counters.bytes == 3 * standing.bytes);
    assert_true(peer->counters.pulled == 1 && f.puller.counters.pulled == 1 && p->peer == NULL && p->look);
    assert_true(!exchange_puller_wants(&f.puller, &found) && finds_nothing(&f));
    close_fixture(&f);
}

/** A byte of a chunk's header, of its values, and of the last chunk. */
TEST_IN_FOLDER(what_is_damaged_is_refused_and_never_found_again)
{
    static const int damaged[] = {0, 100, 4 * TOTAL};
    for (size_t k = 0; k < sizeof damaged / sizeof damaged[0]; k++) {
        fixture f;
        open_fixture(&f);
        held_peer *peer = &f.puller.peers[0];
        publish(&f, 1, damaged[k]);
        const exchange_standing standing = pull(&f, 1, LIFE);
        assert_true(standing.lost && standing.refused && !standing.done && f.puller.counters.rejected == 1);
        exchange_puller_note_outcome(&f.puller.pulls[0], &(exchange_outcome){.lost = true, .refused = true});
        exchange_puller_give_up(&f.puller, &f.puller.pulls[0], true);
        assert_true(peer->version == 0 && peer->refused == 1 && f.puller.pulls[0].peer == NULL);
        assert_true(peer->counters.rejected == 1 && peer->counters.lost == 0 && f.puller.counters.lost == 0);
        assert_true(!exchange_puller_wants(&f.puller, &(exchange_proposal){.version = 1}));
        assert_true(finds_nothing(&f));
        publish(&f, 2, -1);
        assert_int_equal(look(&f, UINT64_MAX - 1).version, 2);
        assert_true(pull(&f, 2, LIFE).done);
        close_fixture(&f);
    }
}

TEST_IN_FOLDER(another_life_than_was_proposed_is_refused)
{
    fixture f;
    open_fixture(&f);
    publish(&f, 1, -1);
    const exchange_standing standing = pull(&f, 1, LIFE + 1);
    assert_true(standing.lost && standing.refused);
    exchange_puller_give_up(&f.puller, &f.puller.pulls[0], false);
    assert_true(pull(&f, 1, EXCHANGE_ANY_LIFE).done); /* where groups resume together */
    close_fixture(&f);
}

/** Its slot was taken by a later version; what is only lost is asked for as long as it is there. */
TEST_IN_FOLDER(what_is_gone_is_lost_but_not_refused)
{
    fixture f;
    open_fixture(&f);
    held_peer *peer = &f.puller.peers[0];
    for (uint64_t version = 1; version <= 5; version++)
        publish(&f, version, -1);
    const exchange_standing standing = pull(&f, 1, LIFE);
    assert_true(standing.lost && !standing.refused && f.puller.counters.lost == 1);
    exchange_puller_note_outcome(&f.puller.pulls[0], &(exchange_outcome){.lost = true});
    exchange_puller_give_up(&f.puller, &f.puller.pulls[0], false);
    assert_true(peer->refused == 0 && peer->counters.lost == 1 && peer->counters.rejected == 0);
    assert_true(exchange_puller_wants(&f.puller, &(exchange_proposal){.version = 1}));
    close_fixture(&f);
}

/** Where weights are merged, a group that is behind pulls what its own publications reach next. */
TEST_IN_FOLDER(a_version_is_of_use_when_own_ones_have_reached_it)
{
    for (int merges = 0; merges <= 1; merges++) {
        fixture f;
        open_fixture(&f);
        f.setup.options.merge = merges ? COD_MERGE_DELAY_CORRECTED : COD_MERGE_NONE;
        for (uint64_t version = 1; version <= 3; version++)
            publish(&f, version, -1);
        assert_int_equal(look(&f, 1).version, merges ? 2 : 3);
        close_fixture(&f);
    }
}

/** Checkpoints have these numbers in this order. */
/** A version says of which fragment it is, and after which step it was made: what a peer calls one may be neither. */
TEST_IN_FOLDER(a_version_of_another_fragment_or_of_no_step_is_not_wanted)
{
    fixture f;
    open_fixture(&f);
    exchange_proposal proposal = {.peer = 0, .version = COD_SLOT_VERSION_MAX};
    assert_true(exchange_puller_wants(&f.puller, &proposal));
    f.setup.options.period = 1000000000; /* the step would be past the largest number */
    assert_false(exchange_puller_wants(&f.puller, &proposal));
    proposal.version = INT64_MAX / 1000000000;
    assert_true(exchange_puller_wants(&f.puller, &proposal));
    proposal.version++;
    assert_false(exchange_puller_wants(&f.puller, &proposal));
    f.setup.fragments = 2;
    proposal.version = 4;
    assert_true(exchange_puller_wants(&f.puller, &proposal));
    proposal.version = 5;
    assert_false(exchange_puller_wants(&f.puller, &proposal));
    f.setup.fragments = 1;
    close_fixture(&f);
}

TEST(peers_go_on_from_what_was_saved)
{
    static const uint64_t expected[] = {4, 200, 230, 77, 6, 300, 310, 88};
    enum { PEERS = 2, COUNT = sizeof expected / sizeof expected[0] };
    _Static_assert((int)COUNT == PEERS * EXCHANGE_PEER_NUMBERS, "each number has its place");
    uint64_t saved[COUNT];
    held_peer saved_of[PEERS] = {
        {.group = 1, .version = 4, .step = 200, .pulled_at = 230, .published_ms = 77, .refused = 5},
        {.group = 2, .version = 6, .step = 300, .pulled_at = 310, .published_ms = 88}};
    held_peer again[PEERS] = {{.group = 1, .refused = 9}, {.group = 2}};
    exchange_puller before = {.peers = saved_of, .peer_count = PEERS}, after = {.peers = again, .peer_count = PEERS};
    exchange_numbers out = {.next = saved}, in = {.next = saved, .restoring = true};
    exchange_puller_pack(&before, &out);
    assert_true(out.next == saved + COUNT && saved_of[0].refused == 5);
    assert_memory_equal(saved, expected, sizeof expected);
    exchange_puller_pack(&after, &in);
    assert_true(in.next == saved + COUNT && again[0].refused == 0);
    for (int i = 0; i < PEERS; i++)
        assert_true(again[i].version == saved_of[i].version && again[i].step == saved_of[i].step &&
                    again[i].pulled_at == saved_of[i].pulled_at && again[i].published_ms == saved_of[i].published_ms);
}
