#include "support/late_internal.h"

#include "core/memory.h"
#include "core/rng.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

/** Whether this thread is a queue's. */
static _Thread_local bool inside_queue;

cod_status late_outside_queues(const char *function)
{
    if (!inside_queue)
        return COD_OK;
    late_violation("%s was called from within queued work", function);
    return cod_fail(COD_ERR_BACKEND, "late: %s was called from within queued work", function);
}

cod_status late_failure(const cod_device *device)
{
    return device->failure == COD_OK ? COD_OK : cod_fail(device->failure, "queued work: %s", device->failure_text);
}

static void dawdle(const cod_queue *queue, uint64_t time)
{
    enum { SHARES = 16, PUNCTUAL = 8, HELD_BACK = 15, HOLD_FACTOR = 8 };
    const unsigned longest_us = late_delay();
    const uint32_t ordinal = (uint32_t)queue->device->ordinal, slot = (uint32_t)queue->slot;
    cod_rng rng = cod_rng_open(late_seed(), ordinal, slot, time, COD_RNG_TEST, 0);
    const uint32_t share = cod_rng_below(&rng, SHARES), us = cod_rng_below(&rng, longest_us + 1);
    if (longest_us == 0 || share < PUNCTUAL)
        return;
    const struct timespec pause = {.tv_nsec = 1000L * us * (share == HELD_BACK ? HOLD_FACTOR : 1)};
    nanosleep(&pause, NULL);
}

static cod_status run_plan(const late_work *work)
{
    const cod_plan *plan = work->plan;
    const char *kind = cod_op_kind_name(plan->ops[0].kind), *name = plan->ops[0].name != NULL ? plan->ops[0].name : "";
    if (work->recorded && late_place(plan->inner) != work->place)
        late_violation("%s '%s': the plan's own memory moved after it was recorded", kind, name);
    const size_t allocated = cod_aligned_alloc_count();
    const cod_status status = late_inner->plan_run(plan->inner, NULL);
    if (cod_aligned_alloc_count() != allocated)
        late_violation("%s '%s': plan_run() allocates: a scratch that grew", kind, name);
    return status;
}

static cod_status move_bytes(cod_device *device, const late_work *work)
{
    const late_range *range = &work->range;
    const bool from_device = range->source != NULL && !range->source->pinned;
    if (work->kind == LATE_DOWNLOAD)
        return late_inner->download(device->inner, NULL, work->out, range->source->inner, range->source_offset,
                                    range->bytes);
    if (work->delivery != NULL && from_device)
        return late_inner->download(device->inner, NULL, work->delivery->data, range->source->inner,
                                    range->source_offset, range->bytes);
    if (work->delivery != NULL) {
        memcpy(work->delivery->data, work->staged, range->bytes);
        return COD_OK;
    }
    if (from_device)
        return late_inner->copy(device->inner, NULL, range->target->inner, range->target_offset, range->source->inner,
                                range->source_offset, range->bytes);
    return late_inner->upload(device->inner, NULL, range->target->inner, range->target_offset, work->staged,
                              range->bytes);
}

static cod_status execute(cod_device *device, const late_work *work)
{
    if (work->kind == LATE_WAIT)
        return COD_OK;
    pthread_mutex_lock(&device->inner_lock);
    const cod_status status = work->kind == LATE_PREPARE
                                  ? late_inner->plans_prepare(device->inner, &work->plan->inner, 1, NULL)
                              : work->kind == LATE_RUN ? run_plan(work)
                                                       : move_bytes(device, work);
    pthread_mutex_unlock(&device->inner_lock);
    return status;
}

/** Puts what earlier copies wrote, but the host has not seen yet, over the bytes of a pinned source. */
static void lay_over(late_work *work)
{
    const size_t begin = work->range.source_offset, end = begin + work->range.bytes;
    for (size_t i = 0; i < work->overlay_count; i++) {
        const late_delivery *d = work->overlays[i];
        const size_t first = d->offset > begin ? d->offset : begin;
        const size_t last = d->offset + d->bytes < end ? d->offset + d->bytes : end;
        if (d->filled)
            memcpy(work->staged + (first - begin), d->data + (first - d->offset), last - first);
    }
}

static void work_free(late_work *work)
{
    for (size_t i = 0; i < work->overlay_count; i++)
        late_delivery_drop(work->overlays[i]);
    late_delivery_drop(work->delivery);
    free(work->overlays);
    free(work->staged);
    free(work);
}

/** Takes the first work of the queue, which stays there until it is done. Unlocks while it runs. */
static void do_first(cod_queue *queue)
{
    cod_device *device = queue->device;
    late_work *work = queue->first;
    while (work->kind == LATE_WAIT && device->done[work->wait_slot] < work->wait_time)
        pthread_cond_wait(&device->changed, &device->lock);
    lay_over(work);
    const bool failed = device->failure != COD_OK;
    const uint64_t time = device->done[queue->slot] + 1;
    pthread_mutex_unlock(&device->lock);
    dawdle(queue, time);
    const cod_status status = failed ? COD_OK : execute(device, work);
    pthread_mutex_lock(&device->lock);
    if (status != COD_OK && device->failure == COD_OK) {
        device->failure = status;
        snprintf(device->failure_text, sizeof device->failure_text, "%s", cod_error_message());
    }
    if (work->delivery != NULL)
        work->delivery->filled = true;
    queue->first = work->next;
    if (queue->first == NULL)
        queue->last = &queue->first;
    device->done[queue->slot] = time;
    work_free(work);
    pthread_cond_broadcast(&device->changed);
}

static void *queue_main(void *context)
{
    cod_queue *queue = context;
    cod_device *device = queue->device;
    inside_queue = true;
    prctl(PR_SET_TIMERSLACK, 1000UL); /* nanoseconds; the default of 50 us would be longer than most delays */
    pthread_mutex_lock(&device->lock);
    while (!queue->stop) {
        if (queue->first != NULL && !device->held)
            do_first(queue);
        else
            pthread_cond_wait(&device->changed, &device->lock);
    }
    pthread_mutex_unlock(&device->lock);
    return NULL;
}

cod_status late_queue_open(cod_device *device, cod_queue **out)
{
    int slot = 0;
    while (slot < LATE_SLOTS && device->queues[slot] != NULL)
        slot++;
    COD_REQUIRE(slot < LATE_SLOTS, "late: more than %d queues", LATE_SLOTS);
    cod_queue *queue = late_new(sizeof *queue);
    /* The host has seen all work of a queue that had this slot before, so its times go on. */
    *queue = (cod_queue){.device = device, .slot = slot, .clock = device->host};
    queue->last = &queue->first;
    if (pthread_create(&queue->thread, NULL, queue_main, queue) != 0) {
        free(queue);
        return cod_fail(COD_ERR_MEMORY, "late: no thread for a queue");
    }
    device->queues[slot] = queue;
    *out = queue;
    return COD_OK;
}

void late_queue_close(cod_queue *queue)
{
    cod_device *device = queue->device;
    pthread_mutex_lock(&device->lock);
    if (queue->capture != NULL) {
        late_violation("queue_destroy() within a capture");
        late_recording_free(queue->capture);
    }
    if (late_wait(device, queue->slot, queue->clock.times[queue->slot]))
        late_crossing();
    late_host_sees(device, &queue->clock);
    device->queues[queue->slot] = NULL;
    queue->stop = true;
    pthread_cond_broadcast(&device->changed);
    pthread_mutex_unlock(&device->lock);
    pthread_join(queue->thread, NULL);
    free(queue);
}

uint64_t late_queue_tick(cod_queue *queue)
{
    late_clock_join(&queue->clock, &queue->device->host);
    return ++queue->clock.times[queue->slot];
}

void late_queue_add(cod_queue *queue, late_work *work)
{
    *queue->last = work;
    queue->last = &work->next;
    pthread_cond_broadcast(&queue->device->changed);
}

bool late_wait(cod_device *device, int slot, uint64_t time)
{
    const bool undone = device->done[slot] < time;
    if (undone && device->held) {
        device->held = false;
        pthread_cond_broadcast(&device->changed);
    }
    while (device->done[slot] < time)
        pthread_cond_wait(&device->changed, &device->lock);
    return undone;
}

void late_wait_uses(cod_device *device, const late_uses *uses)
{
    bool undone = false;
    for (size_t i = 0; i < uses->count; i++)
        undone |= late_wait(device, uses->list[i].slot, uses->list[i].time);
    if (undone)
        late_crossing();
}

void late_host_sees(cod_device *device, const late_clock *clock)
{
    late_clock_join(&device->host, clock);
    late_pinned_release(device);
}
