/**
 * @file
 * Which processors each rank computes on, so that ranks of one machine do not share cores.
 *
 * If the launcher has bound ranks to different processors, that binding stays. Ranks that may all run on the same
 * processors divide these among themselves. Only the calling thread and threads that it starts later are confined. The
 * progress thread and MPI's own threads, which start earlier, work for microseconds at a time and may run anywhere.
 */
#ifndef COD_COMM_BINDING_H
#define COD_COMM_BINDING_H

#include "comm/comm.h"
#include "core/processors.h"

typedef enum cod_bind_mode { COD_BIND_AUTO, COD_BIND_NONE } cod_bind_mode;

/** The processors with which a rank was started. */
typedef struct cod_seat {
    uint64_t machine;     /**< equal for all ranks on one running kernel, even if their host names differ */
    cod_processors given; /**< processors on which it may run */
    /** processors on which its launcher may run, if the launcher has bound the rank; otherwise empty */
    cod_processors wider;
} cod_seat;

typedef enum cod_binding_kind {
    COD_BINDING_KEPT,    /**< no other rank runs on its processors */
    COD_BINDING_DIVIDED, /**< it has a part of processors that several ranks were given */
    COD_BINDING_CROWDED, /**< it shares processors with other ranks: too few to divide, or sets that overlap in part */
} cod_binding_kind;

enum { COD_BINDING_TOLD = 512 };

/** Where a rank computes. */
typedef struct cod_binding {
    cod_binding_kind kind;
    bool widened;       /**< the launcher's own processors were divided, because it had put ranks on too few */
    int machine_ranks;  /**< ranks of the machine */
    cod_processors set; /**< where to compute */
    int threads;        /**< number with which it computes fastest: its cores, or its part of shared cores */
    /** a line for people about how the ranks of a machine share it; "" = not on this rank, or there is none */
    char told[COD_BINDING_TOLD];
} cod_binding;

/**
 * Decides where one rank computes. All ranks decide alike, because their seats are equal.
 *
 * @param seats   [count] of all ranks of the job
 * @param quota   processor time that the ranks of this machine may use together, in processors; INT_MAX = no limit
 * @param folder  COD_TOPOLOGY_FOLDER
 */
cod_binding cod_binding_decide(const cod_seat *seats, int count, int rank, int quota, const char *folder);

/**
 * Decides for this rank and confines the calling thread, unless `mode` is COD_BIND_NONE; to be called before computing
 * threads start. Collective on all ranks. One rank of each machine warns if ranks share processors although others are
 * free.
 *
 * @param[out] out  under COD_BIND_NONE: `set` as given
 */
COD_MUST_CHECK cod_status cod_comm_bind(cod_comm *comm, cod_bind_mode mode, cod_binding *out);

#endif
