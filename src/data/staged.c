#include "data/staged.h"

#include "data/threads_internal.h"

#include <stdio.h>
#include <stdlib.h>

enum { AHEAD = 2, MESSAGE_BYTES = 1024 };

typedef enum stage { WAITING, PREPARED, DONE } stage;

typedef struct run {
    const cod_staged *work;
    size_t count, ahead;
    pthread_mutex_t mutex; /**< guards what follows */
    pthread_cond_t changed;
    size_t to_prepare, computed, to_finish; /**< items before these are begun, computed, begun to be finished */
    size_t finished;                        /**< how many are */
    stage *stages;                          /**< [count] */
    size_t failed;                          /**< the first item that failed; `count` = none */
    cod_status status;
    char message[MESSAGE_BYTES];
} run;

/** With the mutex held. */
static void note(run *r, size_t item, cod_status status, stage reached)
{
    r->stages[item] = reached;
    r->finished += reached == DONE;
    if (status != COD_OK && item < r->failed) {
        r->failed = item;
        r->status = status;
        snprintf(r->message, sizeof r->message, "%s", cod_error_message());
    }
    pthread_cond_broadcast(&r->changed);
}

/** Does one piece of work of other threads, if there is any. With the mutex held, which is released meanwhile. */
static bool help(run *r)
{
    const bool finishes = r->to_finish < r->computed;
    if (!finishes && (r->to_prepare == r->count || r->to_prepare >= r->finished + r->ahead))
        return false;
    const size_t item = finishes ? r->to_finish++ : r->to_prepare++;
    pthread_mutex_unlock(&r->mutex);
    const cod_status status =
        finishes ? r->work->finish(r->work->context, item) : r->work->prepare(r->work->context, item);
    pthread_mutex_lock(&r->mutex);
    note(r, item, status, finishes ? DONE : PREPARED);
    return true;
}

static void *help_to_the_end(void *context)
{
    run *r = context;
    pthread_mutex_lock(&r->mutex);
    while (r->status == COD_OK && r->to_finish < r->count)
        if (!help(r))
            pthread_cond_wait(&r->changed, &r->mutex);
    pthread_mutex_unlock(&r->mutex);
    return NULL;
}

/**
 * Waits until an item has reached a stage, or for a failure; works meanwhile if no other thread does. With the mutex
 * held.
 */
static bool await(run *r, size_t item, stage wanted, bool alone)
{
    while (r->status == COD_OK && r->stages[item] < wanted)
        if (!alone || !help(r))
            pthread_cond_wait(&r->changed, &r->mutex);
    return r->status == COD_OK;
}

/** Tells of the items from `told` on that are done. With the mutex held, which is released meanwhile. */
static void tell(run *r, size_t *told)
{
    for (; *told < r->count && r->stages[*told] == DONE && r->status == COD_OK; ++*told) {
        pthread_mutex_unlock(&r->mutex);
        if (r->work->done != NULL)
            r->work->done(r->work->context, *told);
        pthread_mutex_lock(&r->mutex);
    }
}

/** The calling thread's part. With the mutex held. */
static void compute_all(run *r, bool alone)
{
    size_t told = 0;
    for (size_t i = 0; i < r->count && await(r, i, PREPARED, alone); i++) {
        pthread_mutex_unlock(&r->mutex);
        const cod_status status = r->work->compute(r->work->context, i);
        pthread_mutex_lock(&r->mutex);
        r->computed = i + 1;
        note(r, i, status, PREPARED);
        if (alone && !await(r, i, DONE, alone))
            return;
        tell(r, &told);
    }
    while (told < r->count && await(r, told, DONE, alone))
        tell(r, &told);
}

cod_status cod_staged_run(const cod_staged *work, size_t count, int threads)
{
    if (count == 0)
        return COD_OK;
    int wanted = threads < COD_STAGED_THREADS_MAX ? threads : COD_STAGED_THREADS_MAX, started = 0;
    wanted = (size_t)wanted < count ? wanted : (int)count;
    run r = {.work = work,
             .count = count,
             .ahead = wanted > 0 ? (size_t)wanted + AHEAD : 1,
             .failed = count,
             .mutex = PTHREAD_MUTEX_INITIALIZER,
             .changed = PTHREAD_COND_INITIALIZER,
             .stages = calloc(count, sizeof *r.stages)};
    pthread_t helpers[COD_STAGED_THREADS_MAX];
    COD_REQUIRE_MEMORY(r.stages);
    while (started < wanted && cod_thread_start(&helpers[started], help_to_the_end, &r) == COD_OK)
        started++;
    pthread_mutex_lock(&r.mutex);
    compute_all(&r, started == 0);
    pthread_mutex_unlock(&r.mutex);
    while (started > 0)
        pthread_join(helpers[--started], NULL);
    pthread_mutex_destroy(&r.mutex);
    pthread_cond_destroy(&r.changed);
    free(r.stages);
    return r.status == COD_OK ? COD_OK : cod_fail(r.status, "%s", r.message);
}
