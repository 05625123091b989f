/*
 * Gets. A short one is one of MPI's gets. Of a long one several pieces are in flight; the progress thread requests the
 * next.
 */
#include "comm/window_internal.h"

#include "core/trace.h"

#include <stdlib.h>

/**
 * In shared memory MPI copies a piece as it is asked for, under the lock, which others want meanwhile: so a look copies
 * no more.
 */
enum { COPIED_AT_ONCE = 1024 * 1024, SHORT_BYTES = 128 * 1024 };

struct window_long {
    cod_window *window; /**< NULL = it has ended, and this get was given up */
    int world_rank;
    size_t offset, bytes, asked; /**< asked: of bytes, from the start */
    size_t arrived;
    window_piece pieces[WINDOW_FLOW_PIECES]; /**< what each MPI request reads */
    char *target;
    cod_status failed;
    struct cod_request *next; /**< in the job's list */
};

/** MPI's own get, under the lock. */
static cod_status rget(cod_window *window, int world_rank, size_t offset, void *target, int bytes, MPI_Request *out)
{
    return COD_MPI(MPI_Rget(target, bytes, MPI_BYTE, world_rank, (MPI_Aint)(window->shift[world_rank] + offset), bytes,
                            MPI_BYTE, window->mpi, out));
}

static cod_status short_get_start(cod_window *window, int world_rank, size_t offset, void *target, int bytes,
                                  cod_request **request)
{
    cod_comm *comm = window->comm;
    COD_TRY(comm_request_create(comm, 1, request));
    comm_lock(comm);
    const cod_status status = rget(window, world_rank, offset, target, bytes, (*request)->parts);
    comm_unlock(comm);
    return comm_request_started(request, status);
}

/** Takes a long get out of what the progress thread moves. Under the lock. */
static void leave_list(cod_request *request)
{
    cod_request **at = &request->comm->long_gets;
    while (*at != NULL && *at != request)
        at = &(*at)->long_get->next;
    if (*at != NULL)
        *at = request->long_get->next;
}

static window_flow *flow_of(const window_long *get)
{
    return &get->window->flows[get->world_rank];
}

static cod_status note_arrivals(cod_request *request)
{
    window_long *get = request->long_get;
    for (int i = 0; i < WINDOW_FLOW_PIECES; i++) {
        window_piece *piece = &get->pieces[i];
        int done = 0;
        if (piece->bytes == 0)
            continue;
        COD_TRY(COD_MPI(MPI_Testall(1, &request->parts[i], &done, MPI_STATUSES_IGNORE)));
        if (!done)
            continue;
        get->arrived += piece->bytes;
        if (get->window != NULL)
            window_flow_arrived(flow_of(get), &get->window->all_flows, piece, cod_clock_s());
        piece->bytes = 0;
    }
    if (get->window != NULL)
        window_flow_look(flow_of(get), &get->window->all_flows, cod_clock_s());
    return COD_OK;
}

/** Asks for a piece. @param[out] copied  it is here already */
static cod_status ask(cod_request *request, int place, size_t bytes, bool *copied)
{
    window_long *get = request->long_get;
    int done = 0;
    COD_TRY(rget(get->window, get->world_rank, get->offset + get->asked, get->target + get->asked, (int)bytes,
                 &request->parts[place]));
    get->asked += bytes;
    COD_TRY(COD_MPI(MPI_Testall(1, &request->parts[place], &done, MPI_STATUSES_IGNORE)));
    *copied = done != 0;
    if (done) {
        get->arrived += bytes;
        return COD_OK;
    }
    window_flow_asked(flow_of(get), &get->window->all_flows, &get->pieces[place], bytes, cod_clock_s());
    return COD_OK;
}

static cod_status ask_more(cod_request *request)
{
    window_long *get = request->long_get;
    size_t copied_bytes = 0;
    for (int i = 0; i < WINDOW_FLOW_PIECES && copied_bytes < COPIED_AT_ONCE; i++) {
        bool copied = get->pieces[i].bytes == 0;
        while (copied && copied_bytes < COPIED_AT_ONCE && get->asked < get->bytes) {
            const size_t bytes = window_flow_next(flow_of(get), &get->window->all_flows, get->bytes - get->asked);
            if (bytes == 0)
                return COD_OK;
            COD_TRY(ask(request, i, bytes, &copied));
            copied_bytes += copied ? bytes : 0;
        }
    }
    return COD_OK;
}

/** Under the lock. */
static cod_status move(cod_request *request)
{
    window_long *get = request->long_get;
    COD_THEN(get->failed, note_arrivals(request));
    COD_THEN(get->failed, ask_more(request));
    return get->failed;
}

/** One that was given up asks for no more. */
static cod_status test(cod_request *request, bool *done)
{
    window_long *get = request->long_get;
    if (request->abandoned)
        get->bytes = get->asked;
    const cod_status status = move(request);
    *done = status == COD_OK && get->arrived == get->bytes;
    if (*done || status != COD_OK)
        leave_list(request);
    return status;
}

void long_gets_progress(cod_comm *comm)
{
    for (cod_request *request = comm->long_gets; request != NULL; request = request->long_get->next)
        if (!request->abandoned)
            (void)move(request); /* the thread that waits for it gets the status */
}

static cod_status long_get_start(cod_window *window, int world_rank, size_t offset, void *target, size_t bytes,
                                 cod_request **out)
{
    cod_comm *comm = window->comm;
    COD_TRY(comm_request_create(comm, WINDOW_FLOW_PIECES, out));
    cod_request *request = *out;
    window_long *get = calloc(1, sizeof *get);
    if (get == NULL)
        return comm_request_started(out, cod_fail(COD_ERR_MEMORY, "out of memory"));
    *get =
        (window_long){.window = window, .world_rank = world_rank, .offset = offset, .bytes = bytes, .target = target};
    request->long_get = get;
    request->test = test;
    comm_lock(comm);
    get->next = comm->long_gets;
    comm->long_gets = request;
    const cod_status status = move(request);
    if (status != COD_OK)
        leave_list(request);
    comm_unlock(comm);
    return comm_request_started(out, status);
}

cod_status window_get_start(cod_window *window, int world_rank, size_t offset, void *target, size_t bytes,
                            cod_request **request)
{
    return bytes > SHORT_BYTES ? long_get_start(window, world_rank, offset, target, bytes, request)
                               : short_get_start(window, world_rank, offset, target, (int)bytes, request);
}

void long_gets_forget(const cod_window *window)
{
    for (cod_request *request = window->comm->abandoned; request != NULL; request = request->next)
        if (request->long_get != NULL && request->long_get->window == window)
            request->long_get->window = NULL;
}

size_t cod_window_get_arrived(const cod_request *request)
{
    if (request == NULL || request->long_get == NULL)
        return 0;
    comm_lock(request->comm);
    const size_t arrived = request->long_get->arrived;
    comm_unlock(request->comm);
    return arrived;
}
