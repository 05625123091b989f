/* What one thread sees of a file operation that does not return: reading a pipe whose other end nobody has opened. */
#include "support/folder.h"
#include "support/test.h"

#include "core/trace.h"
#include "io/file.h"
#include "io/file_watch.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/** A thread that reads a pipe to its end. */
typedef struct reader {
    pthread_t thread;
    char path[4096];
    bool is_watched;
    _Atomic(cod_file_watch *) watch; /**< until the thread may end */
    atomic_bool began, done, may_end;
    cod_status status;
    size_t bytes;
} reader;

static void *read_pipe(void *context)
{
    reader *r = context;
    cod_file_watch *watch = NULL, *second = NULL;
    void *data = NULL;
    r->status = r->is_watched ? cod_file_watch_begin(&watch) : COD_OK;
    if (r->is_watched && r->status == COD_OK && cod_file_watch_begin(&second) != COD_ERR_ARGUMENT)
        r->status = COD_ERR_ARGUMENT;
    atomic_store(&r->watch, watch);
    atomic_store(&r->began, true);
    COD_THEN(r->status, cod_file_read_any(r->path, 1 << 20, &data, &r->bytes));
    free(data);
    atomic_store(&r->done, true);
    while (!atomic_load(&r->may_end))
        usleep(100);
    cod_file_watch_end(watch);
    return NULL;
}

static void start(reader *r, bool is_watched)
{
    memset(r, 0, sizeof *r);
    strcpy(r->path, cod_test_at("pipe"));
    r->is_watched = is_watched;
    unlink(r->path);
    assert_int_equal(mkfifo(r->path, 0600), 0);
    assert_int_equal(pthread_create(&r->thread, NULL, read_pipe, r), 0);
    while (!atomic_load(&r->began))
        usleep(100);
}

static void end(reader *r)
{
    atomic_store(&r->may_end, true);
    assert_int_equal(pthread_join(r->thread, NULL), 0);
}

/** Waits until the thread does `verb` to its pipe. */
static cod_file_wait await(reader *r, const char *verb)
{
    cod_file_wait wait = {0};
    while (!cod_file_watch_read(atomic_load(&r->watch), &wait) || strcmp(wait.verb, verb) != 0)
        usleep(100);
    assert_string_equal(wait.path, r->path);
    assert_true(wait.since_s <= cod_clock_s() && wait.number > 0);
    return wait;
}

TEST(an_operation_that_hangs_is_named)
{
    reader r;
    start(&r, true);
    const cod_file_wait opening = await(&r, "open"), still = await(&r, "open");
    assert_true(opening.number == still.number && opening.since_s == still.since_s);
    const int writer = open(r.path, O_WRONLY | O_CLOEXEC);
    assert_true(writer >= 0);
    const cod_file_wait reading = await(&r, "read");
    assert_true(reading.number > opening.number && reading.since_s >= opening.since_s);
    assert_int_equal(write(writer, "abc", 3), 3);
    close(writer);
    while (!atomic_load(&r.done))
        usleep(100);
    cod_file_wait none;
    assert_false(cod_file_watch_read(atomic_load(&r.watch), &none));
    end(&r);
    assert_true(r.status == COD_OK && r.bytes == 3);
}

/** Only the thread that asked for it is watched; what another does is not noted. */
TEST(others_are_not_noted)
{
    cod_file_watch *watch;
    cod_file_wait wait;
    reader r;
    assert_ok(cod_file_watch_begin(&watch));
    start(&r, false);
    usleep(1000);
    assert_false(cod_file_watch_read(watch, &wait));
    close(open(r.path, O_WRONLY | O_CLOEXEC));
    end(&r);
    assert_int_equal(r.status, COD_OK);
    assert_ok(cod_file_write(cod_test_at("file"), "abc", 3));
    assert_false(cod_file_watch_read(watch, &wait)); /* all that was begun has ended */
    cod_file_watch_end(watch);
    cod_file_watch_end(NULL);
    assert_ok(cod_file_write(cod_test_at("file"), "abc", 3));
}

TEST_GROUP(cod_test_folder_make, cod_test_folder_remove)
