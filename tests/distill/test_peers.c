/* When a pulled version is merged, and when fragments are a teacher; the exchange and the merger are stand-ins. */
#include "support/test.h"

#include "distill/peers.h"

#include <math.h>
#include <string.h>

enum { PERIOD = 10, MOST_FRAGMENTS = 2 };

/** What the exchange holds of the peer, by fragment; what was merged, and told. */
static cod_exchange_checkpoint held[MOST_FRAGMENTS];
static cod_merge merged;
static int merges, switches_told;

void __wrap_cod_exchange_read_checkpoint(const cod_exchange *e, int peer, int fragment, cod_exchange_checkpoint *out);
cod_status __wrap_cod_weights_merger_apply(cod_weights_merger *merger, const cod_merge *items, size_t count);
cod_status __wrap_cod_train_tell(const cod_train_context *context, const cod_train_event *event);

void __wrap_cod_exchange_read_checkpoint(const cod_exchange *e, int peer, int fragment, cod_exchange_checkpoint *out)
{
    (void)e;
    (void)peer;
    *out = held[fragment];
}

cod_status __wrap_cod_weights_merger_apply(cod_weights_merger *merger, const cod_merge *items, size_t count)
{
    (void)merger;
    merged = items[count - 1];
    merges += (int)count;
    return COD_OK;
}

cod_status __wrap_cod_train_tell(const cod_train_context *context, const cod_train_event *event)
{
    (void)context;
    switches_told += strcmp(event->kind, "switch") == 0;
    return COD_OK;
}

/** A group with one peer of the same architecture. */
typedef struct reader {
    cod_exchange_options options;
    cod_peer_fragment fragments[MOST_FRAGMENTS];
    cod_peer peer;
    cod_merge room[MOST_FRAGMENTS];
    cod_peers peers;
    cod_train_context context;
} reader;

static void reader_open(reader *r, cod_exchange_options options)
{
    *r = (reader){.options = options};
    r->options.period = PERIOD;
    r->options.max_staleness_steps = 1000;
    r->peer = (cod_peer){.group = 1, .fragments = r->fragments, .share = 0.5, .age = {.since = -1}};
    r->peers = (cod_peers){.options = &r->options, .items = &r->peer, .count = 1, .merging = r->room};
    memset(held, 0, sizeof held);
    merges = switches_told = 0;
}

static cod_buffer *const some = (cod_buffer *)held; /* which nothing reads */

/** The exchange holds a version, beside an own one (0 = none yet), at a step. @return merges that it makes */
static int take(reader *r, int fragment, uint64_t version, uint64_t own, int64_t step)
{
    const int before = merges;
    held[fragment] = (cod_exchange_checkpoint){.values = some,
                                               .version = version,
                                               .step = (int64_t)version * cod_exchange_spacing(&r->options),
                                               .age_s = (double)version,
                                               .own = own > 0 ? some : NULL,
                                               .own_version = own};
    r->context.step = step;
    assert_ok(cod_peers_take_over(&r->peers, &r->context));
    return merges - before;
}

/** Each version once, when the group's own is there; the fewer publications it is late, the more it moves weights. */
TEST(a_version_is_merged_once)
{
    reader r;
    reader_open(&r, (cod_exchange_options){.merge = COD_MERGE_DELAY_CORRECTED});
    assert_int_equal(take(&r, 0, 3, 0, 33), 0);
    assert_int_equal(take(&r, 0, 3, 3, 35), 1);
    assert_true(merged.own == some && merged.share == 0.5 && fabs(merged.alpha - cod_merge_alpha(0)) < 1e-12);
    for (int64_t step = 36; step < 60; step++)
        assert_int_equal(take(&r, 0, 3, 3, step), 0);
    assert_int_equal(take(&r, 0, 4, 4, 62), 1);
    assert_true(fabs(merged.alpha - cod_merge_alpha(2)) < 1e-12);
    assert_int_equal(switches_told, 2);
    r.peer.share = 0; /* of another architecture */
    assert_int_equal(take(&r, 0, 5, 5, 63), 0);
}

/** A peer that publishes three times as often has its newest version merged once for each own publication. */
TEST(a_faster_peer_counts_once_for_each_own_publication)
{
    reader r;
    int made = 0;
    reader_open(&r, (cod_exchange_options){.merge = COD_MERGE_DELAY_CORRECTED});
    for (uint64_t version = 30; version < 60; version++)
        made += take(&r, 0, version, version / 3, (int64_t)(PERIOD * version / 3 + 2));
    assert_int_equal(made, 10);
    assert_int_equal(switches_told, 30);
}

/** Gossip takes all, as they come, from the weights of now. */
TEST(a_plain_average_takes_each_version)
{
    reader r;
    int made = 0;
    reader_open(&r, (cod_exchange_options){.merge = COD_MERGE_AVERAGE});
    for (uint64_t version = 30; version < 60; version++)
        made += take(&r, 0, version, version / 3, (int64_t)(PERIOD * version / 3 + 2));
    assert_int_equal(made, 30);
    assert_true(merged.own == NULL && merged.alpha == 1);
}

/** Mixed: a teacher as soon as there is one of each fragment, which changes with each that comes. */
TEST(fragments_are_mixed)
{
    reader r;
    reader_open(&r, (cod_exchange_options){
                        .merge = COD_MERGE_DELAY_CORRECTED, .fragments = 2, .teacher_fragments = COD_TEACHER_MIXED});
    assert_int_equal(take(&r, 1, 7, 7, 40), 1);
    assert_int_equal(r.peer.version, 0);
    assert_int_equal(take(&r, 0, 8, 0, 42), 0); /* each fragment is merged when its own counterpart is there */
    assert_true(r.peer.version == 8 && r.peer.age.step == 7 * PERIOD / 2);
    assert_int_equal(take(&r, 0, 8, 8, 43), 1);
    assert_int_equal(merged.range, 0);
    take(&r, 0, 10, 10, 52);
    assert_true(r.peer.version == 10 && r.peer.age.step == 7 * PERIOD / 2);
    cod_peers_grow_old(&r.peers);
    assert_true(r.peer.age.age_s == 10);
    assert_int_equal(r.peers.switches, 2);
}

/** Whole: the teacher changes once a round, when fragments that follow each other are newer than those of before. */
TEST(fragments_are_a_teacher_as_a_whole)
{
    static const struct {
        uint64_t version;
        bool teaches;
    } cases[] = {{2, false}, {3, true}, {4, false}, {7, false}, {6, true}, {8, false}, {9, true}};
    reader r;
    reader_open(
        &r, (cod_exchange_options){.merge = COD_MERGE_NONE, .fragments = 2, .teacher_fragments = COD_TEACHER_WHOLE});
    r.peer.share = 0;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const uint64_t before = r.peers.switches, version = cases[i].version;
        take(&r, (int)(version % 2), version, 0, 5 * (int64_t)version + 3);
        assert_int_equal(r.peers.switches - before, cases[i].teaches);
        if (cases[i].teaches) {
            const uint64_t oldest = held[0].version < held[1].version ? held[0].version : held[1].version;
            assert_int_equal(r.peer.age.step, (int64_t)oldest * PERIOD / 2);
        }
    }
}
