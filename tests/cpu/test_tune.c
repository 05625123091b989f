#include "support/folder.h"
#include "support/test.h"

#include "cpu/cpu.h"
#include "support/ops.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/**
 * The autotuner's file: written once for each shape, read by later devices, and no harm done by what is wrong with it.
 */

static const char *cache_file(void)
{
    return cod_test_at("codistill/convolutions.txt");
}

static int cached_lines(void)
{
    FILE *file = fopen(cache_file(), "r");
    int lines = 0;
    for (int c; file != NULL && (c = fgetc(file)) != EOF;)
        lines += c == '\n';
    if (file != NULL)
        fclose(file);
    return lines;
}

static void write_cache(const char *text)
{
    FILE *file = fopen(cache_file(), "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

/** Creates, runs and clears one convolution plan on a device of its own. */
static void plan_once(bool no_autotune, bool deterministic, int64_t width)
{
    cod_test_device on = {&cod_cpu_backend, NULL};
    const cod_shape x = {2, 8, width, 64};
    const cod_op op = {
        .kind = COD_OP_CONV2D,
        .deterministic = deterministic,
        .attr = {.stride_h = 1, .stride_w = 1, .pad_h = 1, .pad_w = 1},
        .inputs = {cod_view_dense(NULL, 0, COD_F32, x), cod_view_dense(NULL, 0, COD_F32, (cod_shape){64, 3, 3, 64})},
        .outputs = {cod_view_dense(NULL, 0, COD_F32, x)}};
    cod_test_op test;
    assert_ok(on.backend->open(&(cod_device_options){.threads = 1, .no_autotune = no_autotune}, &on.device));
    assert_ok(cod_test_op_init(&test, on, &op));
    assert_ok(cod_test_op_randomise(&test, 1, false));
    assert_ok(cod_test_op_run(&test));
    cod_test_op_clear(&test);
    on.backend->close(on.device);
}

TEST(each_shape_is_timed_once)
{
    unlink(cache_file());
    plan_once(false, false, 8);
    assert_int_equal(cached_lines(), 1);
    plan_once(false, false, 8);
    assert_int_equal(cached_lines(), 1);
    plan_once(false, false, 9);
    assert_int_equal(cached_lines(), 2);
}

/** The key is a hash of what stands behind it: among others, more or fewer of them, the choice is made anew. */
TEST(candidates_are_part_of_the_key)
{
    char line[600];
    unlink(cache_file());
    plan_once(false, false, 8);
    FILE *file = fopen(cache_file(), "r");
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof line, file));
    fclose(file);
    cod_test_assert_contains(line, "; of winograd4, winograd, onednn; ");
}

TEST(fixed_choices_are_not_timed)
{
    unlink(cache_file());
    plan_once(true, false, 8);
    plan_once(false, true, 8);
    assert_int_equal(cached_lines(), 0);
}

TEST(a_damaged_cache_is_passed_over)
{
    char line[600];
    unlink(cache_file());
    plan_once(false, false, 8);
    FILE *file = fopen(cache_file(), "r");
    assert_non_null(fgets(line, sizeof line, file));
    fclose(file);
    char other[700];
    snprintf(other, sizeof other, "%.16s nonsense\n\n%s", line, "zzzz\n0123456789abcdef\n");
    write_cache(other); /* an unknown name for the shape, and lines that are none */
    plan_once(false, false, 8);
    assert_int_equal(cached_lines(), 5); /* timed again, and noted behind them */
}

TEST(no_cache_is_no_error)
{
    setenv("XDG_CACHE_HOME", "/proc/nowhere", 1);
    plan_once(false, false, 8);
    setenv("XDG_CACHE_HOME", cod_test_at(""), 1);
}

TEST(an_unknown_name_is_refused)
{
    cod_device *device = NULL;
    setenv("COD_CPU_CONVOLUTION", "fastest", 1);
    assert_fails(COD_ERR_ARGUMENT,
                 "must be auto, fixed, columns, tiles, narrow, winograd, winograd4, strided, phased or onednn",
                 cod_cpu_backend.open(NULL, &device));
    unsetenv("COD_CPU_CONVOLUTION");
}

/** A pipe or a device in the file's place is neither read nor written, and nobody waits for it. */
TEST(what_is_no_file_is_passed_over)
{
    unlink(cache_file());
    assert_int_equal(mkfifo(cache_file(), 0600), 0);
    plan_once(false, false, 8);
    unlink(cache_file());
    assert_int_equal(symlink("/dev/zero", cache_file()), 0);
    plan_once(false, false, 8);
    unlink(cache_file());
    plan_once(false, false, 8);
    assert_int_equal(cached_lines(), 1);
}

static int set_up(void **state)
{
    if (cod_test_folder_make(state) != 0)
        return -1;
    unsetenv("COD_CPU_CONVOLUTION");
    return setenv("XDG_CACHE_HOME", cod_test_at(""), 1);
}

TEST_GROUP(set_up, cod_test_folder_remove)
