#include "comm/node_memory.h"

#include "comm/comm_internal.h"
#include "comm/shared_space.h"
#include "core/memory.h"

#include <stdlib.h>
#include <string.h>

/** At the start of the first rank's part. */
typedef struct barrier {
    atomic_uint arrived, round;
} barrier;

struct cod_node_memory {
    cod_comm *comm;
    MPI_Comm ranks; /**< of the node */
    MPI_Win window;
    int size;
    char **parts; /**< [size] */
    barrier *barrier;
};

/** Finds the address of each rank's part in this process. To be called under the lock. */
static cod_status find_parts(cod_node_memory *memory)
{
    for (int r = 0; r < memory->size; r++) {
        MPI_Aint bytes;
        int unit;
        void *base = NULL;
        COD_TRY(COD_MPI(MPI_Win_shared_query(memory->window, r, &bytes, &unit, &base)));
        memory->parts[r] = (char *)cod_align_up((uintptr_t)base);
    }
    memory->barrier = (barrier *)memory->parts[0];
    memory->parts[0] += COD_ALIGNMENT;
    return COD_OK;
}

/** Under the lock. */
static cod_status allocate(cod_node_memory *memory, size_t bytes)
{
    const size_t padded = cod_align_up(bytes) + 2 * COD_ALIGNMENT;
    const cod_comm *comm = memory->comm;
    void *base = NULL;
    COD_TRY(COD_MPI(MPI_Comm_split(MPI_COMM_WORLD, comm->node_of[comm->rank], comm->rank, &memory->ranks)));
    MPI_Comm_set_errhandler(memory->ranks, MPI_ERRORS_RETURN);
    COD_TRY(
        COD_MPI(MPI_Win_allocate_shared((MPI_Aint)padded, 1, MPI_INFO_NULL, memory->ranks, &base, &memory->window)));
    memset(base, 0, padded);
    MPI_Win_set_errhandler(memory->window, MPI_ERRORS_RETURN);
    COD_TRY(COD_MPI(MPI_Win_lock_all(MPI_MODE_NOCHECK, memory->window)));
    return find_parts(memory);
}

static cod_status allocate_locked(cod_node_memory *memory, size_t bytes)
{
    comm_lock(memory->comm);
    const cod_status status = allocate(memory, bytes);
    comm_unlock(memory->comm);
    return status;
}

cod_status cod_node_memory_create(cod_comm *comm, size_t bytes, cod_node_memory **out)
{
    cod_node_memory *memory = calloc(1, sizeof *memory);
    COD_REQUIRE_MEMORY(memory);
    memory->comm = comm;
    memory->size = comm->node_size;
    memory->parts = calloc((size_t)memory->size, sizeof *memory->parts);
    cod_status status = memory->parts != NULL ? COD_OK : cod_fail(COD_ERR_MEMORY, "out of memory");
    COD_THEN(status, allocate_locked(memory, bytes));
    if (status != COD_OK) {
        /* MPI's part stays: freeing it is collective, and the others may not be here. */
        const int ranks = memory->size;
        free(memory->parts);
        free(memory);
        if (cod_shared_space_explain(status, COD_SHARED_SPACE, (double)bytes * ranks))
            return cod_fail_prefix(status, "ranks of a node cannot share memory");
        return cod_fail_prefix(status,
                               "ranks of a node cannot share memory (Open MPI's component for it is osc/sm: with "
                               "--mca osc pt2pt,sm it is there beside pt2pt)");
    }
    *out = memory;
    return COD_OK;
}

void cod_node_memory_destroy(cod_node_memory *memory)
{
    if (memory == NULL)
        return;
    cod_comm *comm = memory->comm;
    cod_request *meeting = NULL;
    cod_status status = comm_barrier_start(comm, memory->ranks, &meeting);
    COD_THEN(status, life_wait_at_end(comm, &meeting));
    if (status == COD_OK) {
        comm_lock(comm);
        MPI_Win_unlock_all(memory->window);
        MPI_Win_free(&memory->window);
        MPI_Comm_free(&memory->ranks);
        comm_unlock(comm);
    }
    free(memory->parts);
    free(memory);
}

void *cod_node_memory_part(const cod_node_memory *memory, int node_rank)
{
    return memory->parts[node_rank];
}

void cod_node_memory_barrier(cod_node_memory *memory)
{
    barrier *b = memory->barrier;
    const unsigned round = atomic_load(&b->round);
    unsigned looks = 0;
    if (atomic_fetch_add(&b->arrived, 1) + 1 == (unsigned)memory->size) {
        atomic_store(&b->arrived, 0);
        atomic_fetch_add(&b->round, 1);
        return;
    }
    while (atomic_load(&b->round) == round)
        cod_comm_pause(&looks);
}
