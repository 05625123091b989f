/*
 * Between comm and MPI, by the linker's --wrap: tells `late` which of its devices' memory messages read and write, and
 * for how long.
 */
#include "support/late.h"

#include <mpi.h>

int __real_MPI_Isend(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
                     MPI_Request *request);
int __real_MPI_Irecv(void *data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request *request);
int __real_MPI_Testall(int count, MPI_Request *requests, int *done, MPI_Status *statuses);
int __wrap_MPI_Isend(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
                     MPI_Request *request);
int __wrap_MPI_Irecv(void *data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request *request);
int __wrap_MPI_Testall(int count, MPI_Request *requests, int *done, MPI_Status *statuses);

static size_t bytes_of(int count, MPI_Datatype type)
{
    return (size_t)count * (type == MPI_FLOAT ? sizeof(float) : 1);
}

int __wrap_MPI_Isend(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
                     MPI_Request *request)
{
    cod_late_lend(data, bytes_of(count, type), false, request);
    return __real_MPI_Isend(data, count, type, to, tag, comm, request);
}

int __wrap_MPI_Irecv(void *data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request *request)
{
    cod_late_lend(data, bytes_of(count, type), true, request);
    return __real_MPI_Irecv(data, count, type, from, tag, comm, request);
}

int __wrap_MPI_Testall(int count, MPI_Request *requests, int *done, MPI_Status *statuses)
{
    const int code = __real_MPI_Testall(count, requests, done, statuses);
    for (int i = 0; i < count && code == MPI_SUCCESS && *done != 0; i++)
        cod_late_return(&requests[i]);
    return code;
}
