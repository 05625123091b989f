#include "comm/device_steps.h"

#include "comm/group.h"
#include "core/memory.h"
#include "core/queue.h"
#include "core/rng.h"
#include "ordered_average.h"
#include "ref/ref.h"
#include "support/late.h"
#include "train/coded_allreduce.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { BUCKETS = 10, QUEUES = 2, DETOUR = 6, RANKS = 4 };

/** Ranks as if they ran on several nodes. */
static const int node_of[RANKS] = {0, 1, 0, 0};
/** The same where nodes must have equally many. The second places are not in the order of the nodes. */
static const int equal_node_of[RANKS] = {0, 1, 1, 0}, one_node[RANKS] = {0};

static cod_backend counted;
static atomic_size_t creations;
static cod_status (*inner_queue_create)(cod_device *, cod_queue **);
static cod_status (*inner_event_create)(cod_device *, cod_event **);
static cod_status (*inner_pinned_create)(cod_device *, size_t, cod_buffer **);

static cod_status count_queue(cod_device *device, cod_queue **out)
{
    atomic_fetch_add(&creations, 1);
    return inner_queue_create(device, out);
}

static cod_status count_event(cod_device *device, cod_event **out)
{
    atomic_fetch_add(&creations, 1);
    return inner_event_create(device, out);
}

static cod_status count_pinned(cod_device *device, size_t bytes, cod_buffer **out)
{
    atomic_fetch_add(&creations, 1);
    return inner_pinned_create(device, bytes, out);
}

const cod_backend *device_steps_late(void)
{
    counted = *cod_late_wrap(&cod_ref_backend);
    inner_queue_create = counted.queue_create;
    inner_event_create = counted.event_create;
    inner_pinned_create = counted.host_buffer_create;
    counted.queue_create = count_queue;
    counted.event_create = count_event;
    counted.host_buffer_create = count_pinned;
    return &counted;
}

/** Of one rank: gradients += source by bucket, then the average, then sums += gradients by bucket. */
typedef struct state {
    device_steps *work;
    const cod_backend *backend;
    cod_device *device;
    cod_group *group;
    cod_coded_allreduce *coded;
    ordered_average ordered;
    cod_collective *collective, *own; /**< own: the backend's */
    cod_queue *queues[QUEUES];
    cod_event *ready[BUCKETS];
    cod_buffer *source, *gradients, *sums, *aside[QUEUES], statistics;
    cod_plan *make[BUCKETS], *use[BUCKETS], *detour[QUEUES];
    cod_reduction *reductions[BUCKETS], *statistics_mean;
} state;

static size_t bucket_first(size_t bucket)
{
    return (size_t)STEP_VALUES * bucket / BUCKETS;
}

/** to += 0.7 · from, in the range; where backends may round this product or not, as a GPU does not, to += from. */
static cod_status new_addition(const state *s, cod_buffer *from, cod_buffer *to, size_t first, size_t end,
                               cod_plan **out)
{
    const cod_shape shape = {1, 1, 1, (int64_t)(end - first)};
    const float alpha = s->work->average == STEP_OWN ? 1 : 0.7F;
    cod_op op = {.kind = COD_OP_ADD, .accumulate = true, .attr.alpha = alpha, .name = "add"};
    op.inputs[0] = cod_view_dense(from, first * sizeof(float), COD_F32, shape);
    op.outputs[0] = cod_view_dense(to, first * sizeof(float), COD_F32, shape);
    return s->backend->plan_create(s->device, &op, out);
}

bool device_steps_nodes_are_equal(int ranks)
{
    return ranks != 3;
}

static cod_status open_own(state *s)
{
    unsigned char name[COD_COLLECTIVE_NAME_BYTES] = {0};
    const int rank = cod_group_rank(s->group);
    COD_TRY(s->backend->collective_name(s->device, rank == 0 ? name : NULL));
    COD_TRY(cod_group_broadcast(s->group, name, sizeof name, 0));
    COD_TRY(s->backend->collective_create(s->device, name, rank, cod_group_size(s->group), &s->own));
    s->collective = s->own;
    return COD_OK;
}

/** Without copies through the host, or what must come out of them. */
static cod_status open_direct(state *s)
{
    const int *nodes = s->work->average == STEP_DIRECT_BY_NODE ? equal_node_of : one_node;
    if (s->work->average == STEP_OWN && s->backend->memory != NULL)
        return open_own(s);
    if (s->backend->memory != NULL)
        return cod_group_average_direct(s->group, s->backend, s->device, nodes, &s->collective);
    s->collective = ordered_average_init(&s->ordered, s->group, nodes);
    return COD_OK;
}

static cod_status open_group(state *s, cod_comm *comm)
{
    const int size = cod_comm_size(comm);
    COD_TRY(cod_group_create(comm, &size, 1, &s->group));
    if (s->work->average == STEP_BY_NODE)
        COD_TRY(cod_group_average_by_node(s->group, node_of));
    COD_TRY(cod_group_use_device(s->group, s->backend, s->device));
    s->collective = cod_group_collective(s->group);
    if (s->work->average >= STEP_DIRECT)
        return open_direct(s);
    if (s->work->average != STEP_CODED)
        return COD_OK;
    COD_TRY(cod_coded_allreduce_create(s->group, STEP_VALUES, &s->coded));
    s->collective = cod_coded_allreduce_collective(s->coded);
    return COD_OK;
}

static cod_status open_plans(state *s)
{
    for (size_t b = 0; b < BUCKETS; b++) {
        const size_t first = bucket_first(b), end = bucket_first(b + 1);
        COD_TRY(cod_event_create(s->backend, s->device, &s->ready[b]));
        COD_TRY(new_addition(s, s->source, s->gradients, first, end, &s->make[b]));
        COD_TRY(new_addition(s, s->gradients, s->sums, first, end, &s->use[b]));
    }
    for (size_t q = 0; q < QUEUES; q++)
        COD_TRY(new_addition(s, s->source, s->aside[q], 0, STEP_VALUES, &s->detour[q]));
    return COD_OK;
}

static cod_status open_state(state *s, cod_comm *comm)
{
    static const size_t bytes = STEP_VALUES * sizeof(float);
    const cod_backend *b = s->backend;
    cod_event *uploaded;
    float *values = s->work->gradients; /* free until the end */
    COD_TRY(b->open(NULL, &s->device));
    COD_TRY(open_group(s, comm));
    COD_TRY(b->buffer_create(s->device, bytes, &s->source));
    COD_TRY(b->buffer_create(s->device, bytes, &s->gradients));
    COD_TRY(b->buffer_create(s->device, bytes, &s->sums));
    COD_TRY(b->buffer_create(s->device, bytes, &s->aside[0]));
    COD_TRY(b->buffer_create(s->device, bytes, &s->aside[1]));
    s->statistics = (cod_buffer){.host = s->work->statistics, .bytes = sizeof s->work->statistics};
    cod_rng rng = cod_rng_open(5, 0, (uint32_t)cod_comm_rank(comm), 0, COD_RNG_TEST, 0);
    for (size_t i = 0; i < STEP_VALUES; i++)
        values[i] = (float)cod_rng_normal(&rng);
    COD_TRY(b->upload(s->device, NULL, s->source, 0, values, bytes));
    COD_TRY(cod_event_create(b, s->device, &uploaded));
    COD_TRY(cod_event_record(b, uploaded, NULL));
    for (size_t q = 0; q < QUEUES; q++) {
        COD_TRY(cod_queue_create(b, s->device, &s->queues[q]));
        COD_TRY(cod_queue_wait(b, s->queues[q], uploaded));
    }
    cod_event_destroy(b, uploaded);
    return open_plans(s);
}

static void close_state(state *s)
{
    const cod_backend *b = s->backend;
    cod_coded_allreduce_destroy(s->coded);
    cod_group_leave_device(s->group);
    if (s->own != NULL)
        b->collective_destroy(s->device, s->own);
    for (size_t i = 0; i < BUCKETS; i++) {
        cod_event_destroy(b, s->ready[i]);
        b->plan_destroy(s->make[i]);
        b->plan_destroy(s->use[i]);
    }
    for (size_t q = 0; q < QUEUES; q++) {
        b->plan_destroy(s->detour[q]);
        cod_queue_destroy(b, s->queues[q]);
        b->buffer_destroy(s->device, s->aside[q]);
    }
    b->buffer_destroy(s->device, s->source);
    b->buffer_destroy(s->device, s->gradients);
    b->buffer_destroy(s->device, s->sums);
    b->close(s->device);
    cod_group_destroy(s->group);
}

/** Backward: the last bucket first. Neighbouring ranks have different slow queues, so their events differ in order. */
static cod_status start_averages(state *s, int step)
{
    const cod_collective_ops *ops = s->collective->ops;
    cod_collective *host = cod_group_collective(s->group);
    const size_t slow = (size_t)(s->collective->rank + step) % QUEUES;
    for (int i = 0; i < DETOUR; i++)
        COD_TRY(s->backend->plan_run(s->detour[slow], s->queues[slow]));
    for (size_t b = BUCKETS; b-- > 0;) {
        const size_t first = bucket_first(b), count = bucket_first(b + 1) - first;
        cod_event *ready = s->work->mistake == STEP_NO_READY ? NULL : s->ready[b];
        COD_TRY(s->backend->plan_run(s->make[b], s->queues[b % QUEUES]));
        COD_TRY(cod_event_record(s->backend, ready, s->queues[b % QUEUES]));
        COD_TRY(
            ops->average_start(s->collective, s->gradients, first * sizeof(float), count, ready, &s->reductions[b]));
        if (b == BUCKETS / 2 && s->work->average != STEP_CODED)
            COD_TRY(host->ops->average_start(host, &s->statistics, 0, STEP_STATISTICS, NULL, &s->statistics_mean));
    }
    return COD_OK;
}

static cod_status end_averages(state *s)
{
    const cod_collective_ops *ops = s->collective->ops;
    for (size_t i = 0; i < BUCKETS; i++) {
        const size_t b = (i * 7 + (size_t)s->collective->rank) % BUCKETS, queue = b % QUEUES;
        const bool wrong = s->work->mistake == STEP_OTHER_QUEUE, early = s->work->mistake == STEP_TOO_EARLY;
        if (early)
            COD_TRY(s->backend->plan_run(s->use[b], s->queues[queue]));
        COD_TRY(ops->wait(s->reductions[b], s->queues[wrong ? 1 - queue : queue]));
        if (!early)
            COD_TRY(s->backend->plan_run(s->use[b], s->queues[queue]));
    }
    cod_reduction *statistics_mean = s->statistics_mean;
    s->statistics_mean = NULL;
    return cod_group_collective(s->group)->ops->wait(statistics_mean, NULL);
}

/**
 * While one device is held, no average is done, and the group's other messages still find their partners: on some ranks
 * averages have begun, on others not.
 */
static cod_status look_while_held(state *s)
{
    COD_TRY(cod_group_barrier(s->group));
    for (size_t b = 0; b < BUCKETS; b++) {
        bool done;
        COD_TRY(s->collective->ops->test(s->reductions[b], &done));
        s->work->early = s->work->early || done;
    }
    return cod_group_barrier(s->group);
}

static cod_status one_step(state *s, int step)
{
    const bool holds = step == 1 && s->work->holds;
    for (size_t i = 0; i < STEP_STATISTICS; i++)
        s->work->statistics[i] = (float)(s->collective->rank + 1) / (float)(i + (size_t)step + 3);
    if (holds)
        cod_late_hold(s->device, true);
    COD_TRY(start_averages(s, step));
    if (step == 1)
        COD_TRY(look_while_held(s));
    if (holds)
        cod_late_hold(s->device, false);
    return end_averages(s);
}

static cod_status read_results(state *s)
{
    cod_event *end;
    COD_TRY(cod_event_create(s->backend, s->device, &end));
    for (size_t q = 0; q < QUEUES; q++) {
        COD_TRY(cod_event_record(s->backend, end, s->queues[q]));
        COD_TRY(cod_event_wait(s->backend, end));
    }
    cod_event_destroy(s->backend, end);
    COD_TRY(s->backend->download(s->device, NULL, s->work->gradients, s->gradients, 0, sizeof s->work->gradients));
    return s->backend->download(s->device, NULL, s->work->sums, s->sums, 0, sizeof s->work->sums);
}

cod_status device_steps_run(cod_comm *comm, device_steps *work)
{
    state s = {.work = work, .backend = work->backend};
    COD_TRY(open_state(&s, comm));
    COD_TRY(one_step(&s, 0));
    COD_TRY(cod_group_barrier(s.group));
    const size_t crossed = cod_late_crossings(), created = atomic_load(&creations);
    const size_t allocated = cod_aligned_alloc_count();
    COD_TRY(cod_group_barrier(s.group));
    for (int step = 1; step < work->steps; step++)
        COD_TRY(one_step(&s, step));
    COD_TRY(cod_group_barrier(s.group));
    work->crossings = cod_late_crossings() - crossed;
    work->creations = atomic_load(&creations) - created;
    work->allocations = cod_aligned_alloc_count() - allocated;
    COD_TRY(cod_group_barrier(s.group));
    COD_TRY(read_results(&s));
    close_state(&s);
    return COD_OK;
}

device_steps *device_steps_create(const cod_backend *backend, step_average average, step_mistake mistake, int steps)
{
    device_steps *created = calloc(1, sizeof *created);
    if (created != NULL) {
        created->backend = backend;
        created->average = average;
        created->mistake = mistake;
        created->steps = steps;
    }
    return created;
}

bool device_steps_are_equal(const device_steps *a, const device_steps *b)
{
    return memcmp(a->gradients, b->gradients, sizeof a->gradients) == 0 &&
           memcmp(a->sums, b->sums, sizeof a->sums) == 0 &&
           memcmp(a->statistics, b->statistics, sizeof a->statistics) == 0;
}
