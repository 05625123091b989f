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
    bool *warm;            /**< [world size] a rank that may be read: the connection is there */
    size_t *shift;         /**< [world size] bytes skipped at the start for alignment: MPI promises none */
    window_flow *flows;    /**< [world size] of gets in pieces, from each rank */
    window_flow all_flows; /**< and from all together */
    bool sync_waits;       /**< MPI_Win_sync would wait for gets that are under way, so for a peer that is stopped */
};

/** cod_window_get_start() of what is known to lie in the window. */
COD_MUST_CHECK cod_status window_get_start(cod_window *window, int world_rank, size_t offset, void *target,
                                           size_t bytes, cod_request **request);
/** Gets that were given up and have not ended do so without their window. Under the lock. */
void long_gets_forget(const cod_window *window);

#endif
