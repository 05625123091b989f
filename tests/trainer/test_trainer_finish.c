/* The end of a run of several groups: whose model final.safetensors is, and what summary.json says. */
#include "train_job.h"

#include "support/folder.h"

#include "io/file.h"
#include "listener.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** A whole file of a run; new, free(). */
static char *read_file(const char *run, const char *name, size_t *bytes)
{
    char path[200];
    void *data = NULL;
    snprintf(path, sizeof path, "%s/%s", run, name);
    assert_ok(cod_file_read(cod_test_at(path), 1 << 20, &data, bytes));
    return data;
}

static cod_json_value *read_summary(const char *run)
{
    cod_json_value *document = NULL;
    size_t bytes;
    char *text = read_file(run, "summary.json", &bytes);
    assert_ok(cod_json_parse(text, bytes, &document));
    free(text);
    return document;
}

static double number(const cod_json_value *object, const char *key)
{
    return cod_json_get_number(cod_json_get(object, key), NAN);
}

static void expect_final(const cod_json_value *summary, const char *is)
{
    assert_string_equal(cod_json_get_string(cod_json_get(summary, "final_is"), "?"), is);
}

static void expect_equal_files(const char *run, const char *name, const char *other)
{
    size_t bytes, other_bytes;
    char *data = read_file(run, name, &bytes), *other_data = read_file(run, other, &other_bytes);
    assert_int_equal(bytes, other_bytes);
    assert_memory_equal(data, other_data, bytes);
    free(data);
    free(other_data);
}

#define SEPARABLE "data.synthetic_shape=[1,1,24]", "data.val_fraction=0.3"

/** The classes are learned by a model that other runs then begin with. */
static void learn(void)
{
    const train_job job = {.ranks = 1,
                           .settings = {"train.strategy=listener", "name=learned", "train.steps=60", "data.batch=6",
                                        "train.rate=0.03", SEPARABLE}};
    job_run_ok(&job);
    cod_json_value *summary = read_summary("learned");
    if (!(number(summary, "accuracy") >= 60))
        fail_msg("accuracy %g: too little to tell models apart", number(summary, "accuracy"));
    cod_json_free(summary);
}

#define LEARNED "train.strategy=listener", "train.rate=1e-9", SEPARABLE, "cluster.groups=2", "cluster.ranks_per_group=1"

/** Both groups say one class for nearly all, from opposite sides; between them lies what was learned. */
TEST_IN_FOLDER(the_mean_of_groups_is_taken_where_it_is_better)
{
    char init[600];
    const listener_plan tilts = {.tilt = {1000, -1000}};
    const train_job job = {.ranks = 2, .settings = {LEARNED, init}, .plan = &tilts};
    learn();
    snprintf(init, sizeof init, "model.init=%s", cod_test_at("learned/final.safetensors"));
    const job_report *report = job_run_ok(&job);
    cod_test_assert_contains(report->log, "final.safetensors is mean of 2 groups");
    cod_json_value *summary = read_summary("run"), *learned = read_summary("learned");
    expect_final(summary, "mean of 2 groups");
    assert_true(number(summary, "accuracy") == number(learned, "accuracy"));
    assert_int_equal(cod_json_count(cod_json_get(summary, "group_results")), 2);
    cod_json_free(summary);
    cod_json_free(learned);
}

TEST_IN_FOLDER(the_best_group_is_taken_where_the_mean_is_not_better)
{
    char init[600];
    const listener_plan tilts = {.tilt = {1000, 0}};
    const train_job job = {.ranks = 2, .settings = {LEARNED, init}, .plan = &tilts};
    learn();
    snprintf(init, sizeof init, "model.init=%s", cod_test_at("learned/final.safetensors"));
    job_run_ok(&job);
    cod_json_value *summary = read_summary("run");
    expect_final(summary, "group 1");
    expect_equal_files("run", "final.safetensors", "group.1.safetensors");
    cod_json_free(summary);
}

TEST_IN_FOLDER(models_that_are_not_alike_have_no_mean)
{
    const listener_plan tilts = {.tilt = {0, 1000}};
    const train_job job = {.ranks = 3,
                           .settings = {"train.strategy=listener", "train.recipe=pair", "train.steps=60",
                                        "data.batch=4",
                                        "cluster.groups=[{ranks: 2}, {ranks: 1, model: {hidden: [7]}}]"},
                           .plan = &tilts};
    job_run_ok(&job);
    cod_json_value *summary = read_summary("run");
    const char *is = cod_json_get_string(cod_json_get(summary, "final_is"), "?");
    assert_true(strcmp(is, "group 0") == 0 || strcmp(is, "group 1") == 0);
    expect_equal_files("run", "final.safetensors",
                       strcmp(is, "group 0") == 0 ? "group.0.safetensors" : "group.1.safetensors");
    cod_json_free(summary);
}

TEST_IN_FOLDER(the_summary_says_what_was_done)
{
    static const struct {
        const char *key;
        double value;
    } numbers[] = {{"groups", 2},
                   {"ranks_per_group", 2},
                   {"ranks", 4},
                   {"steps", 4},
                   {"resumed_from", 0},
                   {"seed", 7},
                   {"samples_per_group", 4 * 2 * 3 * 2}};
    const train_job job = {.ranks = 4,
                           .settings = {"train.strategy=listener", "train.recipe=pair", "train.accumulate=3", "seed=7",
                                        "cluster.groups=2", "cluster.ranks_per_group=2"}};
    job_run_ok(&job);
    cod_json_value *summary = read_summary("run"), *line = NULL;
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (number(summary, numbers[i].key) != numbers[i].value)
            fail_msg("%s is %g, not %g", numbers[i].key, number(summary, numbers[i].key), numbers[i].value);
    assert_string_equal(cod_json_get_string(cod_json_get(summary, "recipe"), "?"), "pair");
    assert_string_equal(cod_json_get_string(cod_json_get(summary, "strategy"), "?"), "listener");
    assert_true(number(summary, "accuracy") >= 0 && number(summary, "majority_accuracy") > 0);
    cod_json_free(summary);
    /* Losses and rates of a recipe of several have their names. */
    assert_ok(cod_metrics_read_last(cod_test_at("run"), 1, &line));
    static const char *const keys[] = {"loss.real", "loss.fake", "loss.task", "loss.fool", "lr.critic"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (!isfinite(number(line, keys[i])))
            fail_msg("metrics have no '%s'", keys[i]);
    cod_json_free(line);
}

/** A run without held-out examples cannot tell which group is better. */
TEST_IN_FOLDER(without_held_out_examples_the_first_group_is_taken)
{
    const train_job job = {.ranks = 2,
                           .settings = {"train.strategy=listener", "data.val_fraction=0", "cluster.groups=2",
                                        "cluster.ranks_per_group=1"}};
    cod_test_assert_contains(job_run_ok(&job)->log, "its quality is unknown, as no examples are held out");
    cod_json_value *summary = read_summary("run");
    expect_final(summary, "group 0");
    assert_int_equal(cod_json_kind_of(cod_json_get(summary, "accuracy")), COD_JSON_NULL);
    expect_equal_files("run", "final.safetensors", "group.0.safetensors");
    cod_json_free(summary);
}

/** Also where no line of metrics is due at the step of an evaluation; lines between evaluations have no quality. */
TEST_IN_FOLDER(evaluations_are_recorded_at_their_own_steps)
{
    static const struct {
        int64_t step;
        bool evaluated;
    } expected[] = {{3, true}, {4, false}, {6, true}, {8, false}, {9, true}, {10, true}};
    const train_job job = {.ranks = 1,
                           .settings = {"train.strategy=single", "train.steps=10", "log.every=4", "eval.every=3"}};
    void *text = NULL;
    size_t bytes, i = 0;
    job_run_ok(&job);
    assert_ok(cod_file_read(cod_test_at("run/metrics.0.jsonl"), 1 << 20, &text, &bytes));
    for (char *rest = NULL, *one = strtok_r(text, "\n", &rest); one != NULL; one = strtok_r(NULL, "\n", &rest), i++) {
        cod_json_value *line = NULL;
        assert_ok(cod_json_parse(one, strlen(one), &line));
        assert_true(i < sizeof expected / sizeof expected[0]);
        assert_int_equal((int64_t)number(line, "step"), expected[i].step);
        assert_int_equal(isfinite(number(line, "accuracy")), expected[i].evaluated);
        cod_json_free(line);
    }
    assert_int_equal(i, sizeof expected / sizeof expected[0]);
    free(text);
}

TEST_GROUP(job_set_up, NULL)
