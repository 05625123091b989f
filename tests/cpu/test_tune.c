#include "support/folder.h"
#include "support/test.h"

#include "core/log.h"
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
    cod_test_assert_contains(line, "; of winograd4, winograd, onednn, on 1 of it; ");
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
    cpu_tuned_note(writer, 12, "onednn", 1e-3, true, "a shape");
    cpu_tuned_note(writer, 13, "tiles", 2e-3, false, "another one");
    assert_ok(cod_cpu_backend.open(&options, &reader));
    assert_string_equal(cpu_tuned_find(reader, 13)->name, "tiles");
    reader->retimes_doubtful = true; /* as if nothing else ran when the file was read */
    assert_null(cpu_tuned_find(reader, 12));
    assert_string_equal(cpu_tuned_find(reader, 13)->name, "tiles");
    reader->retimes_doubtful = false;
    assert_string_equal(cpu_tuned_find(reader, 12)->name, "onednn");
    assert_null(cpu_tuned_find(reader, 14));
    cod_cpu_backend.close(writer);
    cod_cpu_backend.close(reader);
}

/** A convolution that takes some milliseconds, and a plan for it. */
static void open_layer(cod_test_op *test, cod_device *device)
{
    const cod_shape x = {8, 32, 32, 64};
    const cod_op op = {
        .kind = COD_OP_CONV2D,
        .attr = {.stride_h = 1, .stride_w = 1, .pad_h = 1, .pad_w = 1},
        .inputs = {cod_view_dense(NULL, 0, COD_F32, x), cod_view_dense(NULL, 0, COD_F32, (cod_shape){64, 3, 3, 64})},
        .outputs = {cod_view_dense(NULL, 0, COD_F32, x)}};
    assert_ok(cod_test_op_init(test, (cod_test_device){&cod_cpu_backend, device}, &op));
    assert_ok(cod_test_op_randomise(test, 1, false));
}

/** Multiplies the expected time of the file's only line by a factor. */
static void falsify_cache(double factor)
{
    char line[600], name[17], changed[700];
    unsigned long long key;
    double us;
    int length;
    FILE *file = fopen(cache_file(), "r");
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof line, file));
    fclose(file);
    assert_int_equal(sscanf(line, "%16llx %16s %lf us%n", &key, name, &us, &length), 3);
    name[strcspn(name, "?")] = '\0'; /* whatever the noise was */
    snprintf(changed, sizeof changed, "%016llx %s %.6f us%s", key, name, factor * us, line + length);
    write_cache(changed);
}

static char logged[512];

static void note_line(void *context, cod_log_level level, const char *line)
{
    (void)context, (void)level;
    if (strstr(line, "were expected") != NULL)
        snprintf(logged, sizeof logged, "%s", line);
}

/** The last line of the file. */
static void last_line(char *line, size_t bytes)
{
    FILE *file = fopen(cache_file(), "r");
    assert_non_null(file);
    while (fgets(line, (int)bytes, file) != NULL) {
    }
    fclose(file);
}

/** Runs a layer with a cache whose time is wrong by a factor; then plans it again, as if the machine were quiet. */
static void train_with_wrong_time(double factor, int lines_after_training, int lines_after_next_start)
{
    enum { RUNS = 12 };
    const cod_device_options options = {.threads = 1};
    cod_device *device = NULL;
    cod_test_op test;
    unlink(cache_file());
    assert_ok(cod_cpu_backend.open(&options, &device));
    open_layer(&test, device);
    cod_test_op_clear(&test);
    cod_cpu_backend.close(device);
    falsify_cache(factor);

    assert_ok(cod_cpu_backend.open(&options, &device));
    open_layer(&test, device);
    assert_int_equal(cached_lines(), 1); /* the choice is taken from the file */
    const size_t bytes = test.buffers[COD_OP_MAX_INPUTS]->bytes;
    void *first = malloc(bytes);
    assert_non_null(first);
    for (int i = 0; i < RUNS; i++) {
        assert_ok(cod_test_op_run(&test));
        if (i == 0)
            memcpy(first, test.buffers[COD_OP_MAX_INPUTS]->host, bytes);
    }
    assert_memory_equal(first, test.buffers[COD_OP_MAX_INPUTS]->host, bytes); /* the plan stays as it is */
    free(first);
    assert_int_equal(cached_lines(), lines_after_training);
    cod_test_op_clear(&test);
    cod_cpu_backend.close(device);

    assert_ok(cod_cpu_backend.open(&options, &device));
    (void)cpu_tuned_find(device, 1); /* reads the file */
    device->retimes_doubtful = true;
    open_layer(&test, device);
    assert_int_equal(cached_lines(), lines_after_next_start);
    cod_test_op_clear(&test);
    cod_cpu_backend.close(device);
}

TEST(a_choice_by_a_wrong_time_is_found_out_in_training)
{
    char line[600];
    logged[0] = '\0';
    cod_log_set_sink(note_line, NULL, COD_LOG_INFO);
    train_with_wrong_time(1e-3, 2, 3);
    cod_log_set_sink(NULL, NULL, COD_LOG_INFO);
    cod_test_assert_contains(logged, "the choice is made again at a later start");
    last_line(line, sizeof line);
    assert_null(strstr(line, "in training")); /* a trial's, after the one that doubts */
}

TEST(a_choice_that_keeps_its_promise_stands)
{
    train_with_wrong_time(1e3, 1, 1);
}

/** Runs in the place of a plan's. */
static cod_status rest(cod_plan *plan)
{
    (void)plan;
    return usleep(5000) == 0 ? COD_OK : cod_fail(COD_ERR_IO, "no sleep");
}

/** What slows down all plans alike says nothing about one. */
TEST(a_plan_is_compared_with_others)
{
    cod_device *device = NULL;
    cpu_tuned tuned[2] = {{.key = 1, .name = "onednn", .expected_s = 1e-3},
                          {.key = 2, .name = "onednn", .expected_s = 1e-9}};
    cod_plan plans[2];
    unlink(cache_file());
    assert_ok(cod_cpu_backend.open(NULL, &device));
    for (int i = 0; i < 2; i++) {
        plans[i] = (cod_plan){.device = device, .run = rest};
        cpu_watch_start(&plans[i], &tuned[i]);
    }
    for (int run = 0; run < 10; run++)
        for (int i = 0; i < 2; i++)
            assert_ok(cod_cpu_backend.plan_run(&plans[i], NULL));
    assert_false(tuned[0].is_doubted); /* five times as long as expected, but the other one takes millions of times */
    assert_true(tuned[1].is_doubted);
    cod_cpu_backend.close(device);
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
