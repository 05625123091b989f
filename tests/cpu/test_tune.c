#include "support/folder.h"
#include "support/test.h"

#include "cpu/cpu.h"
#include "cpu/tune_internal.h"
#include "support/ops.h"

#include <math.h>
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

/** What is judged of two implementations' times in five rounds; the first one is the rule's. */
static cpu_verdict judged(const double (*seconds)[CPU_TRIAL_ROUNDS])
{
    static cod_plan *const in = (cod_plan *)1;
    cpu_contender all[2] = {{.plan = in}, {.plan = in}};
    cpu_verdict verdict = {.rounds = CPU_TRIAL_ROUNDS};
    for (int i = 0; i < 2; i++) {
        memcpy(all[i].s, seconds[i], sizeof all[i].s);
        all[i].least_s = seconds[i][0];
        for (int r = 1; r < CPU_TRIAL_ROUNDS; r++)
            all[i].least_s = seconds[i][r] < all[i].least_s ? seconds[i][r] : all[i].least_s;
    }
    cpu_trial_judge(all, 2, 0, &verdict);
    return verdict;
}

TEST(the_rule_stands_unless_rounds_agree_that_another_one_is_faster)
{
    static const double faster[2][5] = {{3, 3, 3, 3, 3}, {2, 2, 2, 2, 2}},
                        by_little[2][5] = {{3, 3, 3, 3, 3}, {2.9, 2.9, 2.9, 2.9, 2.9}};
    static const double but_once[2][5] = {{3, 3, 3, 3, 3}, {2, 9, 2, 2, 2}},
                        but_twice[2][5] = {{3, 3, 3, 3, 3}, {2, 9, 9, 2, 2}};
    static const double by_luck[2][5] = {{9, 9, 3, 3, 3}, {2, 8, 8, 8, 8}},
                        slower[2][5] = {{3, 3, 3, 3, 3}, {4, 4, 4, 4, 4}};
    assert_int_equal(judged(faster).chosen, 1);
    assert_int_equal(judged(by_little).chosen, 0);
    assert_int_equal(judged(but_once).chosen, 1);
    assert_int_equal(judged(but_twice).chosen, 0);
    assert_int_equal(judged(by_luck).chosen, 0);
    assert_int_equal(judged(slower).chosen, 0);
    assert_true(fabs(judged(faster).noise) < 1e-9);
    assert_true(judged(but_once).noise > 0.25); /* a choice to be made again */
}

/** A contender that is out took so long once that it had no more rounds. */
TEST(a_rule_that_is_hopeless_is_overruled)
{
    cpu_contender all[2] = {{.plan = NULL, .least_s = 9}, {.plan = (cod_plan *)1, .s = {2, 2, 2, 2, 2}, .least_s = 2}};
    cpu_verdict verdict = {.rounds = CPU_TRIAL_ROUNDS};
    cpu_trial_judge(all, 2, 0, &verdict);
    assert_int_equal(verdict.chosen, 1);
    assert_int_equal(verdict.agreed, CPU_TRIAL_ROUNDS);
}

/** Its mark is no part of the name. */
TEST(a_doubtful_choice_is_made_again_on_a_quiet_machine)
{
    const cod_device_options options = {.threads = 1};
    cod_device *writer = NULL, *reader = NULL;
    unlink(cache_file());
    assert_ok(cod_cpu_backend.open(&options, &writer));
    cpu_tuned_note(writer, 12, "onednn", true, "a shape");
    cpu_tuned_note(writer, 13, "tiles", false, "another one");
    assert_ok(cod_cpu_backend.open(&options, &reader));
    assert_string_equal(cpu_tuned_find(reader, 13), "tiles");
    reader->retimes_doubtful = true; /* as if nothing else ran when the file was read */
    assert_null(cpu_tuned_find(reader, 12));
    assert_string_equal(cpu_tuned_find(reader, 13), "tiles");
    reader->retimes_doubtful = false;
    assert_string_equal(cpu_tuned_find(reader, 12), "onednn");
    assert_null(cpu_tuned_find(reader, 14));
    cod_cpu_backend.close(writer);
    cod_cpu_backend.close(reader);
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
