/**
 * @file
 * Threads for the work of this module. They block all signals, which the main thread handles.
 */
#ifndef COD_DATA_THREADS_INTERNAL_H
#define COD_DATA_THREADS_INTERNAL_H

#include "core/status.h"

#include <pthread.h>

/** pthread_create() with every signal blocked in the new thread. */
COD_MUST_CHECK cod_status cod_thread_start(pthread_t *thread, void *(*run)(void *), void *context);

typedef cod_status (*cod_item_function)(void *context, size_t index);

/**
 * Calls `run` for 0 … count-1 in no order, on one thread per core that this process may use (at most 16), and waits.
 *
 * @return the first failure; no new items are started after it
 */
COD_MUST_CHECK cod_status cod_run_parallel(size_t count, cod_item_function run, void *context);

#endif
