#include "support/late.h"

#include "core/fused.h"
#include "support/late_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VIEWS = COD_OP_MAX_INPUTS + COD_OP_MAX_OUTPUTS };

/** What the device says that it has. */
static const size_t MEMORY_BYTES = (size_t)16 << 30;

const cod_backend *late_inner;

static void lock(cod_device *device)
{
    pthread_mutex_lock(&device->lock);
}

/** Unlocks, and passes on `status`. */
static cod_status unlock(cod_device *device, cod_status status)
{
    pthread_mutex_unlock(&device->lock);
    return status;
}

cod_queue *late_queue_of(cod_device *device, cod_queue *queue)
{
    if (queue != NULL && queue->device == device)
        return queue;
    if (queue != NULL)
        late_violation("a queue of another device");
    return device->queues[0];
}

static cod_status no_capture(const cod_queue *queue, const char *function)
{
    COD_REQUIRE(queue->capture == NULL, "late: %s within a capture", function);
    return COD_OK;
}

static void device_close(cod_device *device)
{
    if (device == NULL)
        return;
    for (int slot = LATE_SLOTS; slot-- > 0;)
        if (device->queues[slot] != NULL)
            late_queue_close(device->queues[slot]);
    late_device_unknown(device);
    late_loans_free(device);
    late_inner->close(device->inner);
    pthread_cond_destroy(&device->changed);
    pthread_mutex_destroy(&device->inner_lock);
    pthread_mutex_destroy(&device->lock);
    free(device);
}

static cod_status device_open(const cod_device_options *options, cod_device **out)
{
    cod_device *device = late_new(sizeof *device);
    cod_queue *queue;
    device->ordinal = options != NULL ? options->ordinal : 0;
    cod_status status = late_inner->open(options, &device->inner);
    if (status != COD_OK) {
        free(device);
        return status;
    }
    pthread_mutex_init(&device->lock, NULL);
    pthread_mutex_init(&device->inner_lock, NULL);
    pthread_cond_init(&device->changed, NULL);
    lock(device);
    status = unlock(device, late_queue_open(device, &queue));
    if (status != COD_OK) {
        device_close(device);
        return status;
    }
    late_device_known(device);
    *out = device;
    return COD_OK;
}

static const char *device_describe(cod_device *device)
{
    return late_inner->describe(device->inner);
}

static bool device_supports(cod_device *device, cod_dtype activation)
{
    return late_inner->supports(device->inner, activation);
}

/** COD_LATE_MEMORY_MB, of 10^6 bytes each, or as much as is enough for everything. */
static size_t memory_bytes(void)
{
    const char *text = getenv("COD_LATE_MEMORY_MB");
    return text != NULL ? 1000000 * strtoull(text, NULL, 10) : MEMORY_BYTES;
}

static cod_status device_memory(cod_device *device, size_t *free_bytes, size_t *total_bytes)
{
    lock(device);
    *total_bytes = memory_bytes();
    *free_bytes = *total_bytes - (device->bytes < *total_bytes ? device->bytes : *total_bytes);
    return unlock(device, COD_OK);
}

static size_t device_allocated(cod_device *device)
{
    lock(device);
    const size_t bytes = device->bytes;
    unlock(device, COD_OK);
    return bytes;
}

/** As a device that has no more than this memory. */
static cod_status check_room(cod_device *device, size_t bytes)
{
    size_t room, total;
    COD_TRY(device_memory(device, &room, &total));
    if (bytes > room)
        return cod_fail(COD_ERR_MEMORY, "the late device is out of memory: %.1f MB are needed, %.1f are free",
                        1e-6 * (double)bytes, 1e-6 * (double)room);
    return COD_OK;
}

static cod_status make_buffer(cod_device *device, size_t bytes, bool pinned, cod_buffer **out)
{
    COD_TRY(late_outside_queues(pinned ? "host_buffer_create()" : "buffer_create()"));
    if (!pinned)
        COD_TRY(check_room(device, bytes));
    late_buffer *buffer = late_new(sizeof *buffer);
    pthread_mutex_lock(&device->inner_lock);
    const cod_status status =
        (pinned ? late_inner->host_buffer_create : late_inner->buffer_create)(device->inner, bytes, &buffer->inner);
    pthread_mutex_unlock(&device->inner_lock);
    if (status != COD_OK) {
        free(buffer);
        return status;
    }
    buffer->base = (cod_buffer){.host = pinned ? buffer->inner->host : NULL, .bytes = bytes};
    buffer->pinned = pinned;
    lock(device);
    buffer->next = device->buffers;
    device->buffers = buffer;
    device->bytes += pinned ? 0 : bytes;
    *out = &buffer->base;
    return unlock(device, COD_OK);
}

static cod_status buffer_create(cod_device *device, size_t bytes, cod_buffer **out)
{
    return make_buffer(device, bytes, false, out);
}

static cod_status host_buffer_create(cod_device *device, size_t bytes, cod_buffer **out)
{
    return make_buffer(device, bytes, true, out);
}

/** The wrapper's own buffer, or NULL. */
static late_buffer *find(const cod_device *device, const cod_buffer *base)
{
    late_buffer *buffer = device->buffers;
    while (buffer != NULL && &buffer->base != base)
        buffer = buffer->next;
    return buffer;
}

static void unmake_buffer(cod_device *device, cod_buffer *base, bool pinned)
{
    if (base == NULL)
        return;
    lock(device);
    late_buffer *buffer = find(device, base);
    if (buffer == NULL || buffer->pinned != pinned) {
        late_violation("%sbuffer_destroy() of what %sbuffer_create() did not make", pinned ? "host_" : "",
                       pinned ? "host_" : "");
        unlock(device, COD_OK);
        return;
    }
    if (late_recordings_break(device, NULL, buffer))
        late_violation("a buffer of %zu was destroyed under a recording that names it", base->bytes);
    late_wait_uses(device, &buffer->uses);
    late_pinned_forget(device, buffer);
    late_buffer **link = &device->buffers;
    while (*link != buffer)
        link = &(*link)->next;
    *link = buffer->next;
    device->bytes -= pinned ? 0 : base->bytes;
    unlock(device, COD_OK);
    pthread_mutex_lock(&device->inner_lock);
    (pinned ? late_inner->host_buffer_destroy : late_inner->buffer_destroy)(device->inner, buffer->inner);
    pthread_mutex_unlock(&device->inner_lock);
    free(buffer->uses.list);
    free(buffer->gradients.list);
    free(buffer->updated.list);
    free(buffer);
}

static void buffer_destroy(cod_device *device, cod_buffer *buffer)
{
    unmake_buffer(device, buffer, false);
}

static void host_buffer_destroy(cod_device *device, cod_buffer *buffer)
{
    unmake_buffer(device, buffer, true);
}

/** An address in the host's memory, which any MPI takes. */
static void *buffer_address(cod_device *device, cod_buffer *base)
{
    lock(device);
    const late_buffer *buffer = find(device, base);
    unlock(device, COD_OK);
    if (buffer == NULL || buffer->pinned)
        late_violation("buffer_address() of what buffer_create() did not make");
    return buffer != NULL ? buffer->inner->host : NULL;
}

/** The device's own buffer that holds the range. */
static cod_status device_range(const cod_device *device, const cod_buffer *base, size_t offset, size_t bytes,
                               late_buffer **out)
{
    *out = find(device, base);
    COD_REQUIRE(*out != NULL && !(*out)->pinned, "late: not a buffer of this device");
    COD_REQUIRE(offset <= base->bytes && bytes <= base->bytes - offset,
                "late: %zu bytes from offset %zu on reach past a buffer of %zu", bytes, offset, base->bytes);
    return COD_OK;
}

/** @param meets  the host waits: upload(), not put() */
static cod_status upload_locked(cod_queue *queue, cod_buffer *target, size_t offset, const void *source, size_t bytes,
                                bool meets)
{
    const char *name = meets ? "upload()" : "put()";
    late_buffer *buffer;
    COD_TRY(no_capture(queue, name));
    COD_TRY(device_range(queue->device, target, offset, bytes, &buffer));
    COD_TRY(late_failure(queue->device));
    if (meets)
        late_crossing();
    if (bytes == 0) /* nothing is used that a destroyer would wait for */
        return COD_OK;
    late_work *work = late_new(sizeof *work);
    work->kind = LATE_UPLOAD;
    work->range = (late_range){.target = buffer, .target_offset = offset, .bytes = bytes};
    work->staged = late_new(bytes);
    memcpy(work->staged, source, bytes);
    late_queue_tick(queue);
    late_copy_use(queue, &work->range, name);
    late_queue_add(queue, work);
    return COD_OK;
}

/** Returns before the target is written: the contract promises no more than that `source` may be reused. */
static cod_status upload(cod_device *device, cod_queue *queue, cod_buffer *target, size_t offset, const void *source,
                         size_t bytes)
{
    COD_TRY(late_outside_queues("upload()"));
    lock(device);
    return unlock(device, upload_locked(late_queue_of(device, queue), target, offset, source, bytes, true));
}

static cod_status put(cod_device *device, cod_queue *queue, cod_buffer *target, size_t offset, const void *source,
                      size_t bytes)
{
    COD_TRY(late_outside_queues("put()"));
    COD_REQUIRE(bytes <= COD_PUT_BYTES && bytes % 4 == 0 && offset % 4 == 0, "late: put() of %zu bytes at offset %zu",
                bytes, offset);
    lock(device);
    return unlock(device, upload_locked(late_queue_of(device, queue), target, offset, source, bytes, false));
}

static cod_status download_locked(cod_queue *queue, void *target, cod_buffer *source, size_t offset, size_t bytes)
{
    cod_device *device = queue->device;
    late_buffer *buffer;
    COD_TRY(no_capture(queue, "download()"));
    COD_TRY(device_range(device, source, offset, bytes, &buffer));
    late_crossing();
    late_work *work = late_new(sizeof *work);
    work->kind = LATE_DOWNLOAD;
    work->range = (late_range){.source = buffer, .source_offset = offset, .bytes = bytes};
    work->out = target;
    const uint64_t time = late_queue_tick(queue);
    const late_clock clock = queue->clock; /* the queue may go on while this thread waits */
    late_copy_use(queue, &work->range, "download()");
    late_queue_add(queue, work);
    late_wait(device, queue->slot, time);
    late_host_sees(device, &clock);
    return late_failure(device);
}

static cod_status download(cod_device *device, cod_queue *queue, void *target, cod_buffer *source, size_t offset,
                           size_t bytes)
{
    COD_TRY(late_outside_queues("download()"));
    lock(device);
    return unlock(device, download_locked(late_queue_of(device, queue), target, source, offset, bytes));
}

void late_queue_copy(cod_queue *queue, const late_range *range)
{
    char name[LATE_NAME];
    if (range->bytes == 0) /* nothing is used that a destroyer would wait for */
        return;
    late_work *work = late_new(sizeof *work);
    work->kind = LATE_COPY;
    work->range = *range;
    late_queue_tick(queue);
    snprintf(name, sizeof name, "copy() of %zu bytes", range->bytes);
    late_copy_use(queue, range, name);
    if (range->source->pinned)
        late_pinned_read(queue, work);
    if (range->target->pinned)
        late_pinned_written(queue, work);
    late_queue_add(queue, work);
}

static cod_status copy_locked(cod_queue *queue, const cod_buffer *target, size_t target_offset,
                              const cod_buffer *source, size_t source_offset, size_t bytes)
{
    late_range range = {.target = find(queue->device, target),
                        .source = find(queue->device, source),
                        .target_offset = target_offset,
                        .source_offset = source_offset,
                        .bytes = bytes};
    COD_REQUIRE(
        range.target != NULL && range.source != NULL,
        "late: copy(): the %s is of neither buffer_create() nor host_buffer_create(); pageable memory cannot be "
        "copied asynchronously",
        range.target == NULL ? "target" : "source");
    COD_TRY(cod_copy_check(target, target_offset, source, source_offset, bytes));
    late_copied(range.target->pinned != range.source->pinned ? bytes : 0);
    if (queue->capture != NULL)
        late_capture_add(queue, &(late_step){.range = range});
    else
        late_queue_copy(queue, &range);
    return COD_OK;
}

static cod_status copy(cod_device *device, cod_queue *queue, cod_buffer *target, size_t target_offset,
                       cod_buffer *source, size_t source_offset, size_t bytes)
{
    COD_TRY(late_outside_queues("copy()"));
    lock(device);
    return unlock(device,
                  copy_locked(late_queue_of(device, queue), target, target_offset, source, source_offset, bytes));
}

/** The buffer of an op's view. Pinned memory is for inputs alone, and only where the inner backend maps it. */
static cod_status view_buffer(const cod_device *device, const cod_view *view, bool input, late_buffer **out)
{
    *out = find(device, view->buffer);
    if (input && *out != NULL && (*out)->pinned && late_inner->maps_host_buffers)
        return COD_OK;
    COD_REQUIRE(*out == NULL || !(*out)->pinned, "late: an %s lies in pinned memory%s", input ? "input" : "output",
                input ? ", which the backend does not map" : ", which plans may only read");
    return device_range(device, view->buffer, view->offset, cod_view_span_bytes(view), out);
}

/** The op on inner buffers. */
static cod_status translate(cod_device *device, const cod_op *op, cod_op *inner_op)
{
    *inner_op = *op;
    for (size_t i = 0; i < VIEWS; i++) {
        cod_view *view = i < COD_OP_MAX_INPUTS ? &inner_op->inputs[i] : &inner_op->outputs[i - COD_OP_MAX_INPUTS];
        late_buffer *buffer;
        if (view->buffer == NULL)
            continue;
        COD_TRY(view_buffer(device, view, i < COD_OP_MAX_INPUTS, &buffer));
        view->buffer = buffer->inner;
    }
    return COD_OK;
}

static cod_status translate_all(cod_device *device, const cod_op *ops, size_t count, cod_op *inner_ops)
{
    for (size_t i = 0; i < count; i++) {
        COD_TRY(cod_op_check(&ops[i]));
        COD_TRY(translate(device, &ops[i], &inner_ops[i]));
    }
    return COD_OK;
}

static cod_status make_inner_plan(cod_device *device, const cod_op *ops, size_t count, cod_plan **out)
{
    pthread_mutex_lock(&device->inner_lock);
    const cod_status status = count == 1 ? late_inner->plan_create(device->inner, ops, out)
                                         : late_inner->plan_create_fused(device->inner, ops, count, out);
    pthread_mutex_unlock(&device->inner_lock);
    return status;
}

static cod_status make_plan(cod_device *device, const cod_op *ops, size_t count, cod_plan **out)
{
    cod_op *inner_ops = late_new(count * sizeof *inner_ops);
    cod_plan *plan = late_new(sizeof *plan + count * sizeof *ops);
    plan->device = device;
    plan->count = count;
    memcpy(plan->ops, ops, count * sizeof *ops);
    lock(device);
    cod_status status = unlock(device, translate_all(device, ops, count, inner_ops));
    COD_THEN(status, make_inner_plan(device, inner_ops, count, &plan->inner));
    free(inner_ops);
    if (status != COD_OK) {
        free(plan);
        return status;
    }
    *out = plan;
    return COD_OK;
}

static cod_status plan_create(cod_device *device, const cod_op *op, cod_plan **out)
{
    COD_TRY(late_outside_queues("plan_create()"));
    return make_plan(device, op, 1, out);
}

static size_t op_fuses(cod_device *device, const cod_op *ops, size_t count)
{
    pthread_mutex_lock(&device->inner_lock);
    const size_t fused = late_inner->op_fuses(device->inner, ops, count);
    pthread_mutex_unlock(&device->inner_lock);
    return fused;
}

static cod_status plan_create_fused(cod_device *device, const cod_op *ops, size_t count, cod_plan **out)
{
    COD_TRY(late_outside_queues("plan_create_fused()"));
    const size_t fits = cod_fused_sequence(ops, count).count;
    if (fits != count)
        late_violation("%s '%s': a plan of %zu ops, of which only %zu are a sequence", cod_op_kind_name(ops[0].kind),
                       ops[0].name != NULL ? ops[0].name : "", count, fits);
    return make_plan(device, ops, count, out);
}

void late_queue_plan(cod_queue *queue, cod_plan *plan, late_kind kind, const late_step *recorded)
{
    late_work *work = late_new(sizeof *work);
    work->kind = kind;
    work->plan = plan;
    work->recorded = recorded != NULL;
    work->place = recorded != NULL ? recorded->place : 0;
    late_queue_tick(queue);
    late_plan_use(queue, plan, kind);
    late_queue_add(queue, work);
}

/** Queues what is to be done with a plan, or records it. */
static void do_plan(cod_device *device, cod_plan *plan, late_kind kind, bool updated, cod_queue *queue)
{
    late_step step = {.plan = plan, .kind = kind, .updated = updated};
    lock(device);
    queue = late_queue_of(device, queue);
    const bool capturing = queue->capture != NULL;
    if (!capturing && updated)
        late_updated_check(plan);
    if (!capturing)
        late_queue_plan(queue, plan, kind, NULL);
    unlock(device, COD_OK);
    if (!capturing)
        return;
    pthread_mutex_lock(&device->inner_lock);
    step.place = late_place(plan->inner);
    pthread_mutex_unlock(&device->inner_lock);
    lock(device);
    late_capture_add(queue, &step);
    unlock(device, COD_OK);
}

static cod_status prepare(cod_device *device, cod_plan *const *plans, size_t count, bool updated, cod_queue *queue)
{
    COD_TRY(late_outside_queues("plans_prepare()"));
    for (size_t i = 0; i < count; i++)
        do_plan(device, plans[i], LATE_PREPARE, updated, queue);
    return COD_OK;
}

static cod_status plans_prepare(cod_device *device, cod_plan *const *plans, size_t count, cod_queue *queue)
{
    return prepare(device, plans, count, false, queue);
}

/** The inner backend is not told: what it gives must be the same. */
static cod_status plans_prepare_updated(cod_device *device, cod_plan *const *plans, size_t count, cod_queue *queue)
{
    return prepare(device, plans, count, true, queue);
}

static cod_status plan_run(cod_plan *plan, cod_queue *queue)
{
    COD_TRY(late_outside_queues("plan_run()"));
    do_plan(plan->device, plan, LATE_RUN, false, queue);
    return COD_OK;
}

static void plan_destroy(cod_plan *plan)
{
    if (plan == NULL)
        return;
    cod_device *device = plan->device;
    lock(device);
    if (late_recordings_break(device, plan, NULL))
        late_violation("%s '%s': the plan was destroyed under a recording that holds it",
                       cod_op_kind_name(plan->ops[0].kind), plan->ops[0].name != NULL ? plan->ops[0].name : "");
    late_wait_uses(device, &plan->uses);
    unlock(device, COD_OK);
    pthread_mutex_lock(&device->inner_lock);
    late_inner->plan_destroy(plan->inner);
    pthread_mutex_unlock(&device->inner_lock);
    free(plan->uses.list);
    free(plan);
}

void cod_late_hold(cod_device *device, bool held)
{
    lock(device);
    device->held = held;
    pthread_cond_broadcast(&device->changed);
    unlock(device, COD_OK);
}

const cod_backend *cod_late_wrap(const cod_backend *inner)
{
    static cod_backend wrapper;
    late_inner = inner;
    late_settings_read();
    wrapper = (cod_backend){
        .version = COD_BACKEND_VERSION,
        .name = "late",
        .open = device_open,
        .close = device_close,
        .describe = device_describe,
        .supports = device_supports,
        .memory = device_memory,
        .allocated = device_allocated,
        .buffer_create = buffer_create,
        .buffer_destroy = buffer_destroy,
        .host_buffer_create = host_buffer_create,
        .host_buffer_destroy = host_buffer_destroy,
        .maps_host_buffers = inner->maps_host_buffers,
        .buffer_address = buffer_address,
        .upload = upload,
        .put = put,
        .download = download,
        .copy = copy,
        .plan_create = plan_create,
        .op_fuses = inner->op_fuses != NULL ? op_fuses : NULL,
        .plan_create_fused = inner->plan_create_fused != NULL ? plan_create_fused : NULL,
        .plans_prepare = plans_prepare,
        .plans_prepare_updated = plans_prepare_updated,
        .plan_run = plan_run,
        .plan_destroy = plan_destroy,
    };
    late_queues_offer(&wrapper);
    return &wrapper;
}

const cod_backend *cod_late_chosen(const cod_backend *backend)
{
    static cod_backend wrapper;
    static const cod_backend *wrapped;
    const char *wanted = getenv("COD_TEST_LATE");
    if (wanted == NULL || strcmp(wanted, "cuda") == 0 ||
        strcmp(backend->name, strcmp(wanted, "cpu") == 0 ? "cpu" : "ref") != 0)
        return backend;
    if (wrapped != backend) { /* else the threads of open devices would see it wrapped again */
        wrapper = *cod_late_wrap(backend);
        wrapper.name = backend->name;
        wrapped = backend;
    }
    return &wrapper;
}
