/* Averages over a group, of the host's memory or, through that, of a device's. */
#include "comm/group_internal.h"

#include <math.h>

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
    group_count_reduced(group, request->count * sizeof(float));
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

const cod_collective_ops group_average_ops = {
    .average_start = average_start, .test = average_test, .wait = average_wait};
