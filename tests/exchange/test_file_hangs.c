/* The file transport on storage that hangs. */
#include "file_pair.h"
#include "support/clock.h"
#include "support/folder.h"
#include "support/test.h"

#include "core/trace.h"
#include "exchange/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* The leak sanitizer, where there is one: between the two this thread allocates what it may lose. */
void __lsan_disable(void) __attribute__((weak));
void __lsan_enable(void) __attribute__((weak));

/** Storage that hangs: while this is set, no file is flushed. */
static atomic_bool stuck;

/** While this is set, nothing below a folder is opened; whether somebody waits for that. */
static atomic_bool stuck_opening, opening_held;

/** Headers opened so far. */
static atomic_int headers_opened;

/* In place of the C library's, in this program. */
int openat(int folder, const char *name, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(more, mode_t) : 0;
    va_end(more);
    atomic_fetch_add(&headers_opened, strcmp(name, "header") == 0);
    while (atomic_load(&stuck_opening)) {
        atomic_store(&opening_held, true);
        usleep(1000);
    }
    return (int)syscall(SYS_openat, folder, name, flags, mode);
}

int fsync(int file)
{
    while (atomic_load(&stuck))
        usleep(1000);
    return (int)syscall(SYS_fsync, file);
}

/** The farthest end of a wait for storage that hangs. */
static double farthest_s;

int __wrap_pthread_cond_timedwait(pthread_cond_t *changed, pthread_mutex_t *mutex, const struct timespec *until);
int __real_pthread_cond_timedwait(pthread_cond_t *changed, pthread_mutex_t *mutex, const struct timespec *until);

/** Time is up for storage that hangs alone: what is only slow is waited for. */
int __wrap_pthread_cond_timedwait(pthread_cond_t *changed, pthread_mutex_t *mutex, const struct timespec *until)
{
    struct timespec now;
    if (!atomic_load(&stuck) && !atomic_load(&stuck_opening))
        return pthread_cond_wait(changed, mutex);
    clock_gettime(CLOCK_MONOTONIC, &now);
    const double left_s = (double)(until->tv_sec - now.tv_sec) + 1e-9 * (double)(until->tv_nsec - now.tv_nsec);
    farthest_s = left_s > farthest_s ? left_s : farthest_s;
    return __real_pthread_cond_timedwait(changed, mutex, until);
}

/** Threads of this process. */
static int count_threads(void)
{
    int count = 0;
    DIR *threads = opendir("/proc/self/task");
    assert_non_null(threads);
    for (const struct dirent *entry; (entry = readdir(threads)) != NULL;)
        count += entry->d_name[0] != '.';
    closedir(threads);
    return count;
}

/** Storage answers: threads that were left behind end, until there are as many as before. */
static void await_threads(int before)
{
    for (int ms = 0; count_threads() > before && ms < COD_TEST_PATIENCE_MS; ms++)
        usleep(1000);
    assert_int_equal(count_threads(), before);
}

static void await_flag(atomic_bool *flag)
{
    for (int ms = 0; !atomic_load(flag) && ms < COD_TEST_PATIENCE_MS; ms++)
        usleep(1000);
    assert_true(atomic_load(flag));
}

static atomic_bool hold_reading, reading_held;

/** The read of version 2 is held up before its bytes come. */
ssize_t pread(int file, void *to, size_t bytes, off_t offset)
{
    if (bytes == BYTES - 2 && atomic_load(&hold_reading)) {
        atomic_store(&reading_held, true);
        while (atomic_load(&hold_reading))
            usleep(1000);
    }
    return (ssize_t)syscall(SYS_pread64, file, to, bytes, offset);
}

/**
 * A checkpoint and the end of a run come to an end while storage hangs, and the version that hung is in the checkpoint.
 */
TEST_IN_FOLDER(storage_that_hangs_holds_nobody)
{
    const cod_slot_identity who = pair_identity(0, 1);
    const double patience_s = 0.2;
    char folder[4096];
    snprintf(folder, sizeof folder, "%s", cod_test_at("x"));
    const cod_file_options options = {
        .folder = folder, .key_file = "", .patience_s = patience_s, .rooms = pair_rooms(0)};
    cod_transport *publisher = NULL, *reader = pair_open_one(1, 1, true);
    void *saved;
    size_t bytes;
    uint64_t version;
    const int threads = count_threads();
    if (__lsan_disable != NULL)
        __lsan_disable(); /* what hangs is left behind, with all that it uses */
    assert_ok(cod_file_transport_create(&options, &who, &pair_layout, &publisher));
    if (__lsan_enable != NULL)
        __lsan_enable();
    pair_publish(publisher, 1);
    atomic_store(&stuck, true);
    pair_publish(publisher, 2); /* returns, although it waits for storage */
    unsigned char *room;
    assert_ok(publisher->ops->publish_begin(publisher, &room));
    assert_ok(publisher->ops->publish_end(publisher, &(cod_slot_entry){.version = 3, .bytes = 1}));
    assert_int_equal(publisher->ops->failures(publisher), 1);
    assert_ok(publisher->ops->state(publisher, &saved, &bytes));
    assert_fails(COD_ERR_IO, "does not answer", publisher->ops->restored(publisher, saved, bytes));
    assert_ok(publisher->ops->destroy(publisher));
    atomic_store(&stuck, false);
    await_threads(threads);

    publisher = pair_open_one(0, 1, false);
    assert_ok(publisher->ops->restored(publisher, saved, bytes));
    free(saved);
    publisher->ops->oldest(publisher);
    assert_ok(pair_offered(reader, &version));
    assert_int_equal(version, 2);
    pair_close(publisher, reader);
}

/** A start that storage holds up fails in time, and so does a resume; what hung does no harm when storage answers. */
TEST_IN_FOLDER(storage_that_hangs_at_the_start_is_named)
{
    const cod_slot_identity who = pair_identity(0, 1), other = pair_identity(1, 1);
    char folder[4096];
    snprintf(folder, sizeof folder, "%s", cod_test_at("x"));
    const double patience_s = 0.2;
    const cod_file_options options = {
        .folder = folder, .key_file = "", .patience_s = patience_s, .rooms = pair_rooms(0)};
    cod_transport *publisher = NULL;
    void *data;
    size_t bytes;
    uint64_t version;
    const int threads = count_threads();
    farthest_s = 0;
    if (__lsan_disable != NULL)
        __lsan_disable(); /* what hangs is left behind, with all that it uses */
    atomic_store(&stuck_opening, true);
    assert_fails(COD_ERR_IO, "group-1/shard-0' has not answered for 0.2 s",
                 cod_file_transport_create(&options, &other, &pair_layout, &publisher));
    assert_null(publisher);
    atomic_store(&stuck_opening, false);
    assert_ok(cod_file_transport_create(&options, &who, &pair_layout, &publisher));
    pair_publish(publisher, 1);
    assert_ok(publisher->ops->state(publisher, &data, &bytes));
    atomic_store(&stuck_opening, true);
    assert_fails(COD_ERR_IO, "group-0/shard-0' has not answered for 0.2 s",
                 publisher->ops->restored(publisher, data, bytes));
    free(data);
    assert_ok(publisher->ops->destroy(publisher));
    assert_true(farthest_s < 1.01 * patience_s);
    atomic_store(&stuck_opening, false);
    if (__lsan_enable != NULL)
        __lsan_enable();
    await_threads(threads);
    cod_transport *reader = pair_open_one(1, 1, true);
    assert_ok(pair_offered(reader, &version));
    assert_int_equal(version, 1);
    pair_close(NULL, reader);
}

/**
 * A pull that waits behind another is queued for as long as storage has to answer, and no longer; one whose version is
 * absent is not.
 */
TEST_IN_FOLDER(a_pull_is_queued_while_others_move)
{
    const cod_slot_identity who = pair_identity(0, 1), reading = pair_identity(1, 1);
    const double patience_s = 0.5;
    char folder[4096];
    snprintf(folder, sizeof folder, "%s", cod_test_at("x"));
    const cod_file_options options = {
        .folder = folder, .key_file = "", .patience_s = patience_s, .rooms = pair_rooms(1)};
    cod_transport *publisher = pair_open_one(0, 1, true), *reader = NULL;
    cod_pull_state how[2] = {COD_PULL_BUSY, COD_PULL_BUSY};
    cod_pulled got[2];
    assert_ok(cod_file_transport_create(&options, &reading, &pair_layout, &reader));
    pair_publish(publisher, 1);
    reader->ops->oldest(reader); /* its own header is written */
    cod_test_clock_stop_after(0);
    atomic_store(&opening_held, false);
    atomic_store(&stuck_opening, true);
    for (int k = 0; k < 2; k++)
        assert_ok(reader->ops->pull_start(reader, k, &who, 0, 1));
    await_flag(&opening_held);
    for (int k = 0; k < 2; k++)
        assert_ok(reader->ops->pull_poll(reader, k, &how[k], &got[k]));
    assert_true(!got[0].queued && got[1].queued);
    cod_test_clock_pass(patience_s);
    assert_ok(reader->ops->pull_poll(reader, 1, &how[1], &got[1]));
    assert_true(how[1] == COD_PULL_BUSY && !got[1].queued);
    atomic_store(&stuck_opening, false);
    for (int ms = 0; (how[0] == COD_PULL_BUSY || how[1] == COD_PULL_BUSY) && ms < COD_TEST_PATIENCE_MS; ms++) {
        for (int k = 0; k < 2; k++)
            assert_ok(reader->ops->pull_poll(reader, k, &how[k], &got[k]));
        usleep(1000);
    }
    assert_true(how[0] == COD_PULL_DONE && how[1] == COD_PULL_DONE);
    assert_ok(reader->ops->pull_start(reader, 0, &who, 0, 2));
    got[0].queued = true;
    for (int ms = 0; got[0].queued && ms < COD_TEST_PATIENCE_MS; ms++) {
        assert_ok(reader->ops->pull_poll(reader, 0, &how[0], &got[0]));
        usleep(1000);
    }
    /* Looked for and not found: until it is looked for again it is not in the queue. */
    for (int ms = 0; ms < 100; ms++) {
        assert_ok(reader->ops->pull_poll(reader, 0, &how[0], &got[0]));
        assert_true(how[0] == COD_PULL_BUSY && !got[0].queued);
        usleep(1000);
    }
    cod_test_clock_go();
    pair_close(publisher, reader);
}

/** However often a group asks what its peer has, and pulls what is not there: storage is looked at every 10 ms. */
TEST_IN_FOLDER(a_header_is_opened_a_hundred_times_a_second_at_most)
{
    const cod_slot_identity who = pair_identity(0, 1);
    cod_transport *publisher, *reader;
    cod_pull_state how;
    cod_pulled got;
    uint64_t version;
    pair_open(&publisher, &reader, 1);
    for (int pulling = 0; pulling < 2; pulling++) {
        const int before = atomic_load(&headers_opened);
        const double begin = cod_clock_s();
        if (pulling)
            assert_ok(reader->ops->pull_start(reader, 0, &who, 0, 2));
        while (cod_clock_s() - begin < 0.3)
            if (pulling)
                assert_ok(reader->ops->pull_poll(reader, 0, &how, &got));
            else
                assert_ok(pair_offer(reader, &(bool){0}, &version));
        const int opened = atomic_load(&headers_opened) - before;
        assert_true(opened > 0 && opened <= 2 + (int)(100 * (cod_clock_s() - begin)));
    }
    pair_close(publisher, reader);
}

/**
 * As those of a model's fragments do: what comes late for a pull that one gave up reaches no pull of the other in its
 * place.
 */
TEST_IN_FOLDER(transports_share_their_rooms)
{
    const cod_slot_identity who = pair_identity(0, 1);
    cod_transport *publisher, *reader, *other = pair_open_one(1, 1, true);
    cod_pull_state how;
    cod_pulled got = {0};
    pair_open(&publisher, &reader, 3);
    atomic_store(&hold_reading, true);
    assert_ok(reader->ops->pull_start(reader, 0, &who, 0, 2));
    await_flag(&reading_held);
    reader->ops->pull_cancel(reader, 0);
    assert_ok(pair_pulled(other, 3, &how, &got));
    assert_int_equal(how, COD_PULL_DONE);
    atomic_store(&hold_reading, false);
    assert_ok(reader->ops->destroy(reader)); /* its thread has read all that it was going to */
    for (uint64_t i = 0; i < got.bytes; i++)
        assert_int_equal(got.data[i], 3);
    pair_close(publisher, other);
}
