#include "file_pair.h"
#include "support/folder.h"
#include "support/test.h"

#include "core/rng.h"
#include "core/trace.h"
#include "exchange/file.h"
#include "io/file.h"
#include "io/untrusted_folder.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *at(const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "x/group-0/shard-0/%s", name);
    return cod_test_at(path);
}

TEST_IN_FOLDER(versions_travel_and_old_ones_go)
{
    cod_transport *publisher, *reader;
    cod_pull_state how;
    cod_pulled got;
    uint64_t version;
    pair_open(&publisher, &reader, 5);
    assert_ok(pair_offered(reader, &version));
    assert_int_equal(version, 5);
    for (uint64_t v = 3; v <= 5; v++) {
        assert_ok(pair_pulled(reader, v, &how, &got));
        assert_int_equal(how, COD_PULL_DONE);
        assert_true(got.bytes == BYTES - v && got.life == v * 10 && got.published_ms == 7);
        assert_true(got.data[0] == v && got.data[got.bytes - 1] == v);
    }
    assert_ok(pair_pulled(reader, 2, &how, &got));
    assert_int_equal(how, COD_PULL_LOST);
    assert_false(cod_file_exists(at("2.bin")));
    pair_close(publisher, reader);
}

static bool holds(const cod_pulled *got, uint64_t version)
{
    bool same = got->data != NULL && got->bytes == BYTES - version && got->life == 10 * version;
    for (uint64_t i = 0; same && i < got->bytes; i++)
        same = got->data[i] == (unsigned char)version;
    return same;
}

/** One whose version is not there yet keeps no other waiting, and one that is given up disturbs none. */
TEST_IN_FOLDER(several_pulls_go_on_at_once)
{
    const cod_slot_identity who = pair_identity(0, 1);
    const uint64_t versions[PULLS] = {4, 2, 3};
    cod_pull_state how[PULLS] = {0};
    cod_pulled got[PULLS] = {0};
    cod_transport *publisher, *reader;
    pair_open(&publisher, &reader, 3);
    for (int k = 0; k < PULLS; k++)
        assert_ok(reader->ops->pull_start(reader, k, &who, 0, versions[k]));
    const double begin = cod_clock_s();
    while ((how[1] == COD_PULL_BUSY || how[2] == COD_PULL_BUSY) && cod_clock_s() - begin < COD_TEST_PATIENCE_S)
        for (int k = 0; k < PULLS; k++)
            assert_ok(reader->ops->pull_poll(reader, k, &how[k], &got[k]));
    assert_true(how[0] == COD_PULL_BUSY && how[1] == COD_PULL_DONE && how[2] == COD_PULL_DONE);
    reader->ops->pull_cancel(reader, 1);
    pair_publish(publisher, 4);
    while (how[0] == COD_PULL_BUSY && cod_clock_s() - begin < COD_TEST_PATIENCE_S)
        assert_ok(reader->ops->pull_poll(reader, 0, &how[0], &got[0]));
    assert_true(holds(&got[0], 4) && holds(&got[2], 3));
    assert_ok(reader->ops->pull_poll(reader, 1, &how[1], &got[1]));
    assert_true(how[1] == COD_PULL_BUSY && got[1].data == NULL);
    pair_close(publisher, reader);
}

TEST_IN_FOLDER(what_is_damaged_or_foreign_is_refused)
{
    cod_transport *publisher, *reader;
    cod_pull_state how;
    cod_pulled got;
    uint64_t version;
    pair_open(&publisher, &reader, 3);
    assert_int_equal(truncate(at("2.bin"), 100), 0);
    assert_fails(COD_ERR_FORMAT, "2.bin", pair_pulled(reader, 2, &how, &got));
    assert_int_equal(unlink(at("3.bin")), 0);
    assert_ok(pair_pulled(reader, 3, &how, &got));
    assert_int_equal(how, COD_PULL_LOST);
    assert_ok(publisher->ops->destroy(publisher));

    publisher = pair_open_one(0, 2, true); /* another run's */
    pair_publish(publisher, 1);
    assert_fails(COD_ERR_FORMAT, "group 0 publishes another run", pair_offered(reader, &version));
    assert_fails(COD_ERR_FORMAT, "group 0 publishes another run", pair_pulled(reader, 1, &how, &got));
    assert_ok(publisher->ops->destroy(publisher));

    void *header;
    size_t bytes;
    assert_ok(cod_file_read(at("header"), SIZE_MAX / 2, &header, &bytes));
    ((char *)header)[200] ^= 1;
    assert_ok(cod_file_write(at("header"), header, bytes));
    assert_fails(COD_ERR_FORMAT, "damaged", pair_pulled(reader, 1, &how, &got));
    free(header);
    assert_ok(cod_file_write(at("header"), "garbage", 7));
    assert_fails(COD_ERR_FORMAT, "damaged", pair_pulled(reader, 1, &how, &got));
    pair_close(NULL, reader);
}

TEST_IN_FOLDER(publishing_survives_storage_that_goes_and_comes)
{
    cod_transport *publisher, *reader;
    cod_pull_state how;
    cod_pulled got;
    pair_open(&publisher, &reader, 2);
    /* A file in the folder's place: not even root can write below it. */
    assert_int_equal(rename(cod_test_at("x/group-0"), cod_test_at("away")), 0);
    assert_ok(cod_file_write(cod_test_at("x/group-0"), "", 0));
    pair_publish(publisher, 3);
    pair_publish(publisher, 4);
    assert_int_equal(publisher->ops->failures(publisher), 2);
    assert_int_equal(unlink(cod_test_at("x/group-0")), 0);
    pair_publish(publisher, 5);
    assert_int_equal(publisher->ops->failures(publisher), 2);
    assert_ok(pair_pulled(reader, 5, &how, &got));
    assert_int_equal(how, COD_PULL_DONE);
    assert_ok(pair_pulled(reader, 2, &how, &got)); /* named still, but gone */
    assert_int_equal(how, COD_PULL_LOST);
    pair_close(publisher, reader);
}

TEST_IN_FOLDER(a_resumed_publisher_shows_what_is_still_there)
{
    cod_transport *publisher, *reader;
    cod_pull_state how;
    cod_pulled got;
    void *saved;
    size_t bytes;
    pair_open(&publisher, &reader, 3);
    assert_ok(publisher->ops->state(publisher, &saved, &bytes));
    pair_publish(publisher, 4); /* after the checkpoint, before the death: takes away version 1 */
    assert_ok(publisher->ops->destroy(publisher));
    assert_int_equal(unlink(at("3.bin")), 0);

    publisher = pair_open_one(0, 1, false);
    assert_ok(publisher->ops->restored(publisher, saved, bytes));
    free(saved);
    publisher->ops->oldest(publisher);
    for (uint64_t v = 2; v <= 3; v++) {
        assert_ok(pair_pulled(reader, v, &how, &got));
        assert_true(how == COD_PULL_DONE && got.bytes == BYTES - v && got.data[0] == v);
    }
    assert_false(cod_file_exists(at("4.bin")));
    pair_publish(publisher, 4);
    assert_ok(pair_pulled(reader, 4, &how, &got));
    assert_int_equal(how, COD_PULL_DONE);
    pair_close(publisher, reader);
}

/** Publishes one version after the other, some of them slowly, until it is killed. */
static void publish_for_ever(uint64_t version)
{
    cod_transport *t = pair_open_one(0, 1, false);
    for (;; version++) {
        unsigned char *room;
        const cod_slot_entry entry = {.version = version, .life = version * 10, .bytes = BYTES - version % 97};
        if (t->ops->publish_begin(t, &room) != COD_OK)
            _exit(1);
        for (uint64_t at = 0; at < entry.bytes; at += 512) {
            memset(room + at, (int)(version & 127), entry.bytes - at < 512 ? entry.bytes - at : 512);
            usleep(version % 4 == 0 ? 200 : 0);
        }
        if (t->ops->publish_end(t, &entry) != COD_OK)
            _exit(1);
        t->ops->oldest(t);
    }
}

/** Asks until a version above `newest` is offered, or time is up. */
static uint64_t await_newer(cod_transport *reader, uint64_t newest)
{
    const double begin = cod_clock_s();
    uint64_t version = 0;
    while (version <= newest && cod_clock_s() - begin < COD_TEST_PATIENCE_S) {
        assert_ok(pair_offer(reader, &(bool){0}, &version));
        usleep(500);
    }
    return version;
}

/**
 * A publisher that is killed at random moments, also while it encodes or writes, leaves nothing that a reader takes for
 * a version.
 */
TEST_IN_FOLDER(a_killed_publisher_leaves_whole_versions_only)
{
    enum { KILLS = 10 };
    const uint64_t seed = 5;
    cod_rng rng = cod_rng_open(seed, 0, 0, 0, COD_RNG_TEST, 0);
    uint64_t newest = 0;
    for (int round = 0; round < KILLS; round++) {
        const pid_t child = fork();
        if (child == 0)
            publish_for_ever(newest + 1);
        assert_true(child > 0);
        cod_transport *reader = pair_open_one(1, 1, true);
        cod_pull_state how;
        cod_pulled got;
        const uint64_t seen = await_newer(reader, newest);
        usleep(cod_rng_below(&rng, 15000));
        assert_int_equal(kill(child, SIGKILL), 0);
        assert_int_equal(waitpid(child, NULL, 0), child);
        assert_ok(reader->ops->destroy(reader));
        reader = pair_open_one(1, 1, true); /* sees what is there now, and nothing of before */
        const uint64_t version = await_newer(reader, newest);
        if (seen <= newest || version < seen)
            fail_msg("seed %llu round %d: version %llu after %llu", (unsigned long long)seed, round,
                     (unsigned long long)version, (unsigned long long)seen);
        assert_ok(pair_pulled(reader, version, &how, &got));
        if (how != COD_PULL_DONE || got.bytes != BYTES - version % 97)
            fail_msg("seed %llu round %d: the last version is not whole", (unsigned long long)seed, round);
        for (uint64_t i = 0; i < got.bytes; i++)
            if (got.data[i] != (version & 127))
                fail_msg("seed %llu round %d: half a version was read", (unsigned long long)seed, round);
        newest = version;
        assert_ok(reader->ops->destroy(reader));
    }
    print_message("%d kills, %llu versions\n", KILLS, (unsigned long long)newest);
}

static void put_header(const void *bytes, size_t count)
{
    assert_ok(cod_file_write(at("header"), bytes, count));
}

/** As a restored backup or a cache does: nothing old is taken, and what is newer is. */
TEST_IN_FOLDER(an_older_header_is_refused)
{
    cod_transport *publisher, *reader;
    void *old;
    size_t bytes;
    uint64_t version;
    cod_status status = COD_OK;
    pair_open(&publisher, &reader, 3);
    assert_ok(pair_offered(reader, &version));
    assert_ok(cod_file_read(at("header"), SIZE_MAX / 2, &old, &bytes));
    pair_publish(publisher, 4);
    pair_publish(publisher, 5);
    assert_int_equal(await_newer(reader, 4), 5);
    put_header(old, bytes);
    for (const double begin = cod_clock_s(); status == COD_OK && cod_clock_s() - begin < COD_TEST_PATIENCE_S;
         usleep(1000))
        status = pair_offer(reader, &(bool){0}, &version);
    assert_fails(COD_ERR_FORMAT, "its newest version was 5, not 3", status);
    assert_int_equal(version, 0);
    cod_pull_state how;
    cod_pulled got; /* offered by the header before: it will not come */
    assert_fails(COD_ERR_FORMAT, "its newest version was 5, not 3", pair_pulled(reader, 5, &how, &got));
    pair_publish(publisher, 6);
    bool answered = false;
    for (const double begin = cod_clock_s();
         !(answered && status == COD_OK) && cod_clock_s() - begin < COD_TEST_PATIENCE_S; usleep(1000))
        status = pair_offer(reader, &answered, &version);
    assert_ok(status);
    assert_int_equal(version, 6);
    assert_ok(publisher->ops->destroy(publisher));
    /* A publisher that begins beside it must know what readers may hold. */
    put_header(old, bytes);
    free(old);
    publisher = pair_open_one(0, 1, false);
    assert_int_equal(publisher->ops->left(publisher), 6);
    pair_close(publisher, reader);
}

/** Begins anew and is killed: before it has done anything, or before it has published. @return as waitpid() */
static int begin_anew_and_die(bool late)
{
    int how = 0;
    const pid_t child = fork();
    if (child == 0) {
        cod_transport *t = pair_open_one(0, 1, true);
        if (late)
            t->ops->oldest(t); /* waits until the first header is there */
        raise(SIGKILL);
    }
    return child > 0 && waitpid(child, &how, 0) == child && WIFSIGNALED(how) ? 0 : -1;
}

TEST_IN_FOLDER(who_begins_anew_and_is_killed_forgets_no_number)
{
    cod_transport *publisher, *reader;
    uint64_t version;
    pair_open(&publisher, &reader, 3);
    pair_close(publisher, reader); /* a process that forks has no threads */
    for (int late = 0; late < 2; late++) {
        assert_int_equal(begin_anew_and_die(late != 0), 0);
        assert_false(cod_file_exists(at("3.bin")));
        publisher = pair_open_one(0, 1, late == 0);
        assert_int_equal(publisher->ops->left(publisher), 3);
        assert_ok(publisher->ops->destroy(publisher));
    }
    reader = pair_open_one(1, 1, true);
    bool answered = false;
    for (const double begin = cod_clock_s(); !answered && cod_clock_s() - begin < COD_TEST_PATIENCE_S; usleep(1000))
        assert_ok(pair_offer(reader, &answered, &version));
    assert_true(answered && version == 0);
    pair_close(NULL, reader);
}

/** What others put in a file's or a folder's place is neither waited for, nor followed, nor removed. */
TEST_IN_FOLDER(links_and_fifos_are_refused)
{
    cod_transport *publisher, *reader, *none = NULL;
    cod_pull_state how;
    cod_pulled got;
    uint64_t version;
    pair_open(&publisher, &reader, 3);
    assert_ok(publisher->ops->destroy(publisher));
    assert_int_equal(rename(at("header"), cod_test_at("header")), 0);
    assert_int_equal(mkfifo(at("header"), 0600), 0);
    assert_fails(COD_ERR_FORMAT, "damaged", pair_offered(reader, &version));
    assert_int_equal(unlink(at("header")), 0);
    assert_int_equal(symlink("../../../header", at("header")), 0);
    assert_fails(COD_ERR_FORMAT, "damaged", pair_pulled(reader, 3, &how, &got));
    assert_int_equal(unlink(at("header")), 0);
    assert_int_equal(rename(cod_test_at("header"), at("header")), 0);
    assert_int_equal(unlink(at("3.bin")), 0);
    assert_int_equal(mkfifo(at("3.bin"), 0600), 0);
    assert_fails(COD_ERR_FORMAT, "no regular file", pair_pulled(reader, 3, &how, &got));
    assert_ok(pair_pulled(reader, 2, &how, &got));
    assert_int_equal(how, COD_PULL_DONE);

    /* The shard's folder is a link to somebody's own: nothing there is touched. */
    assert_int_equal(mkdir(cod_test_at("mine"), 0700), 0);
    assert_ok(cod_file_write(cod_test_at("mine/7.bin"), "precious", 8));
    assert_int_equal(rename(cod_test_at("x/group-0/shard-0"), cod_test_at("x/group-0/away")), 0);
    assert_int_equal(symlink("../../mine", cod_test_at("x/group-0/shard-0")), 0);
    assert_fails(COD_ERR_IO, "shard-0", pair_try_open(0, 1, true, "", &none));
    assert_true(cod_file_exists(cod_test_at("mine/7.bin")));
    assert_int_equal(unlink(cod_test_at("x/group-0/shard-0")), 0);
    assert_int_equal(rename(cod_test_at("x/group-0/away"), cod_test_at("x/group-0/shard-0")), 0);

    /* Of what is in the folder, only names of ours go. */
    assert_ok(cod_file_write(at("notes.bin"), "", 0));
    assert_ok(cod_file_write(at("07.bin"), "", 0));
    assert_ok(cod_file_write(at(".header.1-2.tmp"), "", 0));
    assert_ok(cod_file_write(at(".notes.1-2.tmp"), "", 0));
    publisher = pair_open_one(0, 1, true);
    pair_publish(publisher, 4);
    assert_true(cod_file_exists(at("notes.bin")) && cod_file_exists(at("07.bin")) &&
                cod_file_exists(at(".notes.1-2.tmp")));
    assert_false(cod_file_exists(at("2.bin")) || cod_file_exists(at(".header.1-2.tmp")));
    pair_close(publisher, reader);
}

/** Others may fill a group's folder faster than it is looked through: own versions go all the same. */
TEST_IN_FOLDER(a_folder_of_very_many_files_holds_nobody_up)
{
    enum { MANY = 3 * COD_UNTRUSTED_ENTRIES_MOST };
    cod_transport *publisher, *reader;
    cod_pull_state how;
    cod_pulled got;
    char name[64];
    pair_open(&publisher, &reader, 1);
    assert_ok(cod_file_write(at("strange"), "not a version", 13));
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "x/group-0/shard-0/%d.bin", 1000000 + i);
        assert_int_equal(link(at("strange"), cod_test_at(name)), 0);
    }
    pair_publish(publisher, 2);
    int left = 0;
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "x/group-0/shard-0/%d.bin", 1000000 + i);
        left += cod_file_exists(cod_test_at(name));
    }
    assert_true(left > 0 && left < MANY);
    for (int i = 0; i < MANY; i++) { /* names that stay */
        snprintf(name, sizeof name, "x/group-0/shard-0/%d.bin.theirs", i);
        assert_int_equal(link(at("strange"), cod_test_at(name)), 0);
    }
    for (uint64_t version = 3; version <= SLOTS + 2; version++)
        pair_publish(publisher, version);
    assert_ok(pair_pulled(reader, SLOTS + 2, &how, &got));
    assert_int_equal(how, COD_PULL_DONE);
    assert_false(cod_file_exists(at("1.bin")) || cod_file_exists(at("2.bin")));
    assert_ok(publisher->ops->destroy(publisher));
    publisher = pair_open_one(0, 1, false);
    pair_close(publisher, reader);
}

TEST_IN_FOLDER(folders_are_for_their_owner_alone)
{
    struct stat info;
    cod_transport *publisher, *reader;
    const mode_t before = umask(0);
    pair_open(&publisher, &reader, 1);
    umask(before);
    assert_int_equal(stat(cod_test_at("x"), &info), 0);
    assert_int_equal(info.st_mode & 0777, 0700);
    assert_int_equal(stat(cod_test_at("x/group-0/shard-0"), &info), 0);
    assert_int_equal(info.st_mode & 0777, 0700);
    pair_close(publisher, reader);
}

/** Asks until what is there now is refused, or time is up. */
static cod_status refused_at_last(cod_transport *t)
{
    uint64_t version;
    cod_status status = COD_OK;
    for (const double begin = cod_clock_s(); status == COD_OK && cod_clock_s() - begin < COD_TEST_PATIENCE_S;
         usleep(1000))
        status = pair_offer(t, &(bool){0}, &version);
    return status;
}

/** Turns one byte of a file. */
static void damage(const char *name, off_t place)
{
    unsigned char byte;
    const int file = open(at(name), O_RDWR);
    assert_true(file >= 0);
    assert_int_equal(pread(file, &byte, 1, place), 1);
    byte ^= 1;
    assert_int_equal(pwrite(file, &byte, 1, place), 1);
    close(file);
}

TEST_IN_FOLDER(what_another_key_sealed_is_refused)
{
    cod_transport *publisher = NULL, *reader = NULL, *stranger = NULL, *open_reader = NULL;
    cod_pull_state how;
    cod_pulled got;
    uint64_t version;
    char ours[4096], theirs[4096];
    snprintf(ours, sizeof ours, "%s", cod_test_at("ours"));
    snprintf(theirs, sizeof theirs, "%s", cod_test_at("theirs"));
    assert_ok(cod_file_write(ours, "too short", 9));
    assert_fails(COD_ERR_ARGUMENT, "at least 16", pair_try_open(0, 1, true, ours, &publisher));
    assert_ok(cod_file_write(ours, "a secret of all groups", 22));
    assert_ok(cod_file_write(theirs, "a secret of a stranger", 22));
    assert_ok(pair_try_open(0, 1, true, ours, &publisher));
    assert_ok(pair_try_open(1, 1, true, ours, &reader));
    pair_publish(publisher, 1);
    pair_publish(publisher, 2);
    pair_publish(publisher, 3);
    assert_ok(pair_offered(reader, &version));
    assert_int_equal(version, 3);
    assert_ok(pair_pulled(reader, 3, &how, &got));
    assert_true(how == COD_PULL_DONE && got.bytes == BYTES - 3 && got.data[0] == 3);

    damage("2.bin", 100);
    assert_fails(COD_ERR_FORMAT, "2.bin' has no seal", pair_pulled(reader, 2, &how, &got));
    /* A version under another's name is whole, but not in its place. */
    assert_int_equal(truncate(at("3.bin"), 0), 0);
    assert_int_equal(rename(at("1.bin"), at("3.bin")), 0);
    assert_fails(COD_ERR_FORMAT, "3.bin", pair_pulled(reader, 3, &how, &got));

    assert_ok(pair_try_open(1, 1, true, "", &open_reader));
    assert_fails(COD_ERR_FORMAT, "is sealed", pair_offered(open_reader, &version));
    assert_ok(open_reader->ops->destroy(open_reader));
    assert_ok(publisher->ops->destroy(publisher));
    assert_ok(pair_try_open(0, 1, true, theirs, &stranger));
    pair_publish(stranger, 9);
    assert_fails(COD_ERR_FORMAT, "has no seal", refused_at_last(reader));
    assert_fails(COD_ERR_FORMAT, "has no seal", pair_pulled(reader, 9, &how, &got));
    assert_ok(stranger->ops->destroy(stranger));
    publisher = pair_open_one(0, 1, true);
    pair_publish(publisher, 9);
    assert_fails(COD_ERR_FORMAT, "has no seal", refused_at_last(reader));
    pair_close(publisher, reader);
}

/** 2^64 - 1 as the newest version would make all true headers look old. */
TEST_IN_FOLDER(a_version_that_no_run_reaches_is_refused)
{
    cod_transport *publisher, *reader;
    unsigned char *room;
    uint64_t version;
    pair_open(&publisher, &reader, 1);
    assert_ok(publisher->ops->publish_begin(publisher, &room));
    assert_ok(publisher->ops->publish_end(publisher, &(cod_slot_entry){.version = UINT64_MAX, .bytes = 1}));
    publisher->ops->oldest(publisher);
    assert_fails(COD_ERR_FORMAT, "makes no sense", pair_offered(reader, &version));
    assert_ok(publisher->ops->destroy(publisher));
    publisher = pair_open_one(0, 1, true);
    assert_int_equal(publisher->ops->left(publisher), 0);
    pair_publish(publisher, 2);
    cod_status status = COD_ERR_FORMAT; /* as long as the answer is of the header before */
    for (const double begin = cod_clock_s(); status != COD_OK && cod_clock_s() - begin < COD_TEST_PATIENCE_S;
         usleep(1000))
        status = pair_offered(reader, &version);
    assert_ok(status);
    assert_int_equal(version, 2);
    pair_close(publisher, reader);
}
