/*
 * Averaging by node: sums go up to one rank of each node, from there between the nodes, and the total down again.
 *
 * Calls of one communicator come in the same order on all its ranks, so each way has its own, and a reduction starts on its
 * next way only after the one before it has. The progress thread moves reductions on, as does whoever waits.
 */
#include "comm/group_internal.h"

#include <limits.h>
#include <stdlib.h>

enum { UP, BETWEEN, DOWN, ENDED };

struct group_levels {
    struct group_levels *next; /**< of the job's */
    MPI_Comm inside, between, down;
    int node_size, nodes;
    bool leader;        /**< one of those that meet between nodes */
    cod_request *first; /**< not ended, in the order in which they were started */
    int failed;         /**< MPI's code */
};

/** Where the group's members run: their number on this rank's node, the nodes, and whether this one is its node's first. */
static void count_nodes(const cod_group *group, const int *node_of, group_levels *levels)
{
    const int size = cod_group_size(group), rank = cod_group_rank(group);
    levels->leader = true;
    for (int r = 0; r < size; r++) {
        bool first = true;
        const int node = node_of[cod_group_world_rank(group, group->index, r) - group->job];
        for (int s = 0; s < r; s++)
            first = first && node_of[cod_group_world_rank(group, group->index, s) - group->job] != node;
        levels->nodes += first;
        const bool mine = node == node_of[cod_group_world_rank(group, group->index, rank) - group->job];
        levels->node_size += mine;
        levels->leader = levels->leader && !(mine && r < rank);
    }
}

bool cod_group_gains_by_node(const cod_group *group)
{
    group_levels levels = {0};
    count_nodes(group, group->comm->node_of, &levels);
    return levels.nodes > 1 && levels.nodes < cod_group_size(group);
}

cod_status cod_group_average_by_node(cod_group *group, const int *node_of)
{
    cod_comm *comm = group->comm;
    const int rank = cod_group_rank(group);
    COD_REQUIRE(group->levels == NULL, "the group averages by node already");
    node_of = node_of != NULL ? node_of : comm->node_of;
    group_levels *levels = calloc(1, sizeof *levels);
    COD_REQUIRE_MEMORY(levels);
    count_nodes(group, node_of, levels);
    const int node = node_of[cod_group_world_rank(group, group->index, rank) - group->job];
    comm_lock(comm);
    cod_status status = COD_MPI(MPI_Comm_split(group->mpi, node, rank, &levels->inside));
    if (status == COD_OK)
        status = COD_MPI(MPI_Comm_split(group->mpi, node, rank, &levels->down));
    if (status == COD_OK)
        status = COD_MPI(MPI_Comm_split(group->mpi, !levels->leader, rank, &levels->between));
    if (status == COD_OK) {
        MPI_Comm_set_errhandler(levels->inside, MPI_ERRORS_RETURN);
        MPI_Comm_set_errhandler(levels->down, MPI_ERRORS_RETURN);
        MPI_Comm_set_errhandler(levels->between, MPI_ERRORS_RETURN);
        levels->next = comm->levels;
        comm->levels = levels;
        group->levels = levels;
    }
    comm_unlock(comm);
    if (status != COD_OK)
        free(levels);
    return status;
}

void levels_destroy(cod_group *group, bool all_are_here)
{
    group_levels *levels = group->levels;
    if (levels == NULL)
        return;
    comm_lock(group->comm);
    group_levels **at = &group->comm->levels;
    while (*at != levels)
        at = &(*at)->next;
    *at = levels->next;
    if (all_are_here) {
        MPI_Comm_free(&levels->inside);
        MPI_Comm_free(&levels->down);
        MPI_Comm_free(&levels->between);
    }
    comm_unlock(group->comm);
    free(levels);
}

/** The next way that this rank has a part in. */
static int way_after(const group_levels *levels, int way)
{
    if (way < UP && levels->node_size > 1)
        return UP;
    if (way < BETWEEN && levels->leader && levels->nodes > 1)
        return BETWEEN;
    return way < DOWN && levels->node_size > 1 ? DOWN : ENDED;
}

/** Starts the reduction's next way. Under the lock. */
static cod_status set_out(const group_levels *levels, cod_request *r)
{
    float *values = r->context;
    r->way = way_after(levels, r->way);
    for (int i = 0; i < r->part_count && r->way != ENDED; i++) {
        const size_t from = (size_t)i * GROUP_PART_COUNT, left = r->count - from;
        const int count = (int)(left < GROUP_PART_COUNT ? left : GROUP_PART_COUNT);
        float *part = values + from;
        if (r->way == UP && levels->leader)
            COD_TRY(
                COD_MPI(MPI_Ireduce(MPI_IN_PLACE, part, count, MPI_FLOAT, MPI_SUM, 0, levels->inside, &r->parts[i])));
        else if (r->way == UP)
            COD_TRY(COD_MPI(MPI_Ireduce(part, NULL, count, MPI_FLOAT, MPI_SUM, 0, levels->inside, &r->parts[i])));
        else if (r->way == BETWEEN)
            COD_TRY(
                COD_MPI(MPI_Iallreduce(MPI_IN_PLACE, part, count, MPI_FLOAT, MPI_SUM, levels->between, &r->parts[i])));
        else
            COD_TRY(COD_MPI(MPI_Ibcast(part, count, MPI_FLOAT, 0, levels->down, &r->parts[i])));
    }
    return COD_OK;
}

/** Moves one reduction on as far as it goes, but not past `before`, which was started before it. Under the lock. */
static cod_status advance(const group_levels *levels, cod_request *r, const cod_request *before)
{
    while (r->way != ENDED) {
        int done = 0;
        COD_TRY(COD_MPI(MPI_Testall(r->part_count, r->parts, &done, MPI_STATUSES_IGNORE)));
        if (!done || (before != NULL && before->way < way_after(levels, r->way)))
            return COD_OK;
        COD_TRY(set_out(levels, r));
    }
    return COD_OK;
}

static cod_status advance_all(group_levels *levels)
{
    const cod_request *before = NULL;
    for (cod_request **at = &levels->first; *at != NULL;) {
        cod_request *r = *at;
        COD_TRY(advance(levels, r, before));
        if (r->way == ENDED) {
            *at = r->behind;
        } else {
            before = r;
            at = &r->behind;
        }
    }
    return COD_OK;
}

void levels_progress(cod_comm *comm)
{
    for (group_levels *levels = comm->levels; levels != NULL; levels = levels->next)
        if (!levels->failed)
            levels->failed = advance_all(levels) != COD_OK;
}

static cod_status test(cod_request *r, bool *done)
{
    group_levels *levels = r->levels;
    /* What failed in the progress thread has left its message there. */
    if (levels->failed)
        return cod_fail(COD_ERR_MPI, "an average by node failed");
    const cod_status status = advance_all(levels);
    levels->failed = status != COD_OK;
    *done = r->way == ENDED;
    return status;
}

cod_status levels_start(cod_group *group, cod_request *r)
{
    group_levels *levels = group->levels;
    const size_t bytes = r->count * sizeof(float), nodes = (size_t)levels->nodes;
    cod_request **last = &levels->first;
    r->test = test;
    r->levels = levels;
    r->way = -1;
    COD_TRY(set_out(levels, r));
    while (*last != NULL)
        last = &(*last)->behind;
    *last = r;
    group->comm->counters.group_bytes +=
        levels->leader ? 2 * bytes * (nodes - 1) / nodes + bytes * (size_t)(levels->node_size - 1) : bytes;
    return COD_OK;
}
