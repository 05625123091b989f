/**
 * @file
 * The message layer: this process as one rank of a job, its progress thread, and how the job begins and ends.
 *
 * comm is the only module that calls MPI. Every MPI call is made under one lock, which is never held while computing
 * or while waiting for another rank: a wait tests, unlocks, yields and tests again. One progress thread a rank moves
 * messages while the caller computes, because Open MPI and MPICH over TCP move nothing on their own (DESIGN.md 5).
 *
 * Functions may be called from any thread; collective functions must be called in the same order on all ranks. A
 * function waits for other ranks only if its description says so.
 */
#ifndef COD_COMM_COMM_H
#define COD_COMM_COMM_H

#include "core/option.h"
#include "core/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct cod_comm cod_comm;   /**< the job and this rank's place in it */
typedef struct cod_group cod_group; /**< ranks that train together; comm/group.h */

/** Section "cluster" of a config. comm itself reads the last two fields; the rest says which groups to make. */
typedef struct cod_comm_options {
    const char *groups; /**< a number of groups, by_node, or the caller's list of them, as text */
    int64_t ranks_per_group;
    int device; /**< cod_device_kind */
    int64_t threads;
    int bind; /**< cod_bind_mode */
    double teardown_timeout_s;
    double progress_interval_ms;
} cod_comm_options;

extern const cod_option_table cod_comm_option_table;

/** What this rank has moved since the start. */
typedef struct cod_comm_counters {
    /**
     * Bytes sent by collectives inside groups, without those over all ranks: 2·S·(n-1)/n for an average of S bytes over
     * n ranks.
     */
    uint64_t group_bytes;
    /** the same for groups of cod_group_create_across(): bytes sent, and received, between groups */
    uint64_t across_bytes;
    uint64_t pulled_bytes;  /**< received by one-sided gets */
    uint64_t message_bytes; /**< sent point to point */
    double progress_s;      /**< processor time of the progress thread */
    uint64_t polls;         /**< rounds of the progress thread */
} cod_comm_counters;

/**
 * Number of ranks that the launcher's environment announces (mpirun, mpiexec, srun), 1 if it does not announce how many
 * there are (prterun), or 0 if no launcher started this process. Needs no cod_comm_init().
 */
int cod_comm_launched_ranks(void);

/**
 * Joins the job: sets what the installed MPI needs, starts MPI and the progress thread. Collective on all ranks; may be
 * called once in a process.
 *
 * Over Ethernet, Open MPI 4 makes windows only with its component osc/pt2pt, which Debian switches off. If ranks run on
 * several hosts and the user has not chosen a component, this function sets OMPI_MCA_osc before MPI starts.
 *
 * @param[in]  options  NULL for the defaults; cod_comm_configure() may follow when the config is known
 * @param[out] out      new; end it with cod_comm_finalize()
 * @return COD_ERR_UNSUPPORTED when the world has one rank although the launcher promised more, because launcher and
 *         library belong to different MPIs (the message names both and the right command); or when the MPI lacks
 *         MPI_THREAD_SERIALIZED
 */
COD_MUST_CHECK cod_status cod_comm_init(const cod_comm_options *options, cod_comm **out);

/** Takes over teardown_timeout_s and progress_interval_ms. */
void cod_comm_configure(cod_comm *comm, const cod_comm_options *options);

/**
 * Ends the job. Collective on all ranks: waits, progressing, until all have come here, or one has shown no
 * sign of life for teardown_timeout_s (cod_comm_wait_for_ranks()). Destroy windows and groups before.
 *
 * @param comm  taken; NULL does nothing
 * @return COD_ERR_INTERRUPTED if some ranks did not come: everything is then left as it is, because MPI cannot be ended
 *         without them, and `tools` ends the process by cod_comm_abort()
 */
COD_MUST_CHECK cod_status cod_comm_finalize(cod_comm *comm);

/** Ends all ranks of the job at once with this exit code; for `tools` only. Does not return. */
_Noreturn void cod_comm_abort(int exit_code);

int cod_comm_rank(const cod_comm *comm);
int cod_comm_size(const cod_comm *comm);
/** Library and version in one line, such as "Open MPI v4.1.4". */
const char *cod_comm_library(const cod_comm *comm);
/** The same before cod_comm_init(). */
void cod_comm_describe_library(char *text, size_t bytes);
/**
 * Whether MPI takes addresses in a GPU's memory: says that it is CUDA-aware.
 *
 * @return COD_ERR_UNSUPPORTED with the reason where it does not, or has no way to say so
 */
COD_MUST_CHECK cod_status cod_comm_takes_devices(cod_comm *comm);

/**
 * All ranks as one group, for start-up, the end, and strategies whose groups wait for each other anyway. With other
 * strategies, nothing may wait across groups while training runs. Borrowed.
 */
cod_group *cod_comm_world(cod_comm *comm);

int cod_comm_node_count(const cod_comm *comm);
/** Index of the node (host) that a rank runs on; nodes are counted in order of their lowest rank. */
int cod_comm_node_of(const cod_comm *comm, int world_rank);
/** Host name of a node. */
const char *cod_comm_node_name(const cod_comm *comm, int node);
/** This rank's place among the ranks of its node, and their number. */
int cod_comm_node_rank(const cod_comm *comm);
int cod_comm_node_size(const cod_comm *comm);

void cod_comm_read_counters(cod_comm *comm, cod_comm_counters *out);

/** One outstanding operation; the progress thread moves it. */
typedef struct cod_request cod_request;

/**
 * Whether the request is done; never blocks. If it is done or has failed, it is freed and *request becomes NULL. A NULL
 * request is done.
 */
COD_MUST_CHECK cod_status cod_request_test(cod_request **request, bool *done);

/**
 * Waits until the request is done, then frees it and sets *request to NULL. A NULL request is done already.
 *
 * @param timeout_s  INFINITY waits for ever
 * @return COD_ERR_INTERRUPTED when the time is over; the request lives on
 */
COD_MUST_CHECK cod_status cod_request_wait(cod_request **request, double timeout_s);

/**
 * Waits for a request that other ranks may be late to join, as cod_request_wait() does, but as long as all of them
 * live: a rank shows no sign of life when its progress thread does not answer (it is stopped, or its machine is gone),
 * or while the thread that joined the job uses no processor time (it hangs). For that thread only.
 *
 * @param silence_s  how long a rank may show no sign of life
 * @return COD_ERR_INTERRUPTED, naming the rank, when one has shown none for so long; the request lives on
 */
COD_MUST_CHECK cod_status cod_comm_wait_for_ranks(cod_comm *comm, cod_request **request, double silence_s);

/** A sign of life of this rank, while it waits for what takes no processor time. Any thread. */
void cod_comm_note_life(cod_comm *comm);

/**
 * To be called between two tests of something that is not done yet. `looks` counts the calls, from zero: the first
 * calls only let other threads run, later ones sleep.
 */
void cod_comm_pause(unsigned *looks);

/**
 * Abandons a request and sets *request to NULL. The request's memory stays in use until the progress thread sees it
 * done and calls release(context), which may not call comm. If the request never ends, release is never called.
 * `release` may be NULL.
 */
void cod_request_abandon(cod_request **request, void (*release)(void *context), void *context);

#endif
