/* The model of the exchange at scale: figures that follow from the protocol by hand, and what no setting may break. */
#include "support/test.h"

#include "exchange/merge.h"
#include "tools/bench/scale_links.h"
#include "tools/bench/scale_model.h"

#include <math.h>

enum { PERIOD = 50, PUBLICATIONS = 20, STEPS = PERIOD * PUBLICATIONS, MOST_GROUPS = 64 };
static const double step_s = 0.01;

#define assert_near(value, wanted, error) assert_true(fabs((value) - (wanted)) <= (error))

static cod_exchange_options options_of(cod_arena *arena)
{
    cod_exchange_options options;
    assert_int_equal(cod_options_set_defaults(&cod_exchange_option_table, &options, arena), COD_OK);
    return options;
}

/** Groups of one rank without drift, whose coding takes no time, over links without limits: a base to change. */
static cod_scale_setting even(const cod_exchange_options *options, int groups, double *steps)
{
    cod_scale_draw_steps(1, groups, STEPS, step_s, 0, 0, steps);
    return (cod_scale_setting){.exchange = options,
                               .groups = groups,
                               .ranks = 1,
                               .weights = 10000,
                               .steps = STEPS,
                               .step_s = steps,
                               .link_bytes_s = INFINITY,
                               .costs = {.key_ratio = 4, .ratio = 10}};
}

static cod_scale_result result_of(const cod_scale_setting *setting)
{
    cod_scale_result result;
    assert_int_equal(cod_scale_run(setting, &result), COD_OK);
    return result;
}

static double steps[MOST_GROUPS * STEPS];

/**
 * A publication after step 50, of one chunk, is readable after step 51. Peers are asked after steps that 12 divides:
 * after 60; the answer is seen after 61, and acts in step 63, in which all bytes come. That it is here acts in step 65,
 * after 64: 14 steps after it was published. Every publication is used from 15 steps after it to 64, when the next
 * takes its place; but the last one, which nobody takes over any more.
 */
TEST(two_groups_without_limits_use_all_as_the_protocol_says)
{
    cod_exchange_options options = options_of(*state);
    cod_scale_setting setting = even(&options, 2, steps);
    const cod_scale_result r = result_of(&setting);
    assert_int_equal(r.sizes.pulls, 1);
    assert_int_equal(r.publications, PUBLICATIONS);
    assert_int_equal(r.taken, 2 * (PUBLICATIONS - 1));
    assert_int_equal(r.lost, 0);
    assert_near(r.used, 1, 0);
    assert_in_range((int)r.staleness_median, 36, 41); /* each at another place between two looks */
    assert_in_range((int)r.staleness_most, 64, 76);
    assert_near(r.overhead, 0, 1e-12);
    assert_near(r.step_s, step_s, 1e-12);
    /* Keys are the first and 17th. The last publication, also a key, is not read. */
    const double bytes = 2 * 40000 / 4. + (PUBLICATIONS - 3) * 40000 / 10.;
    assert_near(r.bytes_a_step, bytes / STEPS, 0.01);
}

/** With looks at every publication's own step the figures are exact. */
TEST(staleness_is_exact_where_looks_are_even)
{
    cod_exchange_options options = options_of(*state);
    cod_scale_setting setting = even(&options, 2, steps);
    options.period = 48; /* looks after each 12 steps, at 60 the first one after a publication */
    const cod_scale_result r = result_of(&setting);
    assert_int_equal(r.staleness_most, 64);
    assert_int_equal(r.lost, 0);
}

/** Of keys alone, where a pull takes its bytes' steps and eight more, and the next follows at once. */
static double used_at(double transfer_steps)
{
    return PERIOD / (transfer_steps + 8);
}

/** Each publication takes 2.2 periods over the link, and each is a key. */
TEST(a_link_that_is_too_slow_leaves_publications_out)
{
    cod_exchange_options options = options_of(*state);
    options.key_every = 1;
    cod_scale_setting setting = even(&options, 2, steps);
    const double bytes = 4 * (double)setting.weights / setting.costs.key_ratio;
    setting.link_bytes_s = bytes / (2.2 * PERIOD * step_s);
    const cod_scale_result r = result_of(&setting);
    assert_near(r.used, used_at(2.2 * PERIOD), 0.1 * used_at(2.2 * PERIOD));
    assert_int_equal(r.lost, 0);
    assert_true(r.staleness_most > 4 * PERIOD && r.staleness_most < 6 * PERIOD);
    assert_true(r.peak_bytes_s <= setting.link_bytes_s * 1.0001);
    setting.link_bytes_s *= 2;
    assert_near(result_of(&setting).used, used_at(1.1 * PERIOD), 0.1 * used_at(1.1 * PERIOD));
    /* Deltas are followed one by one: the reader falls behind until one is gone, and waits for the 17th, a key. */
    options.key_every = 16;
    setting.costs.ratio = setting.costs.key_ratio;
    setting.link_bytes_s /= 2;
    const cod_scale_result behind = result_of(&setting);
    assert_true(behind.lost > 0 && behind.used < r.used && behind.staleness_most > 8 * PERIOD);
}

/** With two slots a version lives for a period: a pull that takes longer loses it. */
TEST(a_version_is_lost_when_its_slot_is_reopened)
{
    cod_exchange_options options = options_of(*state);
    options.key_every = 1;
    options.slots = 2;
    cod_scale_setting setting = even(&options, 2, steps);
    setting.link_bytes_s = 4 * (double)setting.weights / setting.costs.key_ratio / (2.2 * PERIOD * step_s);
    const cod_scale_result lost = result_of(&setting);
    assert_int_equal(lost.taken, 0);
    assert_true(lost.lost >= PUBLICATIONS / 2 && isnan(lost.staleness_most));
    options.slots = 4;
    assert_true(result_of(&setting).taken > 0);
}

/** Seven peers share the reader's link: each link moves what one pair would need seven times. */
TEST(peers_share_links)
{
    enum { GROUPS = 8 };
    cod_exchange_options options = options_of(*state);
    options.key_every = 1;
    cod_scale_setting setting = even(&options, GROUPS, steps);
    const double bytes = 4 * (double)setting.weights / setting.costs.key_ratio, period_s = PERIOD * step_s;
    setting.link_bytes_s = (GROUPS - 1) * bytes / (0.5 * period_s);
    assert_near(result_of(&setting).used, 1, 0.01);
    setting.link_bytes_s = (GROUPS - 1) * bytes / (4 * period_s);
    const cod_scale_result slow = result_of(&setting);
    assert_true(slow.used < 0.35 && slow.used > 0.2);
    options.peers = COD_PEERS_RING;
    assert_near(result_of(&setting).used, 1, 0.01);
}

TEST(the_same_settings_give_the_same_figures)
{
    cod_exchange_options options = options_of(*state);
    cod_scale_setting setting = even(&options, 16, steps);
    setting.link_bytes_s = 1e6;
    setting.latency_s = 1e-3;
    cod_scale_draw_steps(3, 16, STEPS, step_s, 0.05, 0.1, steps);
    const cod_scale_result a = result_of(&setting), b = result_of(&setting);
    assert_memory_equal(&a, &b, sizeof a);
    cod_scale_draw_steps(4, 16, STEPS, step_s, 0.05, 0.1, steps);
    assert_true(result_of(&setting).step_s != a.step_s);
}

/** The exchange's own plan; more peers or weights never take less. */
TEST(memory_grows_with_peers_and_weights)
{
    cod_exchange_options options = options_of(*state);
    cod_exchange_sizes before = {0};
    for (int groups = 2; groups <= MOST_GROUPS; groups *= 2) {
        cod_scale_setting setting = even(&options, groups, steps);
        setting.ranks = 4;
        const cod_exchange_sizes sizes = result_of(&setting).sizes;
        assert_int_equal(sizes.peers, groups - 1);
        assert_true(sizes.memory_bytes > before.memory_bytes && sizes.checkpoint_bytes > before.checkpoint_bytes);
        const double saved = result_of(&setting).checkpoint_bytes;
        assert_true(saved < (double)sizes.checkpoint_bytes && saved > 4 * (3 + groups) * (double)setting.weights);
        before = sizes;
        options.peers = COD_PEERS_RING;
        const cod_exchange_sizes ring = result_of(&setting).sizes;
        assert_true(groups == 2 || ring.memory_bytes < sizes.memory_bytes);
        options.peers = COD_PEERS_ALL;
        setting.weights *= 2;
        assert_true(result_of(&setting).sizes.memory_bytes > sizes.memory_bytes);
    }
}

/** Coding a weight takes 1 ns in each of its ways: of all weights once a period for each. */
TEST(overhead_is_what_coding_takes)
{
    cod_exchange_options options = options_of(*state);
    cod_scale_setting setting = even(&options, 2, steps);
    setting.weights = 1000000;
    setting.costs.encode = setting.costs.decode = setting.costs.merge = setting.costs.copy = 1e-9;
    const double period_s = PERIOD * step_s, all = 4e-9 * (double)setting.weights;
    const cod_scale_result r = result_of(&setting);
    assert_true(fabs(r.overhead - all / period_s) < 0.1 * all / period_s);
    /* Of two ranks each decodes half, and copies what the other decoded; mirroring takes nothing here. */
    setting.ranks = 2;
    const double halves = 0.5e-9 + 0.5e-9 + 1e-9 + 1.5e-9;
    const double two = halves * (double)setting.weights / period_s;
    assert_true(fabs(result_of(&setting).overhead - two) < 0.1 * two);
    /* Held together, each copies and encodes its half, decodes half, and merges all. */
    setting.once = true;
    const double once = (0.5e-9 + 0.5e-9 + 0.5e-9 + 1e-9) * (double)setting.weights / period_s;
    assert_true(fabs(result_of(&setting).overhead - once) < 0.1 * once);
}

/** Four ranks on two cores compute half of the time; on five each has one. What a rank computes does not change. */
TEST(ranks_share_cores_in_equal_parts)
{
    cod_exchange_options options = options_of(*state);
    cod_scale_setting setting = even(&options, 2, steps);
    setting.ranks = 2;
    setting.weights = 1000000;
    setting.costs.encode = setting.costs.decode = 1e-9;
    const cod_scale_result alone = result_of(&setting);
    setting.cores = 2;
    const cod_scale_result shared = result_of(&setting);
    assert_near(shared.step_s, 2 * alone.step_s, 1e-9);
    assert_near(shared.overhead, alone.overhead, 1e-12);
    assert_int_equal(shared.taken, alone.taken);
    setting.cores = 5;
    const cod_scale_result spare = result_of(&setting);
    assert_memory_equal(&spare, &alone, sizeof alone);
}

/** Of one rank with twice as much to compute: alone on the only core for the second half of its time. */
TEST(a_core_is_free_when_a_group_has_ended)
{
    cod_exchange_options options = options_of(*state);
    cod_scale_setting setting = even(&options, 2, steps);
    for (int64_t i = 0; i < STEPS; i++)
        steps[STEPS + i] = 2 * step_s;
    setting.cores = 1;
    /* The first has its steps' time twice; the second that, and the half of its own that was left. */
    assert_near(result_of(&setting).step_s, (2 * step_s + 3 * step_s) / 2, 1e-9);
}

/** Bytes as measured, in place of ratios: all but those of the last publication come once to the one reader. */
TEST(publications_have_the_bytes_that_are_given)
{
    cod_exchange_options options = options_of(*state);
    cod_scale_setting setting = even(&options, 2, steps);
    double bytes[2 * PUBLICATIONS], come = 0;
    for (int i = 0; i < 2 * PUBLICATIONS; i++) {
        bytes[i] = 1000 + i;
        come += i % PUBLICATIONS < PUBLICATIONS - 1 ? bytes[i] : 0;
    }
    setting.published_bytes = bytes;
    assert_near(result_of(&setting).bytes_a_step, come / (2 * STEPS), 1e-6);
}

/** The step in which ranks share what they decoded, and two in which they agree that all have it. */
TEST(ranks_share_what_they_decode)
{
    cod_exchange_options options = options_of(*state);
    cod_scale_setting setting = even(&options, 2, steps);
    options.period = 48;
    setting.ranks = 4;
    setting.weights = 40000;
    const cod_scale_result r = result_of(&setting);
    assert_int_equal(r.staleness_most, 64 + 3);
    assert_near(r.used, 1, 0);
    const double taken = (double)r.taken / (2 * STEPS);
    assert_near(r.shared_bytes_a_step, taken * 3 * 40000, 1e-6);
    /* Where they hold values together there is nothing to share, and a part of the memory suffices. */
    setting.once = true;
    const cod_scale_result once = result_of(&setting);
    assert_int_equal(once.staleness_most, 64);
    assert_near(once.used, 1, 0);
    assert_near(once.shared_bytes_a_step, 0, 0);
    assert_int_equal(once.sizes.held_bytes, r.sizes.held_bytes / 4);
    assert_int_equal(once.sizes.checkpoint_bytes, r.sizes.checkpoint_bytes);
}

/** Taken over 14 steps after it was published, a version stands beside the own one at full strength: 19 of 20. */
TEST(merges_weaken_with_the_delay)
{
    cod_exchange_options options = options_of(*state);
    cod_scale_setting setting = even(&options, 2, steps);
    const cod_scale_result soon = result_of(&setting);
    assert_near(soon.merged, (PUBLICATIONS - 1.) / PUBLICATIONS, 1e-12);
    assert_near(soon.strength, soon.merged, 1e-12);
    /* Each a key that takes 2.2 periods: it stands beside the own one two or three periods late. */
    options.key_every = 1;
    setting.link_bytes_s = 4 * (double)setting.weights / setting.costs.key_ratio / (2.2 * PERIOD * step_s);
    const cod_scale_result late = result_of(&setting);
    assert_near(late.merged, (double)late.taken / (2 * PUBLICATIONS), 1e-12);
    assert_true(late.strength > cod_merge_alpha(3) * late.merged && late.strength < cod_merge_alpha(2) * late.merged);
    options.merge = COD_MERGE_NONE;
    assert_near(result_of(&setting).merged, 0, 0);
}

/** Who is one version behind is given one, however many a pull may take. */
TEST(who_keeps_up_is_given_one_version)
{
    cod_exchange_options options = options_of(*state);
    cod_scale_setting setting = even(&options, 2, steps);
    const cod_scale_result one = result_of(&setting);
    setting.deltas = 1;
    const cod_scale_result chain = result_of(&setting);
    assert_memory_equal(&one, &chain, sizeof one);
}

/** Four peers of a pull take turns, more steps than a period of ten has: who comes late finds several deltas. */
TEST(deltas_in_one_pull_catch_up_where_turns_are_few)
{
    cod_exchange_options options = options_of(*state);
    options.period = 10;
    cod_scale_setting setting = even(&options, 64, steps);
    setting.deltas = 1;
    const cod_scale_result one = result_of(&setting);
    setting.deltas = 8;
    const cod_scale_result several = result_of(&setting);
    assert_true(one.followed == 0 && several.followed > several.taken / 4);
    assert_true(several.taken > one.taken && several.staleness_median < one.staleness_median);
}

TEST(rivals_wait_for_the_slowest_and_the_link)
{
    cod_exchange_options options = options_of(*state);
    cod_scale_setting setting = even(&options, 4, steps);
    cod_scale_rivals rivals;
    setting.weights = 1000000;
    setting.link_bytes_s = 6e8; /* 6 MB each way of a ring of four: 10 ms, just hidden */
    cod_scale_compare(&setting, &rivals);
    assert_near(rivals.allreduce_bytes, 6e6, 1);
    assert_near(rivals.allreduce_step_s, step_s, 1e-9);
    assert_near(rivals.local_step_s, step_s + 0.01 / PERIOD, 1e-9);
    assert_near(rivals.local_bytes, 6e6 / PERIOD, 1);
    setting.latency_s = 1e-3; /* six messages, one after the other */
    cod_scale_compare(&setting, &rivals);
    assert_near(rivals.allreduce_step_s, 0.016, 1e-9);
    for (int64_t i = 0; i < STEPS; i++)
        steps[2 * STEPS + i] = 2 * step_s;
    cod_scale_compare(&setting, &rivals);
    assert_near(rivals.allreduce_step_s, 0.02, 1e-9);
    assert_near(rivals.local_step_s, 0.02 + 0.016 / PERIOD, 1e-9);
}

/** Two flows to a node share its link; when one ends the other has all of it. */
TEST(a_link_is_shared_in_equal_parts)
{
    cod_scale_links *links;
    size_t flow = 9;
    assert_int_equal(cod_scale_links_create(3, 4, 100, 1, &links), COD_OK);
    assert_true(isinf(cod_scale_links_next(links, &flow)));
    cod_scale_links_start(links, 0, 0, 2, 100, INFINITY, 0);
    cod_scale_links_start(links, 1, 1, 2, 300, INFINITY, 0);
    assert_near(cod_scale_links_next(links, &flow), 2, 1e-9);
    assert_int_equal(flow, 0);
    cod_scale_links_end_next(links);
    assert_near(cod_scale_links_next(links, &flow), 4, 1e-9);
    assert_int_equal(flow, 1);
    cod_scale_links_start(links, 2, 2, 1, 100, 20, 3); /* the other way; slower by itself */
    assert_near(cod_scale_links_next(links, &flow), 4, 1e-9);
    cod_scale_links_end_next(links);
    assert_near(cod_scale_links_next(links, &flow), 8, 1e-9);
    cod_scale_links_stop(links, 2, 5);
    cod_scale_links_stop(links, 2, 6);
    assert_true(isinf(cod_scale_links_next(links, &flow)));
    assert_near(cod_scale_links_bytes(links), 440, 1e-9);
    assert_near(cod_scale_links_peak(links), 100, 1e-9);
    cod_scale_links_destroy(links);
}

TEST(other_exchanges_are_refused)
{
    cod_exchange_options options = options_of(*state);
    cod_scale_setting setting = even(&options, 2, steps);
    cod_scale_result result;
    options.deterministic = true;
    assert_int_equal(cod_scale_run(&setting, &result), COD_ERR_ARGUMENT);
    options.deterministic = false;
    options.codec = COD_EXCHANGE_INT8;
    assert_int_equal(cod_scale_run(&setting, &result), COD_ERR_ARGUMENT);
    options.codec = COD_EXCHANGE_DELTA;
    setting.groups = 1;
    assert_int_equal(cod_scale_run(&setting, &result), COD_ERR_ARGUMENT);
}

static int make_arena(void **state)
{
    static cod_arena arena;
    *state = &arena;
    return 0;
}

static int clear_arena(void **state)
{
    cod_arena_clear(*state);
    return 0;
}

TEST_GROUP(make_arena, clear_arena)
