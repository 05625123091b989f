#include "core/queue.h"

#include "core/log.h"

#include <stdio.h>

bool cod_backend_runs_at_once(const cod_backend *backend)
{
    return backend->queue_create == NULL;
}

cod_status cod_queue_create(const cod_backend *backend, cod_device *device, cod_queue **queue)
{
    *queue = NULL;
    return backend->queue_create != NULL ? backend->queue_create(device, queue) : COD_OK;
}

void cod_queue_destroy(const cod_backend *backend, cod_queue *queue)
{
    if (queue != NULL)
        backend->queue_destroy(queue);
}

cod_status cod_queue_wait(const cod_backend *backend, cod_queue *queue, cod_event *event)
{
    return event != NULL ? backend->queue_wait(queue, event) : COD_OK;
}

cod_status cod_queue_finish(const cod_backend *backend, cod_device *device, cod_queue *queue)
{
    cod_event *done;
    COD_TRY(cod_event_create(backend, device, &done));
    cod_status status = cod_event_record(backend, done, queue);
    COD_THEN(status, cod_event_wait(backend, done));
    cod_event_destroy(backend, done);
    return status;
}

cod_status cod_event_create(const cod_backend *backend, cod_device *device, cod_event **event)
{
    *event = NULL;
    return backend->event_create != NULL ? backend->event_create(device, event) : COD_OK;
}

void cod_event_destroy(const cod_backend *backend, cod_event *event)
{
    if (event != NULL)
        backend->event_destroy(event);
}

cod_status cod_event_record(const cod_backend *backend, cod_event *event, cod_queue *queue)
{
    return event != NULL ? backend->event_record(event, queue) : COD_OK;
}

cod_status cod_event_query(const cod_backend *backend, cod_event *event, bool *reached)
{
    *reached = true;
    return event != NULL ? backend->event_query(event, reached) : COD_OK;
}

cod_status cod_event_wait(const cod_backend *backend, cod_event *event)
{
    return event != NULL ? backend->event_wait(event) : COD_OK;
}

bool cod_backend_records(const cod_backend *backend)
{
    return backend->capture_begin != NULL;
}

/** Behind capture_begin(). */
static cod_status record(const cod_backend *backend, cod_device *device, cod_queue *queue, cod_queue_work work,
                         void *context, cod_recording **out)
{
    cod_recording *recording = NULL;
    char first[512];
    const cod_status status = work(context);
    snprintf(first, sizeof first, "%s", cod_error_message());
    const cod_status ended = backend->capture_end(device, queue, &recording);
    if (status != COD_OK || ended != COD_OK) {
        cod_recording_destroy(backend, recording);
        return status != COD_OK ? cod_fail(status, "%s", first) : ended;
    }
    *out = recording;
    return COD_OK;
}

cod_status cod_queue_replay(const cod_backend *backend, cod_device *device, cod_queue *queue, cod_queue_work work,
                            void *context, cod_replay *replay)
{
    enum { MOST_FAILURES = 3 };
    if (!cod_backend_records(backend))
        return work(context);
    if (replay->recording == NULL) {
        cod_status status = backend->capture_begin(device, queue);
        if (status == COD_ERR_UNSUPPORTED)
            return work(context);
        COD_THEN(status, record(backend, device, queue, work, context, &replay->recording));
        if (status == COD_ERR_MEMORY || (status != COD_OK && ++replay->failures == MOST_FAILURES))
            return status;
        if (status != COD_OK) {
            cod_log_warn("work of a step cannot be recorded, and is queued by itself: %s", cod_error_message());
            return work(context);
        }
    }
    return backend->recording_run(replay->recording, queue);
}

void cod_replay_clear(const cod_backend *backend, cod_replay *replay)
{
    cod_recording_destroy(backend, replay->recording);
    *replay = (cod_replay){0};
}

void cod_recording_destroy(const cod_backend *backend, cod_recording *recording)
{
    if (recording != NULL)
        backend->recording_destroy(recording);
}
