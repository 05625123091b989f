#include "support/folder.h"
#include "support/test.h"

#include "core/log.h"
#include "cuda/choices.h"
#include "cuda/tune.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/**
 * The file of choices: written, read by others, damaged, written by two processes at once; and how the fastest is
 * chosen.
 */

static int warnings;
static char last_warning[512];

static void count_warnings(void *context, cod_log_level level, const char *line)
{
    (void)context;
    warnings += level >= COD_LOG_WARN;
    if (level >= COD_LOG_WARN)
        snprintf(last_warning, sizeof last_warning, "%s", line);
}

static const char *file(void)
{
    return cod_test_at("cuda.txt");
}

static cuda_choices *open_file(void)
{
    cuda_choices *choices = NULL;
    assert_ok(cuda_choices_open(file(), &choices));
    return choices;
}

/** What the file says of a key; "" for nothing. */
static const char *told(const char *key)
{
    static char name[CUDA_NAME_BYTES];
    cuda_choices *choices = open_file();
    const char *found = cuda_choices_find(choices, key);
    snprintf(name, sizeof name, "%s", found != NULL ? found : "");
    cuda_choices_close(choices);
    return name;
}

static void tell(const char *key, const char *name)
{
    cuda_choices *choices = open_file();
    assert_ok(cuda_choices_add(choices, key, name, 12.5));
    assert_string_equal(cuda_choices_find(choices, key), name);
    cuda_choices_close(choices);
}

/** The file's bytes, with an end; its length. */
static size_t read_all(char *text, size_t bytes)
{
    FILE *in = fopen(file(), "r");
    assert_non_null(in);
    const size_t length = fread(text, 1, bytes - 1, in);
    text[length] = '\0';
    fclose(in);
    return length;
}

static void write_all(const char *text, size_t bytes)
{
    FILE *out = fopen(file(), "w");
    assert_non_null(out);
    assert_int_equal(fwrite(text, 1, bytes, out), bytes);
    fclose(out);
}

static int clean(void **state)
{
    (void)state;
    unlink(file());
    unlink(cod_test_at("cuda.txt.foreign"));
    warnings = 0;
    return 0;
}

TEST_WITH(choices_are_read_by_later_processes, clean, NULL)
{
    assert_string_equal(told("a op; with words"), "");
    tell("a op; with words", "own-128x64");
    tell("another", "cudnn-e6-k3:1-k7:2");
    assert_string_equal(told("a op; with words"), "own-128x64");
    assert_string_equal(told("another"), "cudnn-e6-k3:1-k7:2");
    tell("another", "own-32x32"); /* timed again, such as by a version whose candidates have other names */
    assert_string_equal(told("another"), "own-32x32");
    assert_string_equal(told("a op; with word"), "");
    assert_int_equal(warnings, 0);
}

TEST_WITH(what_cannot_be_a_line_is_refused, clean, NULL)
{
    char key[CUDA_KEY_BYTES + 1];
    cuda_choices *choices = open_file();
    memset(key, 'k', sizeof key - 1);
    key[sizeof key - 1] = '\0';
    assert_fails(COD_ERR_ARGUMENT, "cannot be noted", cuda_choices_add(choices, key, "own", 1));
    assert_fails(COD_ERR_ARGUMENT, "cannot be noted", cuda_choices_add(choices, "a\nb", "own", 1));
    assert_fails(COD_ERR_ARGUMENT, "cannot be noted", cuda_choices_add(choices, "a", "own kernel", 1));
    assert_fails(COD_ERR_ARGUMENT, "cannot be noted", cuda_choices_add(choices, "a", "", 1));
    key[sizeof key - 2] = '\0';
    assert_ok(cuda_choices_add(choices, key, "own", 1));
    cuda_choices_close(choices);
    assert_string_equal(told(key), "own");
}

/** Each byte of a line changed in turn: its choice is gone, the others are not. */
TEST_WITH(damaged_lines_are_passed_over, clean, NULL)
{
    char text[4096];
    tell("first", "own-1x1");
    tell("second", "own-2x2");
    tell("third", "own-3x3");
    const size_t length = read_all(text, sizeof text);
    char *line = strstr(text, "own-2x2");
    while (line[-1] != '\n')
        line--;
    const size_t bytes = strcspn(line, "\n");
    for (size_t i = 0; i < bytes; i++) {
        warnings = 0;
        line[i] ^= 1;
        write_all(text, length);
        assert_string_equal(told("second"), "");
        assert_string_equal(told("first"), "own-1x1");
        assert_string_equal(told("third"), "own-3x3");
        assert_int_equal(warnings, 3);
        cod_test_assert_contains(last_warning, "1 damaged line passed over");
        line[i] ^= 1;
    }
    line[0] ^= 1;
    write_all(text, length);
    tell("fourth", "own-4x4"); /* and with that the damaged line is gone */
    warnings = 0;
    assert_string_equal(told("fourth"), "own-4x4");
    assert_string_equal(told("third"), "own-3x3");
    assert_int_equal(warnings, 0);
}

/** At any length, the whole lines of a truncated file count. */
TEST_WITH(truncated_files_are_read_as_far_as_they_go, clean, NULL)
{
    char text[4096];
    tell("first", "own-1x1");
    tell("second", "own-2x2");
    const size_t length = read_all(text, sizeof text);
    for (size_t bytes = 0; bytes < length; bytes++) {
        write_all(text, bytes);
        assert_string_equal(told("second"), "");
        const bool first_whole = strstr(text, "first\n") + 6 <= text + bytes;
        assert_string_equal(told("first"), first_whole ? "own-1x1" : "");
    }
    write_all(text, length);
    assert_string_equal(told("second"), "own-2x2");
}

TEST_WITH(foreign_files_are_kept_aside, clean, NULL)
{
    static const char foreign[] = "a letter\n\0with all bytes \377\n";
    char kept[sizeof foreign];
    write_all(foreign, sizeof foreign);
    assert_string_equal(told("first"), "");
    assert_int_equal(warnings, 1);
    cod_test_assert_contains(last_warning, "no file of timed choices");
    tell("first", "own-1x1");
    warnings = 0;
    assert_string_equal(told("first"), "own-1x1");
    assert_int_equal(warnings, 0);
    FILE *in = fopen(cod_test_at("cuda.txt.foreign"), "r");
    assert_non_null(in);
    assert_int_equal(fread(kept, 1, sizeof kept, in), sizeof kept);
    fclose(in);
    assert_memory_equal(kept, foreign, sizeof foreign);
}

enum { WRITERS = 2, KEYS = 60 };

/** Two processes write at once, and each reads whole files only. */
TEST_WITH(processes_may_write_at_once, clean, NULL)
{
    pid_t children[WRITERS];
    for (int child = 0; child < WRITERS; child++) {
        children[child] = fork();
        assert_true(children[child] >= 0);
        if (children[child] > 0)
            continue;
        cuda_choices *choices = NULL;
        bool failed = false;
        for (int i = 0; i < KEYS && !failed; i++) {
            char key[32];
            snprintf(key, sizeof key, "key %d of %d", i, child);
            failed =
                cuda_choices_open(file(), &choices) != COD_OK || cuda_choices_add(choices, key, "own", i) != COD_OK;
            cuda_choices_close(choices);
        }
        _exit(failed || warnings > 0);
    }
    for (int child = 0; child < WRITERS; child++) {
        int status = 0;
        assert_int_equal(waitpid(children[child], &status, 0), children[child]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    for (int i = 0; i < WRITERS * KEYS; i++) {
        char key[32];
        snprintf(key, sizeof key, "key %d of %d", i / WRITERS, i % WRITERS);
        assert_string_equal(told(key), "own");
    }
    assert_int_equal(warnings, 0);
}

TEST_WITH(a_file_that_cannot_be_written_is_said_once, clean, NULL)
{
    cuda_choices *choices = NULL;
    assert_ok(cuda_choices_open("/proc/nowhere/cuda.txt", &choices));
    assert_ok(cuda_choices_add(choices, "a", "own", 1));
    assert_ok(cuda_choices_add(choices, "b", "own", 1));
    assert_int_equal(warnings, 1);
    cod_test_assert_contains(last_warning, "COD_CUDA_CACHE");
    assert_string_equal(cuda_choices_find(choices, "b"), "own");
    cuda_choices_close(choices);
}

TEST_WITH(the_environment_names_the_file, clean, NULL)
{
    char path[4096], expected[4096];
    setenv("COD_CUDA_CACHE", "off", 1);
    cuda_choices_path(path, sizeof path);
    assert_string_equal(path, "");
    setenv("COD_CUDA_CACHE", "/a/file", 1);
    cuda_choices_path(path, sizeof path);
    assert_string_equal(path, "/a/file");
    unsetenv("COD_CUDA_CACHE");
    setenv("XDG_CACHE_HOME", cod_test_at(""), 1);
    cuda_choices_path(path, sizeof path);
    snprintf(expected, sizeof expected, "%s/codistill/cuda.txt", cod_test_at(""));
    assert_string_equal(path, expected);
    assert_int_equal(access(cod_test_at("codistill"), W_OK), 0);
    unsetenv("XDG_CACHE_HOME");
    setenv("HOME", cod_test_at("home"), 1);
    cuda_choices_path(path, sizeof path);
    cod_test_assert_contains(path, "home/.cache/codistill/cuda.txt");
}

/* The choice, among candidates whose times are made up. */

enum { CANDIDATES = 4 };
static const char names[CANDIDATES][CUDA_NAME_BYTES] = {"own-a", "own-b", "cudnn-e1", "cudnn-e2"};

typedef struct fake {
    double us[CANDIDATES]; /**< 0 = unfit */
    cod_status failure;    /**< of candidates without time; COD_OK = COD_ERR_UNSUPPORTED */
    double best[CANDIDATES];
    int times[CANDIDATES];
} fake;

static cod_status time_fake(void *context, size_t candidate, double best_us, double *us)
{
    fake *f = context;
    f->times[candidate]++;
    f->best[candidate] = best_us;
    if (f->us[candidate] <= 0)
        return cod_fail(f->failure != COD_OK ? f->failure : COD_ERR_UNSUPPORTED, "planted");
    *us = f->us[candidate];
    return COD_OK;
}

static cuda_tuned tune(fake *f, const char *key, double budget_s)
{
    cuda_choices *choices = open_file();
    const cuda_tuning tuning = {key, names, CANDIDATES, budget_s, time_fake, f};
    cuda_tuned out;
    assert_ok(cuda_tune(choices, &tuning, &out));
    cuda_choices_close(choices);
    return out;
}

TEST_WITH(the_fastest_wins_and_is_remembered, clean, NULL)
{
    fake f = {.us = {30, 0, 10, 20}};
    cuda_tuned out = tune(&f, "op", 60);
    assert_int_equal(out.chosen, 2);
    assert_int_equal(out.timed, 3);
    assert_int_equal(out.unfit, 1);
    assert_true(!out.remembered && out.us == 10 && out.first_us == 30);
    assert_true(f.best[0] == 1e30 && f.best[1] == 30 && f.best[2] == 30 && f.best[3] == 10);
    f.us[2] = 90; /* nobody looks */
    out = tune(&f, "op", 60);
    assert_true(out.chosen == 2 && out.remembered && f.times[0] == 1 && f.times[2] == 1);
    out = tune(&f, "another op", 60);
    assert_true(out.chosen == 3 && f.times[0] == 2);
}

TEST_WITH(of_equals_the_first_wins, clean, NULL)
{
    fake f = {.us = {10, 10, 10, 10}};
    assert_int_equal(tune(&f, "op", 60).chosen, 0);
}

TEST_WITH(a_remembered_name_that_is_no_candidate_is_timed_anew, clean, NULL)
{
    fake f = {.us = {30, 20, 10, 5}};
    tell("op", "cudnn-e77");
    const cuda_tuned out = tune(&f, "op", 60);
    assert_true(out.chosen == 3 && !out.remembered);
    assert_string_equal(told("op"), "cudnn-e2");
}

TEST_WITH(without_time_the_first_is_taken, clean, NULL)
{
    fake f = {.us = {30, 20, 10, 5}};
    const cuda_tuned out = tune(&f, "op", 0);
    assert_true(out.chosen == 0 && f.times[0] == 1 && f.times[1] == 0);
}

TEST_WITH(failures_end_the_search_and_nothing_is_remembered, clean, NULL)
{
    cuda_choices *choices = open_file();
    cuda_tuned out;
    fake f = {.us = {0, 0, 0, 0}};
    const cuda_tuning tuning = {"op", names, CANDIDATES, 60, time_fake, &f};
    assert_fails(COD_ERR_UNSUPPORTED, "none of 4 candidates", cuda_tune(choices, &tuning, &out));
    f = (fake){.us = {30, 0, 10, 5}, .failure = COD_ERR_BACKEND};
    assert_fails(COD_ERR_BACKEND, "timing 'own-b'", cuda_tune(choices, &tuning, &out));
    assert_int_equal(f.times[2], 0);
    assert_null(cuda_choices_find(choices, "op"));
    cuda_choices_close(choices);
}

/** Whoever runs as root may replace a device by renaming over it. */
TEST_WITH(what_is_no_file_stays_as_it_is, clean, NULL)
{
    struct stat info;
    assert_int_equal(mkfifo(file(), 0600), 0);
    warnings = 0;
    tell("op", "kernel"); /* nobody waits */
    assert_string_equal(told("op"), "");
    assert_true(warnings > 0);
    assert_int_equal(stat(file(), &info), 0);
    assert_true(S_ISFIFO(info.st_mode));
    unlink(file());
}

static int set_up(void **state)
{
    cod_log_set_sink(count_warnings, NULL, COD_LOG_DEBUG);
    return cod_test_folder_make(state);
}

TEST_GROUP(set_up, cod_test_folder_remove)
