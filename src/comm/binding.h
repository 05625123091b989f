/**
 * @file
 * Which processors each rank computes on, so that ranks of one machine do not share cores.
 *
 * A launcher that bound ranks apart is right. Ranks that were left, or bound, to the same processors divide these among
 * themselves. Only the calling thread and those that it starts later are confined: the progress thread and MPI's own, started
 * before, work for microseconds and go wherever there is room.
 */
#ifndef COD_COMM_BINDING_H
#define COD_COMM_BINDING_H

#include "comm/comm.h"
#include "core/processors.h"

typedef enum cod_bind_mode { COD_BIND_AUTO, COD_BIND_NONE } cod_bind_mode;

/** What a rank was started with. */
typedef struct cod_seat {
    uint64_t machine;     /**< equal for ranks of one running kernel, whatever their host names */
    cod_processors given; /**< what it may run on */
    cod_processors wider; /**< what its launcher may run on, when the launcher has bound the rank; else empty */
} cod_seat;

typedef enum cod_binding_kind {
    COD_BINDING_KEPT,    /**< no other rank on its processors */
    COD_BINDING_DIVIDED, /**< a part of processors that several ranks were given */
    COD_BINDING_CROWDED, /**< it shares processors with other ranks: too few to divide, or sets that overlap in part */
} cod_binding_kind;

/** Where a rank computes. */
typedef struct cod_binding {
    cod_binding_kind kind;
    bool widened;       /**< the launcher's own processors were divided: it had put ranks on too few */
    int machine_ranks;  /**< ranks of the machine */
    cod_processors set; /**< where to compute */
    int threads;        /**< with which it computes fastest: its cores, or its part of those that it shares */
} cod_binding;

/**
 * Decides for one rank; all decide alike from equal seats.
 *
 * @param seats   [count] of all ranks of the job
 * @param quota   processors' worth of time that the ranks of this machine have together; INT_MAX = no limit
 * @param folder  COD_TOPOLOGY_FOLDER
 */
cod_binding cod_binding_decide(const cod_seat *seats, int count, int rank, int quota, const char *folder);

/**
 * Decides for this rank and confines the calling thread, unless `mode` is COD_BIND_NONE; to be called before computing threads
 * start. Collective on all ranks. One rank of a machine warns where ranks share processors though the machine has others.
 *
 * @param[out] out  under COD_BIND_NONE: `set` as given
 */
COD_MUST_CHECK cod_status cod_comm_bind(cod_comm *comm, cod_bind_mode mode, cod_binding *out);

#endif
