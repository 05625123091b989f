#include "comm/group_internal.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    GATHERED_COUNT = 4096, /**< values of all ranks up to which a reduction gathers them and reduces locally */
};

static const cod_collective_ops average_ops;

/** `ranks` is the order of world ranks, `first` cuts it into groups; both are taken. Collective on all ranks of the job, which begin at `job`. */
static cod_status create(cod_comm *comm, int *ranks, int *first, int count, int job, cod_group **out)
{
    cod_group *group = calloc(1, sizeof *group);
    if (group == NULL) {
        free(ranks);
        free(first);
        return cod_fail(COD_ERR_MEMORY, "out of memory for a group");
    }
    group->comm = comm;
    group->count = count;
    group->ranks = ranks;
    group->first = first;
    group->job = job;
    int place = 0;
    while (ranks[place] != job + comm->rank)
        place++;
    while (first[group->index + 1] <= place)
        group->index++;
    comm_lock(comm);
    const cod_status status = COD_MPI(MPI_Comm_split(MPI_COMM_WORLD, group->index, place, &group->mpi));
    if (status == COD_OK)
        MPI_Comm_set_errhandler(group->mpi, MPI_ERRORS_RETURN);
    comm_unlock(comm);
    group->collective = (cod_collective){.ops = &average_ops,
                                         .rank = place - first[group->index],
                                         .size = first[group->index + 1] - first[group->index]};
    *out = group;
    return status;
}

/** Groups of contiguous ranks, `size` in all, of which the job has those from `job` on. */
static cod_status create_contiguous(cod_comm *comm, const int *sizes, size_t count, int size, int job, cod_group **out)
{
    int *ranks = malloc((size_t)size * sizeof *ranks), *first = calloc(count + 1, sizeof *first);
    if (ranks == NULL || first == NULL) {
        free(ranks);
        free(first);
        return cod_fail(COD_ERR_MEMORY, "out of memory for %zu groups", count);
    }
    for (size_t i = 0; i < count; i++)
        first[i + 1] = first[i] + sizes[i];
    for (int r = 0; r < size; r++)
        ranks[r] = r;
    return create(comm, ranks, first, (int)count, job, out);
}

/** Ranks of `count` groups in all; 0 where a group has none, or they are too many to count. */
static int sum_of(const int *sizes, size_t count)
{
    int sum = 0;
    for (size_t i = 0; i < count; i++) {
        if (sizes[i] <= 0 || sizes[i] > INT_MAX - sum)
            return 0;
        sum += sizes[i];
    }
    return sum;
}

cod_status cod_group_create(cod_comm *comm, const int *sizes, size_t count, cod_group **out)
{
    COD_REQUIRE(sum_of(sizes, count) == comm->size, "%zu groups do not divide %d ranks as asked", count, comm->size);
    return create_contiguous(comm, sizes, count, comm->size, 0, out);
}

cod_status cod_group_create_part(cod_comm *comm, const int *sizes, size_t count, size_t index, cod_group **out)
{
    const int size = sum_of(sizes, count);
    COD_REQUIRE(size > 0 && index < count && sizes[index] == comm->size,
                "%d ranks are not group %zu of %zu groups as asked", comm->size, index, count);
    return create_contiguous(comm, sizes, count, size, sum_of(sizes, index), out);
}

cod_status cod_group_create_by_node(cod_comm *comm, cod_group **out)
{
    const int nodes = cod_comm_node_count(comm);
    int *ranks = malloc((size_t)comm->size * sizeof *ranks), *first = calloc((size_t)nodes + 1, sizeof *first);
    if (ranks == NULL || first == NULL) {
        free(ranks);
        free(first);
        return cod_fail(COD_ERR_MEMORY, "out of memory for %d groups", nodes);
    }
    int used = 0;
    for (int node = 0; node < nodes; node++) {
        for (int r = 0; r < comm->size; r++)
            if (cod_comm_node_of(comm, r) == node)
                ranks[used++] = r;
        first[node + 1] = used;
    }
    return create(comm, ranks, first, nodes, 0, out);
}

cod_status cod_group_create_across(const cod_group *group, cod_group **out)
{
    int places = 0, used = 0;
    COD_REQUIRE(group->first[group->count] == group->comm->size, "groups of other jobs cannot be met");
    for (int g = 0; g < group->count; g++)
        places = cod_group_members_of(group, g).size > places ? cod_group_members_of(group, g).size : places;
    int *ranks = malloc((size_t)group->comm->size * sizeof *ranks), *first = calloc((size_t)places + 1, sizeof *first);
    if (ranks == NULL || first == NULL) {
        free(ranks);
        free(first);
        return cod_fail(COD_ERR_MEMORY, "out of memory for %d groups", places);
    }
    for (int place = 0; place < places; place++) {
        for (int g = 0; g < group->count; g++)
            if (place < cod_group_members_of(group, g).size)
                ranks[used++] = cod_group_world_rank(group, g, place);
        first[place + 1] = used;
    }
    COD_TRY(create(group->comm, ranks, first, places, 0, out));
    (*out)->across = true;
    return COD_OK;
}

cod_status cod_group_create_interleaved(const cod_group *group, int stride, cod_group **out)
{
    const int count = group->count * stride;
    int used = 0;
    COD_REQUIRE(group->first[group->count] == group->comm->size, "groups of other jobs cannot be split");
    for (int g = 0; g < group->count; g++)
        COD_REQUIRE(stride > 0 && cod_group_members_of(group, g).size % stride == 0,
                    "the %d ranks of group %d cannot be dealt out to %d", cod_group_members_of(group, g).size, g,
                    stride);
    int *ranks = malloc((size_t)group->comm->size * sizeof *ranks), *first = calloc((size_t)count + 1, sizeof *first);
    if (ranks == NULL || first == NULL) {
        free(ranks);
        free(first);
        return cod_fail(COD_ERR_MEMORY, "out of memory for %d groups", count);
    }
    for (int part = 0; part < count; part++) {
        const int g = part / stride, size = cod_group_members_of(group, g).size;
        for (int place = part % stride; place < size; place += stride)
            ranks[used++] = cod_group_world_rank(group, g, place);
        first[part + 1] = used;
    }
    return create(group->comm, ranks, first, count, 0, out);
}

void cod_group_destroy(cod_group *group)
{
    if (group == NULL)
        return;
    /* Freeing a communicator may wait for its other ranks, so a barrier that can be given up goes first. */
    cod_request *barrier = NULL;
    cod_status status = comm_request_create(group->comm, 1, &barrier);
    if (status == COD_OK) {
        comm_lock(group->comm);
        status = COD_MPI(MPI_Ibarrier(group->mpi, barrier->parts));
        comm_unlock(group->comm);
    }
    COD_THEN(status, cod_request_wait(&barrier, group->comm->teardown_timeout_s));
    direct_leave(group->direct);
    direct_destroy(group, status == COD_OK);
    levels_destroy(group, status == COD_OK);
    if (status == COD_OK) {
        comm_lock(group->comm);
        MPI_Comm_free(&group->mpi);
        comm_unlock(group->comm);
    }
    cod_staging_destroy(group->staging);
    free(group->first);
    free(group->ranks);
    free(group);
}

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

cod_collective *cod_group_collective(cod_group *group)
{
    return &group->collective;
}

cod_status cod_group_use_device(cod_group *group, const cod_backend *backend, cod_device *device)
{
    double apart = backend->memory != NULL; /* from the host's memory */
    cod_status status = COD_OK;
    COD_REQUIRE(group->staging == NULL, "the group has a device already");
    if (apart > 0)
        status = cod_staging_create(backend, device, &group->staging);
    COD_TRY(cod_group_agree(group, status, NULL));
    COD_TRY(cod_group_reduce(group, &apart, 1, COD_REDUCE_MAX));
    return apart > 0 && group->levels == NULL ? levels_create_flat(group) : COD_OK;
}

void cod_group_leave_device(cod_group *group)
{
    if (group == NULL)
        return;
    direct_leave(group->direct);
    if (group->staging == NULL)
        return;
    comm_lock(group->comm);
    levels_give_up(group->levels);
    comm_unlock(group->comm);
    cod_staging_destroy(group->staging);
    group->staging = NULL;
}

cod_status cod_group_stage(cod_group *group, cod_buffer *buffer, size_t offset, size_t bytes, cod_event *ready,
                           cod_staged **out)
{
    *out = NULL;
    if (buffer->host != NULL)
        return COD_OK;
    if (group->staging == NULL)
        return cod_fail(COD_ERR_UNSUPPORTED, "MPI averages host memory only: the group was given no device");
    return cod_staging_start(group->staging, buffer, offset, bytes, ready, out);
}

/* Bytes of agreements between all ranks of the job, at its start and end, belong to no group. */
void group_count_sent(cod_group *group, size_t bytes)
{
    cod_comm_counters *counters = &group->comm->counters;
    if (group->across)
        counters->across_bytes += (uint64_t)bytes;
    else if (group != group->comm->world)
        counters->group_bytes += (uint64_t)bytes;
}

static void count_reduced(cod_group *group, size_t bytes)
{
    const size_t n = (size_t)cod_group_size(group);
    group_count_sent(group, 2 * bytes * (n - 1) / n);
}

static void scale_average(cod_request *request)
{
    float *values = request->context;
    const float scale = (float)request->scale;
    for (size_t i = 0; i < request->count; i++)
        values[i] *= scale;
}

/** Starts an average, of request->count values at request->context, of all ranks alike. Under the lock. */
static cod_status average_parts(cod_group *group, cod_request *request)
{
    float *values = request->context;
    for (int i = 0; i < request->part_count; i++) {
        const size_t from = (size_t)i * GROUP_PART_COUNT, left = request->count - from;
        COD_TRY(COD_MPI(MPI_Iallreduce(MPI_IN_PLACE, values + from,
                                       (int)(left < GROUP_PART_COUNT ? left : GROUP_PART_COUNT), MPI_FLOAT, MPI_SUM,
                                       group->mpi, &request->parts[i])));
    }
    count_reduced(group, request->count * sizeof(float));
    return COD_OK;
}

static cod_status average_start(cod_collective *collective, cod_buffer *buffer, size_t offset, size_t count,
                                cod_event *ready, cod_reduction **out)
{
    cod_group *group = (cod_group *)collective;
    cod_comm *comm = group->comm;
    cod_request *request = NULL;
    cod_staged *staged = NULL;
    *out = NULL;
    COD_REQUIRE(offset % sizeof(float) == 0 && offset <= buffer->bytes &&
                    count <= (buffer->bytes - offset) / sizeof(float),
                "a range of %zu values at byte %zu lies outside its buffer", count, offset);
    const int parts = (int)((count + GROUP_PART_COUNT - 1) / GROUP_PART_COUNT);
    COD_TRY(cod_group_stage(group, buffer, offset, count * sizeof(float), ready, &staged));
    cod_status status = comm_request_create(comm, parts, &request);
    if (status != COD_OK) {
        cod_staged_drop(staged);
        return status;
    }
    request->staged = staged;
    request->finish = scale_average;
    request->context = staged != NULL ? cod_staged_host(staged) : (char *)buffer->host + offset;
    request->count = count;
    request->scale = 1.0 / collective->size;
    request->urgent = true;
    atomic_fetch_add(&comm->urgent, 1);
    comm_lock(comm);
    status = group->levels != NULL ? levels_start(group, request) : average_parts(group, request);
    comm_unlock(comm);
    status = comm_request_started(&request, status);
    if (status != COD_OK)
        cod_staged_drop(staged);
    *out = (cod_reduction *)request;
    return status;
}

static cod_status average_test(cod_reduction *reduction, bool *done)
{
    return comm_request_poll((cod_request *)reduction, done);
}

static cod_status average_wait(cod_reduction *reduction, cod_queue *queue)
{
    cod_request *request = (cod_request *)reduction;
    cod_staged *staged = request != NULL ? request->staged : NULL;
    const cod_status status = cod_request_wait(&request, INFINITY);
    if (status == COD_OK && staged != NULL)
        return cod_staged_return(staged, queue);
    cod_staged_drop(staged);
    return status;
}

static const cod_collective_ops average_ops = {
    .average_start = average_start, .test = average_test, .wait = average_wait};

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
        count_reduced(group, count * sizeof *values);
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
    /* The highest status wins, of equal ones the lowest rank: one number orders both. What was agreed before comes last. */
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
