/* Dividing costs into contiguous parts, against trying all divisions, and a network's layers. */
#include "support/test.h"

#include "core/rng.h"
#include "strategies/partition.h"

#include <math.h>
#include <stdbool.h>

/** The greatest sum of the parts that a set of cuts makes: bit i cuts before cost i + 1. @param[out] parts  how many */
static double greatest(const double *costs, size_t count, unsigned cuts, size_t *parts)
{
    double worst = 0, sum = 0;
    *parts = 1;
    for (size_t i = 0; i < count; i++) {
        const bool begins = i > 0 && (cuts >> (i - 1) & 1) != 0;
        *parts += begins;
        sum = begins ? costs[i] : sum + costs[i];
        worst = fmax(worst, sum);
    }
    return worst;
}

/** The least greatest sum of all divisions. */
static double best_of_all(const double *costs, size_t count, size_t parts)
{
    double best = INFINITY;
    for (unsigned cuts = 0; cuts < 1u << (count - 1); cuts++) {
        size_t made;
        const double sum = greatest(costs, count, cuts, &made);
        best = made == parts ? fmin(best, sum) : best;
    }
    return best;
}

TEST(no_division_is_better)
{
    enum { COUNT_MAX = 9, PARTS_MAX = 4 };
    for (uint64_t seed = 0; seed < 200; seed++) {
        cod_rng rng = cod_rng_open(seed, 0, 0, 0, COD_RNG_TEST, 0);
        const size_t count = 1 + cod_rng_below(&rng, COUNT_MAX);
        const uint32_t most = count < PARTS_MAX ? (uint32_t)count : PARTS_MAX;
        const size_t parts = 1 + cod_rng_below(&rng, most);
        double costs[COUNT_MAX];
        size_t first[PARTS_MAX + 1], made;
        unsigned cuts = 0;
        for (size_t i = 0; i < count; i++)
            costs[i] = cod_rng_below(&rng, 20);
        assert_ok(cod_partition(costs, count, parts, first));
        assert_int_equal(first[0], 0);
        assert_int_equal(first[parts], count);
        for (size_t k = 1; k < parts; k++)
            cuts |= 1u << (first[k] - 1);
        const double worst = greatest(costs, count, cuts, &made);
        if (made != parts || worst != best_of_all(costs, count, parts))
            fail_msg("seed %llu: %zu costs in %zu parts can be divided better", (unsigned long long)seed, count, parts);
    }
}

TEST(layers_that_share_weights_are_one)
{
    cod_graph *graph;
    cod_arena arena = {0};
    cod_layer *layers;
    size_t count;
    assert_ok(cod_graph_create(&graph));
    cod_value x = cod_graph_input(graph, "input", 4);
    x = cod_graph_linear(graph, "one", x, 4, false);
    x = cod_graph_linear(graph, "two", x, 4, false);
    x = cod_graph_activation(graph, x, COD_ACT_RELU, 0);
    x = cod_graph_linear(graph, "one", x, 4, false);
    x = cod_graph_linear(graph, "three", x, 4, false);
    assert_ok(cod_layers_find(graph, &arena, &layers, &count));
    assert_int_equal(count, 2);
    assert_string_equal(layers[0].name, "one");
    assert_string_equal(layers[1].name, "three");
    assert_int_equal(layers[1].node, 5);
    cod_arena_clear(&arena);
    cod_graph_destroy(graph);
    assert_ok(cod_graph_create(&graph));
    cod_graph_activation(graph, cod_graph_input(graph, "input", 4), COD_ACT_RELU, 0);
    assert_fails(COD_ERR_ARGUMENT, "no layers with weights", cod_layers_find(graph, &arena, &layers, &count));
    cod_arena_clear(&arena);
    cod_graph_destroy(graph);
}
