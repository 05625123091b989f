#include "comm/job.h"

#include "comm/comm_internal.h"
#include "comm/group.h"
#include "comm/group_memory.h"
#include "support/patience.h"

#include <string.h>

enum { COUNT = 5000, ROUNDS = 100 };

/** Two groups of the ranks, or one. */
static cod_group *make_group(int groups)
{
    cod_group *group = NULL;
    const int size = cod_comm_size(job), sizes[] = {groups == 1 ? size : size / 2, size - size / 2};
    check_ok(cod_group_create(job, sizes, (size_t)groups, &group));
    return group;
}

/** Each writes its part, all read all, each writes again. */
static bool writes_are_read(cod_group *group, int *data)
{
    const int rank = cod_group_rank(group), size = cod_group_size(group), base = 1000 * cod_group_index(group);
    bool ok = true;
    for (int i = 0; i < size * COUNT; i++)
        ok = ok && data[i] == 0;
    ok = cod_group_barrier(group) == COD_OK && ok;
    for (int round = 1; round <= ROUNDS; round++) {
        for (int i = 0; i < COUNT; i++)
            data[rank * COUNT + i] = base + round * (rank + 1) + i;
        ok = cod_group_barrier(group) == COD_OK && ok;
        for (int r = 0; r < size; r++)
            for (int i = 0; i < COUNT; i++)
                ok = ok && data[r * COUNT + i] == base + round * (r + 1) + i;
        ok = cod_group_barrier(group) == COD_OK && ok;
    }
    return ok;
}

/** Destroys the group. */
static void check_shares(cod_group *group)
{
    cod_group_memory *memory = NULL;
    check_ok(cod_group_memory_create(group, (size_t)cod_group_size(group) * COUNT * sizeof(int), &memory));
    check_all(memory != NULL);
    check_all(writes_are_read(group, cod_group_memory_data(memory)));
    cod_group_memory_destroy(memory);
    cod_group_destroy(group);
}

TEST(ranks_read_what_others_wrote)
{
    for (int groups = 1; groups <= 2 && groups <= cod_comm_size(job); groups++)
        check_shares(make_group(groups));
}

/** As where each group is a job of its own: world ranks count the other groups', nodes do not. */
TEST(a_group_that_is_a_job_shares)
{
    const int sizes[] = {1000, cod_comm_size(job)};
    cod_group *group = NULL;
    check_ok(cod_group_create_part(job, sizes, 2, 1, &group));
    check_shares(group);
}

static uint64_t bytes_sent(void)
{
    cod_comm_counters counters;
    cod_comm_read_counters(job, &counters);
    return counters.group_bytes;
}

/** The job's ranks on two nodes, of which the second has the last rank alone, or its last two. */
static void fake_nodes(int second)
{
    for (int r = 0; r < cod_comm_size(job); r++)
        job->node_of[r] = r >= cod_comm_size(job) - second;
}

/** What one rank of each node wrote is nowhere else; then parts go to the other node once, whichever rank has them. */
static bool moves_between_nodes(cod_group *group, cod_group_memory *memory)
{
    enum { PARTS = 7 };
    const int rank = cod_group_rank(group), size = cod_group_size(group), node = cod_group_node_of(group, rank);
    const cod_group_holders holders = cod_group_holders_of(group, rank);
    int *data = cod_group_memory_data(memory);
    cod_group_part parts[PARTS];
    cod_request *request = NULL;
    bool ok = true;
    if (holders.place == 0)
        data[0] = 100 + node;
    ok = cod_group_barrier(group) == COD_OK && data[0] == 100 + node;
    ok = cod_group_barrier(group) == COD_OK && ok;
    for (int k = 0; k < PARTS; k++) {
        parts[k] = (cod_group_part){k % size, (size_t)k * COUNT * sizeof(int), COUNT * sizeof(int)};
        for (int i = 0; k % size == rank && i < COUNT; i++)
            data[k * COUNT + i] = k * COUNT + i;
    }
    const uint64_t before = bytes_sent();
    ok = cod_group_share_by_node_start(group, data, parts, PARTS, &request) == COD_OK && ok;
    ok = cod_request_wait(&request, COD_TEST_PATIENCE_S) == COD_OK && ok;
    double sent = (double)(bytes_sent() - before);
    ok = cod_group_reduce(group, &sent, 1, COD_REDUCE_SUM) == COD_OK && sent == PARTS * COUNT * sizeof(int) && ok;
    for (int i = 0; i < PARTS * COUNT; i++)
        ok = ok && data[i] == i;
    return cod_group_barrier(group) == COD_OK && ok;
}

TEST(a_node_has_one_copy_and_gets_what_others_have_once)
{
    for (int second = 1; second <= 2 && second < cod_comm_size(job); second++) {
        cod_group_memory *memory = NULL;
        cod_group *group = make_group(1);
        fake_nodes(second);
        check_ok(cod_group_memory_create(group, (size_t)7 * COUNT * sizeof(int), &memory));
        check_all((memory != NULL) == (cod_comm_size(job) > 2));
        if (memory != NULL)
            check_all(moves_between_nodes(group, memory));
        cod_group_memory_destroy(cod_comm_size(job) > 2 ? cod_group_memory_keep(memory) : NULL);
        cod_group_memory_destroy(memory);
        fake_nodes(0);
        cod_group_destroy(group);
    }
}

TEST(no_bytes_are_no_memory)
{
    cod_group_memory *memory = NULL;
    check_ok(cod_group_memory_create(cod_comm_world(job), 0, &memory));
    check_all(memory == NULL);
    cod_group_memory_destroy(NULL);
}

/** Its pages are taken as they are written: more than the machine has can be made. */
TEST(what_is_not_written_takes_no_memory)
{
    const size_t bytes = (size_t)1 << 36;
    cod_group_memory *memory = NULL;
    check_ok(cod_group_memory_create(cod_comm_world(job), bytes, &memory));
    if (memory != NULL && cod_comm_rank(job) == 0)
        memset((char *)cod_group_memory_data(memory) + bytes - 100, 1, 100);
    const bool ok = cod_group_barrier(cod_comm_world(job)) == COD_OK &&
                    (memory == NULL || ((char *)cod_group_memory_data(memory))[bytes - 1] == 1);
    check_all(ok);
    cod_group_memory_destroy(memory);
}

TEST_GROUP(job_setup, job_teardown)
