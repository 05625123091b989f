#include "support/late_internal.h"

#include <stdio.h>
#include <stdlib.h>

void late_clock_join(late_clock *clock, const late_clock *other)
{
    for (int i = 0; i < LATE_SLOTS; i++)
        if (clock->times[i] < other->times[i])
            clock->times[i] = other->times[i];
}

/** Whether nothing can conflict with `old` that would not conflict with `use` too, which comes after it. */
static bool is_covered(const late_use *old, const late_use *use)
{
    return old->begin >= use->begin && old->end <= use->end && (use->write || !old->write);
}

void late_uses_add(late_uses *uses, const char *what, late_use use, const late_clock *clock, const late_clock *host)
{
    size_t kept = 0;
    if (use.begin == use.end)
        return;
    for (size_t i = 0; i < uses->count; i++) {
        const late_use old = uses->list[i];
        const bool before = old.time <= clock->times[old.slot];
        const bool conflict = old.begin < use.end && use.begin < old.end && (old.write || use.write);
        if (conflict && !before)
            late_violation("a missing event wait: %s in queue %d %s bytes %zu to %zu of %s, and %s in queue %d, which "
                           "nothing orders before it, %s bytes %zu to %zu",
                           use.work, use.slot, use.write ? "writes" : "reads", use.begin, use.end, what, old.work,
                           old.slot, old.write ? "writes" : "reads", old.begin, old.end);
        /* What the host has seen comes before all that will be queued. */
        if (old.time > host->times[old.slot] && !(before && is_covered(&old, &use)))
            uses->list[kept++] = old;
    }
    uses->count = kept;
    if (uses->count == uses->capacity) {
        uses->capacity = 2 * uses->capacity + 8;
        uses->list = realloc(uses->list, uses->capacity * sizeof *uses->list);
        if (uses->list == NULL)
            abort();
    }
    uses->list[uses->count++] = use;
}

static void buffer_use(cod_queue *queue, late_buffer *buffer, size_t offset, size_t bytes, bool write, const char *work)
{
    char what[64];
    late_use use = {.begin = offset,
                    .end = offset + bytes,
                    .write = write,
                    .slot = queue->slot,
                    .time = queue->clock.times[queue->slot]};
    snprintf(use.work, sizeof use.work, "%s", work);
    snprintf(what, sizeof what, "a %s of %zu", buffer->pinned ? "pinned buffer" : "buffer", buffer->base.bytes);
    late_uses_add(&buffer->uses, what, use, &queue->clock, &queue->device->host);
    late_loans_check(queue->device, buffer, &use);
    if (write)
        late_updated_note(buffer, use.begin, use.end, false);
    if (buffer->pinned && !write)
        late_pinned_hold(queue, buffer, offset, bytes, work);
}

void late_copy_use(cod_queue *queue, const late_range *range, const char *work)
{
    if (range->source != NULL)
        buffer_use(queue, range->source, range->source_offset, range->bytes, false, work);
    if (range->target != NULL)
        buffer_use(queue, range->target, range->target_offset, range->bytes, true, work);
}

bool late_is_packed(cod_op_kind kind)
{
    return kind == COD_OP_CONV2D || kind == COD_OP_CONV2D_BACKWARD_DATA || kind == COD_OP_LINEAR ||
           kind == COD_OP_LINEAR_BACKWARD_DATA;
}

/** Gradients of weights with dy in one buffer, and convolutions that shuffle into it, may share scratch memory. */
static void scratch_use(cod_queue *queue, const cod_op *op, const char *work)
{
    enum { DY = 1 };
    const bool gradient = op->kind == COD_OP_CONV2D_BACKWARD_WEIGHTS || op->kind == COD_OP_LINEAR_BACKWARD_WEIGHTS;
    if (!gradient && (op->kind != COD_OP_CONV2D || cod_op_shuffle(&op->attr) < 2))
        return;
    late_use use = {.end = 1, .write = true, .slot = queue->slot, .time = queue->clock.times[queue->slot]};
    snprintf(use.work, sizeof use.work, "%s", work);
    cod_buffer *shared_by = gradient ? op->inputs[DY].buffer : op->outputs[0].buffer;
    late_uses_add(&((late_buffer *)shared_by)->gradients, "scratch memory of gradients with a dy in one buffer", use,
                  &queue->clock, &queue->device->host);
}

/** Uses of an op's views: those that plans_prepare() reads, or all. */
static void op_use(cod_queue *queue, const cod_op *op, bool preparing, const char *work)
{
    enum { WEIGHT = 1, BIAS = 2, SLOPE = 3, RANGE = 5 };
    for (int i = 0; i < COD_OP_MAX_INPUTS; i++) {
        const cod_view *view = &op->inputs[i];
        const bool of_integers = op->attr.int8_range > 0 && (i == BIAS || i == SLOPE || i == RANGE);
        const bool parameter = late_is_packed(op->kind) && (i == WEIGHT || of_integers);
        if (view->buffer != NULL && (parameter || !preparing))
            buffer_use(queue, (late_buffer *)view->buffer, view->offset, cod_view_span_bytes(view), false, work);
    }
    for (int i = 0; i < COD_OP_MAX_OUTPUTS && !preparing; i++) {
        const cod_view *view = &op->outputs[i];
        if (view->buffer != NULL)
            buffer_use(queue, (late_buffer *)view->buffer, view->offset, cod_view_span_bytes(view), true, work);
    }
    if (op->kind == COD_OP_OPTIMISER && !preparing) {
        const cod_view *param = &op->outputs[0];
        late_updated_note((late_buffer *)param->buffer, param->offset, param->offset + cod_view_span_bytes(param),
                          true);
    }
}

void late_plan_use(cod_queue *queue, cod_plan *plan, late_kind kind)
{
    const cod_op *first = &plan->ops[0];
    const bool preparing = kind == LATE_PREPARE;
    bool packs = false;
    for (size_t i = 0; i < plan->count; i++)
        packs = packs || late_is_packed(plan->ops[i].kind);
    late_use own = {
        .end = 1, .write = preparing && packs, .slot = queue->slot, .time = queue->clock.times[queue->slot]};
    snprintf(own.work, sizeof own.work, "%s%s '%s'", preparing ? "plans_prepare() of " : "",
             cod_op_kind_name(first->kind), first->name != NULL ? first->name : "");
    late_uses_add(&plan->uses, "the plan's packed weights", own, &queue->clock, &queue->device->host);
    for (size_t i = 0; i < plan->count; i++) {
        op_use(queue, &plan->ops[i], preparing, own.work);
        if (!preparing)
            scratch_use(queue, &plan->ops[i], own.work);
    }
}
