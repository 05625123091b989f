/*
 * Averaging by node: sums go up to one rank of each node, from there between the nodes, and the total down again.
 * Averages of a device's memory take the same ways, if necessary with each rank counted as a node.
 *
 * Calls on a communicator must come in the same order on all its ranks. Each way therefore has its own communicator,
 * and a reduction starts on its next way only after the reduction before it has; on its first way it also waits until
 * its values have come from the device. Other operations of the group use another communicator. The progress thread
 * advances reductions, and so does a thread that waits.
 */
#include "comm/group_internal.h"

#include <stdio.h>
#include <stdlib.h>

enum { COMING = -1, UP, BETWEEN, DOWN, ENDED };

struct group_levels {
    struct group_levels *next; /**< of the job's */
    MPI_Comm inside, between, down;
    int node_size, nodes;
    bool leader;        /**< one of those that meet between nodes */
    cod_request *first; /**< not ended, in the order in which they were started */
    cod_status failed;
    char reason[256]; /**< why it failed, maybe in the progress thread */
};

/**
 * Where the group's members run: their number on this rank's node, the nodes, and whether this one is its node's first.
 */
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

/** @param node_of  [world size] of the job */
static cod_status create(cod_group *group, const int *node_of)
{
    cod_comm *comm = group->comm;
    const int rank = cod_group_rank(group);
    group_levels *levels = calloc(1, sizeof *levels);
    COD_REQUIRE_MEMORY(levels);
    count_nodes(group, node_of, levels);
    const int node = node_of[cod_group_world_rank(group, group->index, rank) - group->job];
    comm_lock(comm);
    cod_status status = COD_MPI(MPI_Comm_split(group->mpi, node, rank, &levels->inside));
    COD_THEN(status, COD_MPI(MPI_Comm_split(group->mpi, node, rank, &levels->down)));
    COD_THEN(status, COD_MPI(MPI_Comm_split(group->mpi, !levels->leader, rank, &levels->between)));
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

cod_status cod_group_average_by_node(cod_group *group, const int *node_of)
{
    COD_REQUIRE(group->levels == NULL, "the group averages by node already, or has been given a device before");
    return create(group, node_of != NULL ? node_of : group->comm->node_of);
}

cod_status levels_create_flat(cod_group *group)
{
    int *node_of = malloc((size_t)group->comm->size * sizeof *node_of);
    COD_REQUIRE_MEMORY(node_of);
    for (int r = 0; r < group->comm->size; r++)
        node_of[r] = r;
    const cod_status status = create(group, node_of);
    free(node_of);
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
    if (way == COMING && levels->node_size > 1)
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

/** Whether the reduction has gone its way, or its values have come. Under the lock. */
static cod_status has_gone(cod_request *r, bool *gone)
{
    int done = 0;
    if (r->way == COMING)
        return cod_staged_test(r->staged, gone);
    COD_TRY(COD_MPI(MPI_Testall(r->part_count, r->parts, &done, MPI_STATUSES_IGNORE)));
    *gone = done != 0;
    return COD_OK;
}

/** Moves one reduction on as far as it goes, but not past `before`, which was started before it. Under the lock. */
static cod_status advance(const group_levels *levels, cod_request *r, const cod_request *before)
{
    while (r->way != ENDED) {
        bool gone;
        COD_TRY(has_gone(r, &gone));
        if (!gone || (before != NULL && before->way < way_after(levels, r->way)))
            return COD_OK;
        COD_TRY(set_out(levels, r));
    }
    return COD_OK;
}

/** Remembers a failure for those whose averages it ends: the thread that meets it may be the progress thread. */
static cod_status note(group_levels *levels, cod_status status)
{
    if (status != COD_OK) {
        levels->failed = status;
        snprintf(levels->reason, sizeof levels->reason, "%s", cod_error_message());
    }
    return status;
}

static cod_status advance_all(group_levels *levels)
{
    const cod_request *before = NULL;
    if (levels->failed != COD_OK)
        return cod_fail(levels->failed, "averaging in the group failed: %s", levels->reason);
    for (cod_request **at = &levels->first; *at != NULL;) {
        cod_request *r = *at;
        COD_TRY(note(levels, advance(levels, r, before)));
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
        if (levels->failed == COD_OK)
            (void)advance_all(levels);
}

static cod_status test(cod_request *r, bool *done)
{
    const cod_status status = advance_all(r->levels);
    *done = r->way == ENDED;
    return status;
}

void levels_give_up(group_levels *levels)
{
    if (levels != NULL && levels->first != NULL)
        (void)note(levels, cod_fail(COD_ERR_INTERRUPTED, "averages of a device's memory were given up"));
}

cod_status levels_start(cod_group *group, cod_request *r)
{
    group_levels *levels = group->levels;
    const size_t bytes = r->count * sizeof(float), nodes = (size_t)levels->nodes;
    const cod_request *before = NULL;
    cod_request **last = &levels->first;
    if (levels->failed != COD_OK)
        return advance_all(levels);
    for (; *last != NULL; last = &(*last)->behind)
        before = *last;
    r->test = test;
    r->levels = levels;
    r->way = COMING;
    COD_TRY(note(levels, advance(levels, r, before)));
    if (r->way != ENDED)
        *last = r;
    group_count_sent(group, levels->leader ? 2 * bytes * (nodes - 1) / nodes + bytes * (size_t)(levels->node_size - 1)
                                           : bytes);
    return COD_OK;
}
