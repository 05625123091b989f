#include "late_pair.h"

#include "core/memory.h"
#include "ref/ref.h"
#include "support/late.h"
#include "support/test.h"

cod_test_device late;
misdeeds misdeed;

static cod_status bad_run(cod_plan *plan, cod_queue *queue)
{
    void *memory;
    cod_buffer *buffer;
    if (misdeed.grow) {
        COD_TRY(cod_aligned_alloc(&memory, 64));
        cod_aligned_free(memory);
    }
    if (misdeed.call)
        return late.backend->buffer_create(late.device, 8, &buffer);
    if (misdeed.fail)
        return cod_fail(COD_ERR_NUMERIC, "planted failure");
    return cod_ref_backend.plan_run(plan, queue);
}

static void *scratch;

/** As a device's scratch grows: a new place before the old one is free. */
static cod_status bad_create(cod_device *device, const cod_op *op, cod_plan **out)
{
    void *larger;
    if (misdeed.move || scratch == NULL) {
        COD_TRY(cod_aligned_alloc(&larger, BYTES));
        cod_aligned_free(scratch);
        scratch = larger;
    }
    return cod_ref_backend.plan_create(device, op, out);
}

uint64_t scratch_place(cod_plan *inner)
{
    (void)inner;
    return (uint64_t)(uintptr_t)scratch;
}

void expect_violation(const char *part)
{
    char message[512];
    const size_t count = cod_late_violations(message, sizeof message);
    if (count == 0)
        fail_msg("no violation; expected '%s'", part);
    cod_test_assert_contains(message, part);
}

void expect_none(void)
{
    cod_test_assert_none(cod_late_violations, "on late");
}

cod_buffer *new_buffer(size_t bytes)
{
    cod_buffer *buffer;
    assert_ok(late.backend->buffer_create(late.device, bytes, &buffer));
    return buffer;
}

cod_buffer *new_pinned(size_t bytes)
{
    cod_buffer *buffer;
    assert_ok(late.backend->host_buffer_create(late.device, bytes, &buffer));
    return buffer;
}

cod_queue *new_queue(void)
{
    cod_queue *queue;
    assert_ok(late.backend->queue_create(late.device, &queue));
    return queue;
}

cod_event *new_event(void)
{
    cod_event *event;
    assert_ok(late.backend->event_create(late.device, &event));
    return event;
}

cod_plan *new_scale(cod_test_device on, const char *name, float factor, cod_buffer *from, cod_buffer *to)
{
    cod_op op = {.kind = COD_OP_ADD, .attr.alpha = factor, .name = name};
    cod_plan *plan;
    op.inputs[0] = cod_view_dense(from, 0, COD_F32, (cod_shape){1, 1, 1, COUNT});
    op.outputs[0] = cod_view_dense(to, 0, COD_F32, (cod_shape){1, 1, 1, COUNT});
    assert_ok(on.backend->plan_create(on.device, &op, &plan));
    return plan;
}

pair pair_open(void)
{
    pair p = {.queues = {new_queue(), new_queue()}, .event = new_event(), .pinned = new_pinned(BYTES)};
    for (size_t i = 0; i < 3; i++)
        p.buffers[i] = new_buffer(BYTES);
    p.first = new_scale(late, "first", 2, p.buffers[0], p.buffers[1]);
    p.second = new_scale(late, "second", 3, p.buffers[1], p.buffers[2]);
    for (size_t i = 0; i < COUNT; i++)
        ((float *)p.pinned->host)[i] = (float)i;
    return p;
}

void pair_close(pair *p)
{
    const cod_backend *b = late.backend;
    b->event_destroy(p->event);
    for (size_t i = 0; i < 2; i++)
        b->queue_destroy(p->queues[i]);
    b->plan_destroy(p->first);
    b->plan_destroy(p->second);
    for (size_t i = 0; i < 3; i++)
        b->buffer_destroy(late.device, p->buffers[i]);
    b->host_buffer_destroy(late.device, p->pinned);
}

cod_status copy_all(cod_queue *queue, cod_buffer *target, cod_buffer *source)
{
    return late.backend->copy(late.device, queue, target, 0, source, 0, BYTES);
}

int open_late(void **state)
{
    (void)state;
    static cod_backend bad;
    bad = cod_ref_backend;
    bad.plan_create = bad_create;
    bad.plan_run = bad_run;
    late.backend = cod_late_wrap(&bad);
    return late.backend->open(NULL, &late.device) == COD_OK ? 0 : -1;
}

int close_late(void **state)
{
    (void)state;
    late.backend->close(late.device);
    cod_aligned_free(scratch);
    scratch = NULL;
    return 0;
}
