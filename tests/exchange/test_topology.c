/* Who reads whom, and how that is written in a configuration. */
#include "support/test.h"

#include "exchange/exchange.h"

enum { GROUPS = 12 };

static int read_by(const cod_exchange_options *options, int reader)
{
    int count = 0;
    for (int g = 0; g < GROUPS; g++)
        count += cod_exchange_reads(options, GROUPS, reader, g);
    return count;
}

static cod_exchange_options drawing(int k, uint64_t seed)
{
    return (cod_exchange_options){.peers = COD_PEERS_RANDOM + 256 * k, .codec = COD_EXCHANGE_DELTA, .seed = seed};
}

TEST(all_and_ring_read_whom_they_say)
{
    const cod_exchange_options all = {.peers = COD_PEERS_ALL, .codec = COD_EXCHANGE_DELTA},
                               ring = {.peers = COD_PEERS_RING, .codec = COD_EXCHANGE_DELTA},
                               none = {.peers = COD_PEERS_ALL, .codec = COD_EXCHANGE_NONE};
    for (int reader = 0; reader < GROUPS; reader++) {
        assert_int_equal(read_by(&all, reader), GROUPS - 1);
        assert_int_equal(read_by(&ring, reader), 1);
        assert_int_equal(read_by(&none, reader), 0);
        assert_true(cod_exchange_reads(&ring, GROUPS, reader, (reader + 1) % GROUPS));
        assert_false(cod_exchange_reads(&all, GROUPS, reader, reader));
    }
}

TEST(a_draw_gives_each_group_k_others)
{
    for (int k = 1; k < GROUPS; k++) {
        const cod_exchange_options options = drawing(k, 5);
        for (int reader = 0; reader < GROUPS; reader++) {
            assert_int_equal(read_by(&options, reader), k);
            assert_false(cod_exchange_reads(&options, GROUPS, reader, reader));
        }
    }
}

/** All peers where the period allows it, else as many as it allows. */
TEST(auto_reads_as_many_as_the_period_allows)
{
    enum { MANY = 200 };
    cod_exchange_options options = {.peers = COD_PEERS_AUTO, .period = 50, .codec = COD_EXCHANGE_DELTA, .seed = 3};
    char advice[512];
    int count = 0;
    assert_int_equal(cod_exchange_peers_allowed(&options), 72);
    assert_int_equal(read_by(&options, 4), GROUPS - 1);
    for (int g = 0; g < MANY; g++)
        count += cod_exchange_reads(&options, MANY, 7, g);
    assert_int_equal(count, 72);
    assert_false(cod_exchange_falls_behind(&options, 72, advice, sizeof advice));
    assert_true(cod_exchange_falls_behind(&options, MANY - 1, advice, sizeof advice));
    cod_test_assert_contains(advice, "reads 199 peers, and with exchange.period 50 about 72");
    cod_test_assert_contains(advice, "exchange.period=137");
    options.period = 137;
    assert_false(cod_exchange_falls_behind(&options, MANY - 1, advice, sizeof advice));
    options.period = 4;
    assert_true(cod_exchange_falls_behind(&options, 1, advice, sizeof advice));
    cod_test_assert_contains(advice, "of publications every 4 steps about one in 2 is used");
    options.deterministic = true;
    assert_false(cod_exchange_falls_behind(&options, MANY, advice, sizeof advice));
}

/** Over many seeds each other group is drawn about equally often: 12 others would be 1000·3/11 = 273 times, ± 14. */
TEST(a_draw_is_fair_and_differs_from_seed_to_seed)
{
    int times[GROUPS][GROUPS] = {{0}};
    for (uint64_t seed = 0; seed < 1000; seed++) {
        const cod_exchange_options options = drawing(3, seed);
        for (int reader = 0; reader < GROUPS; reader++)
            for (int g = 0; g < GROUPS; g++)
                times[reader][g] += cod_exchange_reads(&options, GROUPS, reader, g);
    }
    for (int reader = 0; reader < GROUPS; reader++)
        for (int g = 0; g < GROUPS; g++)
            assert_true(g == reader ? times[reader][g] == 0 : times[reader][g] > 200 && times[reader][g] < 346);
}

static cod_status set(const char *text, int *peers, const char **back, cod_arena *arena)
{
    cod_exchange_options options;
    const cod_option *option = cod_option_find(&cod_exchange_option_table, "peers");
    assert_ok(cod_options_set_defaults(&cod_exchange_option_table, &options, arena));
    COD_TRY(cod_option_set(option, &options, &text, 1, arena));
    *peers = options.peers;
    *back = cod_option_format(option, &options, arena);
    return COD_OK;
}

TEST(a_choice_may_take_a_number)
{
    cod_arena arena = {0};
    int peers;
    const char *back;
    assert_ok(set("random(2)", &peers, &back, &arena));
    assert_int_equal(cod_choice_index(peers), COD_PEERS_RANDOM);
    assert_int_equal(cod_choice_argument(peers), 2);
    assert_string_equal(back, "random(2)");
    assert_ok(set("random(1000000)", &peers, &back, &arena));
    assert_string_equal(back, "random(1000000)");
    assert_ok(set("ring", &peers, &back, &arena));
    assert_string_equal(back, "ring");
    static const char *const wrong[] = {"random",
                                        "random()",
                                        "random(k)",
                                        "random(0)",
                                        "random(-1)",
                                        "random(1.5)",
                                        "random(2",
                                        "random(2))",
                                        "random(2)x",
                                        "random(1000001)",
                                        "random( 2)",
                                        "random(1e3)",
                                        "random(99999999999999999999)"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_fails(COD_ERR_ARGUMENT, "one of: all, ring, random(k), auto, k from 1 to 1000000",
                     set(wrong[i], &peers, &back, &arena));
    assert_fails(COD_ERR_ARGUMENT, "did you mean 'ring'", set("rign", &peers, &back, &arena));
    cod_arena_clear(&arena);
}
