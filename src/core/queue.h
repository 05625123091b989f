/**
 * @file
 * Queues and events of any backend. If a backend has none, queues and events are NULL, work is done when its call
 * returns, and every event counts as reached. Callers need not distinguish the cases.
 */
#ifndef COD_CORE_QUEUE_H
#define COD_CORE_QUEUE_H

#include "core/backend.h"

/** @param[out] queue  new; NULL where the backend has none, which is its default queue */
COD_MUST_CHECK cod_status cod_queue_create(const cod_backend *backend, cod_device *device, cod_queue **queue);
/** Waits for the queue's work. NULL is fine. */
void cod_queue_destroy(const cod_backend *backend, cod_queue *queue);
/** Later work of `queue` waits until the event is reached; NULL is reached. */
COD_MUST_CHECK cod_status cod_queue_wait(const cod_backend *backend, cod_queue *queue, cod_event *event);

/**
 * Blocks the host until all work of a queue is done (NULL: of the default queue). For timing, which would otherwise
 * measure the queueing only; not for use in steps.
 */
COD_MUST_CHECK cod_status cod_queue_finish(const cod_backend *backend, cod_device *device, cod_queue *queue);

/** @param[out] event  new, reached; NULL where the backend has none */
COD_MUST_CHECK cod_status cod_event_create(const cod_backend *backend, cod_device *device, cod_event **event);
void cod_event_destroy(const cod_backend *backend, cod_event *event);
/** The event is reached when all work queued before this call is done. NULL is fine. */
COD_MUST_CHECK cod_status cod_event_record(const cod_backend *backend, cod_event *event, cod_queue *queue);
/** Never blocks; from any thread. NULL is reached. */
COD_MUST_CHECK cod_status cod_event_query(const cod_backend *backend, cod_event *event, bool *reached);
/** Blocks the host; from any thread. NULL is reached. */
COD_MUST_CHECK cod_status cod_event_wait(const cod_backend *backend, cod_event *event);

/** Whether work is done when its call returns: the backend has neither queues nor events. */
bool cod_backend_runs_at_once(const cod_backend *backend);
/** Whether the backend has captures: capture_begin() and what follows it. */
bool cod_backend_records(const cod_backend *backend);

/** Queues plans and copies in one queue and does nothing else, because a replay repeats only queued work. */
typedef cod_status (*cod_queue_work)(void *context);

/** Work that is queued again and again. Zeroed before the first call. */
typedef struct cod_replay {
    cod_recording *recording; /**< NULL = there is none yet */
    unsigned failures;        /**< to record the work, so far */
} cod_replay;

/**
 * Queues work. If the backend has captures, the first call records the work, and every call runs the recording.
 * Otherwise each call runs `work`.
 *
 * What a library does when it is first called may be forbidden in a capture, such as allocating memory. Therefore work
 * that cannot be recorded is queued by itself, which makes up for such first calls, and recorded in the next call. It
 * fails where there is no memory for a recording, or where recording fails again and again.
 *
 * @param[in,out] replay  end it with cod_replay_clear() before the plans and buffers that the work uses
 */
COD_MUST_CHECK cod_status cod_queue_replay(const cod_backend *backend, cod_device *device, cod_queue *queue,
                                           cod_queue_work work, void *context, cod_replay *replay);
void cod_replay_clear(const cod_backend *backend, cod_replay *replay);
/** NULL is fine. */
void cod_recording_destroy(const cod_backend *backend, cod_recording *recording);

#endif
