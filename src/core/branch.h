/**
 * @file
 * A branch: a queue beside the device's default queue, for work that may run meanwhile. On backends without queues it
 * does nothing: the work is done when its call returns.
 */
#ifndef COD_CORE_BRANCH_H
#define COD_CORE_BRANCH_H

#include "core/backend.h"

/** Zeroed = no branch: its queue is the default queue. */
typedef struct cod_branch {
    const cod_backend *backend;
    cod_queue *queue; /**< for work of the branch */
    cod_event *forked, *joined;
} cod_branch;

/** Call cod_branch_clear() also after a failure. Backend and device are borrowed. */
COD_MUST_CHECK cod_status cod_branch_init(cod_branch *branch, const cod_backend *backend, cod_device *device);
/** Waits for its work. */
void cod_branch_clear(cod_branch *branch);

/** Work of the branch that is queued later begins after what the default queue holds now. */
COD_MUST_CHECK cod_status cod_branch_fork(cod_branch *branch);
/**
 * Marks the end of the branch's work so far, for whoever waits for it: cod_queue_wait(), cod_program_await().
 *
 * @param[out] joined  the mark, borrowed; until the next join
 */
COD_MUST_CHECK cod_status cod_branch_join(cod_branch *branch, cod_event **joined);
/** The default queue's later work waits for the branch's work so far. */
COD_MUST_CHECK cod_status cod_branch_wait(cod_branch *branch);

#endif
