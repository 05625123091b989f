/**
 * @file
 * A handle, and who may touch what of it when.
 *
 * The exchange belongs to the handle's thread (worker.c), which gives it one step for each that the caller tells, and
 * fewer where the caller is faster. The caller's threads see of it only what `lock` guards: the row of what peers have,
 * which the thread renews, and values of versions in that row, which the thread neither writes nor frees while it does
 * not hold the lock. The snapshot has one owner at a time.
 */
#ifndef COD_LIBRARY_HANDLE_INTERNAL_H
#define COD_LIBRARY_HANDLE_INTERNAL_H

#include "exchange/merge.h"
#include "library/settings_internal.h"
#include "library/tensors_internal.h"

#include <pthread.h>
#include <sys/types.h>

/** Who may write the snapshot. */
typedef enum snapshot_owner {
    SNAPSHOT_OF_WORKER, /**< it is being coded, or not made yet */
    SNAPSHOT_OF_CALLER, /**< free: the caller may fill it when the step comes that it is for */
    SNAPSHOT_FILLED     /**< with a step's weights: the worker takes it */
} snapshot_owner;

/** A fragment of a peer's model. */
typedef struct peer_fragment {
    cod_exchange_checkpoint held;
    uint64_t seen;       /**< version that codistill_step() has told */
    cod_merge_turn turn; /**< what was merged last */
} peer_fragment;

typedef struct handle_peer {
    int group;
    peer_fragment *fragments; /**< [fragments of the settings] */
    cod_exchange_peer_counters counters;
    uint64_t merges;
} handle_peer;

struct codistill {
    pid_t process; /**< that opened it */
    library_settings settings;
    library_tensors tensors;
    cod_comm *comm;
    cod_group *group;
    cod_exchange *exchange; /**< the worker's, from its start to its end */
    int peer_count;
    double share; /**< of a peer in a merge */
    uint64_t memory_bytes;
    double caller_s;
    int64_t step; /**< told last */
    char error[1024];

    pthread_mutex_t calls; /**< of the caller's threads: one call at a time */
    pthread_t worker;
    bool works; /**< there is a worker */
    pthread_mutex_t lock;
    pthread_cond_t told;  /**< for the worker: a step, a snapshot, the end */
    pthread_cond_t rests; /**< for the caller: the worker has done a step */
    /* Guarded by the lock. */
    int64_t newest;  /**< step that the worker is to reach */
    int64_t reached; /**< step that it has done last; while that is `newest` it rests */
    bool ends;       /**< the worker ends when it rests */
    snapshot_owner owner;
    cod_exchange_part part; /**< the snapshot */
    int64_t snapshot_step;  /**< that it is for */
    int64_t published;      /**< step that was published last */
    uint64_t left_out;      /**< publications that were due while the snapshot was the worker's */
    uint64_t counted;       /**< of them, those that the exchange has counted, too */
    handle_peer *peers;     /**< [peer_count] */
    cod_exchange_counters counters;
    cod_status failure; /**< of the worker, which has ended; its reason is `failed` */
    char failed[1024];
};

/* worker.c */

/** Prepares the first snapshot and the row of peers, and starts the thread. */
COD_MUST_CHECK cod_status worker_start(codistill *handle);
/** Ends the thread when its step is done. */
void worker_end(codistill *handle);
/** Waits until it rests: the exchange is then the caller's, until it tells the next step. */
COD_MUST_CHECK cod_status worker_wait(codistill *handle);
/** The reason why the thread has ended early. */
COD_MUST_CHECK cod_status worker_failure(codistill *handle);
/** Renews the row of peers; with the lock, by whom the exchange belongs to. */
void worker_renew(codistill *handle);
/** The exchange has been restored as it was after `step`; while the worker rests. */
void worker_restored(codistill *handle, int64_t step);

#endif
