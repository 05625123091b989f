/* metrics.GROUP.jsonl: what a line says, and what a resume keeps of the lines before it. */
#include "support/folder.h"
#include "support/test.h"

#include "io/file.h"
#include "train/metrics.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static cod_metrics_line line_of(int64_t step)
{
    return (cod_metrics_line){.step = step,
                              .loss = 0.5,
                              .task_loss = 0.25,
                              .rate = 1e-3,
                              .step_ms = 4,
                              .images_per_s = 500,
                              .trained_s = 1.5,
                              .processor_s = 2.5,
                              .between_bytes = 1e12,
                              .inside_bytes = 20,
                              .task = cod_train_task_find(COD_TASK_SUPER_RESOLUTION),
                              .quality = cod_task_quality_unknown(),
                              .strategy = {.distill_loss = NAN, .teacher_step = -1, .staleness_steps = -1}};
}

/** Opens where `from_step` was resumed from, and writes a line every 10 steps up to `last`. */
static void write_lines(int64_t from_step, int64_t last)
{
    cod_metrics *metrics = NULL;
    assert_ok(cod_metrics_open(cod_test_at(""), 0, from_step, false, &metrics));
    for (int64_t step = from_step + 10; step <= last; step += 10) {
        const cod_metrics_line line = line_of(step);
        assert_ok(cod_metrics_write(metrics, &line));
    }
    cod_metrics_close(metrics);
}

static char *content(void)
{
    void *data = NULL;
    size_t bytes = 0;
    assert_ok(cod_file_read(cod_test_at("metrics.0.jsonl"), 1 << 20, &data, &bytes));
    return data;
}

/** Steps of the file's lines, as "10 20 30"; every line must be JSON. */
static const char *steps(void)
{
    static char text[512];
    char *data = content(), *rest = NULL;
    text[0] = '\0';
    for (char *line = strtok_r(data, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest)) {
        cod_json_value *value = NULL;
        assert_ok(cod_json_parse(line, strlen(line), &value));
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%.0f", *text ? " " : "",
                 cod_json_get_number(cod_json_get(value, "step"), -1));
        cod_json_free(value);
    }
    free(data);
    return text;
}

TEST_IN_FOLDER(a_line_holds_every_number_and_null_for_none)
{
    cod_metrics *metrics = NULL;
    cod_metrics_line line = line_of(123);
    line.strategy = (cod_strategy_stats){.distill_loss = INFINITY,
                                         .distill_weight = 0.1,
                                         .teacher_step = 100,
                                         .staleness_steps = 23,
                                         .pulled_bytes = 1ull << 40,
                                         .published_bytes = 7,
                                         .exchange_processor_s = 0.125};
    assert_ok(cod_metrics_open(cod_test_at(""), 3, 0, false, &metrics));
    assert_ok(cod_metrics_write(metrics, &line));
    cod_metrics_close(metrics);
    void *data = NULL;
    size_t bytes = 0;
    cod_json_value *value = NULL;
    assert_ok(cod_file_read(cod_test_at("metrics.3.jsonl"), 1 << 20, &data, &bytes));
    assert_ok(cod_json_parse(data, bytes, &value));
    static const struct {
        const char *key;
        double expected;
    } numbers[] = {{"step", 123},
                   {"group", 3},
                   {"loss", 0.5},
                   {"task_loss", 0.25},
                   {"distill_weight", 0.1},
                   {"lr", 1e-3},
                   {"step_ms", 4},
                   {"images_per_s", 500},
                   {"teacher_step", 100},
                   {"staleness_steps", 23},
                   {"pulled_bytes", 0x1p40},
                   {"published_bytes", 7},
                   {"trained_s", 1.5},
                   {"processor_s", 2.5},
                   {"exchange_processor_s", 0.125},
                   {"intergroup_bytes", 1e12},
                   {"intragroup_bytes", 20}};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (cod_json_get_number(cod_json_get(value, numbers[i].key), NAN) != numbers[i].expected)
            fail_msg("%s is not %g in %s", numbers[i].key, numbers[i].expected, (char *)data);
    cod_test_assert_contains(data, "\"distill_loss\": null");
    cod_test_assert_contains(data, "\"psnr_y\": null");
    cod_json_free(value);
    free(data);
}

/** A slower group's teacher may be from a later step than its own: an age below zero, and no reason to leave it out. */
TEST_IN_FOLDER(a_teacher_may_be_ahead)
{
    cod_metrics *metrics = NULL;
    cod_metrics_line line = line_of(10);
    line.strategy.teacher_step = 41, line.strategy.staleness_steps = -31;
    assert_ok(cod_metrics_open(cod_test_at(""), 4, 0, false, &metrics));
    assert_int_equal(cod_metrics_last_step(metrics), -1);
    assert_ok(cod_metrics_write(metrics, &line));
    assert_int_equal(cod_metrics_last_step(metrics), 10);
    cod_metrics_close(metrics);
    assert_ok(cod_metrics_open(cod_test_at(""), 4, 15, false, &metrics));
    assert_int_equal(cod_metrics_last_step(metrics), 10);
    cod_metrics_close(metrics);
    void *data = NULL;
    size_t bytes = 0;
    assert_ok(cod_file_read(cod_test_at("metrics.4.jsonl"), 1 << 20, &data, &bytes));
    cod_test_assert_contains(data, "\"staleness_steps\": -31");
    free(data);
}

TEST_IN_FOLDER(a_resume_drops_the_lines_past_its_step)
{
    write_lines(0, 50);
    assert_string_equal(steps(), "10 20 30 40 50");
    char *before = content();
    write_lines(30, 30);
    assert_string_equal(steps(), "10 20 30");
    char *after = content();
    /* What stays, stays byte for byte. */
    assert_memory_equal(before, after, strlen(after));
    free(before);
    free(after);
    write_lines(30, 60);
    assert_string_equal(steps(), "10 20 30 40 50 60");
}

TEST_IN_FOLDER(a_resume_between_two_lines_keeps_the_earlier)
{
    write_lines(0, 50);
    write_lines(35, 35);
    assert_string_equal(steps(), "10 20 30");
}

TEST_IN_FOLDER(a_run_that_starts_anew_drops_all_lines)
{
    write_lines(0, 50);
    write_lines(0, 20);
    assert_string_equal(steps(), "10 20");
}

TEST_IN_FOLDER(a_torn_or_foreign_line_does_not_stay)
{
    static const char text[] = "{\"step\": 10}\nnot JSON\n{\"group\": 0}\n{\"step\": 20}\n{\"step\": 3";
    assert_ok(cod_file_write(cod_test_at("metrics.0.jsonl"), text, strlen(text)));
    write_lines(25, 35);
    assert_string_equal(steps(), "10 20 35");
}

/** A step may be any number that JSON can write: of those that an integer cannot hold no line stays. */
TEST_IN_FOLDER(a_line_of_an_impossible_step_does_not_stay)
{
    static const char text[] =
        "{\"step\": 1e300}\n{\"step\": -1e300}\n{\"step\": 10}\n{\"step\": -1}\n{\"step\": 11.5}\n"
        "{\"step\": 9007199254740993}\n{\"step\": null}\n{\"step\": \"10\"}\n";
    cod_metrics *metrics = NULL;
    assert_ok(cod_file_write(cod_test_at("metrics.0.jsonl"), text, strlen(text)));
    assert_ok(cod_metrics_open(cod_test_at(""), 0, 25, false, &metrics));
    assert_int_equal(cod_metrics_last_step(metrics), 10);
    cod_metrics_close(metrics);
    assert_string_equal(steps(), "10");
}

TEST_IN_FOLDER(a_folder_that_is_none_is_named)
{
    cod_metrics *metrics = NULL;
    assert_fails(COD_ERR_IO, "absent/metrics.0.jsonl", cod_metrics_open(cod_test_at("absent"), 0, 0, false, &metrics));
    assert_null(metrics);
}

TEST_IN_FOLDER(tensorboard_is_written_where_asked_for)
{
    cod_metrics *metrics = NULL;
    const cod_metrics_line line = line_of(10);
    assert_ok(cod_metrics_open(cod_test_at(""), 1, 0, true, &metrics));
    assert_ok(cod_metrics_write(metrics, &line));
    cod_metrics_close(metrics);
    cod_arena arena = {0};
    cod_string_list names = {0};
    assert_ok(cod_folder_list(cod_test_at("tensorboard/group1"), "events.", "", &arena, &names));
    assert_int_equal(names.count, 1);
    void *data = NULL;
    size_t bytes = 0;
    char path[512];
    snprintf(path, sizeof path, "%s/%s", cod_test_at("tensorboard/group1"), names.items[0]);
    assert_ok(cod_file_read(path, 1 << 20, &data, &bytes));
    assert_non_null(memmem(data, bytes, "train/images_per_s", 18));
    assert_null(memmem(data, bytes, "train/teacher_step", 18)); /* there was none */
    free(data);
    cod_arena_clear(&arena);
}

TEST_IN_FOLDER(peers_are_listed_and_read_back)
{
    cod_metrics *metrics = NULL;
    cod_metrics_line line = line_of(10);
    const cod_peer_stats peers[] = {
        {.group = 2,
         .version = 7,
         .step = 70,
         .staleness_steps = -5,
         .age_s = 1.5,
         .pulled = 3,
         .rejected = 2,
         .lost = 1,
         .pulled_bytes = 1ull << 40,
         .bytes_per_s = 1e8,
         .weight = 0.25,
         .teacher_loss = 0.5,
         .student_loss = 0.75},
        {.group = 1, .staleness_steps = 9, .age_s = NAN, .bytes_per_s = NAN, .teacher_loss = NAN, .student_loss = NAN}};
    line.peers = peers;
    line.peer_count = 2;
    assert_ok(cod_metrics_open(cod_test_at(""), 0, 0, true, &metrics));
    assert_ok(cod_metrics_write(metrics, &line));
    cod_metrics_close(metrics);
    cod_json_value *last = NULL;
    assert_ok(cod_metrics_read_last(cod_test_at(""), 0, &last));
    cod_json json = {0};
    char *text = NULL;
    cod_json_copy(&json, NULL, cod_json_get(last, "peers"));
    assert_ok(cod_json_end(&json, &text));
    assert_string_equal(
        text,
        "[{\"group\": 2, \"version\": 7, \"step\": 70, \"staleness_steps\": -5, \"pulled\": 3, \"rejected\": 2, "
        "\"lost\": "
        "1, \"pulled_bytes\": 1099511627776, \"age_s\": 1.5, \"bytes_per_s\": 100000000, \"weight\": 0.25, "
        "\"teacher_loss\": 0.5, \"student_loss\": 0.75}, {\"group\": 1, \"version\": 0, \"step\": null, "
        "\"staleness_steps\": null, \"pulled\": 0, \"rejected\": 0, \"lost\": 0, \"pulled_bytes\": 0, \"age_s\": null, "
        "\"bytes_per_s\": null, \"weight\": 0, \"teacher_loss\": null, \"student_loss\": null}]");
    free(text);
    cod_json_free(last);
    assert_ok(cod_metrics_read_last(cod_test_at(""), 5, &last)); /* no such file */
    assert_null(last);
}
