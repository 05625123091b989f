/**
 * @file
 * What the files of comm share: the job, its lock, and requests.
 */
#ifndef COD_COMM_INTERNAL_H
#define COD_COMM_INTERNAL_H

#include "comm/comm.h"
#include "core/staging.h"

#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>

typedef struct group_levels group_levels; /* levels.c */
typedef struct group_direct group_direct; /* direct.c */
typedef struct window_long window_long;   /* window_get.c */
typedef struct job_life job_life;         /* life.c */

/** Tags of messages between any two ranks of the job, above COD_MESSAGE_TAG_MAX. */
enum { COD_TAG_ANSWER = 32766, COD_TAG_QUESTION = 32767 };

struct cod_comm {
    pthread_mutex_t lock; /**< held around every MPI call, and never while waiting */
    pthread_t progress;
    atomic_bool ending;
    atomic_int urgent; /**< reductions outstanding: the progress thread then looks more often */
    double teardown_timeout_s, progress_interval_ms;
    int rank, size, node_count, node_rank, node_size;
    int *node_of;                          /**< [size] */
    char (*names)[MPI_MAX_PROCESSOR_NAME]; /**< [node_count] */
    cod_group *world;
    char library[128];
    cod_comm_counters counters;
    struct cod_request *abandoned;
    struct cod_request *long_gets; /**< gets in pieces that are under way */
    group_levels *levels;          /**< of groups that average by node */
    group_direct *directs;         /**< of groups whose messages begin and end in a device's memory */
    job_life *life;                /**< of the other ranks */
};

/** One operation of one or several MPI requests. */
struct cod_request {
    cod_comm *comm;
    MPI_Request *parts;
    int part_count;
    bool urgent;
    void (*finish)(
        struct cod_request
            *request); /**< called once, without the lock, by the thread that sees the request done; may be NULL */
    void *context;
    size_t count;
    double scale;
    double *gathered; /**< what finish() reduces, freed with the request; may be NULL */
    int size, kind;   /**< of that reduction: its ranks and its cod_reduce_kind */
    void (*release)(void *context);
    void *release_context;
    struct cod_request *next;
    cod_status (*test)(struct cod_request *request,
                       bool *done); /**< called under the lock; NULL = the request is done when its parts are */
    group_levels *levels;           /**< of an average by node: the group's levels, its current level, */
    int way;                        /**< and the average started after it */
    struct cod_request *behind;
    cod_staged *staged;    /**< of an average of a device's memory: where its values are */
    window_long *long_get; /**< of a get in pieces; freed with the request */
    bool abandoned;
};

/** Finds the nodes that ranks run on. Collective on all ranks; before the progress thread starts. */
COD_MUST_CHECK cod_status comm_find_nodes(cod_comm *comm);

/** Moves averages by node on. Under the lock. */
void levels_progress(cod_comm *comm);
/** Advances gets in pieces. To be called under the lock. */
void long_gets_progress(cod_comm *comm);
/**
 * Advances averages of a device's memory, and lets the calling thread pass such memory to MPI. To be called under the
 * lock, before MPI.
 */
void direct_progress(cod_comm *comm);

/** To be called by the thread that trains, whose work is this rank's sign of life. */
COD_MUST_CHECK cod_status life_create(cod_comm *comm);
void life_destroy(cod_comm *comm);
/** Answers who asks whether this rank lives, and lets MPI move messages. Under the lock. */
void life_answer(cod_comm *comm);
/** cod_comm_wait_for_ranks() with teardown_timeout_s, which a failure names. */
COD_MUST_CHECK cod_status life_wait_at_end(cod_comm *comm, cod_request **request);
/** Waits for what other ranks have yet to answer; from then on this rank asks nothing, and waits without a limit. */
COD_MUST_CHECK cod_status life_settle(cod_comm *comm);
/** Waits until this rank's own answers are sent, when no rank asks any more. */
void life_end_answers(cod_comm *comm);

void comm_lock(cod_comm *comm);
void comm_unlock(cod_comm *comm);
/** Turns an MPI error code into a status, naming the call. */
COD_MUST_CHECK cod_status comm_check(int code, const char *call);
#define COD_MPI(call) comm_check((call), #call)

/** A request with room for `parts` MPI requests, all MPI_REQUEST_NULL. */
COD_MUST_CHECK cod_status comm_request_create(cod_comm *comm, int parts, cod_request **out);
void comm_request_free(cod_request *request);
/** Starts a barrier of `ranks`, which can be given up. Takes the lock. */
COD_MUST_CHECK cod_status comm_barrier_start(cod_comm *comm, MPI_Comm ranks, cod_request **out);
/** Ends a function that starts something: when it failed, frees the request and sets *request to NULL. */
COD_MUST_CHECK cod_status comm_request_started(cod_request **request, cod_status status);
/** Whether the request is done; if so, its finish() has run. Does not free the request. Takes the lock. */
COD_MUST_CHECK cod_status comm_request_poll(cod_request *request, bool *done);
/** Leaves a request to the progress thread, as cod_request_abandon() does. Under the lock. */
void comm_request_give_up(cod_request *request);
/** Frees requests that were given up and have ended. Under the lock. */
void comm_requests_sweep(cod_comm *comm);

#endif
