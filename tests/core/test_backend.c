/* Registering backends, queues and events of a backend that has none, and the checks that all backends share. */
#include "support/test.h"

#include "core/queue.h"

#include <stdio.h>

TEST(another_version_is_refused_by_name)
{
    const cod_backend old = {.version = COD_BACKEND_VERSION - 1, .name = "vintage"};
    char text[96];
    snprintf(text, sizeof text, "backend 'vintage' was compiled for version %d of the backend interface", old.version);
    assert_fails(COD_ERR_UNSUPPORTED, text, cod_backend_register(&old));
    assert_null(cod_backend_find("vintage"));
    assert_null(cod_backend_name_at(0));
}

TEST(a_name_is_registered_once)
{
    static const cod_backend first = {.version = COD_BACKEND_VERSION, .name = "one"};
    static const cod_backend second = {.version = COD_BACKEND_VERSION, .name = "one"};
    assert_ok(cod_backend_register(&first));
    assert_ok(cod_backend_register(&second));
    assert_ptr_equal(cod_backend_find("one"), &second);
    assert_string_equal(cod_backend_name_at(0), "one");
    assert_null(cod_backend_name_at(1));
}

TEST(a_ninth_backend_is_refused)
{
    static char names[8][32];
    static cod_backend backends[8];
    for (int i = 0; i < 8; i++) {
        snprintf(names[i], sizeof names[i], "extra%d", i);
        backends[i] = (cod_backend){.version = COD_BACKEND_VERSION, .name = names[i]};
        if (i < 7)
            assert_ok(cod_backend_register(&backends[i]));
        else
            assert_fails(COD_ERR_ARGUMENT, "backend 'extra7' is one more than the 8",
                         cod_backend_register(&backends[i]));
    }
}

TEST(without_queues_everything_is_done_at_once)
{
    const cod_backend plain = {.version = COD_BACKEND_VERSION, .name = "plain"};
    cod_queue *queue = (cod_queue *)1;
    cod_event *event = (cod_event *)1;
    bool reached = false;
    assert_ok(cod_queue_create(&plain, NULL, &queue));
    assert_null(queue);
    assert_ok(cod_event_create(&plain, NULL, &event));
    assert_null(event);
    assert_ok(cod_event_record(&plain, event, queue));
    assert_ok(cod_queue_wait(&plain, queue, event));
    assert_ok(cod_event_query(&plain, event, &reached));
    assert_true(reached);
    assert_ok(cod_event_wait(&plain, event));
    assert_false(cod_backend_records(&plain));
    cod_event_destroy(&plain, event);
    cod_queue_destroy(&plain, queue);
}

TEST(copies_stay_in_their_buffers)
{
    const cod_buffer small = {.bytes = 8}, large = {.bytes = 64};
    assert_ok(cod_copy_check(&small, 0, &large, 56, 8));
    assert_ok(cod_copy_check(&small, 8, &large, 64, 0));
    assert_fails(COD_ERR_ARGUMENT, "copy: 9 bytes from offset 0 on reach past the target, a buffer of 8",
                 cod_copy_check(&small, 0, &large, 0, 9));
    assert_fails(COD_ERR_ARGUMENT, "copy: 8 bytes from offset 57 on reach past the source, a buffer of 64",
                 cod_copy_check(&small, 0, &large, 57, 8));
    assert_fails(COD_ERR_ARGUMENT, "past the source", cod_copy_check(&small, 0, &large, SIZE_MAX, 8));
    assert_ok(cod_copy_check(&large, 0, &large, 32, 32));
    assert_ok(cod_copy_check(&large, 32, &large, 0, 32));
    assert_fails(COD_ERR_ARGUMENT, "overlap", cod_copy_check(&large, 0, &large, 31, 32));
    assert_fails(COD_ERR_ARGUMENT, "overlap", cod_copy_check(&large, 31, &large, 0, 32));
}
