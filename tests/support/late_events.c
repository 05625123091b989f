#include "support/late_internal.h"

#include <stdlib.h>

static cod_status queue_create(cod_device *device, cod_queue **out)
{
    pthread_mutex_lock(&device->lock);
    const cod_status status = late_queue_open(device, out);
    pthread_mutex_unlock(&device->lock);
    return status;
}

static void queue_destroy(cod_queue *queue)
{
    if (queue != NULL)
        late_queue_close(queue);
}

static cod_status event_create(cod_device *device, cod_event **out)
{
    cod_event *event = late_new(sizeof *event);
    *event = (cod_event){.device = device, .slot = -1};
    *out = event;
    return COD_OK;
}

static void event_destroy(cod_event *event)
{
    free(event);
}

static cod_status record_locked(cod_event *event, const cod_queue *queue)
{
    COD_REQUIRE(queue->capture == NULL, "late: event_record() within a capture");
    event->slot = queue->slot;
    event->clock = queue->clock;
    return COD_OK;
}

static cod_status event_record(cod_event *event, cod_queue *queue)
{
    cod_device *device = event->device;
    pthread_mutex_lock(&device->lock);
    const cod_status status = record_locked(event, late_queue_of(device, queue));
    pthread_mutex_unlock(&device->lock);
    return status;
}

static bool is_reached(const cod_event *event)
{
    return event->slot < 0 || event->device->done[event->slot] >= event->clock.times[event->slot];
}

static cod_status query_locked(const cod_event *event, bool *reached)
{
    *reached = is_reached(event);
    if (*reached)
        late_host_sees(event->device, &event->clock);
    return late_failure(event->device);
}

static cod_status event_query(cod_event *event, bool *reached)
{
    pthread_mutex_lock(&event->device->lock);
    const cod_status status = query_locked(event, reached);
    pthread_mutex_unlock(&event->device->lock);
    return status;
}

static cod_status event_wait(cod_event *event)
{
    cod_device *device = event->device;
    COD_TRY(late_outside_queues("event_wait()"));
    pthread_mutex_lock(&device->lock);
    const int slot = event->slot;
    const late_clock clock = event->clock; /* the event may be recorded again while this thread waits */
    if (slot >= 0 && late_wait(device, slot, clock.times[slot]))
        late_crossing();
    late_host_sees(device, &clock);
    const cod_status status = late_failure(device);
    pthread_mutex_unlock(&device->lock);
    return status;
}

static cod_status wait_locked(cod_queue *queue, const cod_event *event)
{
    COD_REQUIRE(queue->capture == NULL, "late: queue_wait() within a capture");
    if (event->slot < 0)
        return COD_OK;
    late_work *work = late_new(sizeof *work);
    work->kind = LATE_WAIT;
    work->wait_slot = event->slot;
    work->wait_time = event->clock.times[event->slot];
    late_queue_tick(queue);
    late_clock_join(&queue->clock, &event->clock);
    late_queue_add(queue, work);
    return COD_OK;
}

static cod_status queue_wait(cod_queue *queue, cod_event *event)
{
    cod_device *device = event->device;
    pthread_mutex_lock(&device->lock);
    const cod_status status = wait_locked(late_queue_of(device, queue), event);
    pthread_mutex_unlock(&device->lock);
    return status;
}

static cod_status capture_begin(cod_device *device, cod_queue *queue)
{
    pthread_mutex_lock(&device->lock);
    const cod_status status = late_capture_begin(late_queue_of(device, queue));
    pthread_mutex_unlock(&device->lock);
    return status;
}

static cod_status capture_end(cod_device *device, cod_queue *queue, cod_recording **out)
{
    pthread_mutex_lock(&device->lock);
    const cod_status status = late_capture_end(late_queue_of(device, queue), out);
    pthread_mutex_unlock(&device->lock);
    return status;
}

static cod_status recording_run(cod_recording *recording, cod_queue *queue)
{
    cod_device *device = recording->device;
    COD_TRY(late_outside_queues("recording_run()"));
    pthread_mutex_lock(&device->lock);
    const cod_status status = late_recording_run(recording, late_queue_of(device, queue));
    pthread_mutex_unlock(&device->lock);
    return status;
}

static void recording_destroy(cod_recording *recording)
{
    if (recording == NULL)
        return;
    cod_device *device = recording->device;
    pthread_mutex_lock(&device->lock);
    late_recording_destroy(recording);
    pthread_mutex_unlock(&device->lock);
}

void late_queues_offer(cod_backend *backend)
{
    backend->queue_create = queue_create;
    backend->queue_destroy = queue_destroy;
    backend->event_create = event_create;
    backend->event_record = event_record;
    backend->event_query = event_query;
    backend->event_wait = event_wait;
    backend->queue_wait = queue_wait;
    backend->event_destroy = event_destroy;
    backend->capture_begin = capture_begin;
    backend->capture_end = capture_end;
    backend->recording_run = recording_run;
    backend->recording_destroy = recording_destroy;
}
