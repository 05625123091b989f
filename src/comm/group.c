/* Who is in a group, and what its ranks do together but averaging. */
#include "comm/group_internal.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    GATHERED_COUNT = 4096, /**< values of all ranks up to which a reduction gathers them and reduces locally */
};

int cod_group_index(const cod_group *group)
{
    return group->index;
}
int cod_group_count(const cod_group *group)
{
    return group->count;
}
int cod_group_rank(const cod_group *group)
{
    return group->collective.rank;
}
int cod_group_size(const cod_group *group)
{
    return group->collective.size;
}

cod_group_members cod_group_members_of(const cod_group *group, int index)
{
    return (cod_group_members){group->first[index + 1] - group->first[index], group->ranks + group->first[index]};
}

int cod_group_world_rank(const cod_group *group, int index, int rank)
{
    return group->ranks[group->first[index] + rank];
}

int cod_group_node_of(const cod_group *group, int rank)
{
    return cod_comm_node_of(group->comm, cod_group_world_rank(group, group->index, rank) - group->job);
}

/* What all ranks of the job agree on at start and end belongs to no group. */
void group_count_sent(cod_group *group, size_t bytes)
{
    cod_comm_counters *counters = &group->comm->counters;
    if (group->across)
        counters->across_bytes += (uint64_t)bytes;
    else if (group != group->comm->world)
        counters->group_bytes += (uint64_t)bytes;
}

void group_count_reduced(cod_group *group, size_t bytes)
{
    const size_t n = (size_t)cod_group_size(group);
    group_count_sent(group, 2 * bytes * (n - 1) / n);
}

/** Reduces what all ranks sent, in their order, so that all get the same bits. */
static void reduce_gathered(cod_request *request)
{
    double *values = request->context;
    memcpy(values, request->gathered, request->count * sizeof *values);
    for (int r = 1; r < request->size; r++) {
        const double *other = request->gathered + (size_t)r * request->count;
        for (size_t i = 0; i < request->count; i++)
            values[i] = request->kind == COD_REDUCE_SUM   ? values[i] + other[i]
                        : request->kind == COD_REDUCE_MIN ? fmin(values[i], other[i])
                                                          : fmax(values[i], other[i]);
    }
}

cod_status cod_group_reduce_start(cod_group *group, double *values, size_t count, cod_reduce_kind kind,
                                  cod_request **request)
{
    const MPI_Op op = kind == COD_REDUCE_SUM ? MPI_SUM : kind == COD_REDUCE_MIN ? MPI_MIN : MPI_MAX;
    const int size = cod_group_size(group);
    COD_REQUIRE(count <= GROUP_PART_COUNT, "a reduction of %zu values is too large", count);
    COD_TRY(comm_request_create(group->comm, 1, request));
    cod_request *r = *request;
    cod_status status;
    if (count * (size_t)size <= GATHERED_COUNT) { /* one hop, where a ring would take 2 (size - 1) */
        r->finish = reduce_gathered;
        r->context = values;
        r->count = count;
        r->size = size;
        r->kind = (int)kind;
        r->gathered = malloc((count * (size_t)size + 1) * sizeof *r->gathered);
        if (r->gathered == NULL)
            return comm_request_started(request, cod_fail(COD_ERR_MEMORY, "out of memory for a reduction"));
        comm_lock(group->comm);
        status = COD_MPI(
            MPI_Iallgather(values, (int)count, MPI_DOUBLE, r->gathered, (int)count, MPI_DOUBLE, group->mpi, r->parts));
        group_count_sent(group, count * sizeof *values * (size_t)(size - 1));
    } else {
        comm_lock(group->comm);
        status = COD_MPI(MPI_Iallreduce(MPI_IN_PLACE, values, (int)count, MPI_DOUBLE, op, group->mpi, r->parts));
        group_count_reduced(group, count * sizeof *values);
    }
    comm_unlock(group->comm);
    return comm_request_started(request, status);
}

cod_status cod_group_reduce(cod_group *group, double *values, size_t count, cod_reduce_kind kind)
{
    cod_request *request = NULL;
    COD_TRY(cod_group_reduce_start(group, values, count, kind, &request));
    return cod_request_wait(&request, INFINITY);
}

cod_status cod_group_broadcast_start(cod_group *group, void *data, size_t bytes, int root, cod_request **request)
{
    const int parts = (int)((bytes + INT_MAX - 1) / INT_MAX);
    cod_status status = COD_OK;
    COD_TRY(comm_request_create(group->comm, parts, request));
    comm_lock(group->comm);
    for (int i = 0; i < parts && status == COD_OK; i++) {
        const size_t from = (size_t)i * INT_MAX, left = bytes - from;
        status = COD_MPI(MPI_Ibcast((char *)data + from, (int)(left < INT_MAX ? left : INT_MAX), MPI_BYTE, root,
                                    group->mpi, &(*request)->parts[i]));
    }
    if (cod_group_rank(group) == root)
        group_count_sent(group, bytes * (size_t)(cod_group_size(group) - 1));
    comm_unlock(group->comm);
    return comm_request_started(request, status);
}

cod_status cod_group_broadcast(cod_group *group, void *data, size_t bytes, int root)
{
    cod_request *request = NULL;
    COD_TRY(cod_group_broadcast_start(group, data, bytes, root, &request));
    return cod_request_wait(&request, INFINITY);
}

cod_status cod_group_share_start(cod_group *group, void *buffer, const cod_group_part *parts, size_t count,
                                 cod_request **request)
{
    /* One broadcast a part, all at once: sizes may pass MPI's int, and a rank may hold several parts. */
    int calls = 0, call = 0;
    cod_status status = COD_OK;
    for (size_t i = 0; i < count; i++)
        calls += (int)((parts[i].bytes + INT_MAX - 1) / INT_MAX);
    COD_TRY(comm_request_create(group->comm, calls, request));
    comm_lock(group->comm);
    for (size_t i = 0; i < count; i++) {
        for (size_t from = 0; from < parts[i].bytes && status == COD_OK; from += INT_MAX) {
            const size_t left = parts[i].bytes - from;
            status = COD_MPI(MPI_Ibcast((char *)buffer + parts[i].offset + from, (int)(left < INT_MAX ? left : INT_MAX),
                                        MPI_BYTE, parts[i].root, group->mpi, &(*request)->parts[call++]));
        }
        if (parts[i].root == cod_group_rank(group))
            group_count_sent(group, parts[i].bytes * (size_t)(cod_group_size(group) - 1));
    }
    comm_unlock(group->comm);
    return comm_request_started(request, status);
}

cod_group_part cod_group_part_of(const cod_group *group, int rank, size_t bytes)
{
    enum { UNIT_BYTES = 64 }; /* no value is cut */
    const size_t ranks = (size_t)cod_group_size(group), units = (bytes + UNIT_BYTES - 1) / UNIT_BYTES;
    const size_t first = units * (size_t)rank / ranks * UNIT_BYTES,
                 end = units * ((size_t)rank + 1) / ranks * UNIT_BYTES;
    const size_t last = end < bytes ? end : bytes;
    return (cod_group_part){.root = rank, .offset = first, .bytes = last > first ? last - first : 0};
}

cod_status cod_group_complete(cod_group *group, void *data, size_t bytes)
{
    const size_t ranks = (size_t)cod_group_size(group);
    cod_request *request = NULL;
    if (ranks == 1)
        return COD_OK;
    cod_group_part *parts = calloc(ranks, sizeof *parts);
    COD_REQUIRE_MEMORY(parts);
    for (size_t r = 0; r < ranks; r++)
        parts[r] = cod_group_part_of(group, (int)r, bytes);
    const cod_status status = cod_group_share_start(group, data, parts, ranks, &request);
    free(parts);
    COD_TRY(status);
    return cod_request_wait(&request, INFINITY);
}

cod_status cod_group_swap_start(cod_group *group, int lane, const cod_group_message *sent,
                                const cod_group_message *received, cod_request **request)
{
    const int size = cod_group_size(group), rank = cod_group_rank(group);
    cod_status status = COD_OK;
    COD_REQUIRE(lane >= 0 && lane < COD_TAG_NODES, "lane %d is out of range", lane);
    for (int r = 0; r < size; r++)
        COD_REQUIRE(r == rank || (sent[r].bytes <= INT_MAX && received[r].bytes <= INT_MAX),
                    "%zu bytes to rank %d and %zu from it are too many to swap", sent[r].bytes, r, received[r].bytes);
    COD_TRY(comm_request_create(group->comm, 2 * size, request));
    MPI_Request *part = (*request)->parts;
    (*request)->urgent = true;
    atomic_fetch_add(&group->comm->urgent, 1);
    comm_lock(group->comm);
    for (int i = 1; i < size && status == COD_OK; i++, part += 2) {
        /* Each rank begins with its neighbour, so that not all send to one. */
        const int to = (rank + i) % size, from = (rank + size - i) % size;
        if (received[from].bytes > 0)
            status = COD_MPI(
                MPI_Irecv(received[from].data, (int)received[from].bytes, MPI_BYTE, from, lane, group->mpi, &part[0]));
        if (sent[to].bytes > 0 && status == COD_OK)
            status = COD_MPI(MPI_Isend(sent[to].data, (int)sent[to].bytes, MPI_BYTE, to, lane, group->mpi, &part[1]));
        group_count_sent(group, sent[to].bytes);
    }
    comm_unlock(group->comm);
    return comm_request_started(request, status);
}

cod_status cod_group_gather(cod_group *group, const void *data, size_t bytes, void *out)
{
    cod_request *request = NULL;
    COD_REQUIRE(bytes <= INT_MAX, "%zu bytes are too many to gather", bytes);
    COD_TRY(comm_request_create(group->comm, 1, &request));
    comm_lock(group->comm);
    const cod_status status =
        COD_MPI(MPI_Iallgather(data, (int)bytes, MPI_BYTE, out, (int)bytes, MPI_BYTE, group->mpi, request->parts));
    group_count_sent(group, bytes * (size_t)(cod_group_size(group) - 1));
    comm_unlock(group->comm);
    COD_TRY(comm_request_started(&request, status));
    return cod_request_wait(&request, INFINITY);
}

cod_status cod_group_barrier(cod_group *group)
{
    double nothing = 0;
    return cod_group_reduce(group, &nothing, 1, COD_REDUCE_SUM);
}

cod_status cod_group_agree(cod_group *group, cod_status status, int *failed_rank)
{
    /*
     * The highest status wins, of equal ones the lowest rank: one number orders both. What was agreed before comes
     * last.
     */
    const int size = cod_group_size(group), rank = cod_group_rank(group);
    const int weight = cod_error_said_elsewhere() ? 0 : (int)status;
    double worst = status == COD_OK ? 0 : (double)weight * (size + 1) + (size - rank);
    char message[1024], host[MPI_MAX_PROCESSOR_NAME];
    snprintf(message, sizeof message, "%s", status != COD_OK ? cod_error_message() : "");
    COD_TRY(cod_group_reduce(group, &worst, 1, COD_REDUCE_MAX));
    if (failed_rank != NULL)
        *failed_rank = -1;
    if (worst == 0)
        return COD_OK;
    const int root = size - (int)fmod(worst, size + 1);
    if (failed_rank != NULL)
        *failed_rank = root;
    COD_TRY(cod_group_broadcast(group, message, sizeof message, root));
    if (status != COD_OK)
        return rank == root ? status : cod_fail_said_elsewhere(status);
    const int job_rank = cod_group_world_rank(group, group->index, root) - group->job;
    snprintf(host, sizeof host, "%s", cod_comm_node_name(group->comm, cod_comm_node_of(group->comm, job_rank)));
    (void)cod_fail(COD_ERR_PEER, "rank %d on %s failed: %s", job_rank, host, message);
    return cod_fail_said_elsewhere(COD_ERR_PEER);
}
