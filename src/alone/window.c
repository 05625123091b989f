/* A window that one rank has: its own memory. There is nobody who could read it, and nobody whose it could read. */
#include "alone/alone_internal.h"

#include "core/memory.h"

#include <stdlib.h>

struct cod_window {
    void *memory;
};

cod_status cod_window_create(cod_comm *comm, size_t bytes, const int *sources, size_t source_count, cod_window **out)
{
    (void)comm;
    (void)sources;
    (void)source_count;
    cod_window *window = calloc(1, sizeof *window);
    COD_REQUIRE_MEMORY(window);
    *out = window;
    return cod_aligned_alloc(&window->memory, bytes);
}

cod_status cod_window_destroy(cod_window *window)
{
    if (window != NULL)
        cod_aligned_free(window->memory);
    free(window);
    return COD_OK;
}

void *cod_window_memory(cod_window *window)
{
    return window->memory;
}

cod_status cod_window_sync(cod_window *window)
{
    (void)window;
    return COD_OK;
}

cod_status cod_window_get_start(cod_window *window, int world_rank, size_t offset, void *target, size_t bytes,
                                cod_request **request)
{
    (void)window;
    (void)offset;
    (void)target;
    (void)bytes;
    (void)request;
    return cod_fail(COD_ERR_UNSUPPORTED, "rank %d's window is out of reach: this process has no MPI", world_rank);
}

size_t cod_window_get_arrived(const cod_request *request)
{
    (void)request;
    return 0;
}
