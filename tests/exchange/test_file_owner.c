/* Whose the own place in the shared folder is, and what lies there: other publishers, leftovers, old files. */
#include "file_pair.h"
#include "support/folder.h"
#include "support/test.h"

#include "core/log.h"
#include "exchange/file.h"
#include "io/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char warnings[4096];

static void keep_warning(void *context, cod_log_level level, const char *line)
{
    const size_t used = strlen(warnings);
    (void)context;
    (void)level;
    snprintf(warnings + used, sizeof warnings - used, "%s\n", line);
}

static int begin_test(void **state)
{
    warnings[0] = '\0';
    cod_log_set_sink(keep_warning, NULL, COD_LOG_WARN);
    return cod_test_folder_make(state);
}

static int end_test(void **state)
{
    cod_log_set_sink(NULL, NULL, COD_LOG_INFO);
    return cod_test_folder_remove(state);
}

/** How often a text was warned of. */
static int count(const char *text)
{
    int times = 0;
    for (const char *at = warnings; (at = strstr(at, text)) != NULL; at += strlen(text))
        times++;
    return times;
}

static const char *at(const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "x/group-0/shard-0/%s", name);
    return cod_test_at(path);
}

static char key_path[512];

/** A process of a group; with the key where there is one. */
static cod_transport *open_process(uint32_t group, uint64_t life, uint64_t begun_ms, double old_s)
{
    const cod_slot_identity who = pair_identity(group, 1);
    char folder[512];
    cod_transport *t = NULL;
    snprintf(folder, sizeof folder, "%s", cod_test_at("x"));
    const cod_file_options options = {.folder = folder,
                                      .key_file = key_path,
                                      .patience_s = COD_TEST_PATIENCE_S,
                                      .old_s = old_s,
                                      .life = life,
                                      .begun_ms = begun_ms,
                                      .rooms = pair_rooms(group)};
    assert_ok(cod_file_transport_create(&options, &who, &pair_layout, &t));
    return t;
}

/** Writes the key that processes have from now on. */
static void make_key(void)
{
    snprintf(key_path, sizeof key_path, "%s", cod_test_at("key"));
    assert_ok(cod_file_write(key_path, "a secret of all groups", 22));
    assert_int_equal(chmod(key_path, 0600), 0);
}

static void expect_usurped(cod_transport *t, const char *message)
{
    unsigned char *room;
    void *saved = NULL;
    size_t bytes;
    assert_fails(COD_ERR_IO, message, t->ops->publish_begin(t, &room));
    assert_fails(COD_ERR_IO, message, t->ops->state(t, &saved, &bytes));
    assert_fails(COD_ERR_IO, message, t->ops->destroy(t));
}

/** Of one group that is started at two sites, the job that began later goes on, and the other one writes nothing. */
TEST_WITH(the_later_of_two_publishers_goes_on, begin_test, end_test)
{
    void *before = NULL, *after = NULL;
    size_t before_bytes, after_bytes;
    uint64_t version;
    key_path[0] = '\0';
    cod_transport *first = open_process(0, 11, 1000, 1e9), *second, *reader;
    pair_publish(first, 1);
    second = open_process(0, 7, 2000, 1e9);
    assert_int_equal(second->ops->left(second), 1);
    pair_publish(second, 2);
    assert_ok(cod_file_read(at("header"), 1 << 20, &before, &before_bytes));
    pair_publish(first, 3); /* it comes back from the call, but nothing was written */
    assert_false(cod_file_exists(at("3.bin")));
    expect_usurped(first, "another job, begun 1970-01-01 00:00:02 UTC, publishes as group 0");
    assert_ok(cod_file_read(at("header"), 1 << 20, &after, &after_bytes));
    assert_int_equal(before_bytes, after_bytes);
    assert_memory_equal(before, after, before_bytes);
    free(before);
    free(after);
    pair_publish(second, 3);
    reader = open_process(1, 5, 1, 1e9);
    assert_ok(pair_offered(reader, &version));
    assert_int_equal(version, 3);
    pair_close(second, reader);
}

/** A host whose clock is behind that of the host before: the job that begins there is the later one all the same. */
TEST_WITH(clocks_do_not_say_who_began_later, begin_test, end_test)
{
    key_path[0] = '\0';
    cod_transport *first = open_process(0, 11, 9000, 1e9), *second;
    pair_publish(first, 1);
    second = open_process(0, 7, 500, 1e9);
    pair_publish(second, 2);
    pair_publish(first, 3);
    expect_usurped(first, "publishes as group 0");
    pair_publish(second, 3);
    assert_true(cod_file_exists(at("3.bin")));
    assert_ok(second->ops->destroy(second));
}

/** A header of an earlier process is no other job's: it is written over. */
TEST_WITH(a_header_that_was_put_back_ends_nobody, begin_test, end_test)
{
    void *old = NULL;
    size_t bytes;
    make_key();
    cod_transport *t = open_process(0, 11, 1000, 1e9);
    pair_publish(t, 1);
    assert_ok(cod_file_read(at("header"), 1 << 20, &old, &bytes));
    assert_ok(t->ops->destroy(t));
    t = open_process(0, 7, 2000, 1e9);
    pair_publish(t, 2);
    assert_ok(cod_file_write(at("header"), old, bytes));
    free(old);
    pair_publish(t, 3);
    pair_publish(t, 4);
    assert_true(cod_file_exists(at("4.bin")));
    /* Nor is one without the key's seal, whatever it says. */
    assert_ok(t->ops->destroy(t));
    char key[sizeof key_path];
    memcpy(key, key_path, sizeof key);
    t = open_process(0, 7, 2000, 1e9);
    pair_publish(t, 5);
    key_path[0] = '\0';
    cod_transport *stranger = open_process(0, 9, 1 << 30, 1e9);
    pair_publish(stranger, 6);
    assert_ok(stranger->ops->destroy(stranger));
    pair_publish(t, 6);
    assert_ok(t->ops->destroy(t));
}

/** In a folder with seals a name alone is no version, and what is no file is passed over, with a word. */
TEST_WITH(only_what_is_sealed_counts, begin_test, end_test)
{
    void *whole = NULL;
    size_t bytes;
    make_key();
    cod_transport *t = open_process(0, 11, 1000, 1e9);
    pair_publish(t, 1);
    pair_publish(t, 2);
    assert_ok(t->ops->destroy(t));
    assert_ok(cod_file_read(at("2.bin"), 1 << 20, &whole, &bytes));
    assert_ok(cod_file_write(at("9007199254740992.bin"), "", 0));
    assert_ok(cod_file_write(at("70.bin"), whole, bytes)); /* sealed, but for another place */
    free(whole);
    assert_int_equal(mkdir(at("1000.bin"), 0700), 0);
    assert_int_equal(mkdir(at(".header.1-0.tmp"), 0700), 0);
    assert_int_equal(mkdir(at(".3.bin.1-0.tmp"), 0700), 0);
    t = open_process(0, 12, 2000, 1e9);
    assert_int_equal(t->ops->left(t), 2);
    for (uint64_t v = 3; v <= 5; v++)
        pair_publish(t, v);
    assert_int_equal(t->ops->failures(t), 0);
    assert_false(cod_file_exists(at("9007199254740992.bin")) || cod_file_exists(at("70.bin")));
    assert_true(cod_file_exists(at("1000.bin")) && cod_file_exists(at("5.bin")));
    assert_int_equal(count("it is passed over"), 1);
    assert_int_equal(count("cannot publish"), 0);
    assert_ok(t->ops->destroy(t));
}

/** Without seals an empty file is no version either. */
TEST_WITH(an_empty_file_is_no_version, begin_test, end_test)
{
    key_path[0] = '\0';
    cod_transport *t = open_process(0, 11, 1000, 1e9);
    pair_publish(t, 1);
    assert_ok(t->ops->destroy(t));
    assert_ok(cod_file_write(at("9007199254740992.bin"), "", 0));
    t = open_process(0, 12, 2000, 1e9);
    assert_int_equal(t->ops->left(t), 1);
    assert_ok(t->ops->destroy(t));
}

/** Old files that are put back have right seals: a reader that has seen no newer ones says how old they are, once. */
TEST_WITH(old_versions_are_told, begin_test, end_test)
{
    uint64_t version;
    make_key();
    cod_transport *publisher = open_process(0, 11, 1000, 1e9), *reader;
    pair_publish(publisher, 1);
    usleep(20000);
    reader = open_process(1, 5, 1, 1e9);
    assert_ok(pair_offered(reader, &version));
    assert_ok(reader->ops->destroy(reader));
    assert_string_equal(warnings, "");
    reader = open_process(1, 6, 1, 0.01);
    for (int i = 0; i < 3; i++)
        assert_ok(pair_offered(reader, &version));
    assert_int_equal(version, 1);
    assert_int_equal(count("group 0 published its newest version, 1, "), 1);
    pair_close(publisher, reader);
}

TEST_WITH(a_folder_for_every_user_is_warned_of, begin_test, end_test)
{
    static const struct {
        mode_t mode;
        bool sealed;
        int warned;
    } cases[] = {{0777, false, 1}, {01777, false, 1}, {0770, false, 0}, {0777, true, 0}};
    assert_int_equal(mkdir(cod_test_at("x"), 0700), 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        key_path[0] = '\0';
        if (cases[i].sealed)
            make_key();
        warnings[0] = '\0';
        assert_int_equal(chmod(cod_test_at("x"), cases[i].mode), 0);
        cod_transport *t = open_process(0, 11, 1000, 1e9);
        assert_ok(t->ops->destroy(t));
        if (count("may be written by every user") != cases[i].warned)
            fail_msg("mode %o: '%s'", (unsigned)cases[i].mode, warnings);
    }
}
