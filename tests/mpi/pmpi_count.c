/*
 * Preloaded into a training run: counts the calls that could make one group wait for another. These are collectives
 * over all ranks, and every call that blocks on a message or a window. Training proper lies between the first and the
 * last one-sided get (those of start-up read 64 bytes). At MPI_Finalize each rank writes
 * "gets G before B during D after A" and the names of the calls during training into $COD_PMPI_OUT.RANK.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WARM_BYTES = 64, NAMES = 16 };

/* Callers hold comm's lock around every MPI call, so plain counters do. */
static long calls, calls_at_first_get, calls_at_last_get, gets;
static const char *since_last_get[NAMES], *during[NAMES];
static int pending, noted;

static void count_call(const char *name)
{
    calls++;
    if (gets > 0 && pending < NAMES)
        since_last_get[pending++] = name;
}

static void count_collective(const char *name, MPI_Comm comm)
{
    int size = 1, world = 1;
    PMPI_Comm_size(comm, &size);
    PMPI_Comm_size(MPI_COMM_WORLD, &world);
    if (world > 1 && size == world)
        count_call(name);
}

#define COLLECTIVE(name, comm, parameters, arguments)                                                                  \
    int MPI_##name parameters                                                                                          \
    {                                                                                                                  \
        count_collective(#name, comm);                                                                                 \
        return PMPI_##name arguments;                                                                                  \
    }
#define BLOCKING(name, parameters, arguments)                                                                          \
    int MPI_##name parameters                                                                                          \
    {                                                                                                                  \
        count_call(#name);                                                                                             \
        return PMPI_##name arguments;                                                                                  \
    }

/* clang-format off */
COLLECTIVE(Barrier, c, (MPI_Comm c), (c))
COLLECTIVE(Ibarrier, c, (MPI_Comm c, MPI_Request *r), (c, r))
COLLECTIVE(Bcast, c, (void *b, int n, MPI_Datatype t, int root, MPI_Comm c), (b, n, t, root, c))
COLLECTIVE(Ibcast, c, (void *b, int n, MPI_Datatype t, int root, MPI_Comm c, MPI_Request *r), (b, n, t, root, c, r))
COLLECTIVE(Reduce, c, (const void *s, void *b, int n, MPI_Datatype t, MPI_Op o, int root, MPI_Comm c),
           (s, b, n, t, o, root, c))
COLLECTIVE(Allreduce, c, (const void *s, void *b, int n, MPI_Datatype t, MPI_Op o, MPI_Comm c), (s, b, n, t, o, c))
COLLECTIVE(Iallreduce, c, (const void *s, void *b, int n, MPI_Datatype t, MPI_Op o, MPI_Comm c, MPI_Request *r),
           (s, b, n, t, o, c, r))
COLLECTIVE(Allgather, c, (const void *s, int n, MPI_Datatype t, void *b, int m, MPI_Datatype u, MPI_Comm c),
           (s, n, t, b, m, u, c))
COLLECTIVE(Iallgather, c,
           (const void *s, int n, MPI_Datatype t, void *b, int m, MPI_Datatype u, MPI_Comm c, MPI_Request *r),
           (s, n, t, b, m, u, c, r))
COLLECTIVE(Alltoall, c, (const void *s, int n, MPI_Datatype t, void *b, int m, MPI_Datatype u, MPI_Comm c),
           (s, n, t, b, m, u, c))
COLLECTIVE(Comm_split, c, (MPI_Comm c, int color, int key, MPI_Comm *out), (c, color, key, out))
COLLECTIVE(Comm_dup, c, (MPI_Comm c, MPI_Comm *out), (c, out))
BLOCKING(Send, (const void *b, int n, MPI_Datatype t, int to, int tag, MPI_Comm c), (b, n, t, to, tag, c))
BLOCKING(Ssend, (const void *b, int n, MPI_Datatype t, int to, int tag, MPI_Comm c), (b, n, t, to, tag, c))
BLOCKING(Recv, (void *b, int n, MPI_Datatype t, int from, int tag, MPI_Comm c, MPI_Status *s),
         (b, n, t, from, tag, c, s))
BLOCKING(Probe, (int from, int tag, MPI_Comm c, MPI_Status *s), (from, tag, c, s))
BLOCKING(Wait, (MPI_Request *r, MPI_Status *s), (r, s))
BLOCKING(Waitany, (int n, MPI_Request *r, int *i, MPI_Status *s), (n, r, i, s))
BLOCKING(Waitall, (int n, MPI_Request *r, MPI_Status *s), (n, r, s))
BLOCKING(Waitsome, (int n, MPI_Request *r, int *m, int *i, MPI_Status *s), (n, r, m, i, s))
BLOCKING(Win_fence, (int a, MPI_Win w), (a, w))
BLOCKING(Win_lock, (int type, int rank, int a, MPI_Win w), (type, rank, a, w))
BLOCKING(Win_unlock, (int rank, MPI_Win w), (rank, w))
BLOCKING(Win_lock_all, (int a, MPI_Win w), (a, w))
BLOCKING(Win_unlock_all, (MPI_Win w), (w))
BLOCKING(Win_flush, (int rank, MPI_Win w), (rank, w))
BLOCKING(Win_flush_all, (MPI_Win w), (w))
BLOCKING(Win_flush_local, (int rank, MPI_Win w), (rank, w))
BLOCKING(Win_flush_local_all, (MPI_Win w), (w))
BLOCKING(Win_free, (MPI_Win *w), (w))
/* clang-format on */

int MPI_Rget(void *to, int n, MPI_Datatype t, int rank, MPI_Aint at, int m, MPI_Datatype u, MPI_Win w, MPI_Request *r)
{
    if (n > WARM_BYTES) {
        if (gets++ == 0)
            calls_at_first_get = calls;
        calls_at_last_get = calls;
        for (int i = 0; i < pending && noted < NAMES; i++)
            during[noted++] = since_last_get[i];
        pending = 0;
    }
    return PMPI_Rget(to, n, t, rank, at, m, u, w, r);
}

int MPI_Finalize(void)
{
    const char *out = getenv("COD_PMPI_OUT");
    char path[4096];
    int rank = 0;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    snprintf(path, sizeof path, "%s.%d", out != NULL ? out : "pmpi_count", rank);
    FILE *file = fopen(path, "w");
    if (file != NULL) {
        fprintf(file, "gets %ld before %ld during %ld after %ld", gets, calls_at_first_get,
                calls_at_last_get - calls_at_first_get, calls - calls_at_last_get);
        for (int i = 0; i < noted; i++)
            fprintf(file, " %s", during[i]);
        fputc('\n', file);
        fclose(file);
    }
    return PMPI_Finalize();
}
