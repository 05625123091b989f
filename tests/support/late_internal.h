/**
 * @file
 * What the files of the late backend share. A queue is named by its *slot*; the time of a piece of work is its number
 * in its slot. Functions that take a device or a queue are called with the device's lock held, unless they say
 * otherwise.
 */
#ifndef COD_TESTS_SUPPORT_LATE_INTERNAL_H
#define COD_TESTS_SUPPORT_LATE_INTERNAL_H

#include "core/backend.h"

#include <pthread.h>

enum { LATE_SLOTS = 32, LATE_NAME = 64 };

/** For each slot the time up to which its work comes before. */
typedef struct late_clock {
    uint64_t times[LATE_SLOTS];
} late_clock;

/** A piece of work's use of the bytes from `begin` to `end`. */
typedef struct late_use {
    size_t begin, end;
    bool write;
    int slot;
    uint64_t time;
    char work[LATE_NAME];
} late_use;

/** The uses that later work can still conflict with. */
typedef struct late_uses {
    late_use *list;
    size_t count, capacity;
} late_uses;

/** Ranges of bytes, none of which overlap. */
typedef struct late_ranges {
    size_t (*list)[2]; /**< begin, end */
    size_t count, capacity;
} late_ranges;

/** `base` is what callers see. */
typedef struct late_buffer {
    cod_buffer base;
    cod_buffer *inner;
    bool pinned;
    late_uses uses;
    late_uses gradients; /**< of scratch memory that gradients with dy here and shuffles share, as one byte */
    late_ranges updated; /**< what OPTIMISER plans wrote last */
    struct late_buffer *next;
} late_buffer;

/** What a copy to pinned memory brings: the queue fills `data`; the host's memory gets it when the host may look. */
typedef struct late_delivery {
    late_buffer *buffer;
    size_t offset, bytes;
    int slot;
    uint64_t time;
    int references;
    bool filled, reported;
    unsigned char *data;
    struct late_delivery *next;
} late_delivery;

/** Pinned memory that a copy or a plan reads: it must keep its hash until the host has seen that the work is done. */
typedef struct late_hold {
    late_buffer *buffer;
    char work[LATE_NAME];
    size_t offset, bytes;
    int slot;
    uint64_t time, hash;
    bool reported;
    struct late_hold *next;
} late_hold;

/** Memory of the device that MPI reads or writes until `key` is returned. */
typedef struct late_loan {
    late_buffer *buffer;
    size_t begin, end;
    bool write;
    const void *key;
    struct late_loan *next;
} late_loan;

typedef struct late_range {
    late_buffer *target, *source;
    size_t target_offset, source_offset, bytes;
} late_range;

typedef enum late_kind {
    LATE_PREPARE,
    LATE_RUN,
    LATE_COPY,
    LATE_UPLOAD,   /**< range.source NULL: from `staged` */
    LATE_DOWNLOAD, /**< range.target NULL: to `out` */
    LATE_WAIT      /**< until the work of `wait_slot` is done up to `wait_time` */
} late_kind;

/** A piece of work in a queue. */
typedef struct late_work {
    late_kind kind;
    cod_plan *plan;
    bool recorded;
    uint64_t place; /**< of the plan's own memory when it was recorded */
    late_range range;
    unsigned char *staged; /**< the source's bytes, where the source is the host's */
    void *out;
    late_delivery **overlays; /**< deliveries that the source's bytes lie under, in the order of their copies */
    size_t overlay_count;
    late_delivery *delivery; /**< where the target is pinned */
    int wait_slot;
    uint64_t wait_time;
    struct late_work *next;
} late_work;

struct cod_queue {
    cod_device *device;
    int slot;
    bool stop;
    pthread_t thread;
    late_clock clock; /**< of the last work that was queued */
    late_work *first, **last;
    cod_recording *capture; /**< NULL = not within a capture */
};

struct cod_event {
    cod_device *device;
    int slot; /**< -1 = never recorded */
    late_clock clock;
};

struct cod_plan {
    cod_device *device;
    cod_plan *inner;
    late_uses uses; /**< of what plans_prepare() packs, as one byte */
    size_t count;
    cod_op ops[]; /**< [count]; their views name late buffers */
};

/** One step of a recording: a plan, which is run or prepared, or else a copy. */
typedef struct late_step {
    cod_plan *plan;
    late_kind kind; /**< of a plan: LATE_RUN or LATE_PREPARE */
    bool updated;   /**< by plans_prepare_updated() */
    uint64_t place;
    late_range range;
} late_step;

struct cod_recording {
    cod_device *device;
    late_step *steps;
    size_t count, capacity;
    bool broken; /**< something of it was destroyed */
    struct cod_recording *next;
};

struct cod_device {
    cod_device *inner;
    int ordinal;                      /**< of its options: ranks of a node have delays of their own */
    pthread_mutex_t lock, inner_lock; /**< never both: plans run, and inner memory is made, without `lock` */
    pthread_cond_t changed;           /**< work was queued or done, a queue stops, or `held` changed */
    bool held;
    cod_queue *queues[LATE_SLOTS]; /**< [0] is the default queue; NULL = free */
    uint64_t done[LATE_SLOTS];
    late_clock host; /**< what the host has seen */
    late_buffer *buffers;
    cod_recording *recordings; /**< complete ones */
    late_delivery *deliveries; /**< not yet in the host's memory, in the order of their copies */
    late_hold *holds;
    late_loan *loans;
    cod_device *next;   /**< of all that are open */
    size_t bytes;       /**< of all buffers but the pinned */
    cod_status failure; /**< of the first queued work that failed */
    char failure_text[512];
};

extern const cod_backend *late_inner;

/** late_report.c; all without locks. */
void late_settings_read(void);
void late_violation(const char *fmt, ...) COD_PRINTF(1, 2);
void late_crossing(void);
/** Counts them; see cod_late_copied_bytes(). */
void late_copied(size_t bytes);
uint64_t late_seed(void);
unsigned late_delay(void);
/** Where the inner plan's own memory lies; call it under the inner lock. */
uint64_t late_place(cod_plan *inner);
/** Zeroed memory; aborts when there is none. */
void *late_new(size_t bytes);

/** late_order.c */
void late_clock_join(late_clock *clock, const late_clock *other);
/** Reports earlier uses that conflict and do not come before `clock`, and remembers this one. `what` has the bytes. */
void late_uses_add(late_uses *uses, const char *what, late_use use, const late_clock *clock, const late_clock *host);
/** The uses of a plan's views. */
void late_plan_use(cod_queue *queue, cod_plan *plan, late_kind kind);
/** Whether plans_prepare() may pack inputs 1 and 2 of this kind. */
bool late_is_packed(cod_op_kind kind);
void late_copy_use(cod_queue *queue, const late_range *range, const char *work);

/** late_pinned.c */
/** The queue's last work reads the range. */
void late_pinned_hold(cod_queue *queue, late_buffer *buffer, size_t offset, size_t bytes, const char *work);
/** Before a copy from or to pinned memory is queued as the queue's last work. */
void late_pinned_read(cod_queue *queue, late_work *work);
void late_pinned_written(cod_queue *queue, late_work *work);
/** After the host has seen more. */
void late_pinned_release(cod_device *device);
void late_pinned_forget(cod_device *device, const late_buffer *buffer);
void late_delivery_drop(late_delivery *delivery);

/** late_loans.c; the first two without the lock */
void late_device_known(cod_device *device);
void late_device_unknown(const cod_device *device);
/** Reports a use by a queue that conflicts with what is lent. */
void late_loans_check(const cod_device *device, const late_buffer *buffer, const late_use *use);
void late_loans_free(cod_device *device);

/** late_updated.c */
/** The bytes were written: by an OPTIMISER plan, or by something else. */
void late_updated_note(late_buffer *buffer, size_t begin, size_t end, bool by_optimiser);
/** Reports a plan that plans_prepare_updated() gets although something else wrote parameters that it may pack. */
void late_updated_check(const cod_plan *plan);

/** late_queue.c */
cod_status late_queue_open(cod_device *device, cod_queue **out);
/** Waits for its work; without the lock. */
void late_queue_close(cod_queue *queue);
/** The next time of the queue, which knows what the host knows. */
uint64_t late_queue_tick(cod_queue *queue);
/** Queues `work` (taken), whose time late_queue_tick() gave. */
void late_queue_add(cod_queue *queue, late_work *work);
/** Waits; @return whether it had to. */
bool late_wait(cod_device *device, int slot, uint64_t time);
/** Waits for all that uses `uses`. */
void late_wait_uses(cod_device *device, const late_uses *uses);
/** The host has seen all of `clock`. */
void late_host_sees(cod_device *device, const late_clock *clock);
/** Fails when queued work has failed. */
cod_status late_failure(const cod_device *device);
/** Fails, with a violation, when the calling thread is a queue's; without the lock. */
cod_status late_outside_queues(const char *function);

/** late_capture.c */
void late_capture_add(cod_queue *queue, const late_step *step);
/** Whether a recording names the plan or the buffer (one is NULL); such recordings are broken from then on. */
bool late_recordings_break(cod_device *device, const cod_plan *plan, const late_buffer *buffer);
cod_status late_capture_begin(cod_queue *queue);
cod_status late_capture_end(cod_queue *queue, cod_recording **out);
cod_status late_recording_run(cod_recording *recording, cod_queue *queue);
void late_recording_destroy(cod_recording *recording);
void late_recording_free(cod_recording *recording);

/** late_events.c */
/** Sets the backend's functions of queues, events and captures. */
void late_queues_offer(cod_backend *backend);

/** late.c */
/** NULL is the default queue. A queue of another device is a violation, and counts as NULL. */
cod_queue *late_queue_of(cod_device *device, cod_queue *queue);
void late_queue_plan(cod_queue *queue, cod_plan *plan, late_kind kind, const late_step *recorded);
void late_queue_copy(cod_queue *queue, const late_range *range);

#endif
