/**
 * @file
 * What the files of windows share.
 */
#ifndef COD_COMM_WINDOW_INTERNAL_H
#define COD_COMM_WINDOW_INTERNAL_H

#include "comm/comm_internal.h"
#include "comm/window.h"
#include "comm/window_flow_internal.h"

#include <stdbool.h>

struct cod_window {
    cod_comm *comm;
    MPI_Win mpi;
    char *memory;
    size_t *bytes;         /**< [world size] */
    bool *warm;            /**< [world size] whether this rank may be read: the connection exists */
    size_t *shift;         /**< [world size] bytes skipped at the start for alignment, which MPI does not guarantee */
    window_flow *flows;    /**< [world size] flow control of gets in pieces, for each rank */
    window_flow all_flows; /**< and from all together */
    bool sync_waits;       /**< MPI_Win_sync would wait for gets in progress, and thus for a peer that has stopped */
};

/** cod_window_get_start() of what is known to lie in the window. */
COD_MUST_CHECK cod_status window_get_start(cod_window *window, int world_rank, size_t offset, void *target,
                                           size_t bytes, cod_request **request);
/** Gets that were given up and have not ended do so without their window. Under the lock. */
void long_gets_forget(const cod_window *window);

#endif
