/* The late backend around `ref`: the bits of `ref` through queues, events and recordings; missing waits are found. */
#include "support/test.h"

#include "core/queue.h"
#include "core/rng.h"
#include "late_pair.h"
#include "ref/ref.h"
#include "support/copies.h"
#include "support/late.h"
#include "support/late_internal.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

/** The queues have long done their work, but the host has not looked. */
static void sleep_long(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
}

TEST(every_op_has_the_bits_of_ref)
{
    cod_test_device ref = {&cod_ref_backend, NULL};
    assert_ok(ref.backend->open(NULL, &ref.device));
    for (int kind = 0; kind < COD_TEST_KINDS; kind++) {
        for (uint64_t seed = 0; seed < 4; seed++) {
            const cod_op op = cod_test_random_op((cod_op_kind)kind, COD_BF16, COD_F32, seed);
            assert_ok(cod_test_parity(ref, late, &op, seed, (cod_tolerance){0, 0}));
        }
    }
    ref.backend->close(ref.device);
    expect_none();
}

TEST(copies_arrive)
{
    cod_test_copies(late);
    expect_none();
}

enum { SLOTS = 2, STEPS = 20 };

/** A training loop in small: batches through pinned slots on a copy queue, a recorded chain, results back. */
typedef struct loop {
    cod_test_device on;
    cod_queue *copies, *work;
    cod_buffer *in[SLOTS], *out[SLOTS], *batch[SLOTS], *kept, *weight;
    cod_event *copied[SLOTS], *used[SLOTS], *returned[SLOTS];
    cod_plan *chain[SLOTS][3];
    cod_recording *recordings[SLOTS];
} loop;

static void loop_run_chain(const loop *l, size_t slot)
{
    for (size_t i = 0; i < 3; i++)
        assert_ok(l->on.backend->plan_run(l->chain[slot][i], l->work));
    assert_ok(l->on.backend->copy(l->on.device, l->work, l->out[slot], 0, l->kept, 0, BYTES));
}

static void loop_open(loop *l, cod_test_device on)
{
    const cod_backend *b = on.backend;
    *l = (loop){.on = on};
    assert_ok(cod_queue_create(b, on.device, &l->copies));
    assert_ok(cod_queue_create(b, on.device, &l->work));
    assert_ok(b->buffer_create(on.device, BYTES, &l->kept));
    assert_ok(b->buffer_create(on.device, BYTES, &l->weight));
    for (size_t s = 0; s < SLOTS; s++) {
        assert_ok(b->host_buffer_create(on.device, BYTES, &l->in[s]));
        assert_ok(b->host_buffer_create(on.device, BYTES, &l->out[s]));
        assert_ok(b->buffer_create(on.device, BYTES, &l->batch[s]));
        assert_ok(cod_event_create(b, on.device, &l->copied[s]));
        assert_ok(cod_event_create(b, on.device, &l->used[s]));
        assert_ok(cod_event_create(b, on.device, &l->returned[s]));
        l->chain[s][0] = new_scale(on, "in", 0.75f, l->batch[s], l->weight);
        l->chain[s][1] = new_scale(on, "double", 1.0f / 3, l->weight, l->batch[s]);
        cod_op sum = {.kind = COD_OP_ADD, .attr = {.alpha = 0.5f, .beta = 1}, .name = "sum"};
        sum.inputs[0] = sum.outputs[0] = cod_view_dense(l->kept, 0, COD_F32, (cod_shape){1, 1, 1, COUNT});
        sum.inputs[1] = cod_view_dense(l->batch[s], 0, COD_F32, (cod_shape){1, 1, 1, COUNT});
        assert_ok(b->plan_create(on.device, &sum, &l->chain[s][2]));
        if (!cod_backend_records(b))
            continue;
        assert_ok(b->capture_begin(on.device, l->work));
        loop_run_chain(l, s);
        assert_ok(b->capture_end(on.device, l->work, &l->recordings[s]));
    }
}

static void loop_close(loop *l)
{
    const cod_backend *b = l->on.backend;
    for (size_t s = 0; s < SLOTS; s++) {
        if (l->recordings[s] != NULL)
            b->recording_destroy(l->recordings[s]);
        for (size_t i = 0; i < 3; i++)
            b->plan_destroy(l->chain[s][i]);
        cod_event_destroy(b, l->copied[s]);
        cod_event_destroy(b, l->used[s]);
        cod_event_destroy(b, l->returned[s]);
    }
    cod_queue_destroy(b, l->copies);
    cod_queue_destroy(b, l->work);
    for (size_t s = 0; s < SLOTS; s++) {
        b->host_buffer_destroy(l->on.device, l->in[s]);
        b->host_buffer_destroy(l->on.device, l->out[s]);
        b->buffer_destroy(l->on.device, l->batch[s]);
    }
    b->buffer_destroy(l->on.device, l->kept);
    b->buffer_destroy(l->on.device, l->weight);
}

/** One step; its result is that of SLOTS steps before. */
static void loop_step(const loop *l, int step, float *result)
{
    const cod_backend *b = l->on.backend;
    const size_t s = (size_t)step % SLOTS;
    cod_rng rng = cod_rng_open(1, 0, 0, (uint64_t)step, COD_RNG_TEST, 0);
    assert_ok(cod_event_wait(b, l->returned[s])); /* so the input of that step was read too */
    memcpy(result, l->out[s]->host, BYTES);
    for (size_t i = 0; i < COUNT; i++)
        ((float *)l->in[s]->host)[i] = (float)cod_rng_normal(&rng);
    assert_ok(cod_queue_wait(b, l->copies, l->used[s]));
    assert_ok(b->copy(l->on.device, l->copies, l->batch[s], 0, l->in[s], 0, BYTES));
    assert_ok(cod_event_record(b, l->copied[s], l->copies));
    assert_ok(cod_queue_wait(b, l->work, l->copied[s]));
    if (l->recordings[s] != NULL)
        assert_ok(b->recording_run(l->recordings[s], l->work));
    else
        loop_run_chain(l, s);
    assert_ok(cod_event_record(b, l->used[s], l->work));
    assert_ok(cod_event_record(b, l->returned[s], l->work));
}

TEST(a_loop_of_queues_has_the_bits_of_ref)
{
    cod_test_device ref = {&cod_ref_backend, NULL};
    loop expected, tested;
    float a[COUNT], b[COUNT];
    assert_ok(ref.backend->open(NULL, &ref.device));
    loop_open(&expected, ref);
    loop_open(&tested, late);
    for (int step = 0; step < STEPS; step++) {
        loop_step(&expected, step, a);
        loop_step(&tested, step, b);
        assert_memory_equal(a, b, sizeof a);
    }
    assert_true(a[0] != 0);
    loop_close(&expected);
    loop_close(&tested);
    ref.backend->close(ref.device);
    expect_none();
}

/** Long runs without the host's waiting keep few records of what was used. */
TEST(memory_stays_bounded)
{
    pair p = pair_open();
    cod_event *back = new_event();
    for (int i = 0; i < 500; i++) {
        assert_ok(late.backend->queue_wait(p.queues[0], back));
        assert_ok(late.backend->plan_run(p.first, p.queues[0]));
        assert_ok(late.backend->event_record(p.event, p.queues[0]));
        assert_ok(late.backend->queue_wait(p.queues[1], p.event));
        assert_ok(late.backend->plan_run(p.second, p.queues[1]));
        assert_ok(late.backend->event_record(back, p.queues[1]));
    }
    for (size_t i = 0; i < 3; i++)
        assert_true(((late_buffer *)p.buffers[i])->uses.count <= 4);
    late.backend->event_destroy(back);
    pair_close(&p);
    expect_none();
}

TEST(a_missing_event_wait_is_found)
{
    const cod_backend *b = late.backend;
    for (int wait = 0; wait < 2; wait++) {
        pair p = pair_open();
        assert_ok(b->plan_run(p.first, p.queues[0]));
        assert_ok(b->event_record(p.event, p.queues[0]));
        sleep_long(); /* being lucky does not count */
        if (wait)
            assert_ok(b->queue_wait(p.queues[1], p.event));
        assert_ok(b->plan_run(p.second, p.queues[1]));
        if (wait)
            expect_none();
        else
            expect_violation(
                "a missing event wait: add 'second' in queue 2 reads bytes 0 to 256 of a buffer of 256, and "
                "add 'first' in queue 1, which nothing orders before it, writes bytes 0 to 256");
        /* The other way round: the first is overwritten while the second may still read. */
        assert_ok(b->plan_run(p.first, p.queues[0]));
        expect_violation("and add 'second' in queue 2, which nothing orders before it, reads");
        /* A copy to memory that the default queue wrote. */
        assert_ok(b->upload(late.device, NULL, p.buffers[0], 0, p.pinned->host, BYTES));
        expect_violation("upload() in queue 0 writes bytes 0 to 256 of a buffer of 256, and add 'first'");
        assert_ok(b->put(late.device, p.queues[1], p.buffers[0], 4, p.pinned->host, 8));
        expect_violation("put() in queue 2 writes bytes 4 to 12 of a buffer of 256, and ");
        pair_close(&p);
        expect_none();
    }
}

TEST(the_host_and_third_queues_order_too)
{
    const cod_backend *b = late.backend;
    pair p = pair_open();
    cod_queue *third = new_queue();
    cod_event *end = new_event();
    assert_ok(b->plan_run(p.first, p.queues[0]));
    assert_ok(b->event_record(p.event, p.queues[0]));
    assert_ok(b->queue_wait(third, p.event));
    assert_ok(b->event_record(end, third));
    assert_ok(b->queue_wait(p.queues[1], end));
    assert_ok(b->plan_run(p.second, p.queues[1])); /* by way of the third queue */
    assert_ok(b->event_record(end, p.queues[1]));
    assert_ok(b->event_wait(end));
    assert_ok(b->plan_run(p.first, p.queues[0])); /* by way of the host */
    b->queue_destroy(p.queues[0]);
    p.queues[0] = new_queue(); /* in the slot of the former */
    assert_ok(b->plan_run(p.second, p.queues[0]));
    expect_none();
    assert_ok(b->plan_run(p.second, third));
    expect_violation("add 'second' in queue 3 writes");
    b->queue_destroy(third);
    b->event_destroy(end);
    pair_close(&p);
}

TEST(packing_in_another_queue_is_found)
{
    const cod_op op = cod_test_random_op(COD_OP_LINEAR, COD_F32, COD_F32, 1);
    cod_test_op test;
    cod_queue *queue = new_queue();
    assert_ok(cod_test_op_init(&test, late, &op));
    assert_ok(late.backend->plans_prepare(late.device, &test.plan, 1, NULL));
    assert_ok(late.backend->plan_run(test.plan, NULL));
    expect_none();
    assert_ok(late.backend->plans_prepare(late.device, &test.plan, 1, queue));
    expect_violation("plans_prepare() of linear");
    cod_test_op_clear(&test);
    late.backend->queue_destroy(queue);
}

/** Gradients of weights share scratch memory where their dy lie in one buffer, though they only read it. */
TEST(gradients_that_share_scratch_are_ordered)
{
    const cod_backend *b = late.backend;
    const cod_op description = cod_test_random_op(COD_OP_LINEAR_BACKWARD_WEIGHTS, COD_F32, COD_F32, 1);
    for (int shared = 0; shared < 2; shared++) {
        cod_test_op first, second;
        cod_plan *plan;
        cod_queue *queue = new_queue();
        cod_event *event = new_event();
        assert_ok(cod_test_op_init(&first, late, &description));
        assert_ok(cod_test_op_init(&second, late, &description));
        if (shared)
            second.op.inputs[1] = first.op.inputs[1];
        assert_ok(b->plan_create(late.device, &second.op, &plan));
        assert_ok(b->plan_run(first.plan, NULL));
        assert_ok(b->event_record(event, NULL));
        assert_ok(b->queue_wait(queue, event));
        assert_ok(b->plan_run(plan, queue));
        expect_none();
        assert_ok(b->plan_run(first.plan, NULL));
        if (shared)
            expect_violation("bytes 0 to 1 of scratch memory of gradients with a dy in one buffer");
        else
            expect_none();
        b->plan_destroy(plan);
        cod_test_op_clear(&second);
        cod_test_op_clear(&first);
        b->event_destroy(event);
        b->queue_destroy(queue);
    }
}

/** Convolutions that shuffle pixels have the same scratch memory, by what they write, though not the same pixels. */
TEST(shuffles_that_share_scratch_are_ordered)
{
    const cod_backend *b = late.backend;
    const cod_test_layer layer = {1, 3, 3, 4, 4, 1, 1, 0};
    for (int factor = 0; factor <= 2; factor += 2) {
        cod_op op = cod_test_layer_op(&layer, COD_OP_CONV2D, (cod_test_layout){COD_F32, COD_F32, 0, 0}, factor);
        const size_t bytes = cod_view_span_bytes(&op.outputs[0]);
        cod_test_op first, second;
        cod_plan *plan;
        cod_buffer *both;
        cod_queue *queue = new_queue();
        assert_ok(b->buffer_create(late.device, 2 * bytes, &both));
        assert_ok(cod_test_op_init(&first, late, &op));
        assert_ok(cod_test_op_init(&second, late, &op));
        first.op.outputs[0].buffer = second.op.outputs[0].buffer = both;
        first.op.outputs[0].offset = 0;
        second.op.outputs[0].offset = bytes;
        b->plan_destroy(first.plan);
        assert_ok(b->plan_create(late.device, &first.op, &first.plan));
        assert_ok(b->plan_create(late.device, &second.op, &plan));
        assert_ok(b->plan_run(first.plan, NULL));
        expect_none();
        assert_ok(b->plan_run(plan, queue));
        if (factor > 1)
            expect_violation("bytes 0 to 1 of scratch memory of gradients with a dy in one buffer");
        else
            expect_none();
        b->queue_destroy(queue);
        b->plan_destroy(plan);
        cod_test_op_clear(&second);
        cod_test_op_clear(&first);
        b->buffer_destroy(late.device, both);
    }
}

/** An update of `count` values of the buffer from the first on, by gradients and rates of zero. */
static cod_plan *new_update(cod_buffer *values, cod_buffer *zeros, int64_t first, int64_t count)
{
    cod_op op = {.kind = COD_OP_OPTIMISER, .attr.optimiser = COD_OPT_SGD, .name = "sgd"};
    cod_plan *plan;
    op.inputs[0] = cod_view_dense(zeros, 0, COD_F32, (cod_shape){1, 1, 1, count});
    op.inputs[1] = cod_view_dense(zeros, 0, COD_F32, (cod_shape){1, 1, 1, 4});
    op.outputs[0] = cod_view_dense(values, (size_t)first * sizeof(float), COD_F32, (cod_shape){1, 1, 1, count});
    assert_ok(late.backend->plan_create(late.device, &op, &plan));
    return plan;
}

TEST(weights_that_no_update_wrote_last_are_found)
{
    enum { SIDE = 4, VALUES = SIDE * SIDE, HALF = VALUES / 2 };
    const cod_backend *b = late.backend;
    cod_buffer *values, *zeros, *x;
    cod_plan *linear, *halves[2];
    cod_recording *recording;
    const float one = 1;
    assert_ok(b->buffer_create(late.device, VALUES * sizeof(float), &values));
    assert_ok(b->buffer_create(late.device, VALUES * sizeof(float), &zeros));
    assert_ok(b->buffer_create(late.device, 2 * SIDE * sizeof(float), &x));
    cod_op op = {.kind = COD_OP_LINEAR, .name = "layer"};
    op.inputs[0] = cod_view_dense(x, 0, COD_F32, (cod_shape){1, 1, 1, SIDE});
    op.inputs[1] = cod_view_dense(values, 0, COD_F32, (cod_shape){SIDE, 1, 1, SIDE});
    op.outputs[0] = cod_view_dense(x, SIDE * sizeof(float), COD_F32, (cod_shape){1, 1, 1, SIDE});
    assert_ok(b->plan_create(late.device, &op, &linear));
    halves[0] = new_update(values, zeros, 0, HALF);
    halves[1] = new_update(values, zeros, HALF, HALF);
    assert_ok(b->plan_run(halves[1], NULL));
    assert_ok(b->plans_prepare_updated(late.device, &linear, 1, NULL));
    expect_violation("plans_prepare_updated() of linear 'layer'"); /* one half was never updated */
    assert_ok(b->plan_run(halves[0], NULL));
    assert_ok(b->plans_prepare_updated(late.device, &linear, 1, NULL));
    expect_none();
    for (size_t at = 0; at < VALUES; at += VALUES - 1) { /* what a merge, a load or an average does */
        assert_ok(b->upload(late.device, NULL, values, at * sizeof one, &one, sizeof one));
        assert_ok(b->plans_prepare_updated(late.device, &linear, 1, NULL));
        expect_violation("what wrote bytes 0 to 64 of a buffer of 64 last was no update");
        assert_ok(b->plans_prepare(late.device, &linear, 1, NULL));
        assert_ok(b->capture_begin(late.device, NULL));
        assert_ok(b->plan_run(halves[at > 0], NULL));
        assert_ok(b->capture_end(late.device, NULL, &recording));
        assert_ok(b->recording_run(recording, NULL));
        assert_ok(b->plans_prepare_updated(late.device, &linear, 1, NULL));
        expect_none();
        b->recording_destroy(recording);
    }
    /* Recorded, it is checked in each replay. */
    assert_ok(b->capture_begin(late.device, NULL));
    assert_ok(b->plans_prepare_updated(late.device, &linear, 1, NULL));
    assert_ok(b->plan_run(linear, NULL));
    assert_ok(b->capture_end(late.device, NULL, &recording));
    assert_ok(b->recording_run(recording, NULL));
    expect_none();
    assert_ok(b->upload(late.device, NULL, values, 0, &one, sizeof one));
    assert_ok(b->recording_run(recording, NULL));
    expect_violation("what wrote bytes 0 to 64 of a buffer of 64 last was no update");
    b->recording_destroy(recording);
    b->plan_destroy(linear), b->plan_destroy(halves[0]), b->plan_destroy(halves[1]);
    b->buffer_destroy(late.device, values), b->buffer_destroy(late.device, zeros), b->buffer_destroy(late.device, x);
}

TEST(failures_of_queued_work_come_out)
{
    const cod_backend *b = late.backend;
    bool reached;
    for (int call = 0; call < 2; call++) {
        pair p = pair_open();
        misdeed.call = call != 0;
        misdeed.fail = call == 0;
        const char *reason =
            call ? "buffer_create() was called from within queued work" : "queued work: planted failure";
        assert_ok(b->plan_run(p.first, p.queues[0]));
        assert_ok(b->event_record(p.event, p.queues[0]));
        assert_fails(call ? COD_ERR_BACKEND : COD_ERR_NUMERIC, reason, b->event_wait(p.event));
        assert_fails(call ? COD_ERR_BACKEND : COD_ERR_NUMERIC, reason, b->event_query(p.event, &reached));
        if (call)
            expect_violation(reason);
        misdeed.call = misdeed.fail = false;
        pair_close(&p);
        expect_none();
        close_late(state); /* the device has failed for good */
        assert_int_equal(open_late(state), 0);
    }
}

static void *wait_elsewhere(void *context)
{
    bool reached = false;
    while (!reached)
        if (late.backend->event_query(context, &reached) != COD_OK)
            return NULL;
    return late.backend->event_wait(context) == COD_OK ? context : NULL;
}

TEST(events_are_asked_from_any_thread)
{
    const cod_backend *b = late.backend;
    pair p = pair_open();
    bool reached = false;
    pthread_t thread;
    void *seen = NULL;
    assert_ok(b->event_query(p.event, &reached));
    assert_true(reached); /* never recorded */
    cod_late_hold(late.device, true);
    assert_ok(b->plan_run(p.first, p.queues[0]));
    assert_ok(b->event_record(p.event, p.queues[0]));
    assert_ok(b->event_query(p.event, &reached));
    assert_false(reached);
    assert_int_equal(pthread_create(&thread, NULL, wait_elsewhere, p.event), 0);
    cod_late_hold(late.device, false);
    pthread_join(thread, &seen);
    assert_ptr_equal(seen, p.event);
    assert_ok(b->plan_run(p.second, p.queues[1])); /* what one thread of the host has seen, all have */
    pair_close(&p);
    expect_none();
}

TEST(a_queue_of_another_device_is_found)
{
    const cod_backend *b = late.backend;
    cod_device *other;
    cod_queue *queue;
    pair p = pair_open();
    assert_ok(b->open(NULL, &other));
    assert_ok(b->queue_create(other, &queue));
    for (int use = 0; use < 4; use++) {
        assert_ok(use == 0   ? b->plan_run(p.first, queue)
                  : use == 1 ? copy_all(queue, p.buffers[2], p.pinned)
                  : use == 2 ? b->event_record(p.event, queue)
                             : b->queue_wait(queue, p.event));
        expect_violation("a queue of another device");
    }
    b->queue_destroy(queue);
    b->close(other);
    pair_close(&p);
    expect_none();
}

TEST(crossings_are_counted)
{
    const cod_backend *b = late.backend;
    pair p = pair_open();
    bool reached = false;
    float values[COUNT] = {0};
    size_t start = cod_late_crossings();
    assert_ok(copy_all(p.queues[0], p.buffers[0], p.pinned));
    assert_ok(b->plan_run(p.first, p.queues[0]));
    assert_ok(b->event_record(p.event, p.queues[0]));
    while (!reached)
        assert_ok(b->event_query(p.event, &reached));
    assert_ok(b->event_wait(p.event));
    assert_ok(b->put(late.device, p.queues[0], p.buffers[0], 0, values, BYTES));
    assert_int_equal(cod_late_crossings(), start);
    assert_ok(b->upload(late.device, p.queues[0], p.buffers[0], 0, values, BYTES));
    assert_ok(b->download(late.device, p.queues[0], values, p.buffers[0], 0, BYTES));
    assert_int_equal(cod_late_crossings(), start + 2);
    cod_late_hold(late.device, true);
    assert_ok(b->plan_run(p.first, p.queues[0]));
    assert_ok(b->event_record(p.event, p.queues[0]));
    assert_ok(b->event_wait(p.event)); /* ends the hold */
    assert_int_equal(cod_late_crossings(), start + 3);
    cod_late_hold(late.device, true);
    assert_ok(b->plan_run(p.first, p.queues[0]));
    b->plan_destroy(p.first);
    p.first = NULL;
    assert_int_equal(cod_late_crossings(), start + 4);
    pair_close(&p);
    expect_none();
}

TEST_GROUP(open_late, close_late)
