/* The late backend's memory: pinned slots, what recordings hold, scratch. Each planted error is found. */
#include "support/test.h"

#include "late_pair.h"
#include "support/late.h"

#include <math.h>
#include <time.h>

TEST(a_host_that_reads_early_sees_nan)
{
    const cod_backend *b = late.backend;
    for (int held = 0; held < 2; held++) {
        pair p = pair_open();
        cod_buffer *back = new_pinned(BYTES);
        const float *values = back->host;
        const double *wide = back->host;
        assert_ok(copy_all(p.queues[0], p.buffers[0], p.pinned));
        cod_late_hold(late.device, held != 0);
        assert_ok(copy_all(p.queues[0], back, p.buffers[0]));
        assert_ok(b->event_record(p.event, p.queues[0]));
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL); /* the copy itself is done, but nobody asked */
        for (size_t i = 0; i < COUNT; i++)
            assert_true(isnan(values[i]) && isnan(wide[i / 2]));
        assert_ok(b->event_wait(p.event));
        for (size_t i = 0; i < COUNT; i++)
            assert_true(values[i] == (float)i);
        b->host_buffer_destroy(late.device, back);
        pair_close(&p);
        expect_none();
    }
}

TEST(a_slot_used_twice_is_found)
{
    const cod_backend *b = late.backend;
    float *values;
    for (int early = 0; early < 2; early++) {
        pair p = pair_open();
        values = p.pinned->host;
        assert_ok(copy_all(p.queues[0], p.buffers[0], p.pinned));
        assert_ok(b->event_record(p.event, p.queues[0]));
        if (early)
            values[7] = -1; /* at once, whatever the queue has done */
        assert_ok(b->event_wait(p.event));
        if (early)
            expect_violation(
                "a pinned slot was used again before it was read: bytes 0 to 256 of a pinned buffer of 256, "
                "which copy() of 256 bytes in queue 1 reads");
        values[7] = -2;
        assert_ok(copy_all(p.queues[0], p.buffers[0], p.pinned));
        if (early) {
            values[7] = -3;
            assert_ok(
                copy_all(p.queues[0], p.buffers[0], p.pinned)); /* nobody ever waits, but the slot is filled anew */
            expect_violation("a pinned slot was used again");
        }
        pair_close(&p);
        expect_none();
    }
}

/** An op in the default queue reads pinned memory; what the host or another queue does there too early is found. */
TEST(a_plan_reads_mapped_memory)
{
    const cod_backend *b = late.backend;
    for (int early = 0; early < 2; early++) {
        pair p = pair_open();
        float *values = p.pinned->host, back[COUNT];
        cod_plan *plan = new_scale(late, "mapped", 4, p.pinned, p.buffers[0]);
        cod_late_hold(late.device, true);
        assert_ok(b->plan_run(plan, p.queues[0]));
        assert_ok(b->event_record(p.event, p.queues[0]));
        if (early)
            values[7] = -1;
        cod_late_hold(late.device, false);
        assert_ok(b->event_wait(p.event));
        if (early)
            expect_violation(
                "a pinned slot was used again before it was read: bytes 0 to 256 of a pinned buffer of 256, "
                "which add 'mapped' in queue 1 reads");
        values[7] = -2;
        assert_ok(b->plan_run(plan, p.queues[0]));
        assert_ok(b->download(late.device, p.queues[0], back, p.buffers[0], 0, BYTES));
        for (size_t i = 0; i < COUNT; i++)
            assert_true(back[i] == 4 * values[i]);
        /*
         * A copy that fills the slot while the op may still read it: no event orders the two. The hold keeps the
         * threads that do the work apart, so that this process has no race.
         */
        cod_late_hold(late.device, true);
        assert_ok(b->plan_run(plan, p.queues[0]));
        assert_ok(copy_all(p.queues[1], p.pinned, p.buffers[2]));
        cod_late_hold(late.device, false);
        expect_violation(
            "copy() of 256 bytes in queue 2 writes bytes 0 to 256 of a pinned buffer of 256, and add 'mapped' "
            "in queue 1");
        b->plan_destroy(plan);
        pair_close(&p);
    }
}

TEST(plans_may_not_write_pinned_memory)
{
    pair p = pair_open();
    cod_op op = {.kind = COD_OP_FILL, .name = "ones"};
    cod_plan *plan;
    op.outputs[0] = cod_view_dense(p.pinned, 0, COD_F32, (cod_shape){1, 1, 1, COUNT});
    assert_fails(COD_ERR_ARGUMENT, "an output lies in pinned memory, which plans may only read",
                 late.backend->plan_create(late.device, &op, &plan));
    pair_close(&p);
    expect_none();
}

TEST(a_target_written_early_is_found)
{
    pair p = pair_open();
    assert_ok(copy_all(p.queues[0], p.pinned, p.buffers[0]));
    ((char *)p.pinned->host)[9] = 0;
    assert_ok(late.backend->event_record(p.event, p.queues[0]));
    assert_ok(late.backend->event_wait(p.event));
    expect_violation("the host wrote byte 9 of a pinned buffer of 256, which a copy in queue 1 had not yet written");
    pair_close(&p);
}

/** A queue may read and write one slot in its own order, whatever the host has seen. */
TEST(a_slot_may_turn_round_in_its_queue)
{
    const cod_backend *b = late.backend;
    pair p = pair_open();
    const float *values = p.pinned->host;
    float back[COUNT];
    assert_ok(copy_all(p.queues[0], p.buffers[0], p.pinned)); /* 0 … 63 */
    assert_ok(b->plan_run(p.first, p.queues[0]));
    assert_ok(copy_all(p.queues[0], p.pinned, p.buffers[1])); /* twice that */
    assert_ok(b->event_record(p.event, p.queues[0]));
    assert_ok(copy_all(p.queues[0], p.buffers[1], p.pinned));
    assert_ok(b->plan_run(p.second, p.queues[0]));
    assert_ok(b->event_wait(p.event));
    for (size_t i = 0; i < COUNT; i++)
        assert_true(values[i] == 2 * (float)i);
    assert_ok(b->download(late.device, p.queues[0], back, p.buffers[2], 0, BYTES));
    for (size_t i = 0; i < COUNT; i++)
        assert_true(back[i] == 6 * (float)i);
    pair_close(&p);
    expect_none();
}

TEST(pageable_memory_is_refused)
{
    char bytes[8] = {0};
    cod_buffer pageable = {.host = bytes, .bytes = sizeof bytes}, *buffer = new_buffer(8);
    assert_null(buffer->host);
    assert_fails(COD_ERR_ARGUMENT, "the source is of neither buffer_create() nor host_buffer_create()",
                 late.backend->copy(late.device, NULL, buffer, 0, &pageable, 0, 8));
    assert_fails(COD_ERR_ARGUMENT, "the target is of neither",
                 late.backend->copy(late.device, NULL, &pageable, 0, buffer, 0, 8));
    late.backend->buffer_destroy(late.device, buffer);
    expect_none();
}

static cod_recording *record(pair *p)
{
    cod_recording *recording;
    assert_ok(late.backend->capture_begin(late.device, p->queues[0]));
    assert_ok(late.backend->plan_run(p->first, p->queues[0]));
    assert_ok(copy_all(p->queues[0], p->pinned, p->buffers[1]));
    assert_ok(late.backend->capture_end(late.device, p->queues[0], &recording));
    return recording;
}

TEST(what_a_recording_names_must_stay)
{
    const cod_backend *b = late.backend;
    for (int which = 0; which < 4; which++) {
        pair p = pair_open();
        cod_recording *recording = record(&p);
        if (which == 0) {
            b->buffer_destroy(late.device, p.buffers[0]);
            p.buffers[0] = NULL;
            expect_violation("a buffer of 256 was destroyed under a recording that names it");
        } else if (which == 1) {
            b->plan_destroy(p.first);
            p.first = NULL;
            expect_violation("add 'first': the plan was destroyed under a recording that holds it");
        } else if (which == 2) {
            b->host_buffer_destroy(late.device, p.pinned);
            p.pinned = NULL;
            expect_violation("destroyed under a recording");
        }
        if (which < 3)
            assert_fails(COD_ERR_ARGUMENT, "something of the recording was destroyed",
                         b->recording_run(recording, p.queues[0]));
        else
            assert_ok(b->recording_run(recording, p.queues[1]));
        b->recording_destroy(recording); /* replays that are queued still run */
        pair_close(&p);
        expect_none();
    }
}

TEST(captures_refuse_what_blocks)
{
    const cod_backend *b = late.backend;
    pair p = pair_open();
    cod_recording *recording = record(&p), *other;
    float values[COUNT] = {0};
    assert_ok(b->capture_begin(late.device, p.queues[0]));
    assert_fails(COD_ERR_ARGUMENT, "upload() within a capture",
                 b->upload(late.device, p.queues[0], p.buffers[0], 0, values, BYTES));
    assert_fails(COD_ERR_ARGUMENT, "put() within a capture",
                 b->put(late.device, p.queues[0], p.buffers[0], 0, values, BYTES));
    assert_fails(COD_ERR_ARGUMENT, "download() within a capture",
                 b->download(late.device, p.queues[0], values, p.buffers[0], 0, BYTES));
    assert_fails(COD_ERR_ARGUMENT, "event_record() within a capture", b->event_record(p.event, p.queues[0]));
    assert_fails(COD_ERR_ARGUMENT, "queue_wait() within a capture", b->queue_wait(p.queues[0], p.event));
    assert_fails(COD_ERR_ARGUMENT, "recording_run() within a capture", b->recording_run(recording, p.queues[0]));
    assert_fails(COD_ERR_ARGUMENT, "capture_begin() within a capture", b->capture_begin(late.device, p.queues[0]));
    assert_ok(b->upload(late.device, p.queues[1], p.buffers[0], 0, values, BYTES)); /* of another queue */
    assert_ok(b->capture_end(late.device, p.queues[0], &other));
    assert_fails(COD_ERR_ARGUMENT, "without capture_begin()", b->capture_end(late.device, p.queues[0], &other));
    b->recording_destroy(other);
    b->recording_destroy(recording);
    pair_close(&p);
    expect_none();
}

TEST(scratch_that_grows_or_moves_is_found)
{
    const cod_backend *b = late.backend;
    pair p = pair_open();
    cod_late_watch(scratch_place);
    cod_recording *recording = record(&p);
    assert_ok(b->recording_run(recording, p.queues[0]));
    assert_ok(b->event_record(p.event, p.queues[0]));
    assert_ok(b->event_wait(p.event));
    expect_none();
    misdeed.grow = true;
    assert_ok(b->recording_run(recording, p.queues[0]));
    assert_ok(b->event_record(p.event, p.queues[0]));
    assert_ok(b->event_wait(p.event));
    expect_violation("add 'first': plan_run() allocates: a scratch that grew");
    misdeed.grow = false;
    misdeed.move = true;
    cod_plan *later = new_scale(late, "later", 2, p.buffers[0], p.buffers[1]);
    misdeed.move = false;
    assert_ok(b->recording_run(recording, p.queues[0]));
    assert_ok(b->event_record(p.event, p.queues[0]));
    assert_ok(b->event_wait(p.event));
    expect_violation("add 'first': the plan's own memory moved after it was recorded");
    b->plan_destroy(later);
    b->recording_destroy(recording);
    cod_late_watch(NULL);
    pair_close(&p);
    expect_none();
}

TEST(destroyers_wait_for_work)
{
    const cod_backend *b = late.backend;
    pair p = pair_open();
    cod_buffer *empty = new_buffer(8);
    cod_late_hold(late.device, true);
    assert_ok(copy_all(p.queues[0], p.buffers[0], p.pinned));
    assert_ok(b->plan_run(p.first, p.queues[0]));
    assert_ok(copy_all(p.queues[0], p.pinned, p.buffers[1]));
    assert_ok(b->upload(late.device, p.queues[0], empty, 8, NULL, 0));
    assert_ok(b->copy(late.device, p.queues[0], p.pinned, 0, empty, 4, 0));
    b->buffer_destroy(late.device, empty);
    b->plan_destroy(p.first);
    b->buffer_destroy(late.device, p.buffers[0]);
    b->host_buffer_destroy(late.device, p.pinned);
    p.pinned = p.buffers[0] = NULL;
    p.first = NULL;
    pair_close(&p);
    expect_none();
}

TEST(memory_is_counted)
{
    size_t before, after, total;
    assert_ok(late.backend->memory(late.device, &before, &total));
    cod_buffer *buffer = new_buffer(1000), *pinned = new_pinned(1000);
    assert_ok(late.backend->memory(late.device, &after, &total));
    assert_int_equal(before - after, 1000);
    assert_true(after < total);
    late.backend->buffer_destroy(late.device, buffer);
    late.backend->host_buffer_destroy(late.device, pinned);
    assert_ok(late.backend->memory(late.device, &after, &total));
    assert_int_equal(before, after);
}

TEST_GROUP(open_late, close_late)
