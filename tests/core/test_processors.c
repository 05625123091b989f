#include "support/folder.h"
#include "support/test.h"

#include "core/processors.h"

#include <stdio.h>
#include <sys/stat.h>

static cod_processors set_of(const char *text)
{
    cod_processors set;
    assert_true(cod_processors_parse(text, &set));
    return set;
}

static void assert_set(const cod_processors *set, const char *expected)
{
    char text[256];
    cod_processors_format(set, text, sizeof text);
    assert_string_equal(text, expected);
}

TEST(lists_are_read_and_written)
{
    static const char *const lists[] = {"0", "0-1", "0,2", "0-3,8", "5-6,63-64,127,8191"};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        const cod_processors set = set_of(lists[i]);
        assert_set(&set, lists[i]);
    }
    cod_processors set = set_of("3,1-2\n");
    assert_set(&set, "1-3");
    assert_int_equal(cod_processors_count(&set), 3);
    assert_true(cod_processors_have(&set, 3));
    assert_false(cod_processors_have(&set, 4) || cod_processors_have(&set, -1) || cod_processors_have(&set, 1 << 20));
    static const char *const bad[] = {"", "\n", "x", "-1", "5-3"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(cod_processors_parse(bad[i], &set));
}

TEST(a_list_that_does_not_fit_is_cut)
{
    char text[12];
    cod_processors set = {0};
    for (int i = 0; i < 100; i += 2)
        cod_processors_add(&set, i);
    cod_processors_format(&set, text, sizeof text);
    assert_string_equal(text, "0,2,4,6...");
}

/**
 * Two packages whose processors take turns, as on many servers; two hardware threads a core: 0 8 | 2 10 | 4 12 | 6 14
 * || 1 9 | …
 */
static const char *make_topology(void)
{
    char path[4096];
    for (int i = 0; i < 16; i++) {
        snprintf(path, sizeof path, "%s/cpu%d", cod_test_at(""), i);
        mkdir(path, 0777);
        snprintf(path, sizeof path, "%s/cpu%d/topology", cod_test_at(""), i);
        mkdir(path, 0777);
        for (int name = 0; name < 2; name++) {
            snprintf(path, sizeof path, "%s/cpu%d/topology/%s", cod_test_at(""), i,
                     name ? "thread_siblings_list" : "physical_package_id");
            FILE *file = fopen(path, "w");
            assert_non_null(file);
            if (name)
                fprintf(file, "%d,%d\n", i % 8, i % 8 + 8);
            else
                fprintf(file, "%d\n", i % 2);
            fclose(file);
        }
    }
    return cod_test_at("");
}

static void assert_part(const char *folder, const char *whole, int part, int parts, const char *expected)
{
    const cod_processors set = set_of(whole);
    cod_processors out;
    assert_true(cod_processors_part(&set, part, parts, folder, &out));
    assert_set(&out, expected);
}

TEST_IN_FOLDER(parts_are_whole_cores_of_one_package)
{
    const char *folder = make_topology();
    const cod_processors all = set_of("0-15"), one = set_of("0,8");
    assert_int_equal(cod_processors_cores(&all, folder), 8);
    assert_int_equal(cod_processors_cores(&one, folder), 1);
    assert_part(folder, "0-15", 0, 1, "0-15");
    assert_part(folder, "0-15", 0, 2, "0,2,4,6,8,10,12,14");
    assert_part(folder, "0-15", 1, 2, "1,3,5,7,9,11,13,15");
    assert_part(folder, "0-15", 0, 8, "0,8");
    assert_part(folder, "0-15", 7, 8, "7,15");
    assert_part(folder, "0-15", 0, 3, "0,2,8,10");
    assert_part(folder, "0-15", 2, 3, "3,5,7,11,13,15");
    assert_part(folder, "0,2,8,10", 1, 2, "2,10");
    assert_part(folder, "0,2,8,10", 0, 3, "0"); /* fewer cores than parts */
    assert_part(folder, "0,2,8,10", 2, 3, "2,10");
    cod_processors out;
    assert_false(cod_processors_part(&one, 0, 3, folder, &out));
    assert_set(&out, "0,8");
}

TEST_IN_FOLDER(parts_never_overlap_and_leave_nothing)
{
    const char *folder = make_topology();
    const cod_processors all = set_of("0-15");
    for (int parts = 1; parts <= 16; parts++) {
        cod_processors seen = {0}, part;
        for (int p = 0; p < parts; p++) {
            assert_true(cod_processors_part(&all, p, parts, folder, &part));
            assert_true(cod_processors_count(&part) > 0);
            assert_false(cod_processors_overlap(&seen, &part));
            for (int i = 0; i < 16; i++)
                if (cod_processors_have(&part, i))
                    cod_processors_add(&seen, i);
        }
        assert_true(cod_processors_equal(&seen, &all));
    }
}

TEST(a_thread_stays_where_it_is_bound)
{
    const cod_processors before = cod_processors_allowed();
    cod_processors first, after;
    const int count = cod_processors_count(&before);
    assert_true(count > 0 && cod_usable_threads() >= 1 && cod_usable_threads() <= count);
    assert_true(cod_processors_quota() >= 1);
    assert_true(cod_processors_part(&before, 0, count, COD_TOPOLOGY_FOLDER, &first));
    assert_ok(cod_processors_bind(&first));
    after = cod_processors_allowed();
    assert_true(cod_processors_equal(&first, &after));
    assert_int_equal(cod_usable_threads(), 1);
    assert_ok(cod_processors_bind(&before));
    const cod_processors nowhere = {0};
    assert_fails(COD_ERR_IO, "cannot stay on", cod_processors_bind(&nowhere));
}
