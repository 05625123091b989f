#include "support/paranoid.h"

#include "core/fused.h"
#include "core/hash.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** A multiple of every alignment that backends ask for. */
enum { GUARD_BYTES = 256, GUARD_FILL = 0xA5, VIEWS = COD_OP_MAX_INPUTS + COD_OP_MAX_OUTPUTS };

/** What an op does with a byte of a buffer. */
enum { BYTE_READ = 1, BYTE_WRITTEN = 2, BYTE_FILLED = 4 };

struct cod_device {
    cod_device *inner;
};

/** `base` is what callers see: the inner buffer without its guards. */
typedef struct paranoid_buffer {
    cod_buffer base;
    cod_buffer *inner;
    bool pinned; /**< of host_buffer_create() */
} paranoid_buffer;

struct cod_plan {
    cod_device *device;
    cod_plan *inner;
    bool prepared;
    uint64_t prepared_hash; /**< of the parameters that plans_prepare() may have packed */
    size_t count;
    cod_op ops[]; /**< [count]; their views name paranoid buffers */
};

static const cod_backend *inner_backend;
static size_t violation_count;
static char first_violation[512];

static void violation(const char *fmt, ...) COD_PRINTF(1, 2);

static void violation(const char *fmt, ...)
{
    if (violation_count++ > 0)
        return;
    va_list args;
    va_start(args, fmt);
    vsnprintf(first_violation, sizeof first_violation, fmt, args);
    va_end(args);
}

size_t cod_paranoid_violations(char *first, size_t bytes)
{
    const size_t count = violation_count;
    if (bytes > 0)
        snprintf(first, bytes, "%s", first_violation);
    violation_count = 0;
    first_violation[0] = 0;
    return count;
}

static cod_status device_open(const cod_device_options *options, cod_device **out)
{
    cod_device *device = calloc(1, sizeof *device);
    COD_REQUIRE_MEMORY(device);
    const cod_status status = inner_backend->open(options, &device->inner);
    if (status != COD_OK) {
        free(device);
        return status;
    }
    *out = device;
    return COD_OK;
}

static void device_close(cod_device *device)
{
    if (device == NULL)
        return;
    inner_backend->close(device->inner);
    free(device);
}

static const char *device_describe(cod_device *device)
{
    return inner_backend->describe(device->inner);
}

static bool device_supports(cod_device *device, cod_dtype activation)
{
    return inner_backend->supports(device->inner, activation);
}

static cod_status device_memory(cod_device *device, size_t *free_bytes, size_t *total_bytes)
{
    return inner_backend->memory(device->inner, free_bytes, total_bytes);
}

static cod_status buffer_create(cod_device *device, size_t bytes, cod_buffer **out)
{
    paranoid_buffer *buffer = calloc(1, sizeof *buffer);
    COD_REQUIRE_MEMORY(buffer);
    unsigned char guard[GUARD_BYTES];
    memset(guard, GUARD_FILL, sizeof guard);
    cod_status status = inner_backend->buffer_create(device->inner, bytes + 2 * GUARD_BYTES, &buffer->inner);
    COD_THEN(status, inner_backend->upload(device->inner, NULL, buffer->inner, 0, guard, GUARD_BYTES));
    COD_THEN(status,
             inner_backend->upload(device->inner, NULL, buffer->inner, GUARD_BYTES + bytes, guard, GUARD_BYTES));
    if (status != COD_OK) {
        if (buffer->inner != NULL)
            inner_backend->buffer_destroy(device->inner, buffer->inner);
        free(buffer);
        return status;
    }
    buffer->base.host = buffer->inner->host ? (char *)buffer->inner->host + GUARD_BYTES : NULL;
    buffer->base.bytes = bytes;
    *out = &buffer->base;
    return COD_OK;
}

/** The host's bytes of [guard, contents, guard] are written directly. */
static cod_status host_buffer_create(cod_device *device, size_t bytes, cod_buffer **out)
{
    paranoid_buffer *buffer = calloc(1, sizeof *buffer);
    COD_REQUIRE_MEMORY(buffer);
    const cod_status status = inner_backend->host_buffer_create(device->inner, bytes + 2 * GUARD_BYTES, &buffer->inner);
    if (status != COD_OK) {
        free(buffer);
        return status;
    }
    unsigned char *start = buffer->inner->host;
    memset(start, GUARD_FILL, GUARD_BYTES);
    memset(start + GUARD_BYTES + bytes, GUARD_FILL, GUARD_BYTES);
    buffer->base = (cod_buffer){.host = start + GUARD_BYTES, .bytes = bytes};
    buffer->pinned = true;
    *out = &buffer->base;
    return COD_OK;
}

/** `bytes` [guard, contents, guard] of a buffer. */
static void check_guards(const char *when, const unsigned char *bytes, size_t content)
{
    for (size_t i = 0; i < GUARD_BYTES; i++) {
        if (bytes[GUARD_BYTES - 1 - i] != GUARD_FILL) {
            violation("%s: byte %zu before a buffer of %zu was overwritten", when, i + 1, content);
            return;
        }
        if (bytes[GUARD_BYTES + content + i] != GUARD_FILL) {
            violation("%s: byte %zu past a buffer of %zu was overwritten", when, i, content);
            return;
        }
    }
}

/** New copy of a whole buffer with its guards, or NULL. */
static unsigned char *snapshot(cod_device *device, cod_queue *queue, const paranoid_buffer *buffer)
{
    unsigned char *bytes = malloc(buffer->base.bytes + 2 * GUARD_BYTES);
    if (bytes == NULL || inner_backend->download(device->inner, queue, bytes, buffer->inner, 0,
                                                 buffer->base.bytes + 2 * GUARD_BYTES) == COD_OK)
        return bytes;
    free(bytes);
    return NULL;
}

static void buffer_destroy(cod_device *device, cod_buffer *base)
{
    paranoid_buffer *buffer = (paranoid_buffer *)base;
    if (buffer == NULL)
        return;
    unsigned char *bytes = snapshot(device, NULL, buffer);
    if (bytes != NULL)
        check_guards("buffer_destroy", bytes, buffer->base.bytes);
    free(bytes);
    inner_backend->buffer_destroy(device->inner, buffer->inner);
    free(buffer);
}

static void host_buffer_destroy(cod_device *device, cod_buffer *base)
{
    paranoid_buffer *buffer = (paranoid_buffer *)base;
    if (buffer == NULL)
        return;
    check_guards("host_buffer_destroy", buffer->inner->host, buffer->base.bytes);
    inner_backend->host_buffer_destroy(device->inner, buffer->inner);
    free(buffer);
}

static cod_status range_check(const cod_buffer *buffer, size_t offset, size_t bytes)
{
    COD_REQUIRE(offset <= buffer->bytes && bytes <= buffer->bytes - offset,
                "%zu bytes from offset %zu on reach past a buffer of %zu", bytes, offset, buffer->bytes);
    return COD_OK;
}

static cod_status upload(cod_device *device, cod_queue *queue, cod_buffer *target, size_t offset, const void *source,
                         size_t bytes)
{
    COD_TRY(range_check(target, offset, bytes));
    return inner_backend->upload(device->inner, queue, ((paranoid_buffer *)target)->inner, GUARD_BYTES + offset, source,
                                 bytes);
}

static cod_status put(cod_device *device, cod_queue *queue, cod_buffer *target, size_t offset, const void *source,
                      size_t bytes)
{
    COD_TRY(range_check(target, offset, bytes));
    return inner_backend->put(device->inner, queue, ((paranoid_buffer *)target)->inner, GUARD_BYTES + offset, source,
                              bytes);
}

static cod_status download(cod_device *device, cod_queue *queue, void *target, cod_buffer *source, size_t offset,
                           size_t bytes)
{
    COD_TRY(range_check(source, offset, bytes));
    return inner_backend->download(device->inner, queue, target, ((paranoid_buffer *)source)->inner,
                                   GUARD_BYTES + offset, bytes);
}

/** Only a buffer of the device is looked at after the copy: the host's bytes may come later. */
static cod_status copy(cod_device *device, cod_queue *queue, cod_buffer *target, size_t target_offset,
                       cod_buffer *source, size_t source_offset, size_t bytes)
{
    const paranoid_buffer *to = (const paranoid_buffer *)target, *from = (const paranoid_buffer *)source;
    COD_TRY(cod_copy_check(target, target_offset, source, source_offset, bytes));
    COD_TRY(inner_backend->copy(device->inner, queue, to->inner, GUARD_BYTES + target_offset, from->inner,
                                GUARD_BYTES + source_offset, bytes));
    if (to->pinned)
        return COD_OK;
    unsigned char *after = snapshot(device, queue, to);
    COD_REQUIRE_MEMORY(after);
    check_guards("copy", after, to->base.bytes);
    free(after);
    return COD_OK;
}

static cod_view *view_at(cod_op *op, size_t i)
{
    return i < COD_OP_MAX_INPUTS ? &op->inputs[i] : &op->outputs[i - COD_OP_MAX_INPUTS];
}

static const char *name_of(const cod_plan *plan)
{
    return plan->ops[0].name ? plan->ops[0].name : cod_op_kind_name(plan->ops[0].kind);
}

/** The op on inner buffers. */
static cod_op translated(const cod_op *op)
{
    cod_op inner = *op;
    for (size_t i = 0; i < VIEWS; i++) {
        cod_view *view = view_at(&inner, i);
        if (view->buffer == NULL)
            continue;
        if (((paranoid_buffer *)view->buffer)->pinned)
            violation("%s: a plan on memory of host_buffer_create()", op->name ? op->name : cod_op_kind_name(op->kind));
        view->buffer = ((paranoid_buffer *)view->buffer)->inner;
        view->offset += GUARD_BYTES;
    }
    return inner;
}

/** @param inner_ops  [count], overwritten */
static cod_status fill_plan(cod_plan *plan, cod_device *device, const cod_op *ops, size_t count, cod_op *inner_ops)
{
    plan->device = device;
    plan->count = count;
    for (size_t i = 0; i < count; i++) {
        COD_TRY(cod_op_check(&ops[i]));
        plan->ops[i] = ops[i];
        inner_ops[i] = translated(&ops[i]);
    }
    return count == 1 ? inner_backend->plan_create(device->inner, inner_ops, &plan->inner)
                      : inner_backend->plan_create_fused(device->inner, inner_ops, count, &plan->inner);
}

static cod_status make_plan(cod_device *device, const cod_op *ops, size_t count, cod_plan **out)
{
    cod_plan *plan = calloc(1, sizeof *plan + count * sizeof *ops);
    cod_op *inner_ops = calloc(count, sizeof *inner_ops);
    cod_status status = plan == NULL || inner_ops == NULL ? cod_fail(COD_ERR_MEMORY, "out of memory") : COD_OK;
    COD_THEN(status, fill_plan(plan, device, ops, count, inner_ops));
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
    return make_plan(device, op, 1, out);
}

/** Views name whatever the caller's buffers are: op_fuses() reads none. */
static size_t op_fuses(cod_device *device, const cod_op *ops, size_t count)
{
    return inner_backend->op_fuses(device->inner, ops, count);
}

/** What is no sequence would go wrong on a backend that runs the ops at the same time. */
static cod_status plan_create_fused(cod_device *device, const cod_op *ops, size_t count, cod_plan **out)
{
    const size_t fits = cod_fused_sequence(ops, count).count;
    if (fits != count)
        violation("%s: a plan of %zu ops, of which only %zu are a sequence",
                  ops[0].name ? ops[0].name : cod_op_kind_name(ops[0].kind), count, fits);
    return make_plan(device, ops, count, out);
}

/** Whether plans_prepare() may pack input 1 of this kind. */
static bool is_packed(cod_op_kind kind)
{
    return kind == COD_OP_CONV2D || kind == COD_OP_CONV2D_BACKWARD_DATA || kind == COD_OP_LINEAR ||
           kind == COD_OP_LINEAR_BACKWARD_DATA;
}

static bool packs(const cod_plan *plan)
{
    for (size_t i = 0; i < plan->count; i++)
        if (is_packed(plan->ops[i].kind))
            return true;
    return false;
}

static cod_status hash_packed(cod_plan *plan, cod_queue *queue, uint64_t *hash)
{
    *hash = 0;
    for (size_t i = 0; i < plan->count; i++) {
        const cod_view *w = &plan->ops[i].inputs[1];
        if (!is_packed(plan->ops[i].kind))
            continue;
        const size_t bytes = cod_view_span_bytes(w);
        void *data = malloc(bytes + 1);
        COD_REQUIRE_MEMORY(data);
        const cod_status status = download(plan->device, queue, data, w->buffer, w->offset, bytes);
        *hash = cod_hash(data, status == COD_OK ? bytes : 0, *hash);
        free(data);
        COD_TRY(status);
    }
    return COD_OK;
}

static cod_status prepare_hashed(cod_plan *plan, cod_queue *queue)
{
    COD_TRY(hash_packed(plan, queue, &plan->prepared_hash));
    plan->prepared = true;
    return COD_OK;
}

static cod_status plans_prepare(cod_device *device, cod_plan *const *plans, size_t count, cod_queue *queue)
{
    cod_plan **inner = malloc((count + 1) * sizeof *inner);
    COD_REQUIRE_MEMORY(inner);
    cod_status status = COD_OK;
    for (size_t i = 0; i < count && status == COD_OK; i++) {
        status = prepare_hashed(plans[i], queue);
        inner[i] = plans[i]->inner;
    }
    COD_THEN(status, inner_backend->plans_prepare(device->inner, inner, count, queue));
    free(inner);
    return status;
}

/** A backend that packs weights would use old ones here. */
static cod_status check_prepared(cod_plan *plan, cod_queue *queue)
{
    if (!packs(plan))
        return COD_OK;
    uint64_t hash;
    COD_TRY(hash_packed(plan, queue, &hash));
    if (!plan->prepared)
        violation("%s: plan_run() without plans_prepare()", name_of(plan));
    else if (hash != plan->prepared_hash)
        violation("%s: the weights changed after plans_prepare()", name_of(plan));
    return COD_OK;
}

/**
 * Marks the bytes of the view's elements, but not those that have one of the `except` marks; `map` covers the guards,
 * too.
 */
static void mark(unsigned char *map, const cod_view *view, unsigned char what, unsigned char except)
{
    const size_t size = cod_dtype_bytes(view->dtype), row = (size_t)view->shape.c * size;
    const int64_t pixels = view->shape.n * view->shape.h * view->shape.w;
    for (int64_t p = 0; p < pixels; p++) {
        unsigned char *pixel = map + GUARD_BYTES + view->offset + (size_t)(p * view->pixel_stride) * size;
        for (size_t i = 0; i < row; i++)
            pixel[i] = (unsigned char)(pixel[i] | (pixel[i] & except ? 0 : what));
    }
}

/** A NaN that arithmetic does not make by itself, in each type's own bytes; an absurd number for i32. */
static void fill_pattern(cod_dtype dtype, unsigned char pattern[8])
{
    const uint64_t f64 = 0x7FF8BADBADBADBADu;
    const uint32_t f32 = 0x7FC0BADBu;
    const uint16_t bf16 = 0x7FDBu;
    if (dtype == COD_F64)
        memcpy(pattern, &f64, sizeof f64);
    else if (dtype == COD_BF16)
        memcpy(pattern, &bf16, sizeof bf16);
    else
        memcpy(pattern, &f32, sizeof f32);
}

/**
 * Writes the pattern into the elements of a view that the op does not read (FILL), or counts those that still have it.
 */
static size_t pattern_walk(const cod_view *view, unsigned char *map, unsigned char *bytes, bool fill)
{
    const size_t size = cod_dtype_bytes(view->dtype);
    const int64_t count = cod_shape_count(view->shape);
    unsigned char pattern[8] = {0};
    size_t found = 0;
    fill_pattern(view->dtype, pattern);
    for (int64_t i = 0; i < count; i++) {
        const int64_t element = i / view->shape.c * view->pixel_stride + i % view->shape.c;
        const size_t at = GUARD_BYTES + view->offset + (size_t)element * size;
        if (fill && !(map[at] & BYTE_READ)) {
            memcpy(bytes + at, pattern, size);
            map[at] |= BYTE_FILLED;
        } else if (!fill && (map[at] & BYTE_FILLED)) {
            found += memcmp(bytes + at, pattern, size) == 0;
        }
    }
    return found;
}

/** One buffer of the op: what the op does with each byte, and a copy from before the run. */
typedef struct watched {
    const paranoid_buffer *buffer;
    unsigned char *map, *before;
} watched;

static bool is_only_written(const cod_op *op, size_t output)
{
    const cod_output_role role = cod_op_output_role(op->kind, output);
    return role == COD_OUTPUT_WRITTEN || (role == COD_OUTPUT_ACCUMULATED && !op->accumulate);
}

/** Marks what the op reads of what was there before the plan ran, and what it writes. */
static void mark_op(const watched *watch, const cod_op *op)
{
    for (size_t i = 0; i < COD_OP_MAX_INPUTS; i++)
        if (op->inputs[i].buffer == &watch->buffer->base)
            mark(watch->map, &op->inputs[i], BYTE_READ, BYTE_WRITTEN);
    for (size_t i = 0; i < COD_OP_MAX_OUTPUTS; i++)
        if (op->outputs[i].buffer == &watch->buffer->base && !is_only_written(op, i))
            mark(watch->map, &op->outputs[i], BYTE_READ, BYTE_WRITTEN);
    for (size_t i = 0; i < COD_OP_MAX_OUTPUTS; i++)
        if (op->outputs[i].buffer == &watch->buffer->base)
            mark(watch->map, &op->outputs[i], BYTE_WRITTEN, 0);
}

static cod_status watch_begin(cod_plan *plan, cod_queue *queue, watched *watch)
{
    const size_t bytes = watch->buffer->base.bytes + 2 * GUARD_BYTES;
    watch->map = calloc(bytes, 1);
    COD_REQUIRE_MEMORY(watch->map);
    watch->before = snapshot(plan->device, queue, watch->buffer);
    COD_REQUIRE_MEMORY(watch->before);
    for (size_t k = 0; k < plan->count; k++)
        mark_op(watch, &plan->ops[k]);
    for (size_t k = 0; k < plan->count; k++)
        for (size_t i = 0; i < COD_OP_MAX_OUTPUTS; i++) {
            const cod_view *view = &plan->ops[k].outputs[i];
            if (view->buffer == &watch->buffer->base && is_only_written(&plan->ops[k], i))
                pattern_walk(view, watch->map, watch->before, true);
        }
    return inner_backend->upload(plan->device->inner, queue, watch->buffer->inner, 0, watch->before, bytes);
}

/** Counts as violations what the op had to write and did not. */
static void check_written(const watched *watch, const cod_op *op, unsigned char *after)
{
    for (size_t i = 0; i < COD_OP_MAX_OUTPUTS; i++) {
        const cod_view *view = &op->outputs[i];
        if (view->buffer != &watch->buffer->base || !is_only_written(op, i))
            continue;
        const size_t left = pattern_walk(view, watch->map, after, false);
        if (left > 0)
            violation("%s: %zu elements of output %zu were not written",
                      op->name ? op->name : cod_op_kind_name(op->kind), left, i);
    }
}

static cod_status watch_end(cod_plan *plan, cod_queue *queue, watched *watch)
{
    const char *name = name_of(plan);
    const size_t content = watch->buffer->base.bytes;
    unsigned char *after = snapshot(plan->device, queue, watch->buffer);
    COD_REQUIRE_MEMORY(after);
    check_guards(name, after, content);
    for (size_t k = 0; k < plan->count; k++)
        check_written(watch, &plan->ops[k], after);
    size_t at = GUARD_BYTES;
    while (at < GUARD_BYTES + content && (watch->map[at] & BYTE_WRITTEN || watch->before[at] == after[at]))
        at++;
    if (at < GUARD_BYTES + content)
        violation("%s: byte %zu of a buffer of %zu changed, which is %s", name, at - GUARD_BYTES, content,
                  watch->map[at] & BYTE_READ ? "an input" : "no output of the op");
    free(after);
    return COD_OK;
}

/** @param watches  [plan->count * VIEWS] of zeros; filled for the buffers of the plan, each once */
static cod_status run_watched(cod_plan *plan, cod_queue *queue, watched *watches)
{
    size_t count = 0;
    COD_TRY(check_prepared(plan, queue));
    for (size_t i = 0; i < plan->count * VIEWS; i++) {
        const cod_buffer *buffer = view_at(&plan->ops[i / VIEWS], i % VIEWS)->buffer;
        size_t known = 0;
        while (known < count && &watches[known].buffer->base != buffer)
            known++;
        if (buffer != NULL && known == count) {
            watches[count].buffer = (const paranoid_buffer *)buffer;
            COD_TRY(watch_begin(plan, queue, &watches[count++]));
        }
    }
    COD_TRY(inner_backend->plan_run(plan->inner, queue));
    for (size_t i = 0; i < count; i++)
        COD_TRY(watch_end(plan, queue, &watches[i]));
    return COD_OK;
}

static cod_status plan_run(cod_plan *plan, cod_queue *queue)
{
    watched *watches = calloc(plan->count * VIEWS, sizeof *watches);
    COD_REQUIRE_MEMORY(watches);
    const cod_status status = run_watched(plan, queue, watches);
    for (size_t i = 0; i < plan->count * VIEWS; i++) {
        free(watches[i].map);
        free(watches[i].before);
    }
    free(watches);
    return status;
}

static void plan_destroy(cod_plan *plan)
{
    if (plan == NULL)
        return;
    inner_backend->plan_destroy(plan->inner);
    free(plan);
}

static cod_status queue_create(cod_device *device, cod_queue **out)
{
    return inner_backend->queue_create(device->inner, out);
}

static cod_status event_create(cod_device *device, cod_event **out)
{
    return inner_backend->event_create(device->inner, out);
}

const cod_backend *cod_paranoid_wrap(const cod_backend *inner)
{
    static cod_backend wrapper;
    inner_backend = inner;
    wrapper = (cod_backend){
        .version = COD_BACKEND_VERSION,
        .name = "paranoid",
        .open = device_open,
        .close = device_close,
        .describe = device_describe,
        .supports = device_supports,
        .memory = inner->memory ? device_memory : NULL,
        .buffer_create = buffer_create,
        .buffer_destroy = buffer_destroy,
        .host_buffer_create = host_buffer_create,
        .host_buffer_destroy = host_buffer_destroy,
        .upload = upload,
        .put = put,
        .download = download,
        .copy = copy,
        .plan_create = plan_create,
        .op_fuses = inner->op_fuses ? op_fuses : NULL,
        .plan_create_fused = inner->plan_create_fused ? plan_create_fused : NULL,
        .plans_prepare = plans_prepare,
        .plan_run = plan_run,
        .plan_destroy = plan_destroy,
        .queue_create = inner->queue_create ? queue_create : NULL,
        .queue_destroy = inner->queue_destroy,
        .event_create = inner->event_create ? event_create : NULL,
        .event_record = inner->event_record,
        .event_query = inner->event_query,
        .event_wait = inner->event_wait,
        .queue_wait = inner->queue_wait,
        .event_destroy = inner->event_destroy,
    };
    return &wrapper;
}
