/* Checkpoints: what is written is read, damage is found and named, and old ones go. */
#include "../io/power_cut.h"
#include "support/folder.h"
#include "support/test.h"

#include "core/log.h"
#include "io/file.h"
#include "train/checkpoint.h"
#include "train/trainer_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static char warnings[4096];

static void keep_warning(void *context, cod_log_level level, const char *line)
{
    (void)context;
    const size_t used = strlen(warnings);
    if (level == COD_LOG_WARN)
        snprintf(warnings + used, sizeof warnings - used, "%s\n", line);
}

static int set_up(void **state)
{
    warnings[0] = '\0';
    cod_log_set_sink(keep_warning, NULL, COD_LOG_WARN);
    return cod_test_folder_make(state);
}

static const float values[] = {1, 2, 3, 5, 8, 13, 21, 34};

static void write_step(int64_t step, const char *part)
{
    cod_checkpoint checkpoint = {0};
    assert_ok(cod_checkpoint_add_f32(&checkpoint, "values", values, 8));
    assert_ok(cod_checkpoint_add_bytes(&checkpoint, "bytes", "abc", 3));
    assert_ok(cod_checkpoint_add_number(&checkpoint, "step", (double)step));
    assert_ok(cod_checkpoint_add_text(&checkpoint, "strategy", "single"));
    assert_ok(cod_checkpoint_write(&checkpoint, cod_test_at(""), step, part));
    cod_checkpoint_clear(&checkpoint);
}

static const char *file_of(int64_t step, const char *part)
{
    char name[64];
    snprintf(name, sizeof name, "step-%09lld/%s.safetensors", (long long)step, part);
    return cod_test_at(name);
}

/** The steps that all of `parts` (two at most) have, as "30 20 10". */
static const char *listed(const char *first, const char *second)
{
    static char text[256];
    const char *const parts[] = {first, second};
    cod_arena arena = {0};
    cod_int_list steps = {0};
    text[0] = '\0';
    assert_ok(cod_checkpoint_list(cod_test_at(""), parts, second != NULL ? 2 : 1, &arena, &steps));
    for (size_t i = 0; i < steps.count; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%lld", i ? " " : "", (long long)steps.items[i]);
    cod_arena_clear(&arena);
    return text;
}

static void flip_byte(const char *path, long offset)
{
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, offset, offset < 0 ? SEEK_END : SEEK_SET), 0);
    const int byte = fgetc(file);
    assert_int_equal(fseek(file, offset, offset < 0 ? SEEK_END : SEEK_SET), 0);
    fputc(byte ^ 1, file);
    assert_int_equal(fclose(file), 0);
}

TEST_WITH(what_is_written_is_read, set_up, cod_test_folder_remove)
{
    cod_st_file *file = NULL;
    float read[8];
    char bytes[3];
    double number;
    write_step(40, "group-0");
    assert_ok(cod_checkpoint_open(cod_test_at(""), 40, "group-0", &file));
    assert_ok(cod_checkpoint_read(file, "values", read, sizeof read));
    assert_memory_equal(read, values, sizeof values);
    assert_ok(cod_checkpoint_read(file, "bytes", bytes, sizeof bytes));
    assert_memory_equal(bytes, "abc", 3);
    assert_ok(cod_checkpoint_number(file, "step", &number));
    assert_true(number == 40);
    assert_string_equal(cod_st_metadata(file, "strategy"), "single");
    assert_fails(COD_ERR_FORMAT, "has no 'moments'", cod_checkpoint_read(file, "moments", read, sizeof read));
    assert_fails(COD_ERR_FORMAT, "another model", cod_checkpoint_read(file, "values", read, 4));
    assert_fails(COD_ERR_FORMAT, "no number 'strategy'", cod_checkpoint_number(file, "strategy", &number));
    assert_fails(COD_ERR_FORMAT, "no number 'epoch'", cod_checkpoint_number(file, "epoch", &number));
    cod_st_close(file);
}

TEST_WITH(numbers_keep_all_their_bits, set_up, cod_test_folder_remove)
{
    static const double numbers[] = {1.0 / 3, -0.0, 9007199254740993.0, 5e-324, -1.0 / 0.0};
    cod_checkpoint checkpoint = {0};
    cod_st_file *file = NULL;
    char key[16];
    for (int i = 0; i < 5; i++) {
        snprintf(key, sizeof key, "n%d", i);
        assert_ok(cod_checkpoint_add_number(&checkpoint, key, numbers[i]));
    }
    assert_ok(cod_checkpoint_write(&checkpoint, cod_test_at(""), 1, "p"));
    cod_checkpoint_clear(&checkpoint);
    assert_ok(cod_checkpoint_open(cod_test_at(""), 1, "p", &file));
    for (int i = 0; i < 5; i++) {
        double number;
        snprintf(key, sizeof key, "n%d", i);
        assert_ok(cod_checkpoint_number(file, key, &number));
        assert_memory_equal(&number, &numbers[i], sizeof number);
    }
    cod_st_close(file);
}

/** A file with a sound checksum may still be another's: what cannot be a count is refused, not cast. */
TEST_WITH(whole_numbers_are_those_that_an_integer_holds, set_up, cod_test_folder_remove)
{
    static const double wrong[] = {-2, 0.5, 1e300, 0x1p53 + 2, 1.0 / 0.0, -1.0 / 0.0, 0.0 / 0.0},
                        right[] = {-1, 0, 0x1p53};
    cod_checkpoint checkpoint = {0};
    cod_st_file *file = NULL;
    char key[16];
    for (int i = 0; i < 10; i++) {
        snprintf(key, sizeof key, "n%d", i);
        assert_ok(cod_checkpoint_add_number(&checkpoint, key, i < 7 ? wrong[i] : right[i - 7]));
    }
    assert_ok(cod_checkpoint_write(&checkpoint, cod_test_at(""), 1, "p"));
    cod_checkpoint_clear(&checkpoint);
    assert_ok(cod_checkpoint_open(cod_test_at(""), 1, "p", &file));
    for (int i = 0; i < 10; i++) {
        int64_t whole = 7;
        snprintf(key, sizeof key, "n%d", i);
        if (i < 7)
            assert_fails(COD_ERR_FORMAT, "no whole number of at least -1", cod_checkpoint_whole(file, key, -1, &whole));
        else
            assert_ok(cod_checkpoint_whole(file, key, -1, &whole));
        assert_int_equal(whole, i < 7 ? 7 : (int64_t)right[i - 7]);
    }
    cod_st_close(file);
}

/** What a run has counted so far is cast where it is reported: what is no count is refused on reading. */
TEST_WITH(totals_that_are_no_counts_are_refused, set_up, cod_test_folder_remove)
{
    static const double numbers[] = {-1, 0.5, 1e300, INFINITY, NAN, 0x1p53 + 2, 0};
    double totals[TRAINER_TOTALS] = {0};
    for (int i = 0; i < 7; i++) {
        cod_checkpoint checkpoint = {0};
        cod_st_file *file = NULL;
        assert_ok(cod_checkpoint_add_number(&checkpoint, "total.pulls", numbers[i]));
        assert_ok(cod_checkpoint_add_number(&checkpoint, "total.teacher_ms", NAN)); /* a time may be unknown */
        assert_ok(cod_checkpoint_write(&checkpoint, cod_test_at(""), 1, "p"));
        cod_checkpoint_clear(&checkpoint);
        assert_ok(cod_checkpoint_open(cod_test_at(""), 1, "p", &file));
        if (i < 5)
            assert_fails(COD_ERR_FORMAT, "'total.pulls' is", trainer_load_totals(file, totals));
        else
            assert_ok(trainer_load_totals(file, totals));
        cod_st_close(file);
    }
}

TEST_WITH(steps_are_listed_newest_first_where_all_parts_are, set_up, cod_test_folder_remove)
{
    assert_string_equal(listed("group-0", NULL), "");
    static const int64_t steps[] = {20, 10, 999999999, 1000000000, 30};
    for (int i = 0; i < 5; i++)
        write_step(steps[i], "group-0");
    write_step(20, "group-1");
    write_step(10, "group-1");
    write_step(40, "group-1");
    assert_string_equal(listed("group-0", NULL), "1000000000 999999999 30 20 10");
    assert_string_equal(listed("group-0", "group-1"), "20 10");
    /* What else lies there is no checkpoint. */
    assert_ok(cod_folder_create(cod_test_at("step-12x")));
    assert_ok(cod_folder_create(cod_test_at("step-10")));
    assert_ok(cod_folder_create(cod_test_at("step-0000000020")));
    assert_ok(cod_file_write(cod_test_at("best.group-0.safetensors"), "", 0));
    assert_string_equal(listed("group-1", NULL), "40 20 10");
    assert_string_equal(warnings, "");
}

TEST_WITH(an_absent_folder_has_no_checkpoints, set_up, cod_test_folder_remove)
{
    const char *part = "group-0";
    cod_arena arena = {0};
    cod_int_list steps = {.count = 7};
    assert_ok(cod_checkpoint_list(cod_test_at("absent"), &part, 1, &arena, &steps));
    assert_int_equal(steps.count, 0);
    assert_ok(cod_checkpoint_prune(cod_test_at("absent"), part, &part, 1, 1));
    cod_arena_clear(&arena);
}

/** The newest sound one is found without a look at those before it, which may be many and large. */
TEST_WITH(the_newest_is_found_without_reading_older_ones, set_up, cod_test_folder_remove)
{
    const char *part = "group-0";
    int64_t step;
    for (int64_t s = 10; s <= 40; s += 10)
        write_step(s, part);
    for (int64_t s = 10; s <= 40; s += 30)
        flip_byte(file_of(s, part), -1);
    assert_ok(cod_checkpoint_newest(cod_test_at(""), &part, 1, INT64_MAX, &step, NULL));
    assert_int_equal(step, 30);
    assert_non_null(strstr(warnings, "step-000000040"));
    assert_null(strstr(warnings, "step-000000010"));
    assert_ok(cod_checkpoint_newest(cod_test_at(""), &part, 1, 30, &step, NULL));
    assert_int_equal(step, 20);
    assert_ok(cod_checkpoint_newest(cod_test_at(""), &part, 1, 20, &step, NULL));
    assert_int_equal(step, -1);
    assert_ok(cod_checkpoint_newest(cod_test_at("absent"), &part, 1, INT64_MAX, &step, NULL));
    assert_int_equal(step, -1);
}

/** Every byte of the newest checkpoint in turn: damage is never taken for good, and always named. */
TEST_WITH(a_flipped_byte_is_named_and_the_one_before_used, set_up, cod_test_folder_remove)
{
    write_step(10, "group-0");
    write_step(20, "group-0");
    void *data = NULL;
    size_t bytes = 0;
    assert_ok(cod_file_read(file_of(20, "group-0"), 1 << 20, &data, &bytes));
    free(data);
    assert_true(bytes > 100);
    for (long at = 0; at < (long)bytes; at++) {
        warnings[0] = '\0';
        flip_byte(file_of(20, "group-0"), at);
        const char *found = listed("group-0", NULL);
        if (strcmp(found, "10") != 0 || strstr(warnings, "step-000000020/group-0.safetensors") == NULL)
            fail_msg("byte %ld: found '%s', warned '%s'", at, found, warnings);
        flip_byte(file_of(20, "group-0"), at);
    }
    assert_string_equal(listed("group-0", NULL), "20 10");
}

TEST_WITH(a_truncated_file_is_named_and_the_one_before_used, set_up, cod_test_folder_remove)
{
    write_step(10, "group-0");
    write_step(20, "group-0");
    void *data = NULL;
    size_t bytes = 0;
    assert_ok(cod_file_read(file_of(20, "group-0"), 1 << 20, &data, &bytes));
    free(data);
    for (off_t length = (off_t)bytes - 1; length >= 0; length--) {
        cod_st_file *file = NULL;
        warnings[0] = '\0';
        assert_int_equal(truncate(file_of(20, "group-0"), length), 0);
        assert_string_equal(listed("group-0", NULL), "10");
        cod_test_assert_contains(warnings, "step-000000020/group-0.safetensors");
        cod_test_assert_contains(warnings, "looking for an older checkpoint");
        assert_true(cod_checkpoint_open(cod_test_at(""), 20, "group-0", &file) != COD_OK);
        assert_null(file);
    }
}

/** A file of before, or of another program, has no checksum of ours. */
TEST_WITH(a_file_without_checksum_is_refused, set_up, cod_test_folder_remove)
{
    cod_st_file *file = NULL;
    assert_ok(cod_folder_create(cod_test_at("step-000000005")));
    const cod_st_tensor tensor = {.name = "values", .dtype = COD_ST_F32, .rank = 1, .shape = {8}, .data = values};
    assert_ok(cod_st_write(file_of(5, "group-0"), &tensor, 1, NULL, 0));
    assert_fails(COD_ERR_FORMAT, "checksum", cod_checkpoint_open(cod_test_at(""), 5, "group-0", &file));
    assert_fails(COD_ERR_IO, "step-000000006", cod_checkpoint_open(cod_test_at(""), 6, "group-0", &file));
}

static void prune(const char *part, const char *first, const char *second, int64_t keep)
{
    const char *const parts[] = {first, second};
    assert_ok(cod_checkpoint_prune(cod_test_at(""), part, parts, second != NULL ? 2 : 1, keep));
}

TEST_WITH(pruning_keeps_the_newest_of_each_part, set_up, cod_test_folder_remove)
{
    for (int64_t step = 10; step <= 50; step += 10)
        write_step(step, "group-0");
    write_step(10, "group-1");
    prune("group-0", "group-0", NULL, 2);
    assert_string_equal(listed("group-0", NULL), "50 40");
    assert_string_equal(listed("group-1", NULL), "10");
    assert_false(cod_file_exists(cod_test_at("step-000000020")));
    assert_true(cod_file_exists(cod_test_at("step-000000010")));
    /* group-1 has no other: it stays, however many others have come. */
    prune("group-1", "group-1", NULL, 1);
    assert_string_equal(listed("group-1", NULL), "10");
    prune("group-0", "group-0", NULL, 9);
    assert_string_equal(listed("group-0", NULL), "50 40");
}

/** A rank's part stays with its group's; groups that resume together keep the newest step that all have. */
TEST_WITH(a_step_outlasts_a_power_cut_before_older_ones_go, set_up, cod_test_folder_remove)
{
    write_step(10, "group-0");
    cod_test_power_begin();
    write_step(20, "group-0");
    prune("group-0", "group-0", NULL, 1);
    assert_string_equal(listed("group-0", NULL), "20");
    assert_int_equal(cod_test_power_made(), 1);
    assert_int_equal(cod_test_power_early(), 0);
    assert_int_equal(cod_test_power_unsafe(), 0);
}

/**
 * What groups that are ahead and behind do to the folder of a step between two calls of its writer: before so many
 * renames they remove it while it is empty, and they create it before the writer does.
 */
static struct {
    char path[512];
    int removals;
    bool created;
} others;

/* In place of the C library's, in this program. */
int rename(const char *from, const char *to)
{
    if (others.removals > 0) {
        others.removals--;
        syscall(SYS_unlinkat, AT_FDCWD, others.path, AT_REMOVEDIR);
    }
    const int result = (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0), error = errno;
    if (result != 0 && others.created)
        syscall(SYS_mkdirat, AT_FDCWD, others.path, 0777);
    errno = error;
    return result;
}

TEST_WITH(a_part_is_written_while_others_remove_and_create_its_folder, set_up, cod_test_folder_remove)
{
    enum { MOST_REMOVALS = 20 };
    cod_checkpoint checkpoint = {0};
    strcpy(others.path, cod_test_at("step-000000010"));
    assert_ok(cod_checkpoint_add_f32(&checkpoint, "values", values, 8));
    for (int removals = 0; removals <= MOST_REMOVALS; removals++)
        for (int created = 0; created < 2; created++) {
            others.removals = removals;
            others.created = created != 0;
            assert_ok(cod_checkpoint_write(&checkpoint, cod_test_at(""), 10, "group-0"));
            assert_int_equal(others.removals, 0);
            assert_int_equal(unlink(file_of(10, "group-0")), 0);
        }
    cod_checkpoint_clear(&checkpoint);
}

TEST_WITH(pruning_counts_steps_that_are_complete, set_up, cod_test_folder_remove)
{
    for (int64_t step = 10; step <= 50; step += 10) {
        write_step(step, "rank-3");
        write_step(step, "group-0");
        if (step <= 20)
            write_step(step, "group-1");
    }
    prune("rank-3", "group-1", NULL, 1);
    assert_string_equal(listed("rank-3", NULL), "50 40 30 20");
    prune("group-0", "group-0", "group-1", 1);
    assert_string_equal(listed("group-0", NULL), "50 40 30 20");
    prune("group-0", "group-0", "group-2", 1);
    assert_string_equal(listed("group-0", NULL), "50 40 30 20");
    prune("group-0", "group-0", NULL, 1);
    assert_string_equal(listed("group-0", NULL), "50");
}

TEST_WITH(what_comes_after_a_step_is_discarded, set_up, cod_test_folder_remove)
{
    for (int64_t step = 10; step <= 40; step += 10) {
        write_step(step, "group-0");
        write_step(step, "rank-0");
    }
    assert_ok(cod_checkpoint_discard(cod_test_at(""), "group-0", 20));
    assert_string_equal(listed("group-0", NULL), "20 10");
    assert_string_equal(listed("rank-0", NULL), "40 30 20 10");
    assert_ok(cod_checkpoint_discard(cod_test_at(""), NULL, 10));
    assert_string_equal(listed("group-0", "rank-0"), "10");
    assert_false(cod_file_exists(cod_test_at("step-000000040")));
    assert_ok(cod_checkpoint_discard(cod_test_at(""), NULL, -1));
    assert_false(cod_file_exists(cod_test_at("step-000000010")));
    assert_ok(cod_checkpoint_discard(cod_test_at("absent"), NULL, -1));
}

TEST_WITH(what_a_killed_writer_left_beside_steps_goes, set_up, cod_test_folder_remove)
{
    static const char *const left[] = {".group-0.safetensors.tmp", "..group-0.safetensors.tmp.4711-0.tmp",
                                       ".group-1.safetensors.tmp"};
    write_step(10, "group-0");
    for (size_t i = 0; i < sizeof left / sizeof left[0]; i++)
        assert_ok(cod_file_write(cod_test_at(left[i]), "x", 1));
    assert_ok(cod_checkpoint_clean(cod_test_at(""), "group-0"));
    assert_false(cod_file_exists(cod_test_at(left[0])) || cod_file_exists(cod_test_at(left[1])));
    assert_true(cod_file_exists(cod_test_at(left[2]))); /* another group may be writing it */
    assert_ok(cod_checkpoint_clean(cod_test_at(""), NULL));
    assert_false(cod_file_exists(cod_test_at(left[2])));
    assert_string_equal(listed("group-0", NULL), "10");
    assert_ok(cod_checkpoint_clean(cod_test_at("absent"), "group-0"));
    assert_ok(cod_checkpoint_clean(cod_test_at("absent"), NULL));
}

static volatile int pruning_ends;

/** Groups that are ahead, and so remove the folders of steps that a slower one has yet to write; each once. */
static void *prune_all_the_time(void *context)
{
    enum { GROUPS_AHEAD = 5 };
    char path[300];
    int removed[40] = {0};
    while (!pruning_ends)
        for (int step = 0; step < 40; step++) {
            snprintf(path, sizeof path, "%s/step-%09d", (const char *)context, step);
            removed[step] += removed[step] < GROUPS_AHEAD && rmdir(path) == 0;
        }
    return NULL;
}

TEST_WITH(a_step_is_written_while_another_group_removes_its_folder, set_up, cod_test_folder_remove)
{
    char folder[256];
    pthread_t thread;
    snprintf(folder, sizeof folder, "%s", cod_test_at(""));
    pruning_ends = 0;
    assert_int_equal(pthread_create(&thread, NULL, prune_all_the_time, folder), 0);
    cod_status status = COD_OK;
    cod_checkpoint checkpoint = {0};
    assert_ok(cod_checkpoint_add_f32(&checkpoint, "values", values, 8));
    for (int64_t step = 0; step < 40 && status == COD_OK; step++)
        status = cod_checkpoint_write(&checkpoint, folder, step, "group-1");
    pruning_ends = 1;
    pthread_join(thread, NULL);
    cod_checkpoint_clear(&checkpoint);
    assert_ok(status);
    cod_arena arena = {0};
    cod_int_list steps = {0};
    const char *part = "group-1";
    assert_ok(cod_checkpoint_list(folder, &part, 1, &arena, &steps));
    assert_int_equal(steps.count, 40);
    cod_arena_clear(&arena);
}

static void make_file(const char *path)
{
    assert_ok(cod_file_write(path, "x", 1));
}

static void make_loop(const char *path)
{
    assert_int_equal(symlink(strrchr(path, '/') + 1, path), 0);
}

static void make_link_to_nowhere(const char *path)
{
    assert_int_equal(symlink("nowhere", path), 0);
}

static void make_folder_for_part(const char *path)
{
    assert_ok(cod_folder_create(path));
    assert_ok(cod_folder_create(file_of(30, "group-0")));
}

static void make_fifo_for_part(const char *path)
{
    assert_ok(cod_folder_create(path));
    assert_int_equal(mkfifo(file_of(30, "group-0"), 0600), 0);
}

/** It is named, the checkpoint before is used, and the run saves there again. */
TEST_WITH(what_is_no_checkpoint_is_passed_over, set_up, cod_test_folder_remove)
{
    static void (*const kinds[])(const char *) = {make_file, make_loop, make_link_to_nowhere, make_folder_for_part,
                                                  make_fifo_for_part};
    const char *part = "group-0", *const parts[] = {"group-0", NULL};
    for (size_t i = 0; i < 2 * sizeof kinds / sizeof kinds[0]; i++) {
        int64_t step;
        size_t damaged;
        assert_int_equal(set_up(state), 0);
        write_step(20, part);
        kinds[i / 2](cod_test_at("step-000000030"));
        assert_ok(cod_checkpoint_clean(cod_test_at(""), parts[i % 2]));
        assert_ok(cod_checkpoint_newest(cod_test_at(""), &part, 1, INT64_MAX, &step, &damaged));
        if (step != 20 || damaged != 1 || strstr(warnings, "step-000000030/group-0.safetensors") == NULL)
            fail_msg("kind %zu: step %lld, %zu damaged, '%s'", i, (long long)step, damaged, warnings);
        assert_ok(cod_checkpoint_discard(cod_test_at(""), parts[i % 2], 20));
        write_step(30, part);
        assert_ok(cod_checkpoint_newest(cod_test_at(""), &part, 1, INT64_MAX, &step, &damaged));
        assert_true(step == 30 && damaged == 0);
        assert_int_equal(cod_test_folder_remove(state), 0);
    }
    assert_int_equal(set_up(state), 0);
}

TEST_WITH(a_step_that_cannot_be_written_says_why, set_up, cod_test_folder_remove)
{
    cod_checkpoint checkpoint = {0};
    assert_ok(cod_checkpoint_add_f32(&checkpoint, "values", values, 8));
    /* A folder in the file's place: root or not, nobody can rename onto it. */
    assert_ok(cod_folder_create(cod_test_at("step-000000030/group-0.safetensors/x")));
    assert_fails(COD_ERR_IO, "group-0.safetensors", cod_checkpoint_write(&checkpoint, cod_test_at(""), 30, "group-0"));
    assert_ok(cod_file_write(cod_test_at("file"), "", 0));
    assert_fails(COD_ERR_IO, "file", cod_checkpoint_write(&checkpoint, cod_test_at("file"), 30, "group-0"));
    cod_checkpoint_clear(&checkpoint);
}
