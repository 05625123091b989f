#include "power_cut.h"
#include "support/folder.h"
#include "support/test.h"

#include "io/file.h"
#include "io/untrusted_folder.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define at cod_test_at

/** Entries of a folder, hidden ones included. */
static int entries(const char *path)
{
    char command[300];
    snprintf(command, sizeof command, "ls -A '%s' | wc -l", path);
    FILE *pipe = popen(command, "r");
    int count = -1;
    assert_int_equal(fscanf(pipe, "%d", &count), 1);
    pclose(pipe);
    return count;
}

static void assert_content(const char *path, const char *expected)
{
    void *data = NULL;
    size_t bytes = 0;
    assert_ok(cod_file_read(path, 1 << 20, &data, &bytes));
    assert_int_equal(bytes, strlen(expected));
    assert_string_equal(data, expected);
    free(data);
}

TEST(files_are_replaced_whole)
{
    assert_ok(cod_file_write(at("a"), "first", 5));
    assert_content(at("a"), "first");
    cod_file_writer *writer = NULL;
    assert_ok(cod_file_writer_create(at("a"), &writer));
    assert_ok(cod_file_writer_write(writer, "second", 6));
    assert_content(at("a"), "first");
    cod_file_writer_abort(writer);
    assert_content(at("a"), "first");
    assert_int_equal(entries(at("")), 1);
    assert_ok(cod_file_write(at("a"), "", 0));
    assert_content(at("a"), "");
}

TEST(large_and_small_pieces_keep_their_order)
{
    enum { TOTAL = 1 << 20 };
    unsigned char *data = malloc(TOTAL);
    for (size_t i = 0; i < TOTAL; i++)
        data[i] = (unsigned char)(i * 2654435761u >> 24);
    cod_file_writer *writer = NULL;
    assert_ok(cod_file_writer_create(at("big"), &writer));
    for (size_t done = 0, piece = 1; done < TOTAL; piece = piece * 3 + 1) {
        const size_t bytes = piece < TOTAL - done ? piece : TOTAL - done;
        assert_ok(cod_file_writer_write(writer, data + done, bytes));
        done += bytes;
    }
    assert_ok(cod_file_writer_commit(writer));
    void *back = NULL;
    size_t bytes = 0;
    assert_ok(cod_file_read(at("big"), TOTAL, &back, &bytes));
    assert_int_equal(bytes, TOTAL);
    assert_memory_equal(back, data, TOTAL);
    free(back);
    free(data);
    assert_fails(COD_ERR_FORMAT, "at most 10 are read", cod_file_read(at("big"), 10, &back, &bytes));
    assert_fails(COD_ERR_FORMAT, "more than 100000 bytes", cod_file_read_any("/dev/zero", 100000, &back, &bytes));
    assert_ok(cod_file_remove(at("big")));
    assert_ok(cod_file_remove(at("big")));
    assert_false(cod_file_exists(at("big")));
}

/** Pipes are waited for only where the user names them. */
TEST(a_pipe_in_a_files_place_is_not_waited_for)
{
    void *data = NULL;
    size_t bytes = 0;
    assert_int_equal(mkfifo(at("pipe"), 0600), 0);
    assert_fails(COD_ERR_IO, "it is no regular file", cod_file_read(at("pipe"), 10, &data, &bytes));
    const int writer = open(at("pipe"), O_RDWR);
    assert_int_equal(write(writer, "x", 1), 1);
    assert_fails(COD_ERR_IO, "it is no regular file", cod_file_read(at("pipe"), 10, &data, &bytes));
    close(writer);
    assert_int_equal(unlink(at("pipe")), 0);
}

TEST(refusals_name_the_path_and_the_reason)
{
    void *data = NULL;
    size_t bytes = 0;
    assert_fails(COD_ERR_IO, "cannot open '/nowhere/x': No such file", cod_file_read("/nowhere/x", 10, &data, &bytes));
    assert_fails(COD_ERR_IO, "cannot read '/dev/zero': it is no regular file",
                 cod_file_read("/dev/zero", 10, &data, &bytes));
    assert_fails(COD_ERR_IO, "cannot create '/nowhere/x': No such file", cod_file_write("/nowhere/x", "a", 1));
    assert_fails(COD_ERR_IO, "it is a folder", cod_file_write(at(""), "a", 1));
    assert_fails(COD_ERR_IO, "it is no regular file", cod_file_write("/dev/null", "a", 1));
    assert_ok(cod_file_write(at("plain"), "x", 1));
    assert_fails(COD_ERR_IO, "Not a directory", cod_folder_create(at("plain/below")));
    assert_fails(COD_ERR_IO, "Not a directory", cod_folder_create(at("plain")));
    assert_fails(COD_ERR_ARGUMENT, "without a name", cod_folder_create(""));
    cod_file_log *log = NULL;
    assert_fails(COD_ERR_IO, "Is a directory", cod_file_log_open(at(""), &log));
    assert_ok(cod_file_remove(at("plain")));
}

/** A limit on the size of files stands in for a full disk, and needs no rights. */
TEST(a_full_disk_leaves_the_old_file_and_nothing_else)
{
    assert_ok(cod_folder_create(at("full")));
    assert_ok(cod_file_write(at("full/a"), "old", 3));
    cod_file_log *log = NULL;
    assert_ok(cod_file_log_open(at("full/log"), &log));
    assert_ok(cod_file_log_line(log, "whole"));
    struct rlimit before, limit;
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    limit = before;
    limit.rlim_cur = 10;
    setrlimit(RLIMIT_FSIZE, &limit);
    char large[1000];
    memset(large, 'x', sizeof large);
    large[999] = '\0';
    const cod_status written = cod_file_write(at("full/a"), large, sizeof large);
    const cod_status logged = cod_file_log_line(log, large);
    setrlimit(RLIMIT_FSIZE, &before);
    assert_int_equal(written, COD_ERR_IO);
    assert_int_equal(logged, COD_ERR_IO);
    assert_content(at("full/a"), "old");
    assert_content(at("full/log"), "whole\n");
    cod_file_log_close(log);
    assert_int_equal(entries(at("full")), 2);
    assert_ok(cod_file_log_open("/dev/full", &log));
    assert_fails(COD_ERR_IO, "cannot append to '/dev/full': No space left on device", cod_file_log_line(log, "x"));
    cod_file_log_close(log);
}

TEST(a_small_file_system_fills_up)
{
    assert_ok(cod_folder_create(at("small")));
    if (mount("none", at("small"), "tmpfs", 0, "size=64k") != 0)
        skip();
    enum { TOTAL = 1 << 20 };
    char *data = calloc(1, TOTAL);
    const cod_status first = cod_file_write(at("small/a"), "old", 3);
    const cod_status second = cod_file_write(at("small/a"), data, TOTAL);
    char message[256];
    snprintf(message, sizeof message, "%s", cod_error_message());
    const int left = entries(at("small"));
    umount(at("small"));
    free(data);
    assert_int_equal(first, COD_OK);
    assert_int_equal(second, COD_ERR_IO);
    cod_test_assert_contains(message, "small/a': No space left on device");
    assert_int_equal(left, 1);
}

TEST(a_read_only_folder_is_named)
{
    assert_ok(cod_folder_create(at("locked")));
    assert_ok(cod_file_write(at("locked/a"), "old", 3));
    chmod(at("locked"), 0555);
    /* Root may write anywhere: a child gives that up. */
    const pid_t child = fork();
    if (child == 0) {
        chmod(at(""), 0755);
        if (getuid() == 0 && setuid(65534) != 0)
            _exit(2);
        const bool refused = cod_file_write(at("locked/a"), "new", 3) == COD_ERR_IO &&
                             strstr(cod_error_message(), "locked/a': Permission denied") != NULL;
        _exit(refused ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    chmod(at("locked"), 0755);
    assert_content(at("locked/a"), "old");
    assert_int_equal(entries(at("locked")), 1);
}

TEST(logs_lose_torn_lines_only)
{
    static const struct {
        const char *before, *after;
    } cases[] = {{"", "new\n"}, {"a\nb\n", "a\nb\nnew\n"}, {"a\nto", "a\nnew\n"}, {"torn", "new\n"}, {"\n", "\nnew\n"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_ok(cod_file_write(at("log"), cases[i].before, strlen(cases[i].before)));
        cod_file_log *log = NULL;
        assert_ok(cod_file_log_open(at("log"), &log));
        assert_ok(cod_file_log_line(log, "new"));
        cod_file_log_close(log);
        assert_content(at("log"), cases[i].after);
    }
    char *text = malloc(20001);
    memset(text, 'x', 20000);
    text[3] = '\n';
    assert_ok(cod_file_write(at("log"), text, 20000));
    cod_file_log *log = NULL;
    assert_ok(cod_file_log_open(at("log"), &log));
    cod_file_log_close(log);
    assert_content(at("log"), "xxx\n");
    free(text);
}

/** As where others may write in the folder: nothing of theirs, or outside of it, is cut or written to. */
TEST(what_is_not_the_users_own_is_no_log)
{
    cod_file_log *log = NULL;
    assert_ok(cod_file_write(at("victim"), "torn line of a stranger", 23));
    assert_ok(cod_file_remove(at("log")));
    assert_int_equal(symlink("victim", at("log")), 0);
    assert_fails(COD_ERR_IO, "log': it is a link", cod_file_log_open(at("log"), &log));
    assert_content(at("victim"), "torn line of a stranger");
    assert_int_equal(unlink(at("log")), 0);
    assert_int_equal(symlink("nowhere", at("log")), 0);
    assert_fails(COD_ERR_IO, "log': it is a link", cod_file_log_open(at("log"), &log));
    assert_false(cod_file_exists(at("nowhere")));
    assert_int_equal(unlink(at("log")), 0);
    assert_int_equal(mkfifo(at("log"), 0600), 0);
    assert_fails(COD_ERR_IO, "log': it is no regular file", cod_file_log_open(at("log"), &log));
    assert_int_equal(unlink(at("log")), 0);
    if (chown(at("victim"), 65534, 65534) != 0) /* only root may */
        skip();
    assert_fails(COD_ERR_IO, "victim': it belongs to another user (number 65534)",
                 cod_file_log_open(at("victim"), &log));
    assert_content(at("victim"), "torn line of a stranger");
    /* Who owns the folder may have anything written to what is there anyway. */
    assert_ok(cod_folder_create(at("theirs")));
    assert_int_equal(rename(at("victim"), at("theirs/log")), 0);
    assert_int_equal(chown(at("theirs"), 65534, 65534), 0);
    assert_ok(cod_file_log_open(at("theirs/log"), &log));
    cod_file_log_close(log);
    assert_content(at("theirs/log"), "");
}

TEST(a_lock_keeps_others_out_until_its_process_ends)
{
    cod_file_lock *lock = NULL, *second = NULL;
    assert_ok(cod_file_lock_acquire(at("lock"), "wait", &lock));
    assert_fails(COD_ERR_IO, "; wait", cod_file_lock_acquire(at("lock"), "wait", &second));
    assert_null(second);
    cod_file_lock_release(lock);
    assert_ok(cod_file_lock_acquire(at("lock"), "wait", &lock));
    cod_file_lock_release(lock);
}

/** What another user put in the lock's place is not written to. */
TEST(a_lock_is_no_link)
{
    cod_file_lock *lock = NULL;
    assert_ok(cod_file_write(at("precious"), "mine", 4));
    assert_ok(cod_file_remove(at("lock")));
    assert_int_equal(symlink("precious", at("lock")), 0);
    assert_fails(COD_ERR_IO, "it is a link", cod_file_lock_acquire(at("lock"), "wait", &lock));
    assert_content(at("precious"), "mine");
    assert_int_equal(unlink(at("lock")), 0);
    assert_int_equal(mkfifo(at("lock"), 0600), 0);
    assert_fails(COD_ERR_IO, "cannot lock '", cod_file_lock_acquire(at("lock"), "wait", &lock));
    assert_fails(COD_ERR_IO, "it is no regular file", cod_file_lock_observe(at("lock"), &lock));
    assert_int_equal(unlink(at("lock")), 0);
}

/** A hard link in a log's or a lock's place is a file of somebody's, where others may have put it there. */
TEST(a_file_of_another_name_is_written_in_a_folder_of_ones_own)
{
    cod_file_log *log = NULL;
    cod_file_lock *lock = NULL;
    assert_int_equal(mkdir(at("own"), 0700), 0);
    assert_ok(cod_file_write(at("outside"), "half a line", 11));
    assert_int_equal(link(at("outside"), at("own/log")), 0);
    assert_int_equal(link(at("outside"), at("own/lock")), 0);
    assert_int_equal(chmod(at("own"), 0770), 0);
    assert_fails(COD_ERR_IO, "hard link", cod_file_log_open(at("own/log"), &log));
    assert_fails(COD_ERR_IO, "hard link", cod_file_lock_acquire(at("own/lock"), "wait", &lock));
    assert_content(at("outside"), "half a line");
    assert_int_equal(chmod(at("own"), 0755), 0);
    assert_ok(cod_file_log_open(at("own/log"), &log));
    assert_ok(cod_file_log_line(log, "a line"));
    cod_file_log_close(log);
    assert_content(at("outside"), "a line\n");
    assert_int_equal(unlink(at("outside")) | unlink(at("own/log")) | unlink(at("own/lock")) | rmdir(at("own")), 0);
}

TEST(a_shared_lock_keeps_out_who_wants_it_alone)
{
    cod_file_lock *first = NULL, *second = NULL, *alone = NULL;
    assert_ok(cod_file_lock_share(at("lock"), "wait", &first));
    assert_ok(cod_file_lock_share(at("lock"), "wait", &second));
    cod_file_lock_release(first);
    assert_fails(COD_ERR_IO, "which shares it", cod_file_lock_acquire(at("lock"), "wait", &alone));
    cod_file_lock_release(second);
    assert_ok(cod_file_lock_acquire(at("lock"), "wait", &alone));
    assert_fails(COD_ERR_IO, "is in use by process ", cod_file_lock_share(at("lock"), "wait", &first));
    cod_file_lock_release(alone);
}

/** A folder that was removed and made again has another lock, though the first one is held still. */
TEST(a_lock_that_was_removed_or_replaced_is_noticed)
{
    cod_file_lock *lock = NULL, *seen = NULL, *other = NULL;
    assert_ok(cod_file_lock_acquire(at("lock"), "wait", &lock));
    assert_ok(cod_file_lock_observe(at("lock"), &seen));
    assert_ok(cod_file_lock_check(lock));
    assert_ok(cod_file_lock_check(seen));
    assert_ok(cod_file_lock_check(NULL));
    assert_ok(cod_file_remove(at("lock")));
    assert_fails(COD_ERR_IO, "lock' was removed while this job ran", cod_file_lock_check(lock));
    assert_ok(cod_file_lock_acquire(at("lock"), "wait", &other));
    assert_fails(COD_ERR_IO, "lock' was replaced while this job ran", cod_file_lock_check(lock));
    assert_fails(COD_ERR_IO, "lock' was replaced", cod_file_lock_check(seen));
    assert_ok(cod_file_lock_check(other));
    cod_file_lock_release(seen);
    cod_file_lock_release(lock);
    cod_file_lock_release(other);
    assert_ok(cod_file_remove(at("lock")));
    assert_fails(COD_ERR_IO, "No such file", cod_file_lock_observe(at("lock"), &seen));
}

TEST(folders_are_created_and_listed)
{
    cod_arena arena = {0};
    cod_string_list names;
    assert_ok(cod_folder_create(at("x/y//z/")));
    assert_ok(cod_folder_create(at("x/y/z")));
    assert_ok(cod_file_write(at("x/step-10.st"), "", 0));
    assert_ok(cod_file_write(at("x/step-02.st"), "", 0));
    assert_ok(cod_file_write(at("x/other.st"), "", 0));
    assert_ok(cod_file_write(at("x/.step-1.st"), "", 0));
    assert_ok(cod_folder_list(at("x"), "step-", ".st", &arena, &names));
    assert_int_equal(names.count, 2);
    assert_string_equal(names.items[0], "step-02.st");
    assert_string_equal(names.items[1], "step-10.st");
    assert_ok(cod_folder_list(at("x"), NULL, NULL, &arena, &names));
    assert_int_equal(names.count, 4);
    assert_fails(COD_ERR_IO, "cannot list folder", cod_folder_list(at("none"), NULL, NULL, &arena, &names));
    assert_string_equal(cod_path_join(&arena, "a", "b"), "a/b");
    assert_string_equal(cod_path_join(&arena, "a/", "b"), "a/b");
    assert_string_equal(cod_path_join(&arena, "a", "/b"), "/b");
    assert_string_equal(cod_path_join(&arena, "", "b"), "b");
    cod_arena_clear(&arena);
}

TEST(folders_that_were_made_outlast_a_power_cut)
{
    cod_untrusted_folder *opened;
    cod_test_power_begin();
    assert_ok(cod_folder_create(at("lasting/a/b")));
    assert_int_equal(cod_test_power_made(), 3);
    assert_int_equal(cod_test_power_unsafe(), 0);
    assert_ok(cod_untrusted_folder_open(at("lasting/c/root"), "d/e", COD_UNTRUSTED_CREATE, &opened));
    cod_untrusted_folder_close(opened);
    assert_int_equal(cod_test_power_made(), 3 + 4);
    assert_int_equal(cod_test_power_unsafe(), 0);
}

/** What cannot be looked at may be there: a link to itself stands for storage that fails. */
TEST(only_what_is_not_there_for_certain_is_absent)
{
    assert_ok(cod_file_write(at("a_file"), "x", 1));
    assert_false(cod_file_exists(at("a_file/below")));
    assert_false(cod_file_exists(at("no_folder/below")));
    assert_int_equal(symlink("itself", at("itself")), 0);
    assert_true(cod_file_exists(at("itself")));
}

TEST(files_move_into_folders_that_are_made)
{
    assert_ok(cod_file_write(at("moved"), "x", 1));
    assert_ok(cod_file_move_into(at("moved"), at("made/below")));
    assert_true(cod_file_exists(at("made/below")) && !cod_file_exists(at("moved")));
    assert_fails(COD_ERR_IO, "/moved': No such file", cod_file_move_into(at("moved"), at("not_made/below")));
    assert_false(cod_file_exists(at("not_made")));
}

TEST(what_a_killed_writer_left_is_removed)
{
    assert_ok(cod_folder_create(at("killed")));
    assert_ok(cod_file_write(at("killed/kept.tmp"), "mine", 4));
    const pid_t child = fork();
    if (child == 0) {
        cod_file_writer *writer;
        _exit(cod_file_writer_create(at("killed/half"), &writer) != COD_OK);
    }
    int ended;
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_int_equal(ended, 0);
    assert_int_equal(entries(at("killed")), 2);
    /* A folder with such a name is none of a writer's: it stays, and stops nothing. */
    assert_ok(cod_folder_create(at("folders/.half.1-0.tmp")));
    assert_ok(cod_file_clean(at("folders/half")));
    assert_ok(cod_folder_clean(at("folders")));
    assert_true(cod_file_exists(at("folders/.half.1-0.tmp")));
    cod_file_writer *writer;
    assert_ok(cod_file_writer_create(at("killed/half.too"), &writer));
    assert_ok(cod_file_clean(at("killed/hal")));
    assert_ok(cod_file_clean(at("none/half")));
    assert_int_equal(entries(at("killed")), 3);
    assert_ok(cod_file_clean(at("killed/half")));
    assert_int_equal(entries(at("killed")), 2);
    assert_ok(cod_folder_clean(at("killed")));
    cod_file_writer_abort(writer);
    assert_int_equal(entries(at("killed")), 1);
    assert_true(cod_file_exists(at("killed/kept.tmp")));
    assert_fails(COD_ERR_IO, "cannot list folder", cod_folder_clean(at("none")));
}

TEST_GROUP(cod_test_folder_make, cod_test_folder_remove)
