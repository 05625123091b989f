#include "exchange/merge.h"

#include "core/queue.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/** Values of one item of the target that a range has: where they lie in it, and where they belong. */
typedef struct part {
    size_t first, count;
    cod_buffer *target;
    size_t offset;      /**< bytes in it */
    cod_plan *subtract; /**< what the target holds, from the change; NULL where the backend runs at once */
    cod_plan *add;      /**< the change to the target; likewise */
} part;

/** Multiplies the trainable values of the change, or the states, by a factor. */
typedef struct scaling {
    bool states;
    float factor;
    cod_plan *plan;
    struct scaling *next;
} scaling;

/** A range of the values, which is merged by itself. */
typedef struct fragment {
    size_t first, trainable, state; /**< values of the target from `first` on: trainable ones, then states */
    cod_plan *compare;              /**< `own` from the change; NULL = at-once backend, or none is trainable */
    part *parts;                    /**< [part_count] of trainable values, then of states */
    size_t trainable_parts, part_count;
    scaling *scalings; /**< made as factors come: a peer's are always the same */
} fragment;

struct cod_merger {
    const cod_backend *backend;
    cod_device *device;
    size_t trainable, state; /**< values of the target */
    /* Of a device with queues; a backend that runs at once needs none of it. */
    cod_buffer *host;    /**< [of the largest fragment] pinned */
    cod_event *copied;   /**< it may be written again */
    cod_buffer *change;  /**< the same on the device */
    cod_buffer *own;     /**< the same, what a peer on the device is compared with; NULL = at-once backend */
    fragment *fragments; /**< [fragment_count] */
    size_t fragment_count;
};

static cod_status plan_add(const cod_merger *merger, cod_view from, cod_view to, bool accumulate, float factor,
                           cod_plan **out)
{
    const cod_op op = {.kind = COD_OP_ADD,
                       .accumulate = accumulate,
                       .attr = {.alpha = factor},
                       .inputs = {from},
                       .outputs = {to},
                       .name = "merge"};
    return merger->backend->plan_create(merger->device, &op, out);
}

static cod_view floats_of(cod_buffer *buffer, size_t offset, size_t count)
{
    return cod_view_dense(buffer, offset, COD_F32, (cod_shape){1, 1, 1, (int64_t)count});
}

/** A fragment's part of an item of the target, which is of the values from *at on, which moves on. */
static cod_status make_part(const cod_merger *merger, fragment *f, size_t *at, const cod_merge_values *item)
{
    const size_t begin = *at, count = item->count, end = f->first + f->trainable + f->state,
                 from = f->first > begin ? f->first : begin, to = end < begin + count ? end : begin + count;
    *at += count;
    if (from >= to)
        return COD_OK;
    part *p = &f->parts[f->part_count++];
    *p = (part){.first = from - f->first,
                .count = to - from,
                .target = item->buffer,
                .offset = item->offset + (from - begin) * sizeof(float)};
    if (cod_backend_runs_at_once(merger->backend))
        return COD_OK;
    const cod_view change = floats_of(merger->change, p->first * sizeof(float), p->count),
                   values = floats_of(p->target, p->offset, p->count);
    COD_TRY(plan_add(merger, values, change, true, -1, &p->subtract));
    return plan_add(merger, change, values, true, 1, &p->add);
}

static cod_status make_fragment(const cod_merger *merger, const cod_merge_target *target, fragment *f)
{
    size_t at = 0;
    f->parts = calloc(target->count + 1, sizeof *f->parts);
    COD_REQUIRE_MEMORY(f->parts);
    if (merger->own != NULL && f->trainable > 0)
        COD_TRY(plan_add(merger, floats_of(merger->own, 0, f->trainable), floats_of(merger->change, 0, f->trainable),
                         true, -1, &f->compare));
    for (size_t i = 0; i < target->count; i++) {
        COD_TRY(make_part(merger, f, &at, &target->values[i]));
        f->trainable_parts = i < target->trainable ? f->part_count : f->trainable_parts;
    }
    return COD_OK;
}

/** Cuts the target's values into fragments. @return values of the largest */
static size_t cut(cod_merger *merger, const size_t *ends)
{
    const size_t trainable = merger->trainable, all = trainable + merger->state;
    size_t first = 0, largest = 0;
    for (size_t i = 0; i < merger->fragment_count; i++) {
        const size_t end = ends != NULL ? ends[i] : all, middle = trainable < first ? first
                                                                  : trainable < end ? trainable
                                                                                    : end;
        merger->fragments[i] = (fragment){.first = first, .trainable = middle - first, .state = end - middle};
        largest = end - first > largest ? end - first : largest;
        first = end;
    }
    return largest;
}

static cod_status make(cod_merger *merger, const cod_merge_target *target, const size_t *ends, size_t count)
{
    const cod_backend *backend = merger->backend;
    merger->fragments = calloc(count, sizeof *merger->fragments);
    COD_REQUIRE_MEMORY(merger->fragments);
    merger->fragment_count = count;
    const size_t bytes = cut(merger, ends) * sizeof(float);
    if (!cod_backend_runs_at_once(backend)) {
        COD_TRY(backend->host_buffer_create(merger->device, bytes, &merger->host));
        COD_TRY(cod_event_create(backend, merger->device, &merger->copied));
        COD_TRY(backend->buffer_create(merger->device, bytes, &merger->change));
        if (merger->trainable > 0)
            COD_TRY(backend->buffer_create(merger->device, bytes, &merger->own));
    }
    for (size_t i = 0; i < count; i++)
        COD_TRY(make_fragment(merger, target, &merger->fragments[i]));
    return COD_OK;
}

cod_status cod_merger_create(const cod_merge_target *target, const size_t *ends, size_t count, cod_merger **out)
{
    cod_merger *merger = calloc(1, sizeof *merger);
    COD_REQUIRE_MEMORY(merger);
    *merger = (cod_merger){.backend = target->backend, .device = target->device};
    for (size_t i = 0; i < target->count; i++)
        *(i < target->trainable ? &merger->trainable : &merger->state) += target->values[i].count;
    const cod_status status = make(merger, target, ends, ends != NULL ? count : 1);
    if (status != COD_OK) {
        cod_merger_destroy(merger);
        return status;
    }
    *out = merger;
    return COD_OK;
}

static void clear_fragment(const cod_backend *backend, fragment *f)
{
    for (size_t i = 0; i < f->part_count; i++) {
        if (f->parts[i].subtract != NULL)
            backend->plan_destroy(f->parts[i].subtract);
        if (f->parts[i].add != NULL)
            backend->plan_destroy(f->parts[i].add);
    }
    free(f->parts);
    if (f->compare != NULL)
        backend->plan_destroy(f->compare);
    while (f->scalings != NULL) {
        scaling *s = f->scalings;
        f->scalings = s->next;
        backend->plan_destroy(s->plan);
        free(s);
    }
}

void cod_merger_destroy(cod_merger *merger)
{
    if (merger == NULL)
        return;
    const cod_backend *backend = merger->backend;
    for (size_t i = 0; i < merger->fragment_count; i++)
        clear_fragment(backend, &merger->fragments[i]);
    free(merger->fragments);
    if (merger->own != NULL)
        backend->buffer_destroy(merger->device, merger->own);
    if (merger->change != NULL)
        backend->buffer_destroy(merger->device, merger->change);
    cod_event_destroy(backend, merger->copied);
    if (merger->host != NULL)
        backend->host_buffer_destroy(merger->device, merger->host);
    free(merger);
}

double cod_merge_alpha(int64_t delay)
{
    return sin(3.14159265358979323846 / (4.0 * (double)delay + 2.0));
}

bool cod_merge_is_due(const cod_exchange_options *options, const cod_exchange_checkpoint *checkpoint, int64_t step,
                      cod_merge_turn *turn, cod_merge *out)
{
    const bool averages = options->merge == COD_MERGE_AVERAGE;
    if (options->merge == COD_MERGE_NONE || checkpoint->values == NULL || turn->version == checkpoint->version ||
        (!averages && (checkpoint->own == NULL || turn->own_version >= checkpoint->own_version)))
        return false;
    const int64_t late = step - (int64_t)checkpoint->own_version * cod_exchange_spacing(options);
    const double alpha = averages ? 1 : cod_merge_alpha(late > 0 ? late / options->period : 0);
    turn->version = checkpoint->version;
    turn->own_version = averages ? turn->own_version : checkpoint->own_version;
    *out = (cod_merge){.peer = checkpoint->values,
                       .own = averages ? NULL : checkpoint->own,
                       .alpha = options->merge_alpha > 0 ? options->merge_alpha : alpha};
    return true;
}

static cod_status make_scaling(const cod_merger *merger, fragment *f, bool states, float factor)
{
    const cod_view values =
        floats_of(merger->change, states ? f->trainable * sizeof(float) : 0, states ? f->state : f->trainable);
    scaling *s = calloc(1, sizeof *s);
    COD_REQUIRE_MEMORY(s);
    const cod_status status = plan_add(merger, values, values, false, factor, &s->plan);
    if (status != COD_OK) {
        free(s);
        return status;
    }
    *s = (scaling){.states = states, .factor = factor, .plan = s->plan, .next = f->scalings};
    f->scalings = s;
    return COD_OK;
}

static cod_status scale(const cod_merger *merger, fragment *f, bool states, float factor)
{
    const scaling *s = f->scalings;
    while (s != NULL && (s->states != states || s->factor != factor))
        s = s->next;
    if (s == NULL) {
        COD_TRY(make_scaling(merger, f, states, factor));
        s = f->scalings;
    }
    return merger->backend->plan_run(s->plan, NULL);
}

/** Makes of the peer's values, which the change holds, factor·(peer - target): of trainable ones, or of states. */
static cod_status compare(const cod_merger *merger, fragment *f, bool states, float factor)
{
    const size_t first = states ? f->trainable_parts : 0, end = states ? f->part_count : f->trainable_parts;
    for (size_t i = first; i < end; i++)
        COD_TRY(merger->backend->plan_run(f->parts[i].subtract, NULL));
    return end > first ? scale(merger, f, states, factor) : COD_OK;
}

/**
 * Queues the copy of values of the host to the change; in place of trainable ones factor·(peer - own), where `own` is
 * given.
 */
static cod_status send(const cod_merger *merger, const fragment *f, const float *peer, const float *own, float factor)
{
    const cod_backend *backend = merger->backend;
    const size_t trainable = f->trainable, state = f->state;
    const size_t bytes = (trainable + state) * sizeof(float);
    float *const host = merger->host->host;
    COD_TRY(cod_event_wait(backend, merger->copied));
    for (size_t i = 0; i < trainable; i++)
        host[i] = own != NULL ? factor * (peer[i] - own[i]) : peer[i];
    memcpy(host + trainable, peer + trainable, state * sizeof *host);
    COD_TRY(backend->copy(merger->device, NULL, merger->change, 0, merger->host, 0, bytes));
    return cod_event_record(backend, merger->copied, NULL);
}

/** The same of values in the device's memory, in the same steps of arithmetic. */
static cod_status compare_there(const cod_merger *merger, fragment *f, cod_buffer *peer, cod_buffer *own, float factor)
{
    const cod_backend *backend = merger->backend;
    const size_t trainable = f->trainable * sizeof(float);
    COD_TRY(backend->copy(merger->device, NULL, merger->change, 0, peer, 0, trainable + f->state * sizeof(float)));
    if (own == NULL || f->compare == NULL)
        return COD_OK;
    COD_TRY(backend->copy(merger->device, NULL, merger->own, 0, own, 0, trainable));
    COD_TRY(backend->plan_run(f->compare, NULL));
    return scale(merger, f, false, factor);
}

static cod_status queue(cod_merger *merger, const cod_merge *merge)
{
    fragment *f = &merger->fragments[merge->range];
    const float factor = (float)(merge->alpha * merge->share);
    COD_TRY(merge->peer->host == NULL
                ? compare_there(merger, f, merge->peer, merge->own, factor)
                : send(merger, f, merge->peer->host, merge->own != NULL ? merge->own->host : NULL, factor));
    if (merge->own == NULL)
        COD_TRY(compare(merger, f, false, factor));
    COD_TRY(compare(merger, f, true, (float)merge->share));
    for (size_t i = 0; i < f->part_count; i++)
        COD_TRY(merger->backend->plan_run(f->parts[i].add, NULL));
    return COD_OK;
}

static void add_difference(float *restrict values, const float *restrict peer, const float *restrict own, float factor,
                           size_t count)
{
    for (size_t i = 0; i < count; i++)
        values[i] += factor * (peer[i] - own[i]);
}

static void approach(float *restrict values, const float *restrict peer, float factor, size_t count)
{
    for (size_t i = 0; i < count; i++)
        values[i] += factor * (peer[i] - values[i]);
}

void cod_merge_floats(float *values, const float *peer, const float *own, float factor, size_t count)
{
    if (own != NULL)
        add_difference(values, peer, own, factor, count);
    else
        approach(values, peer, factor, count);
}

/**
 * Adds all merges of a range to values in the host's memory: to a block of them one after another, while caches hold
 * the block and what peers are measured from. The arithmetic of each value, and its order, are those of the queued
 * plans.
 */
static void add_at_once(const part *p, bool states, size_t range, const cod_merge *merges, size_t count)
{
    enum { BLOCK_VALUES = 2048 };
    float *const values = (float *)(void *)((char *)p->target->host + p->offset);
    for (size_t begin = 0; begin < p->count; begin += BLOCK_VALUES) {
        const size_t left = p->count - begin, block = left < BLOCK_VALUES ? left : BLOCK_VALUES;
        for (size_t k = 0; k < count; k++) {
            const cod_merge *merge = &merges[k];
            if (merge->range != range)
                continue;
            const float *peer = (const float *)merge->peer->host + p->first + begin;
            const float factor = (float)(states ? merge->share : merge->alpha * merge->share);
            const float *own = states || merge->own == NULL ? NULL : (const float *)merge->own->host + p->first + begin;
            cod_merge_floats(values + begin, peer, own, factor, block);
        }
    }
}

cod_status cod_merger_apply(cod_merger *merger, const cod_merge *merges, size_t count)
{
    const bool at_once = cod_backend_runs_at_once(merger->backend);
    if (count == 0)
        return COD_OK;
    for (size_t r = 0; at_once && r < merger->fragment_count; r++) {
        const fragment *f = &merger->fragments[r];
        for (size_t i = 0; i < f->part_count; i++)
            add_at_once(&f->parts[i], i >= f->trainable_parts, r, merges, count);
    }
    for (size_t k = 0; !at_once && k < count; k++)
        COD_TRY(queue(merger, &merges[k]));
    return COD_OK;
}
