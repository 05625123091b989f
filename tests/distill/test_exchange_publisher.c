/* What a publisher makes of what its group's ranks say, without transport and groups. */
#include "support/test.h"

#include "distill/exchange_internal.h"

#include <string.h>

enum { RANKS = 3 };

static own_version own[COD_EXCHANGE_OWN_KEPT];
static exchange_chain chain;

/** Of an exchange in one fragment. Version 5 is under way, a delta against version 4; this rank has encoded its shard and waits for the others. */
static void await_version_5(cod_exchange *e)
{
    memset(own, 0, sizeof own);
    chain = (exchange_chain){.reference = 4};
    *e =
        (cod_exchange){.setup = {.size = RANKS, .fragments = 1},
                       .publisher = {.own = own, .own_count = COD_EXCHANGE_OWN_KEPT, .chains = &chain, .fragments = 1}};
    e->publisher.version = 5;
    e->publisher.against = 4;
    exchange_own_of(e, 4)->version = 4;
    e->publisher.encoding = exchange_own_of(e, 5);
    e->publisher.waiting = true;
}

static void a_publication_ends_when_all_ranks_have_encoded(void **state)
{
    (void)state;
    cod_exchange e;
    await_version_5(&e);
    own_version *made = exchange_own_of(&e, 5);
    exchange_end_waiting(&e, RANKS - 1, 0);
    assert_true(e.publisher.waiting && e.publisher.encoding == made && chain.reference == 4);
    exchange_end_waiting(&e, RANKS, 0);
    assert_true(!e.publisher.waiting && e.publisher.encoding == NULL);
    assert_true(made->version == 5 && chain.reference == 5 && chain.since_key == 1);
}

static void what_one_rank_could_not_encode_is_skipped_by_all(void **state)
{
    (void)state;
    cod_exchange e;
    await_version_5(&e);
    exchange_end_waiting(&e, RANKS, 1);
    assert_true(!e.publisher.waiting && e.publisher.encoding == NULL && e.counters.skipped == 1);
    assert_true(chain.reference == 4 && exchange_own_of(&e, 5)->version == 0);
}

static void what_storage_left_out_breaks_the_chain(void **state)
{
    (void)state;
    exchange_chain chains[2] = {{.reference = 4}, {.reference = 3}};
    exchange_publisher idle = {.chains = chains, .fragments = 2};
    exchange_note_left_out(&idle, 0);
    assert_true(chains[0].reference == 4 && chains[1].reference == 3);
    exchange_note_left_out(&idle, 1);
    /* The next of each fragment is a key, and deltas follow it. */
    assert_true(chains[0].reference == 0 && chains[1].reference == 0 && !idle.chain_broken);
    chains[0].reference = 5;
    exchange_note_left_out(&idle, 1); /* told again, of the same one */
    assert_true(chains[0].reference == 5);

    cod_exchange e;
    await_version_5(&e);
    exchange_note_left_out(&e.publisher, 1);
    exchange_end_waiting(&e, RANKS, 0);
    assert_true(chain.reference == 0); /* version 5 may be a delta against what was left out */
}

static void a_fingerprint_knows_places_but_no_order(void **state)
{
    (void)state;
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
static void a_publisher_goes_on_from_what_it_saved(void **state)
{
    (void)state;
    static const uint64_t expected[] = {9, 90, 7, 1, 8, 2, 9, 8, 7, 6, 5, 4, 3, 2};
    enum { FRAGMENTS = 2, OWN = FRAGMENTS * COD_EXCHANGE_OWN_KEPT, COUNT = sizeof expected / sizeof expected[0] };
    _Static_assert((int)COUNT == EXCHANGE_NUMBERS - 1 + FRAGMENTS * EXCHANGE_CHAIN_NUMBERS,
                   "each number has its place");
    uint64_t saved[COUNT];
    own_version kept[OWN], again[OWN] = {{0}};
    exchange_chain chains[FRAGMENTS] = {{.reference = 7, .since_key = 1}, {.reference = 8, .since_key = 2}};
    exchange_chain chains_again[FRAGMENTS] = {{0}};
    for (int i = 0; i < OWN; i++)
        kept[i] = (own_version){.version = 9 - (uint64_t)i};
    exchange_publisher before = {.version = 9, .step = 90, .chains = chains, .fragments = FRAGMENTS, .own = kept};
    exchange_publisher after = {.chains = chains_again, .fragments = FRAGMENTS, .own = again};
    before.own_count = after.own_count = OWN;
    exchange_numbers out = {.next = saved}, in = {.next = saved, .restoring = true};
    exchange_publisher_pack(&before, &out);
    assert_true(out.next == saved + COUNT && before.restored == 0);
    assert_memory_equal(saved, expected, sizeof expected);
    exchange_publisher_pack(&after, &in);
    assert_true(in.next == saved + COUNT && after.version == 9 && after.step == 90 && after.restored == 9);
    assert_memory_equal(chains_again, chains, sizeof chains);
    assert_memory_equal(again, kept, sizeof kept);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_publication_ends_when_all_ranks_have_encoded),
        cmocka_unit_test(what_one_rank_could_not_encode_is_skipped_by_all),
        cmocka_unit_test(what_storage_left_out_breaks_the_chain),
        cmocka_unit_test(a_publisher_goes_on_from_what_it_saved),
        cmocka_unit_test(a_fingerprint_knows_places_but_no_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
