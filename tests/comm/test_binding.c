#include "support/test.h"

#include "comm/binding.h"

#include <limits.h>

/** No such folder: every processor is a core. */
static const char flat[] = "/nonexistent";

typedef struct seat_text {
    int machine;
    const char *given, *wider;
} seat_text;

static cod_binding decide(const seat_text *texts, int count, int rank, int quota)
{
    cod_seat seats[8] = {0};
    for (int r = 0; r < count; r++) {
        seats[r].machine = (uint64_t)texts[r].machine;
        assert_true(cod_processors_parse(texts[r].given, &seats[r].given));
        if (texts[r].wider != NULL)
            assert_true(cod_processors_parse(texts[r].wider, &seats[r].wider));
    }
    return cod_binding_decide(seats, count, rank, quota, flat);
}

static void assert_binding(const seat_text *texts, int count, int rank, cod_binding_kind kind, const char *set,
                           int threads)
{
    const cod_binding binding = decide(texts, count, rank, INT_MAX);
    char text[128];
    cod_processors_format(&binding.set, text, sizeof text);
    assert_int_equal(binding.kind, kind);
    assert_string_equal(text, set);
    assert_int_equal(binding.threads, threads);
}

TEST(unbound_ranks_divide_their_machine)
{
    const seat_text seats[] = {
        {1, "0-7", NULL}, {2, "0-3", NULL}, {1, "0-7", NULL}, {2, "0-3", NULL}, {3, "0-3", NULL}};
    assert_binding(seats, 5, 0, COD_BINDING_DIVIDED, "0-3", 4);
    assert_binding(seats, 5, 2, COD_BINDING_DIVIDED, "4-7", 4);
    assert_binding(seats, 5, 1, COD_BINDING_DIVIDED, "0-1", 2);
    assert_binding(seats, 5, 3, COD_BINDING_DIVIDED, "2-3", 2);
    assert_binding(seats, 5, 4, COD_BINDING_KEPT, "0-3", 4); /* alone */
    assert_int_equal(decide(seats, 5, 0, INT_MAX).machine_ranks, 2);
}

TEST(ranks_bound_apart_stay)
{
    const seat_text seats[] = {{1, "0", "0-7"}, {1, "5-6", "0-7"}};
    assert_binding(seats, 2, 0, COD_BINDING_KEPT, "0", 1);
    assert_binding(seats, 2, 1, COD_BINDING_KEPT, "5-6", 2);
}

/** mpirun --bind-to socket, two ranks on each. */
TEST(ranks_bound_alike_divide_what_they_have)
{
    const seat_text seats[] = {{1, "0-3", "0-7"}, {1, "4-7", "0-7"}, {1, "0-3", "0-7"}, {1, "4-7", "0-7"}};
    assert_binding(seats, 4, 0, COD_BINDING_DIVIDED, "0-1", 2);
    assert_binding(seats, 4, 1, COD_BINDING_DIVIDED, "4-5", 2);
    assert_binding(seats, 4, 2, COD_BINDING_DIVIDED, "2-3", 2);
    assert_binding(seats, 4, 3, COD_BINDING_DIVIDED, "6-7", 2);
}

TEST(ranks_that_mpirun_put_on_one_core_divide_what_mpirun_has)
{
    const seat_text seats[] = {{1, "0", "0-3"}, {1, "0", "0-3"}};
    assert_binding(seats, 2, 0, COD_BINDING_DIVIDED, "0-1", 2);
    assert_binding(seats, 2, 1, COD_BINDING_DIVIDED, "2-3", 2);
    assert_true(decide(seats, 2, 1, INT_MAX).widened);
    const seat_text both[] = {{1, "0", "0"}, {1, "0", "0"}}; /* under taskset */
    assert_binding(both, 2, 1, COD_BINDING_CROWDED, "0", 1);
    assert_false(decide(both, 2, 1, INT_MAX).widened);
}

TEST(too_few_processors_are_shared)
{
    const seat_text many[] = {{1, "0-1", NULL}, {1, "0-1", NULL}, {1, "0-1", NULL}};
    for (int r = 0; r < 3; r++)
        assert_binding(many, 3, r, COD_BINDING_CROWDED, "0-1", 1);
    const seat_text crossed[] = {{1, "0-2", NULL}, {1, "2-4", NULL}};
    assert_binding(crossed, 2, 0, COD_BINDING_CROWDED, "0-2", 3);
    assert_binding(crossed, 2, 1, COD_BINDING_CROWDED, "2-4", 3);
}

TEST(a_quota_limits_threads_not_cores)
{
    const seat_text seats[] = {{1, "0-7", NULL}, {1, "0-7", NULL}};
    assert_int_equal(decide(seats, 2, 0, 4).threads, 2);
    assert_int_equal(decide(seats, 2, 0, 1).threads, 1);
}
