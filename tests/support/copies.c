#include "support/copies.h"

#include "core/queue.h"
#include "support/test.h"

enum { COUNT = 24, HALF = COUNT / 2 };

static void check_route(cod_test_device on, cod_buffer *pinned[2], cod_buffer *buffers[2])
{
    cod_queue *queue;
    cod_event *event;
    assert_ok(cod_queue_create(on.backend, on.device, &queue));
    assert_ok(cod_event_create(on.backend, on.device, &event));
    unsigned char *out = pinned[0]->host, back[COUNT];
    const unsigned char *in = pinned[1]->host;
    for (size_t i = 0; i < COUNT; i++) {
        assert_int_equal(out[i], 0);
        out[i] = (unsigned char)(i + 1);
    }
    /* 13 … 24 lie in the first half of the second buffer, then in its second half too. */
    assert_ok(on.backend->copy(on.device, queue, buffers[0], 0, pinned[0], 0, COUNT));
    assert_ok(on.backend->copy(on.device, queue, buffers[1], 0, buffers[0], HALF, HALF));
    assert_ok(on.backend->copy(on.device, queue, buffers[1], HALF, buffers[1], 0, HALF));
    assert_ok(on.backend->copy(on.device, queue, pinned[1], 0, buffers[1], 0, COUNT));
    assert_ok(on.backend->copy(on.device, queue, buffers[1], 0, buffers[1], 0, 0));
    assert_ok(cod_event_record(on.backend, event, queue));
    assert_ok(cod_event_wait(on.backend, event));
    assert_ok(on.backend->download(on.device, queue, back, buffers[1], 0, COUNT));
    for (size_t i = 0; i < COUNT; i++) {
        assert_int_equal(in[i], HALF + i % HALF + 1);
        assert_int_equal(back[i], in[i]);
    }
    cod_event_destroy(on.backend, event);
    cod_queue_destroy(on.backend, queue);
}

void cod_test_copies(cod_test_device on)
{
    cod_buffer *pinned[2], *buffers[2];
    for (size_t i = 0; i < 2; i++) {
        assert_ok(on.backend->host_buffer_create(on.device, COUNT, &pinned[i]));
        assert_ok(on.backend->buffer_create(on.device, COUNT, &buffers[i]));
        assert_non_null(pinned[i]->host);
    }
    check_route(on, pinned, buffers);
    assert_fails(COD_ERR_ARGUMENT, "past the target",
                 on.backend->copy(on.device, NULL, buffers[0], 1, pinned[0], 0, COUNT));
    assert_fails(COD_ERR_ARGUMENT, "past the source",
                 on.backend->copy(on.device, NULL, buffers[0], 0, pinned[0], SIZE_MAX, 2));
    assert_fails(COD_ERR_ARGUMENT, "overlap", on.backend->copy(on.device, NULL, buffers[0], 0, buffers[0], 4, 8));
    for (size_t i = 0; i < 2; i++) {
        on.backend->host_buffer_destroy(on.device, pinned[i]);
        on.backend->buffer_destroy(on.device, buffers[i]);
    }
    on.backend->host_buffer_destroy(on.device, NULL);
}
