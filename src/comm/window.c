#include "comm/window_internal.h"

#include "comm/group.h"
#include "comm/shared_space.h"
#include "core/memory.h"

#include <math.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { WARM_BYTES = 64 };

static void window_free(cod_window *window)
{
    free(window->bytes);
    free(window->shift);
    free(window->warm);
    free(window->flows);
    free(window);
}

/**
 * Reads 64 bytes of every source: the first get to a rank waits for its connection, and only now may anything wait.
 * They are there whatever size was asked for, see allocate().
 */
static cod_status warm_up(cod_window *window)
{
    char scratch[WARM_BYTES];
    for (int r = 0; r < window->comm->size; r++) {
        cod_request *request = NULL;
        if (r == window->comm->rank || !window->warm[r])
            continue;
        COD_TRY(window_get_start(window, r, 0, scratch, WARM_BYTES, &request));
        COD_TRY(cod_request_wait(&request, INFINITY));
    }
    return cod_group_barrier(window->comm->world);
}

/** Whether an owner's stores and others' gets meet in one copy of the window, or in two (MPI 4.0, section 12.4). */
static int model_of(const cod_window *window)
{
    int *model = NULL, known = 0;
    const int code = MPI_Win_get_attr(window->mpi, MPI_WIN_MODEL, (void *)&model, &known);
    return code == MPI_SUCCESS && known ? *model : MPI_WIN_UNIFIED;
}

/**
 * Readers look at slots while their owner writes them, and tell by sequence words what is whole: two copies know no
 * such order.
 */
static cod_status check_model(const cod_window *window)
{
    if (model_of(window) != MPI_WIN_SEPARATE)
        return COD_OK;
    return cod_fail(
        COD_ERR_UNSUPPORTED,
        "the windows of %s have a copy for their owner and one for others (MPI_WIN_SEPARATE), in which readers may see "
        "publications half written; exchange through a shared folder (exchange.transport=file), or by another MPI or "
        "another of its components for one-sided communication (--mca osc)",
        window->comm->library);
}

/**
 * Open MPI 5's osc/ucx ends every outstanding get in MPI_Win_sync. Where the copies of a window are one, all that we
 * need of it is the order of our own stores.
 */
static bool sync_waits(const cod_window *window)
{
    return strncmp(window->comm->library, "Open MPI v5", 11) == 0 && model_of(window) == MPI_WIN_UNIFIED;
}

/** Makes MPI's window and opens it for gets. Under the lock. */
static cod_status open_window(cod_window *window, size_t bytes, void **base)
{
    COD_TRY(COD_MPI(MPI_Win_allocate((MPI_Aint)bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, base, &window->mpi)));
    MPI_Win_set_errhandler(window->mpi, MPI_ERRORS_RETURN);
    memset(*base, 0, bytes);
    window->sync_waits = sync_waits(window);
    COD_TRY(check_model(window)); /* alike on all ranks */
    return COD_MPI(MPI_Win_lock_all(MPI_MODE_NOCHECK, window->mpi));
}

static cod_status allocate(cod_window *window, size_t bytes)
{
    cod_comm *comm = window->comm;
    const size_t padded = cod_align_up(bytes > 0 ? bytes : 1) + COD_ALIGNMENT;
    void *base = NULL;
    COD_TRY(cod_group_gather(comm->world, &bytes, sizeof bytes, window->bytes));
    comm_lock(comm);
    const cod_status status = open_window(window, padded, &base);
    comm_unlock(comm);
    COD_TRY(status);
    const size_t shift = cod_align_up((uintptr_t)base) - (uintptr_t)base;
    window->memory = (char *)base + shift;
    COD_TRY(cod_group_gather(comm->world, &shift, sizeof shift, window->shift));
    return warm_up(window);
}

/** What the windows of this host's ranks take, where MPI shares them between these. */
static double bytes_of_node(const cod_window *window)
{
    const cod_comm *comm = window->comm;
    double bytes = 0;
    for (int r = 0; window->bytes != NULL && r < comm->size; r++)
        bytes += comm->node_of[r] == comm->node_of[comm->rank] ? (double)window->bytes[r] : 0;
    return comm->node_size > 1 ? bytes : 0;
}

cod_status cod_window_create(cod_comm *comm, size_t bytes, const int *sources, size_t source_count, cod_window **out)
{
    cod_window *window = calloc(1, sizeof *window);
    COD_REQUIRE_MEMORY(window);
    window->comm = comm;
    window->bytes = calloc((size_t)comm->size, sizeof *window->bytes);
    window->shift = calloc((size_t)comm->size, sizeof *window->shift);
    window->warm = calloc((size_t)comm->size, sizeof *window->warm);
    window->flows = calloc((size_t)comm->size, sizeof *window->flows);
    const bool made = window->bytes != NULL && window->shift != NULL && window->warm != NULL && window->flows != NULL;
    for (int r = 0; made && sources == NULL && r < comm->size; r++)
        window->warm[r] = true;
    for (size_t i = 0; made && sources != NULL && i < source_count; i++)
        window->warm[sources[i]] = true;
    cod_status status = made ? allocate(window, bytes) : cod_fail(COD_ERR_MEMORY, "out of memory");
    if (status != COD_OK) {
        /* MPI's part stays: freeing it is collective, and the others may not be here. */
        const double bytes_here = bytes_of_node(window);
        window_free(window);
        const bool small = status == COD_ERR_MPI && cod_shared_space_explain(status, COD_SHARED_SPACE, bytes_here);
        return cod_fail_prefix(status, "cannot make a window for one-sided gets%s",
                               status == COD_ERR_MPI && !small ? " (over TCP Open MPI 4 needs --mca osc pt2pt)" : "");
    }
    *out = window;
    return COD_OK;
}

cod_status cod_window_destroy(cod_window *window)
{
    if (window == NULL)
        return COD_OK;
    cod_comm *comm = window->comm;
    cod_request *barrier = NULL;
    COD_TRY(comm_barrier_start(comm, MPI_COMM_WORLD, &barrier));
    COD_TRY(life_wait_at_end(comm, &barrier));
    comm_lock(comm);
    cod_status status = COD_MPI(MPI_Win_unlock_all(window->mpi));
    COD_THEN(status, COD_MPI(MPI_Win_free(&window->mpi)));
    long_gets_forget(window);
    comm_unlock(comm);
    window_free(window);
    return status;
}

void *cod_window_memory(cod_window *window)
{
    return window->memory;
}

size_t cod_window_bytes(const cod_window *window, int world_rank)
{
    return window->bytes[world_rank];
}

cod_status cod_window_sync(cod_window *window)
{
    if (window->sync_waits) {
        atomic_thread_fence(memory_order_seq_cst);
        return COD_OK;
    }
    comm_lock(window->comm);
    const cod_status status = COD_MPI(MPI_Win_sync(window->mpi));
    comm_unlock(window->comm);
    return status;
}

cod_status cod_window_get_start(cod_window *window, int world_rank, size_t offset, void *target, size_t bytes,
                                cod_request **request)
{
    cod_comm *comm = window->comm;
    COD_REQUIRE(world_rank >= 0 && world_rank < comm->size, "there is no rank %d", world_rank);
    COD_REQUIRE(offset <= window->bytes[world_rank] && bytes <= window->bytes[world_rank] - offset,
                "bytes %zu to %zu lie outside the %zu of rank %d's window", offset, offset + bytes,
                window->bytes[world_rank], world_rank);
    COD_REQUIRE(window->warm[world_rank], "rank %d is not one that this rank said it would read", world_rank);
    comm_lock(comm);
    comm->counters.pulled_bytes += bytes;
    comm_unlock(comm);
    return window_get_start(window, world_rank, offset, target, bytes, request);
}
