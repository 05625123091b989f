#include "comm/job.h"

#include "comm/group.h"
#include "support/patience.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TEST(the_world_is_one_group)
{
    const cod_group *world = cod_comm_world(job);
    const int size = cod_comm_size(job), rank = cod_comm_rank(job);
    check_all(cod_group_count(world) == 1 && cod_group_index(world) == 0);
    check_all(cod_group_size(world) == size && cod_group_rank(world) == rank);
    check_all(cod_group_members_of(world, 0).size == size && cod_group_world_rank(world, 0, rank) == rank);
    check_all(cod_comm_launched_ranks() == size);
    check_all(strstr(cod_comm_library(job), "MPI") != NULL);
}

TEST(groups_of_unequal_size)
{
    const int size = cod_comm_size(job), rank = cod_comm_rank(job);
    const int sizes[] = {1, size - 1};
    const size_t count = size > 1 ? 2 : 1;
    cod_group *group = NULL;
    check_ok(cod_group_create(job, sizes, count, &group));
    const int index = cod_group_index(group);
    check_all(cod_group_count(group) == (int)count && index == (rank > 0));
    check_all(cod_group_size(group) == sizes[index] && cod_group_rank(group) == (rank > 0 ? rank - 1 : 0));
    for (int g = 0; g < (int)count; g++) {
        const cod_group_members members = cod_group_members_of(group, g);
        bool ok = members.size == sizes[g];
        for (int r = 0; r < members.size; r++)
            ok = ok && members.world_ranks[r] == g + r && cod_group_world_rank(group, g, r) == g + r;
        check_all(ok);
    }
    double sum[2] = {rank, 1};
    check_ok(cod_group_reduce(group, sum, 2, COD_REDUCE_SUM));
    check_all(sum[0] == (index == 0 ? 0 : size * (size - 1) / 2) && sum[1] == cod_group_size(group));
    cod_group_destroy(group);
    cod_group_destroy(NULL);
}

/** Other groups are other jobs: they count, and this one's ranks go on from theirs. */
TEST(a_group_that_is_a_job)
{
    const int size = cod_comm_size(job), rank = cod_comm_rank(job);
    const int sizes[] = {3, size, 2};
    cod_group *group = NULL;
    check_ok(cod_group_create_part(job, sizes, 3, 1, &group));
    check_all(cod_group_count(group) == 3 && cod_group_index(group) == 1);
    check_all(cod_group_size(group) == size && cod_group_rank(group) == rank);
    check_all(cod_group_world_rank(group, 1, rank) == 3 + rank);
    check_all(cod_group_members_of(group, 0).size == 3 && cod_group_world_rank(group, 0, 2) == 2);
    check_all(cod_group_members_of(group, 2).size == 2 && cod_group_world_rank(group, 2, 1) == 3 + size + 1);
    double sum = 1;
    check_ok(cod_group_reduce(group, &sum, 1, COD_REDUCE_SUM));
    check_all(sum == size);
    /* The rank that is named is the job's, as its launcher knows it. */
    const cod_status status = cod_group_agree(group, rank == size - 1 ? cod_fail(COD_ERR_IO, "broken") : COD_OK, NULL);
    char named[32];
    snprintf(named, sizeof named, "rank %d on ", size - 1);
    check_all(rank == size - 1 ? status == COD_ERR_IO : job_failed(status, COD_ERR_PEER, named));
    cod_group_destroy(group);
}

/** Ranks of equal place in unequal groups, and the bytes that they send each other. */
TEST(groups_across)
{
    const int size = cod_comm_size(job), rank = cod_comm_rank(job);
    const int sizes[] = {size / 2, size - size / 2};
    cod_group *group = NULL, *across = NULL;
    cod_comm_counters before, after;
    check_ok(size > 1 ? cod_group_create(job, sizes, 2, &group) : cod_group_create(job, &size, 1, &group));
    check_ok(cod_group_create_across(group, &across));
    const int place = cod_group_rank(group), other = size > 1 ? sizes[1 - cod_group_index(group)] : 0;
    check_all(cod_group_count(across) == size - size / 2 && cod_group_index(across) == place);
    check_all(cod_group_size(across) == 1 + (place < other));
    check_all(cod_group_world_rank(across, place, cod_group_rank(across)) == rank);
    cod_comm_read_counters(job, &before);
    double sum = cod_group_index(group) + 1;
    check_ok(cod_group_reduce(across, &sum, 1, COD_REDUCE_SUM));
    cod_comm_read_counters(job, &after);
    check_all(sum == (place < other ? 3 : cod_group_index(group) + 1));
    check_all(after.across_bytes - before.across_bytes == (place < other ? sizeof sum : 0));
    check_all(after.group_bytes == before.group_bytes);
    cod_group_destroy(across);
    cod_group_destroy(group);
}

/** Every group is dealt out to as many as divide it; what one of them does is no other's. */
TEST(groups_interleaved)
{
    const int size = cod_comm_size(job), rank = cod_comm_rank(job);
    for (int stride = 1; stride <= size; stride++) {
        cod_group *group = NULL, *dealt = NULL;
        check_ok(cod_group_create(job, &size, 1, &group));
        if (size % stride != 0) {
            check_all(job_failed(cod_group_create_interleaved(group, stride, &dealt), COD_ERR_ARGUMENT,
                                 "cannot be dealt out to"));
        } else {
            double sum = rank, expected = 0;
            for (int r = rank % stride; r < size; r += stride)
                expected += r;
            check_ok(cod_group_create_interleaved(group, stride, &dealt));
            check_all(cod_group_count(dealt) == stride && cod_group_index(dealt) == rank % stride);
            check_all(cod_group_size(dealt) == size / stride && cod_group_rank(dealt) == rank / stride);
            check_ok(cod_group_reduce(dealt, &sum, 1, COD_REDUCE_SUM));
            check_all(sum == expected);
            cod_group_destroy(dealt);
        }
        cod_group_destroy(group);
    }
}

TEST(groups_by_node)
{
    cod_group *group = NULL;
    const int size = cod_comm_size(job), rank = cod_comm_rank(job), node = cod_comm_node_of(job, rank);
    check_ok(cod_group_create_by_node(job, &group));
    check_all(cod_group_count(group) == cod_comm_node_count(job) && cod_group_index(group) == node);
    check_all(cod_group_size(group) == cod_comm_node_size(job) && cod_group_rank(group) == cod_comm_node_rank(job));
    /* All ranks of a test run on one host. */
    check_all(cod_comm_node_count(job) == 1 && cod_comm_node_size(job) == size && cod_comm_node_rank(job) == rank);
    check_all(strlen(cod_comm_node_name(job, 0)) > 0);
    check_ok(cod_group_barrier(group));
    cod_group_destroy(group);
}

TEST(sizes_that_do_not_fit_are_refused)
{
    const int size = cod_comm_size(job);
    const int more[] = {size, 1}, less[] = {size - 1}, negative[] = {size + 1, -1}, none[] = {0, size};
    cod_group *group = NULL;
    check_all(job_failed(cod_group_create(job, more, 2, &group), COD_ERR_ARGUMENT, "do not divide"));
    check_all(job_failed(cod_group_create(job, less, 1, &group), COD_ERR_ARGUMENT, "do not divide"));
    check_all(job_failed(cod_group_create(job, negative, 2, &group), COD_ERR_ARGUMENT, "do not divide"));
    check_all(job_failed(cod_group_create(job, none, 2, &group), COD_ERR_ARGUMENT, "do not divide"));
    check_all(job_failed(cod_group_create(job, none, 0, &group), COD_ERR_ARGUMENT, "do not divide"));
    check_all(job_failed(cod_group_create_part(job, more, 2, 2, &group), COD_ERR_ARGUMENT, "group 2 of 2 groups"));
    check_all(job_failed(cod_group_create_part(job, negative, 2, 0, &group), COD_ERR_ARGUMENT, "are not group 0"));
    check_all(job_failed(cod_group_create_part(job, none, 2, 1, &group), COD_ERR_ARGUMENT, "are not group 1"));
    check_all(group == NULL);
}

static unsigned char byte_of(int root, size_t i)
{
    return (unsigned char)(i * 31 + i / 251 + (size_t)root * 97);
}

TEST(every_root_broadcasts)
{
    enum { BYTES = 100001 };
    cod_group *world = cod_comm_world(job);
    unsigned char *data = malloc(BYTES);
    check_all(data != NULL);
    for (int root = 0; root < cod_group_size(world); root++) {
        const size_t bytes = root == 1 ? 0 : BYTES;
        bool ok = true;
        for (size_t i = 0; i < BYTES; i++)
            data[i] = cod_group_rank(world) == root ? byte_of(root, i) : 0;
        check_ok(cod_group_broadcast(world, data, bytes, root));
        for (size_t i = 0; i < bytes; i++)
            ok = ok && data[i] == byte_of(root, i);
        check_all(ok);
    }
    free(data);
}

TEST(a_buffer_held_in_parts_is_completed)
{
    enum { PARTS = 7, BYTES = 50021 };
    cod_group *world = cod_comm_world(job);
    const int size = cod_group_size(world), rank = cod_group_rank(world);
    cod_group_part parts[PARTS];
    unsigned char *buffer = calloc(BYTES, 1);
    check_all(buffer != NULL);
    for (size_t p = 0; p < PARTS; p++) { /* the last is empty; roots hold several parts, in no order */
        const size_t from = BYTES * p / (PARTS - 1), end = p + 1 < PARTS ? BYTES * (p + 1) / (PARTS - 1) : from;
        parts[p] =
            (cod_group_part){.root = (int)(5 * p + 2) % size, .offset = p + 1 < PARTS ? from : 0, .bytes = end - from};
        for (size_t i = parts[p].offset; i < parts[p].offset + parts[p].bytes && parts[p].root == rank; i++)
            buffer[i] = byte_of(parts[p].root, i);
    }
    cod_request *request = NULL;
    check_ok(cod_group_share_start(world, buffer, parts, PARTS, &request));
    memset(&parts[PARTS - 1], 0xff, sizeof parts[PARTS - 1]); /* parts are copied */
    check_ok(cod_request_wait(&request, COD_TEST_PATIENCE_S));
    bool ok = request == NULL;
    for (size_t p = 0; p + 1 < PARTS; p++)
        for (size_t i = parts[p].offset; i < parts[p].offset + parts[p].bytes; i++)
            ok = ok && buffer[i] == byte_of(parts[p].root, i);
    check_all(ok);
    free(buffer);
}

/** Lanes overtake each other, swaps of one lane do not; messages may be empty. */
TEST(ranks_swap_messages_in_lanes)
{
    enum { LANES = 2, ROUNDS = 3, MOST = 8, BYTES = 70001 };
    const int size = cod_comm_size(job);
    cod_group *group;
    check_ok(cod_group_create(job, &size, 1, &group));
    const int rank = cod_group_rank(group);
    unsigned char *memory = malloc((size_t)2 * LANES * ROUNDS * MOST * BYTES);
    check_all(memory != NULL);
    cod_request *requests[LANES][ROUNDS] = {{NULL}};
    cod_group_message sent[LANES][ROUNDS][MOST] = {{{{0}}}}, received[LANES][ROUNDS][MOST] = {{{{0}}}};
    unsigned char *next = memory;
    uint64_t bytes = 0;
    cod_comm_counters before, after;
    cod_comm_read_counters(job, &before);
    cod_status status = COD_OK;
    for (int i = 0; i < LANES * ROUNDS; i++) {
        /* Rank 1 goes through all rounds of one lane first, the others take turns. */
        const int lane = rank == 1 ? i / ROUNDS : i % LANES, round = rank == 1 ? i % ROUNDS : i / LANES;
        for (int r = 0; r < size; r++, next += 2 * BYTES) {
            /* Of any two ranks one sends nothing in the first round. */
            sent[lane][round][r] =
                (cod_group_message){next, round == 0 && rank < r ? 0 : BYTES - (size_t)(rank + lane)};
            received[lane][round][r] =
                (cod_group_message){next + BYTES, round == 0 && r < rank ? 0 : BYTES - (size_t)(r + lane)};
            memset(next, 16 * rank + 4 * r + LANES * round + lane, BYTES);
            bytes += r != rank ? sent[lane][round][r].bytes : 0;
        }
        if (status == COD_OK)
            status =
                cod_group_swap_start(group, lane, sent[lane][round], received[lane][round], &requests[lane][round]);
    }
    check_ok(status);
    for (int i = LANES * ROUNDS; i-- > 0 && status == COD_OK;)
        status = cod_request_wait(&requests[i % LANES][i / LANES], COD_TEST_PATIENCE_S);
    check_ok(status);
    cod_comm_read_counters(job, &after);
    bool ok = after.group_bytes - before.group_bytes == bytes;
    for (int i = 0; i < LANES * ROUNDS * size; i++) {
        const int lane = i % LANES, round = i / LANES % ROUNDS, from = i / (LANES * ROUNDS);
        const unsigned char want = (unsigned char)(16 * from + 4 * rank + LANES * round + lane);
        const cod_group_message *message = &received[lane][round][from];
        for (size_t k = 0; k < message->bytes && from != rank; k++)
            ok = ok && ((unsigned char *)message->data)[k] == want;
    }
    check_all(ok);
    sent[0][0][(rank + 1) % size].bytes = (size_t)INT32_MAX + 1;
    check_all(job_failed(cod_group_swap_start(group, -1, sent[0][0], received[0][0], &requests[0][0]), COD_ERR_ARGUMENT,
                         "lane -1"));
    check_all(size == 1 || job_failed(cod_group_swap_start(group, 0, sent[0][0], received[0][0], &requests[0][0]),
                                      COD_ERR_ARGUMENT, "too many"));
    free(memory);
    cod_group_destroy(group);
}

TEST(everyone_gathers_what_everyone_has)
{
    cod_group *world = cod_comm_world(job);
    const int size = cod_group_size(world), rank = cod_group_rank(world);
    char mine[19], all[8][19];
    bool ok = true;
    snprintf(mine, sizeof mine, "rank %d", rank);
    check_ok(cod_group_gather(world, mine, sizeof mine, all));
    for (int r = 0; r < size; r++) {
        char want[19];
        snprintf(want, sizeof want, "rank %d", r);
        ok = ok && strcmp(all[r], want) == 0;
    }
    check_all(ok);
}

/** Who failed worst is known to speak for all, also where the outcome is agreed on once more, by more ranks say. */
static bool one_speaks(cod_status agreed, int worst)
{
    cod_group *world = cod_comm_world(job);
    int again = -2;
    const bool others = cod_error_said_elsewhere() == (cod_group_rank(world) != worst);
    const cod_status repeated = cod_group_agree(world, agreed, &again);
    return others && repeated == agreed && again == worst &&
           cod_error_said_elsewhere() == (cod_group_rank(world) != worst);
}

/** Ranks fail with these statuses; returns whether this rank then learnt what it should. */
static bool agrees(const cod_status *statuses, int worst)
{
    cod_group *world = cod_comm_world(job);
    const int rank = cod_group_rank(world);
    const cod_status own = statuses[rank];
    char reason[64];
    int failed_rank = -2;
    if (own != COD_OK && cod_fail(own, "rank %d lost its %s", rank, cod_status_name(own)) == COD_OK)
        return false;
    const cod_status agreed = cod_group_agree(world, own, &failed_rank);
    if (failed_rank != worst)
        return false;
    if (worst < 0)
        return agreed == COD_OK;
    if (own != COD_OK) {
        snprintf(reason, sizeof reason, "rank %d lost its", rank);
        return one_speaks(agreed, worst) && agreed == own && strstr(cod_error_message(), reason) != NULL;
    }
    snprintf(reason, sizeof reason, "rank %d lost its %s", worst, cod_status_name(statuses[worst]));
    return one_speaks(agreed, worst) && agreed == COD_ERR_PEER && strstr(cod_error_message(), reason) != NULL &&
           strstr(cod_error_message(), cod_comm_node_name(job, 0)) != NULL;
}

TEST(one_failed_rank_fails_all)
{
    const int size = cod_comm_size(job);
    cod_status statuses[8] = {COD_OK};
    check_all(agrees(statuses, -1));
    for (int r = 0; r < size; r++) {
        memset(statuses, 0, sizeof statuses);
        statuses[r] = COD_ERR_IO;
        check_all(agrees(statuses, r));
    }
    /* The highest status wins, of equal ones the lowest rank. */
    for (int r = 0; r < size; r++)
        statuses[r] = r == size - 1 ? COD_ERR_NUMERIC : COD_ERR_IO;
    check_all(agrees(statuses, size - 1));
    for (int r = 0; r < size; r++)
        statuses[r] = COD_ERR_FORMAT;
    check_all(agrees(statuses, 0));
    memset(statuses, 0, sizeof statuses);
    check_all(agrees(statuses, -1));
}

TEST_GROUP(job_setup, job_teardown)
