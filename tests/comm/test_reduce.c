#include "comm/job.h"

#include "comm/group.h"
#include "core/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/** A small integer that depends on who holds it and where: sums of them are exact in any order. */
static float value(int rank, size_t i, int round)
{
    return (float)((int)((i * 7 + (size_t)round * 3) % 61) + rank * 12 - 24);
}

/** The sum of value() over `size` ranks. */
static float total(int size, size_t i, int round)
{
    float sum = 0;
    for (int r = 0; r < size; r++)
        sum += value(r, i, round);
    return sum;
}

static void fill(float *values, size_t count, int rank, int round)
{
    for (size_t i = 0; i < count; i++)
        values[i] = value(rank, i, round);
}

/** The average is the exact sum times the rounded 1/size: bits are compared. */
static bool averaged(const float *values, size_t from, size_t count, int size, int round)
{
    const float scale = (float)(1.0 / size);
    for (size_t i = from; i < from + count; i++) {
        const float want = total(size, i, round) * scale;
        if (memcmp(&values[i], &want, sizeof want) != 0)
            return false;
    }
    return true;
}

static bool untouched(const float *values, size_t from, size_t end, int rank, int round)
{
    bool ok = true;
    for (size_t i = from; i < end; i++)
        ok = ok && values[i] == value(rank, i, round);
    return ok;
}

TEST(averages_are_exact_at_any_count_and_offset)
{
    static const size_t counts[] = {1, 2, 3, 5, 17, 1023, 4097, 65537, 300001};
    enum { SPARE = 7, MOST = 300001 };
    cod_collective *c = cod_group_collective(cod_comm_world(job));
    cod_buffer buffer = {.bytes = (MOST + 2 * SPARE) * sizeof(float)};
    check_ok(cod_aligned_alloc(&buffer.host, buffer.bytes));
    float *values = buffer.host;
    for (int k = 0; k < (int)(sizeof counts / sizeof counts[0]); k++) {
        const size_t from = (size_t)k % SPARE, count = counts[k], end = from + count;
        cod_reduction *reduction = NULL;
        fill(values, MOST + 2 * SPARE, c->rank, k);
        check_ok(c->ops->average_start(c, &buffer, from * sizeof(float), count, NULL, &reduction));
        check_ok(c->ops->wait(reduction, NULL));
        check_all(averaged(values, from, count, c->size, k));
        check_all(untouched(values, 0, from, c->rank, k) && untouched(values, end, end + SPARE, c->rank, k));
    }
    cod_aligned_free(buffer.host);
}

TEST(many_buckets_are_outstanding_and_end_in_any_order)
{
    enum { BUCKETS = 40, COUNT = 100003 };
    cod_collective *c = cod_group_collective(cod_comm_world(job));
    cod_reduction *reductions[BUCKETS];
    cod_buffer buffer = {.bytes = COUNT * sizeof(float)};
    check_ok(cod_aligned_alloc(&buffer.host, buffer.bytes));
    for (int round = 0; round < 3; round++) {
        cod_status status = COD_OK;
        fill(buffer.host, COUNT, c->rank, round);
        for (size_t b = BUCKETS; b-- > 0 && status == COD_OK;) {
            const size_t from = COUNT * b / BUCKETS, end = COUNT * (b + 1) / BUCKETS;
            status = c->ops->average_start(c, &buffer, from * sizeof(float), end - from, NULL, &reductions[b]);
        }
        check_ok(status);
        for (int b = 0; b < BUCKETS && status == COD_OK; b++)
            status = c->ops->wait(reductions[(b * 7 + c->rank) % BUCKETS], NULL);
        check_ok(status);
        check_all(averaged(buffer.host, 0, COUNT, c->size, round));
    }
    check_ok(c->ops->wait(NULL, NULL));
    cod_aligned_free(buffer.host);
}

TEST(a_reduction_that_tests_done_holds_the_average)
{
    enum { COUNT = 5001 };
    cod_collective *c = cod_group_collective(cod_comm_world(job));
    cod_buffer buffer = {.bytes = COUNT * sizeof(float)};
    cod_reduction *reduction = NULL;
    check_ok(cod_aligned_alloc(&buffer.host, buffer.bytes));
    fill(buffer.host, COUNT, c->rank, 1);
    check_ok(c->ops->average_start(c, &buffer, 0, COUNT, NULL, &reduction));
    cod_status status = COD_OK;
    for (bool done = false; status == COD_OK && !done;)
        status = c->ops->test(reduction, &done);
    const bool early = status == COD_OK && averaged(buffer.host, 0, COUNT, c->size, 1);
    check_ok(status);
    check_ok(c->ops->wait(reduction, NULL));
    check_all(early && averaged(buffer.host, 0, COUNT, c->size, 1));
    cod_aligned_free(buffer.host);
}

/** Ranks as if they ran on other nodes: nodes are unequal, ranks of one are not neighbours. */
static const int nodes_of[][4] = {{0, 0, 1, 1}, {0, 1, 0, 1}, {0, 0, 0, 1}, {1, 0, 1, 1}, {0, 1, 2, 3}, {0, 0, 0, 0}};

TEST(averages_by_node_are_exact)
{
    enum { BUCKETS = 30, COUNT = 100003 };
    const int size = cod_comm_size(job);
    cod_buffer buffer = {.bytes = COUNT * sizeof(float)};
    check_ok(cod_aligned_alloc(&buffer.host, buffer.bytes));
    for (size_t k = 0; k < sizeof nodes_of / sizeof nodes_of[0]; k++) {
        cod_group *group;
        cod_reduction *reductions[BUCKETS];
        cod_status status = COD_OK;
        check_ok(cod_group_create(job, &size, 1, &group));
        check_ok(cod_group_average_by_node(group, nodes_of[k]));
        cod_collective *c = cod_group_collective(group);
        fill(buffer.host, COUNT, c->rank, (int)k);
        for (size_t b = BUCKETS; b-- > 0 && status == COD_OK;) {
            const size_t from = COUNT * b / BUCKETS, end = COUNT * (b + 1) / BUCKETS;
            status = c->ops->average_start(c, &buffer, from * sizeof(float), end - from, NULL, &reductions[b]);
        }
        check_ok(status);
        bool done = false;
        while (status == COD_OK && !done)
            status = c->ops->test(reductions[3], &done);
        for (int b = 0; b < BUCKETS && status == COD_OK; b++)
            status = c->ops->wait(reductions[(b * 7 + c->rank) % BUCKETS], NULL);
        check_ok(status);
        check_all(averaged(buffer.host, 0, COUNT, size, (int)k));
        cod_group_destroy(group);
    }
    cod_aligned_free(buffer.host);
}

/** Each rank counts what it sends: once up, or between the nodes and down. */
TEST(averages_by_node_are_counted)
{
    enum { COUNT = 1000 };
    float values[COUNT] = {0};
    const int size = cod_comm_size(job), rank = cod_comm_rank(job);
    cod_buffer buffer = {.host = values, .bytes = sizeof values};
    cod_comm_counters before, after;
    cod_reduction *reduction = NULL;
    cod_group *group;
    check_ok(cod_group_create(job, &size, 1, &group));
    check_all(!cod_group_gains_by_node(group)); /* all ranks of a test run on one host */
    check_ok(cod_group_average_by_node(group, nodes_of[2]));
    check_all(job_failed(cod_group_average_by_node(group, NULL), COD_ERR_ARGUMENT, "already"));
    cod_collective *c = cod_group_collective(group);
    cod_comm_read_counters(job, &before);
    cod_status status = c->ops->average_start(c, &buffer, 0, COUNT, NULL, &reduction);
    cod_comm_read_counters(job, &after);
    check_ok(status);
    check_ok(c->ops->wait(reduction, NULL));
    const bool leads = rank == 0 || rank == 3;
    const uint64_t between = size > 3 ? sizeof values : 0, down = (size < 3 ? (uint64_t)size - 1 : 2) * sizeof values;
    check_all(after.group_bytes - before.group_bytes ==
              (leads ? between + (rank == 0 ? down : 0) : (uint64_t)sizeof values));
    cod_group_destroy(group);
}

TEST(a_range_outside_its_buffer_is_refused)
{
    float values[8] = {0};
    cod_collective *c = cod_group_collective(cod_comm_world(job));
    cod_buffer buffer = {.host = values, .bytes = sizeof values}, device = {.host = NULL, .bytes = sizeof values};
    cod_reduction *reduction = NULL;
    check_all(job_failed(c->ops->average_start(c, &buffer, 4, 8, NULL, &reduction), COD_ERR_ARGUMENT, "outside"));
    check_all(job_failed(c->ops->average_start(c, &buffer, 64, 1, NULL, &reduction), COD_ERR_ARGUMENT, "outside"));
    check_all(job_failed(c->ops->average_start(c, &buffer, 2, 1, NULL, &reduction), COD_ERR_ARGUMENT, "outside"));
    check_all(job_failed(c->ops->average_start(c, &buffer, 0, SIZE_MAX / 4 + 2, NULL, &reduction), COD_ERR_ARGUMENT,
                         "outside"));
    check_all(
        job_failed(c->ops->average_start(c, &device, 0, 8, NULL, &reduction), COD_ERR_UNSUPPORTED, "host memory"));
}

TEST(sums_minima_and_maxima)
{
    enum { COUNT = 33 };
    cod_group *world = cod_comm_world(job);
    const int size = cod_group_size(world), rank = cod_group_rank(world);
    for (int kind = COD_REDUCE_SUM; kind <= COD_REDUCE_MAX; kind++) {
        double values[COUNT];
        bool ok = true;
        for (int i = 0; i < COUNT; i++)
            values[i] = (double)value(rank, (size_t)i, kind);
        check_ok(cod_group_reduce(world, values, COUNT, (cod_reduce_kind)kind));
        for (int i = 0; i < COUNT; i++) {
            double want = (double)value(0, (size_t)i, kind);
            for (int r = 1; r < size; r++) {
                const double v = (double)value(r, (size_t)i, kind);
                want = kind == COD_REDUCE_SUM ? want + v : kind == COD_REDUCE_MIN ? fmin(want, v) : fmax(want, v);
            }
            ok = ok && values[i] == want;
        }
        check_all(ok);
    }
}

TEST(all_ranks_get_the_same_bits)
{
    enum { COUNT = 40000 };
    cod_group *world = cod_comm_world(job);
    cod_collective *c = cod_group_collective(world);
    cod_buffer buffer = {.bytes = COUNT * sizeof(float)};
    check_ok(cod_aligned_alloc(&buffer.host, buffer.bytes));
    float *values = buffer.host;
    for (int i = 0; i < COUNT; i++)
        values[i] = 1e-3F * (float)(i % 997 + 1) / (float)(c->rank * 3 + 7);
    cod_reduction *reduction = NULL;
    check_ok(c->ops->average_start(c, &buffer, 0, COUNT, NULL, &reduction));
    check_ok(c->ops->wait(reduction, NULL));
    float *first = malloc(buffer.bytes);
    check_all(first != NULL);
    memcpy(first, values, buffer.bytes);
    check_ok(cod_group_broadcast(world, first, buffer.bytes, 0));
    check_all(memcmp(first, values, buffer.bytes) == 0);
    free(first);
    cod_aligned_free(buffer.host);
}

TEST(what_was_reduced_is_counted)
{
    float values[1000] = {0};
    const int size = cod_comm_size(job);
    cod_group *group;
    check_ok(cod_group_create(job, &size, 1, &group));
    /* The world's own are no group's. */
    cod_group *const groups[] = {group, cod_comm_world(job)};
    cod_comm_counters before, after;
    for (int i = 0; i < 2; i++) {
        cod_collective *c = cod_group_collective(groups[i]);
        cod_buffer buffer = {.host = values, .bytes = sizeof values};
        cod_reduction *reduction = NULL;
        cod_comm_read_counters(job, &before);
        const cod_status status = c->ops->average_start(c, &buffer, 0, 1000, NULL, &reduction);
        cod_comm_read_counters(job, &after);
        check_ok(status);
        check_ok(c->ops->wait(reduction, NULL));
        check_all(after.group_bytes - before.group_bytes == (i == 0 ? (uint64_t)(2 * 4000 * (size - 1) / size) : 0));
    }
    cod_group_destroy(group);
    cod_comm_read_counters(job, &after);
    check_all(after.polls > 0 && after.progress_s > 0);
}

TEST_GROUP(job_setup, job_teardown)
