#include "comm/message.h"

#include "comm/comm_internal.h"

#include <limits.h>

static cod_status check(const cod_comm *comm, int world_rank, int tag, size_t bytes)
{
    COD_REQUIRE(world_rank >= 0 && world_rank < comm->size, "there is no rank %d", world_rank);
    COD_REQUIRE(tag >= 0 && tag <= COD_MESSAGE_TAG_MAX, "tag %d is out of range", tag);
    COD_REQUIRE(bytes <= INT_MAX, "a message of %zu bytes is too large", bytes);
    return COD_OK;
}

cod_status cod_message_send_start(cod_comm *comm, int world_rank, int tag, const void *data, size_t bytes,
                                  cod_request **request)
{
    COD_TRY(check(comm, world_rank, tag, bytes));
    COD_TRY(comm_request_create(comm, 1, request));
    comm_lock(comm);
    const cod_status status =
        COD_MPI(MPI_Isend(data, (int)bytes, MPI_BYTE, world_rank, tag, MPI_COMM_WORLD, (*request)->parts));
    comm->counters.message_bytes += bytes;
    comm_unlock(comm);
    return comm_request_started(request, status);
}

cod_status cod_message_receive_start(cod_comm *comm, int world_rank, int tag, void *data, size_t bytes,
                                     cod_request **request)
{
    COD_TRY(check(comm, world_rank, tag, bytes));
    COD_TRY(comm_request_create(comm, 1, request));
    comm_lock(comm);
    const cod_status status =
        COD_MPI(MPI_Irecv(data, (int)bytes, MPI_BYTE, world_rank, tag, MPI_COMM_WORLD, (*request)->parts));
    comm_unlock(comm);
    return comm_request_started(request, status);
}

cod_status cod_message_probe(cod_comm *comm, int world_rank, int tag, bool *found, size_t *bytes)
{
    int flag = 0, count = 0;
    MPI_Status state;
    COD_TRY(check(comm, world_rank, tag, 0));
    comm_lock(comm);
    cod_status status = COD_MPI(MPI_Iprobe(world_rank, tag, MPI_COMM_WORLD, &flag, &state));
    if (status == COD_OK && flag)
        status = COD_MPI(MPI_Get_count(&state, MPI_BYTE, &count));
    comm_unlock(comm);
    *found = flag != 0;
    if (bytes != NULL)
        *bytes = (size_t)count;
    return status;
}
