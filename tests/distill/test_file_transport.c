#include "support/folder.h"
#include "support/test.h"

#include "core/log.h"
#include "core/rng.h"
#include "core/trace.h"
#include "distill/file.h"
#include "io/file.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SLOTS = 3, BYTES = 4096, PATIENCE_S = 20 };

static const cod_slot_layout layout = {.slots = SLOTS, .groups = 2, .slot_bytes = BYTES};

static cod_slot_identity identity(uint32_t group, uint64_t run)
{
    return (cod_slot_identity){.run = run, .model = 5, .group = group, .shards = 1, .count = 100, .exact_from = 100};
}

static cod_transport *open_transport(uint32_t group, uint64_t run, bool anew)
{
    const cod_slot_identity who = identity(group, run);
    cod_transport *t = NULL;
    assert_ok(cod_file_transport_create(cod_test_at("x"), anew, &who, &layout, &t));
    return t;
}

/** Publishes BYTES - version bytes, all `version`, and waits until they are there or given up. */
static void publish(cod_transport *t, uint64_t version)
{
    unsigned char *room;
    assert_ok(t->ops->publish_begin(t, &room));
    memset(room, (int)version, BYTES - version);
    assert_ok(t->ops->publish_end(
        t, &(cod_slot_entry){.version = version, .life = version * 10, .bytes = BYTES - version, .published_ms = 7}));
    t->ops->oldest(t);
}

/** Asks until something is offered or refused, or `patience_s` has passed. */
static cod_status offered(cod_transport *t, double patience_s, uint64_t *version)
{
    const cod_slot_identity who = identity(0, 1);
    const double begin = cod_clock_s();
    cod_status status = COD_OK;
    for (*version = 0; status == COD_OK && *version == 0 && cod_clock_s() - begin < patience_s; usleep(1000))
        status = t->ops->offer(t, &who, 0, 0, 0, UINT64_MAX, version, &(uint64_t){0});
    return status;
}

static cod_status pulled(cod_transport *t, uint64_t version, cod_pull_state *state, cod_pulled *out)
{
    const cod_slot_identity who = identity(0, 1);
    const double begin = cod_clock_s();
    cod_status status = t->ops->pull_start(t, &who, 0, version);
    *state = COD_PULL_BUSY;
    while (status == COD_OK && *state == COD_PULL_BUSY && cod_clock_s() - begin < PATIENCE_S)
        status = t->ops->pull_poll(t, state, out);
    return status;
}

static const char *at(const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "x/group-0/shard-0/%s", name);
    return cod_test_at(path);
}

/** A publisher with versions 1 to `count` and a reader. */
static void open_pair(cod_transport **publisher, cod_transport **reader, uint64_t count)
{
    *publisher = open_transport(0, 1, true);
    *reader = open_transport(1, 1, true);
    for (uint64_t v = 1; v <= count; v++)
        publish(*publisher, v);
}

static void close_pair(cod_transport *publisher, cod_transport *reader)
{
    if (publisher != NULL)
        assert_ok(publisher->ops->destroy(publisher));
    assert_ok(reader->ops->destroy(reader));
}

static void versions_travel_and_old_ones_go(void **state)
{
    (void)state;
    cod_transport *publisher, *reader;
    cod_pull_state how;
    cod_pulled got;
    uint64_t version;
    open_pair(&publisher, &reader, 5);
    assert_ok(offered(reader, PATIENCE_S, &version));
    assert_int_equal(version, 5);
    for (uint64_t v = 3; v <= 5; v++) {
        assert_ok(pulled(reader, v, &how, &got));
        assert_int_equal(how, COD_PULL_DONE);
        assert_true(got.bytes == BYTES - v && got.life == v * 10 && got.published_ms == 7);
        assert_true(got.data[0] == v && got.data[got.bytes - 1] == v);
    }
    assert_ok(pulled(reader, 2, &how, &got));
    assert_int_equal(how, COD_PULL_LOST);
    assert_false(cod_file_exists(at("2.bin")));
    close_pair(publisher, reader);
}

static void what_is_damaged_or_foreign_is_refused(void **state)
{
    (void)state;
    cod_transport *publisher, *reader;
    cod_pull_state how;
    cod_pulled got;
    uint64_t version;
    open_pair(&publisher, &reader, 3);
    assert_int_equal(truncate(at("2.bin"), 100), 0);
    assert_fails(COD_ERR_FORMAT, "2.bin", pulled(reader, 2, &how, &got));
    assert_int_equal(unlink(at("3.bin")), 0);
    assert_ok(pulled(reader, 3, &how, &got));
    assert_int_equal(how, COD_PULL_LOST);
    assert_ok(publisher->ops->destroy(publisher));

    publisher = open_transport(0, 2, true); /* another run's */
    publish(publisher, 1);
    assert_fails(COD_ERR_FORMAT, "group 0 publishes another run", offered(reader, PATIENCE_S, &version));
    assert_fails(COD_ERR_FORMAT, "group 0 publishes another run", pulled(reader, 1, &how, &got));
    assert_ok(publisher->ops->destroy(publisher));

    void *header;
    size_t bytes;
    assert_ok(cod_file_read(at("header"), SIZE_MAX / 2, &header, &bytes));
    ((char *)header)[200] ^= 1;
    assert_ok(cod_file_write(at("header"), header, bytes));
    usleep(20000);
    assert_fails(COD_ERR_FORMAT, "damaged", pulled(reader, 1, &how, &got));
    free(header);
    assert_ok(cod_file_write(at("header"), "garbage", 7));
    assert_fails(COD_ERR_FORMAT, "damaged", pulled(reader, 1, &how, &got));
    close_pair(NULL, reader);
}

static void publishing_survives_storage_that_goes_and_comes(void **state)
{
    (void)state;
    cod_transport *publisher, *reader;
    cod_pull_state how;
    cod_pulled got;
    open_pair(&publisher, &reader, 2);
    /* A file in the folder's place: not even root can write below it. */
    assert_int_equal(rename(cod_test_at("x/group-0"), cod_test_at("away")), 0);
    assert_ok(cod_file_write(cod_test_at("x/group-0"), "", 0));
    publish(publisher, 3);
    publish(publisher, 4);
    assert_int_equal(publisher->ops->failures(publisher), 2);
    assert_int_equal(unlink(cod_test_at("x/group-0")), 0);
    publish(publisher, 5);
    assert_int_equal(publisher->ops->failures(publisher), 2);
    assert_ok(pulled(reader, 5, &how, &got));
    assert_int_equal(how, COD_PULL_DONE);
    assert_ok(pulled(reader, 2, &how, &got)); /* named still, but gone */
    assert_int_equal(how, COD_PULL_LOST);
    close_pair(publisher, reader);
}

static void a_resumed_publisher_shows_what_is_still_there(void **state)
{
    (void)state;
    cod_transport *publisher, *reader;
    cod_pull_state how;
    cod_pulled got;
    void *data;
    size_t bytes, again;
    open_pair(&publisher, &reader, 3);
    publisher->ops->state(publisher, &data, &bytes);
    void *saved = malloc(bytes);
    assert_non_null(saved);
    memcpy(saved, data, bytes);
    publish(publisher, 4); /* after the checkpoint, before the death: takes away version 1 */
    assert_ok(publisher->ops->destroy(publisher));
    assert_int_equal(unlink(at("3.bin")), 0);

    publisher = open_transport(0, 1, false);
    publisher->ops->state(publisher, &data, &again);
    assert_int_equal(bytes, again);
    memcpy(data, saved, bytes);
    free(saved);
    assert_ok(publisher->ops->restored(publisher));
    publisher->ops->oldest(publisher);
    for (uint64_t v = 2; v <= 3; v++) {
        assert_ok(pulled(reader, v, &how, &got));
        assert_true(how == COD_PULL_DONE && got.bytes == BYTES - v && got.data[0] == v);
    }
    assert_false(cod_file_exists(at("4.bin")));
    publish(publisher, 4);
    assert_ok(pulled(reader, 4, &how, &got));
    assert_int_equal(how, COD_PULL_DONE);
    close_pair(publisher, reader);
}

/** Publishes one version after the other, some of them slowly, until it is killed. */
static void publish_for_ever(uint64_t version)
{
    cod_transport *t = open_transport(0, 1, false);
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

/** Asks until a version above `newest` is offered, or some seconds have passed. */
static uint64_t await_newer(cod_transport *reader, uint64_t newest)
{
    const cod_slot_identity who = identity(0, 1);
    const double begin = cod_clock_s();
    uint64_t version = 0;
    while (version <= newest && cod_clock_s() - begin < PATIENCE_S) {
        assert_ok(reader->ops->offer(reader, &who, 0, 0, 0, UINT64_MAX, &version, &(uint64_t){0}));
        usleep(500);
    }
    return version;
}

/** A publisher that is killed at random moments, also while it encodes or writes, leaves nothing that a reader takes for a version. */
static void a_killed_publisher_leaves_whole_versions_only(void **state)
{
    (void)state;
    enum { KILLS = 10 };
    const uint64_t seed = 5;
    cod_rng rng = cod_rng_open(seed, 0, 0, 0, COD_RNG_TEST, 0);
    uint64_t newest = 0;
    for (int round = 0; round < KILLS; round++) {
        const pid_t child = fork();
        if (child == 0)
            publish_for_ever(newest + 1);
        assert_true(child > 0);
        cod_transport *reader = open_transport(1, 1, true);
        cod_pull_state how;
        cod_pulled got;
        const uint64_t seen = await_newer(reader, newest);
        usleep(cod_rng_below(&rng, 15000));
        assert_int_equal(kill(child, SIGKILL), 0);
        assert_int_equal(waitpid(child, NULL, 0), child);
        assert_ok(reader->ops->destroy(reader));
        reader = open_transport(1, 1, true); /* sees what is there now, and nothing of before */
        const uint64_t version = await_newer(reader, newest);
        if (seen <= newest || version < seen)
            fail_msg("seed %llu round %d: version %llu after %llu", (unsigned long long)seed, round,
                     (unsigned long long)version, (unsigned long long)seen);
        assert_ok(pulled(reader, version, &how, &got));
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
static void an_older_header_is_refused(void **state)
{
    (void)state;
    cod_transport *publisher, *reader;
    void *old;
    size_t bytes;
    uint64_t version;
    cod_status status = COD_OK;
    open_pair(&publisher, &reader, 3);
    assert_ok(offered(reader, PATIENCE_S, &version));
    assert_ok(cod_file_read(at("header"), SIZE_MAX / 2, &old, &bytes));
    publish(publisher, 4);
    publish(publisher, 5);
    assert_int_equal(await_newer(reader, 4), 5);
    put_header(old, bytes);
    const cod_slot_identity who = identity(0, 1);
    for (const double begin = cod_clock_s(); status == COD_OK && cod_clock_s() - begin < PATIENCE_S; usleep(1000))
        status = reader->ops->offer(reader, &who, 0, 0, 0, UINT64_MAX, &version, &(uint64_t){0});
    assert_fails(COD_ERR_FORMAT, "its newest version was 5, not 3", status);
    assert_int_equal(version, 0);
    cod_pull_state how;
    cod_pulled got; /* offered by the header before: it will not come */
    assert_fails(COD_ERR_FORMAT, "its newest version was 5, not 3", pulled(reader, 5, &how, &got));
    publish(publisher, 6);
    for (const double begin = cod_clock_s(); status != COD_OK && cod_clock_s() - begin < PATIENCE_S; usleep(1000))
        status = reader->ops->offer(reader, &who, 0, 0, 0, UINT64_MAX, &version, &(uint64_t){0});
    assert_ok(status);
    assert_int_equal(version, 6);
    assert_ok(publisher->ops->destroy(publisher));
    /* A publisher that begins beside it must know what readers may hold. */
    put_header(old, bytes);
    free(old);
    publisher = open_transport(0, 1, false);
    assert_int_equal(publisher->ops->left(publisher), 6);
    close_pair(publisher, reader);
}

/** Begins anew and is killed: before it has done anything, or before it has published. @return as waitpid() */
static int begin_anew_and_die(bool late)
{
    int how = 0;
    const pid_t child = fork();
    if (child == 0) {
        cod_transport *t = open_transport(0, 1, true);
        if (late)
            t->ops->oldest(t); /* waits until the first header is there */
        raise(SIGKILL);
    }
    return child > 0 && waitpid(child, &how, 0) == child && WIFSIGNALED(how) ? 0 : -1;
}

static void who_begins_anew_and_is_killed_forgets_no_number(void **state)
{
    (void)state;
    cod_transport *publisher, *reader;
    uint64_t version;
    open_pair(&publisher, &reader, 3);
    close_pair(publisher, reader); /* a process that forks has no threads */
    for (int late = 0; late < 2; late++) {
        assert_int_equal(begin_anew_and_die(late != 0), 0);
        assert_false(cod_file_exists(at("3.bin")));
        publisher = open_transport(0, 1, late == 0);
        assert_int_equal(publisher->ops->left(publisher), 3);
        assert_ok(publisher->ops->destroy(publisher));
    }
    reader = open_transport(1, 1, true);
    assert_ok(offered(reader, 1, &version));
    assert_int_equal(version, 0);
    close_pair(NULL, reader);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(versions_travel_and_old_ones_go, cod_test_folder_make, cod_test_folder_remove),
        cmocka_unit_test_setup_teardown(what_is_damaged_or_foreign_is_refused, cod_test_folder_make,
                                        cod_test_folder_remove),
        cmocka_unit_test_setup_teardown(publishing_survives_storage_that_goes_and_comes, cod_test_folder_make,
                                        cod_test_folder_remove),
        cmocka_unit_test_setup_teardown(a_killed_publisher_leaves_whole_versions_only, cod_test_folder_make,
                                        cod_test_folder_remove),
        cmocka_unit_test_setup_teardown(an_older_header_is_refused, cod_test_folder_make, cod_test_folder_remove),
        cmocka_unit_test_setup_teardown(who_begins_anew_and_is_killed_forgets_no_number, cod_test_folder_make,
                                        cod_test_folder_remove),
        cmocka_unit_test_setup_teardown(a_resumed_publisher_shows_what_is_still_there, cod_test_folder_make,
                                        cod_test_folder_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
