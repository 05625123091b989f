#include "comm/job.h"

#include "comm/node_memory.h"
#include "core/memory.h"

enum { COUNT = 1000, ROUNDS = 200 };

/** All ranks of a test run on one node. Parts differ in size, and one may be empty. */
static size_t count_of(int rank)
{
    return (size_t)rank * COUNT;
}

TEST(parts_are_zeroed_and_aligned)
{
    cod_node_memory *memory = NULL;
    check_ok(cod_node_memory_create(job, count_of(cod_comm_node_rank(job)) * sizeof(int), &memory));
    bool ok = true;
    for (int r = 0; r < cod_comm_node_size(job); r++) {
        const int *part = cod_node_memory_part(memory, r);
        ok = ok && (uintptr_t)part % COD_ALIGNMENT == 0;
        for (size_t i = 0; i < count_of(r); i++)
            ok = ok && part[i] == 0;
    }
    check_all(ok);
    cod_node_memory_destroy(memory);
    cod_node_memory_destroy(NULL);
}

/** Each writes its part, all read all, each writes again: a barrier that lets one through early shows. */
TEST(what_was_written_before_a_barrier_is_read_after_it)
{
    cod_node_memory *memory = NULL;
    const int rank = cod_comm_node_rank(job), size = cod_comm_node_size(job);
    check_ok(cod_node_memory_create(job, COUNT * sizeof(int), &memory));
    int *mine = cod_node_memory_part(memory, rank);
    bool ok = true;
    for (int round = 1; round <= ROUNDS; round++) {
        for (int i = 0; i < COUNT; i++)
            mine[i] = round * (rank + 1) + i;
        cod_node_memory_barrier(memory);
        for (int r = 0; r < size; r++) {
            const int *part = cod_node_memory_part(memory, r);
            for (int i = 0; i < COUNT; i++)
                ok = ok && part[i] == round * (r + 1) + i;
        }
        cod_node_memory_barrier(memory);
    }
    check_all(ok);
    cod_node_memory_destroy(memory);
}

TEST_GROUP(job_setup, job_teardown)
