/* The outer step of `noloco` against the paper's formula, and who meets whom. */
#include "support/test.h"

#include "strategies/noloco.h"

/** Halves and small integers, so that every product is exact. */
TEST(outer_step_is_the_papers)
{
    const cod_noloco_options options = {.outer_momentum = 0.5, .outer_rate = 0.25, .pull = 1.5};
    const float values[] = {4, -8}, theirs[] = {2, 16}, their_outer[] = {4, 0};
    float outer[] = {12, 8}, momentum[] = {2, -4};
    /* means of φ 8 and 4, of θ 3 and 4, of Δ 5 and 0; δ = 0.5·2 - 0.25·5 - 1.5·4 and 0.5·(-4) - 0 - 1.5·4 */
    const float right[] = {-6.25F, -8};
    cod_noloco_step(&options, outer, momentum, values, their_outer, theirs, 2);
    for (int i = 0; i < 2; i++)
        assert_true(momentum[i] == right[i]);
    assert_true(outer[0] == 12 - 6.25F && outer[1] == 0);
}

TEST(alone_the_pull_is_nothing)
{
    const cod_noloco_options options = {.outer_momentum = 0.5, .outer_rate = 1, .pull = 2};
    const float values[] = {3};
    float outer[] = {7}, momentum[] = {8};
    cod_noloco_step(&options, outer, momentum, values, outer, values, 1);
    assert_true(momentum[0] == 0 && outer[0] == 7);
}

/**
 * Who is met has met one too, nobody is met twice, and at most one is alone; over many rounds everybody meets
 * everybody.
 */
TEST(matchings)
{
    enum { MOST = 9, ROUNDS = 200 };
    uint32_t order[MOST];
    for (int groups = 2; groups <= MOST; groups++) {
        int met[MOST][MOST] = {{0}};
        for (int64_t round = 1; round <= ROUNDS; round++) {
            int alone = 0;
            for (int g = 0; g < groups; g++) {
                const int peer = cod_noloco_partner(7, 50 * round, groups, g, order);
                assert_in_range(peer, 0, groups - 1);
                assert_int_equal(cod_noloco_partner(7, 50 * round, groups, peer, order), g);
                alone += peer == g;
                met[g][peer]++;
            }
            assert_int_equal(alone, groups % 2);
        }
        for (int a = 0; a < groups; a++)
            for (int b = 0; b < groups; b++)
                assert_true((met[a][b] > 0) == (a != b || groups % 2 == 1));
    }
}
