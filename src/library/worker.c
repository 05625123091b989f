/* The thread of a handle: it codes what the group publishes, and decodes what peers have. */
#include "library/handle_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/**
 * What the ranks of a group tell each other in a step (exchange.h). This group has one rank, which hears it in its next
 * step, however many of the caller's steps that one stands for.
 */
typedef struct flags {
    bool told;
    double values[COD_EXCHANGE_FLAGS_MOST];
} flags;

/** The step after which the group publishes next. */
static int64_t next_publication(const codistill *handle, int64_t step)
{
    const int64_t spacing = cod_exchange_spacing(&handle->settings.exchange);
    return (step / spacing + 1) * spacing;
}

/**
 * Gives the caller room for the next snapshot: not before half of the time is over, because what was published last is
 * coded from there, a part in each step.
 */
static cod_status offer_snapshot(codistill *handle, int64_t step)
{
    const int64_t next = next_publication(handle, step), spacing = cod_exchange_spacing(&handle->settings.exchange);
    cod_exchange_part part;
    pthread_mutex_lock(&handle->lock);
    const bool mine = handle->owner == SNAPSHOT_OF_WORKER;
    pthread_mutex_unlock(&handle->lock);
    if (!mine || (step > 0 && next - step > spacing / 2) || !cod_exchange_publish_due(handle->exchange, next))
        return COD_OK;
    COD_TRY(cod_exchange_snapshot(handle->exchange, next, &part));
    pthread_mutex_lock(&handle->lock);
    handle->part = part;
    handle->snapshot_step = next;
    handle->owner = SNAPSHOT_OF_CALLER;
    pthread_mutex_unlock(&handle->lock);
    return COD_OK;
}

void worker_renew(codistill *handle)
{
    const int fragments = cod_exchange_fragments(&handle->settings.exchange);
    for (int p = 0; p < handle->peer_count; p++) {
        for (int f = 0; f < fragments; f++)
            cod_exchange_read_checkpoint(handle->exchange, p, f, &handle->peers[p].fragments[f].held);
        cod_exchange_read_peer(handle->exchange, p, &handle->peers[p].counters);
    }
    cod_exchange_read_counters(handle->exchange, &handle->counters);
}

/** What moves or ends values that the caller may read; with the lock. */
static cod_status take_over(codistill *handle, int64_t step, const flags *before)
{
    if (before->told)
        COD_TRY(cod_exchange_flags_in(handle->exchange, step, before->values));
    if (handle->owner == SNAPSHOT_OF_CALLER && handle->snapshot_step <= step)
        handle->owner = SNAPSHOT_OF_WORKER; /* its step is over */
    if (handle->owner == SNAPSHOT_FILLED) {
        handle->owner = SNAPSHOT_OF_WORKER;
        handle->published = handle->snapshot_step;
        COD_TRY(cod_exchange_publish(handle->exchange, handle->published, 0));
    }
    /* The exchange counts what is left out in the steps that it is told of. */
    handle->counted += step % cod_exchange_spacing(&handle->settings.exchange) == 0 && handle->published != step;
    worker_renew(handle);
    return COD_OK;
}

static void note_reached(codistill *handle, int64_t step)
{
    pthread_mutex_lock(&handle->lock);
    handle->reached = step;
    worker_renew(handle);
    pthread_cond_broadcast(&handle->rests);
    pthread_mutex_unlock(&handle->lock);
}

static cod_status one_step(codistill *handle, int64_t step, flags *said)
{
    pthread_mutex_lock(&handle->lock);
    const cod_status status = take_over(handle, step, said);
    pthread_mutex_unlock(&handle->lock);
    COD_TRY(status);
    COD_TRY(cod_exchange_advance(handle->exchange, step));
    cod_exchange_flags_out(handle->exchange, said->values);
    said->told = true;
    COD_TRY(offer_snapshot(handle, step));
    note_reached(handle, step);
    return COD_OK;
}

/** Waits for something to do. @return the step to reach; 0 = the end */
static int64_t wait_for_step(codistill *handle)
{
    pthread_mutex_lock(&handle->lock);
    while (!handle->ends && handle->newest == handle->reached)
        pthread_cond_wait(&handle->told, &handle->lock);
    const int64_t step = handle->newest > handle->reached ? handle->newest : 0;
    pthread_mutex_unlock(&handle->lock);
    return step;
}

static void fail(codistill *handle, cod_status status)
{
    pthread_mutex_lock(&handle->lock);
    handle->failure = status;
    snprintf(handle->failed, sizeof handle->failed, "%s", cod_error_message());
    pthread_cond_broadcast(&handle->rests);
    pthread_mutex_unlock(&handle->lock);
}

static void *work(void *context)
{
    codistill *handle = context;
    flags said = {.told = false};
    int64_t step;
    cod_status status = COD_OK;
    while (status == COD_OK && (step = wait_for_step(handle)) > 0)
        status = one_step(handle, step, &said);
    if (status != COD_OK)
        fail(handle, status);
    return NULL;
}

cod_status worker_start(codistill *handle)
{
    COD_TRY(offer_snapshot(handle, 0));
    worker_renew(handle);
    COD_REQUIRE_MEMORY(pthread_create(&handle->worker, NULL, work, handle) == 0 ? handle : NULL);
    handle->works = true;
    return COD_OK;
}

void worker_end(codistill *handle)
{
    if (!handle->works)
        return;
    pthread_mutex_lock(&handle->lock);
    handle->ends = true;
    pthread_cond_signal(&handle->told);
    pthread_mutex_unlock(&handle->lock);
    pthread_join(handle->worker, NULL);
    handle->works = false;
}

cod_status worker_wait(codistill *handle)
{
    pthread_mutex_lock(&handle->lock);
    while (handle->works && handle->reached != handle->newest && handle->failure == COD_OK)
        pthread_cond_wait(&handle->rests, &handle->lock);
    pthread_mutex_unlock(&handle->lock);
    return worker_failure(handle);
}

cod_status worker_failure(codistill *handle)
{
    pthread_mutex_lock(&handle->lock);
    const cod_status status = handle->failure != COD_OK ? cod_fail(handle->failure, "%s", handle->failed) : COD_OK;
    pthread_mutex_unlock(&handle->lock);
    return status;
}

void worker_restored(codistill *handle, int64_t step)
{
    pthread_mutex_lock(&handle->lock);
    handle->owner = SNAPSHOT_OF_WORKER; /* what was offered was for the first period */
    handle->published = step;
    worker_renew(handle);
    for (int p = 0; p < handle->peer_count; p++)
        for (int f = 0; f < cod_exchange_fragments(&handle->settings.exchange); f++)
            handle->peers[p].fragments[f].seen = handle->peers[p].fragments[f].held.version;
    handle->step = handle->newest = handle->reached = step;
    pthread_mutex_unlock(&handle->lock);
}
