#include "late_pair.h"

#include "core/staging.h"
#include "ref/ref.h"
#include "support/late.h"
#include "support/test.h"

#include <sched.h>

static void look_until_there(const cod_staged *staged)
{
    for (bool there = false; !there; sched_yield())
        assert_ok(cod_staged_test(staged, &there));
}

/** Brings the second half of a buffer of 0 … COUNT - 1 to the host, negates it there, and puts it back. */
static void negate_half(cod_test_device on, bool looks)
{
    enum { HALF = COUNT / 2 };
    float values[COUNT];
    cod_buffer *buffer;
    cod_staging *staging;
    cod_staged *staged;
    for (int i = 0; i < COUNT; i++)
        values[i] = (float)i;
    assert_ok(on.backend->buffer_create(on.device, BYTES, &buffer));
    assert_ok(on.backend->upload(on.device, NULL, buffer, 0, values, BYTES));
    assert_ok(on.backend->download(on.device, NULL, values, buffer, 0, BYTES)); /* the host has seen it uploaded */
    assert_ok(cod_staging_create(on.backend, on.device, &staging));
    assert_ok(cod_staging_start(staging, buffer, BYTES / 2, BYTES / 2, NULL, &staged));
    if (looks)
        look_until_there(staged);
    else
        assert_ok(cod_staged_wait(staged));
    float *half = cod_staged_host(staged);
    for (int i = 0; i < HALF; i++)
        half[i] = -half[i];
    assert_ok(cod_staged_return(staged, NULL));
    assert_ok(on.backend->download(on.device, NULL, values, buffer, 0, BYTES));
    for (int i = 0; i < COUNT; i++)
        assert_true(values[i] == (float)(i < HALF ? i : -i));
    cod_staging_destroy(staging);
    on.backend->buffer_destroy(on.device, buffer);
}

TEST(a_range_is_changed_by_the_host)
{
    negate_half(late, true);
    negate_half(late, false);
    expect_none();
}

TEST(backends_without_queues_copy_at_once)
{
    cod_test_device ref = {.backend = &cod_ref_backend};
    assert_ok(ref.backend->open(NULL, &ref.device));
    negate_half(ref, true);
    negate_half(ref, false);
    ref.backend->close(ref.device);
}

/** One range's copy back is still under way when another of its size takes the same pinned memory. */
TEST(pinned_memory_is_used_again_in_order)
{
    cod_buffer *first = new_buffer(BYTES), *second = new_buffer(BYTES);
    cod_queue *queue = new_queue();
    cod_staging *staging;
    cod_staged *staged, *again;
    assert_ok(cod_staging_create(late.backend, late.device, &staging));
    assert_ok(cod_staging_start(staging, first, 0, BYTES, NULL, &staged));
    look_until_there(staged);
    void *memory = cod_staged_host(staged);
    cod_late_hold(late.device, true);
    assert_ok(cod_staged_return(staged, queue));
    assert_ok(cod_staging_start(staging, second, 0, BYTES, NULL, &again));
    assert_ptr_equal(cod_staged_host(again), memory);
    cod_late_hold(late.device, false);
    look_until_there(again);
    cod_staged_drop(again);
    assert_ok(cod_staging_start(staging, second, 0, BYTES, NULL, &staged));
    assert_ptr_equal(cod_staged_host(staged), memory); /* what was dropped is free, */
    assert_ok(cod_staging_start(staging, second, 0, BYTES, NULL, &again));
    assert_ptr_not_equal(cod_staged_host(again), memory); /* and what is under way is not */
    cod_staging_destroy(staging);
    late.backend->queue_destroy(queue);
    late.backend->buffer_destroy(late.device, first);
    late.backend->buffer_destroy(late.device, second);
    expect_none();
}

TEST(a_range_outside_its_buffer_is_refused)
{
    cod_buffer *buffer = new_buffer(BYTES);
    cod_staging *staging;
    cod_staged *staged = NULL;
    assert_ok(cod_staging_create(late.backend, late.device, &staging));
    assert_fails(COD_ERR_ARGUMENT, "buffer", cod_staging_start(staging, buffer, 4, BYTES, NULL, &staged));
    assert_null(staged);
    assert_ok(cod_staging_start(staging, buffer, 0, BYTES, NULL, &staged));
    cod_staging_destroy(staging);
    cod_staging_destroy(NULL);
    late.backend->buffer_destroy(late.device, buffer);
    expect_none();
}

TEST_GROUP(open_late, close_late)
