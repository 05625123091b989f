/* Stopping, saving and going on: equal bits, and refusals that name what does not fit. */
#include "train_job.h"

#include "support/folder.h"

#include "io/file.h"
#include "listener.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PAIR                                                                                                           \
    "train.strategy=listener", "train.recipe=pair", "train.accumulate=2", "pair.every=2", "train.ema=0.9",             \
        "train.steps=8"
#define TWO "cluster.ranks_per_group=2"

static const char *path_of(const char *run, int64_t step, const char *part)
{
    char name[200];
    snprintf(name, sizeof name, "%s/checkpoints/step-%09lld/%s.safetensors", run, (long long)step, part);
    return cod_test_at(name);
}

static void expect_equal(const char *run, const char *other, int64_t step, const char *const *parts, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const double difference = job_difference(run, other, step, parts[i]);
        if (difference != 0)
            fail_msg("'%s' of '%s' and '%s' differ by %g", parts[i], run, other, difference);
    }
}

static const char *const parts_of_two[] = {"group-0", "rank-0", "rank-1"};

/** One rank is asked to stop: its group stops when all know of it, two steps later. */
TEST_IN_FOLDER(a_stopped_run_goes_on_to_equal_bits)
{
    const listener_plan stops = {.stop_after = 3, .stop_rank = 1};
    const train_job whole = {.ranks = 2, .settings = {PAIR, TWO, "name=whole"}};
    const train_job half = {.ranks = 2, .settings = {PAIR, TWO, "name=parts"}, .plan = &stops};
    const train_job rest = {.ranks = 2, .settings = {PAIR, TWO, "name=parts", "checkpoint.resume=must"}};
    job_run_ok(&whole);
    const job_report *report = job_run_ok(&half);
    assert_true(report->ranks[0].ending == COD_TRAIN_STOPPED && report->ranks[1].ending == COD_TRAIN_STOPPED);
    cod_test_assert_contains(report->log, "stopped and saved at step 5 of 8");
    assert_false(cod_file_exists(cod_test_at("parts/final.safetensors")));
    report = job_run_ok(&rest);
    assert_true(report->ranks[0].ending == COD_TRAIN_FINISHED && report->ranks[1].ending == COD_TRAIN_FINISHED);
    cod_test_assert_contains(report->log, "resumed at step 5");
    for (int r = 0; r < 2; r++)
        cod_test_assert_contains(report->ranks[r].notes, "start \nload(5) \nbefore_step(5) ");
    expect_equal("whole", "parts", 8, parts_of_two, 3);
}

/** Groups that replay wait for each other's word: all stop at one step, though one rank of one group was asked. */
TEST_IN_FOLDER(groups_in_step_stop_at_one_step)
{
    const listener_plan stops = {.stop_after = 2, .stop_rank = 2};
#define IN_STEP PAIR, "train.deterministic=true", "cluster.groups=[{ranks: 2}, {ranks: 1}]"
    static const char *const parts[] = {"group-0", "group-1", "rank-0", "rank-1", "rank-2"};
    const train_job whole = {.ranks = 3, .settings = {IN_STEP, "name=whole"}};
    const train_job half = {.ranks = 3, .settings = {IN_STEP, "name=parts"}, .plan = &stops};
    const train_job rest = {.ranks = 3, .settings = {IN_STEP, "name=parts", "checkpoint.resume=must"}};
    job_run_ok(&whole);
    const job_report *report = job_run_ok(&half);
    cod_test_assert_contains(report->log, "group 0: stopped and saved at step 4 of 8");
    cod_test_assert_contains(report->log, "group 1: stopped and saved at step 4 of 8");
    job_run_ok(&rest);
    expect_equal("whole", "parts", 8, parts, 5);
    /* And nothing is left to do. */
    report = job_run_ok(&rest);
    cod_test_assert_contains(report->log, "all 8 steps were done before");
    cod_test_assert_contains(report->ranks[0].notes, "load(8) \nfinish destroy");
}

TEST_IN_FOLDER(a_group_that_ends_first_knows_that_another_has_stopped)
{
    const listener_plan stops = {.stop_after = 2, .stop_rank = 1};
#define APART PAIR, "cluster.groups=2", "cluster.ranks_per_group=1", "name=apart"
    const train_job half = {.ranks = 2, .settings = {APART}, .plan = &stops};
    const train_job rest = {.ranks = 2, .settings = {APART, "checkpoint.resume=must"}};
    const job_report *report = job_run_ok(&half);
    assert_true(report->ranks[0].ending == COD_TRAIN_STOPPED && report->ranks[1].ending == COD_TRAIN_STOPPED);
    cod_test_assert_contains(report->log, "group 0: all 8 steps are done and its model is saved; another group has");
    assert_false(cod_file_exists(cod_test_at("apart/summary.json")));
    report = job_run_ok(&rest);
    assert_true(report->ranks[0].ending == COD_TRAIN_FINISHED && report->ranks[1].ending == COD_TRAIN_FINISHED);
    assert_true(cod_file_exists(cod_test_at("apart/summary.json")));
}

/* Refusals. */

TEST_IN_FOLDER(another_run_is_refused)
{
    static const struct {
        int ranks;
        cod_status status;
        const char *message, *settings[2];
    } cases[] = {
        {2, COD_ERR_ARGUMENT, "it was written with seed 1, not 2", {"seed=2"}},
        {2, COD_ERR_ARGUMENT, "it was written with recipe 'pair', not 'supervised'", {"train.recipe=supervised"}},
        {2, COD_ERR_ARGUMENT, "by strategy 'listener', not 'eavesdropper'", {"train.strategy=eavesdropper"}},
        {2,
         COD_ERR_ARGUMENT,
         "it was written by 1 groups, and strategy 'listener' cannot go on with 2",
         {"cluster.groups=2", "cluster.ranks_per_group=1"}},
        {3,
         COD_ERR_ARGUMENT,
         "group 0 had 2 ranks, and strategy 'listener' cannot go on with 3",
         {"cluster.ranks_per_group=3"}},
        {2, COD_ERR_ARGUMENT, "with train.allreduce_codec=none, not int8", {"train.allreduce_codec=int8"}},
        {2, COD_ERR_FORMAT, "another model", {"model.hidden=[40]"}},
        {2, COD_ERR_FORMAT, "has no 'momentum'", {"train.optimiser=sgd"}},
        {2, COD_ERR_ARGUMENT, "the run is at step 4 already, train.steps asks for 2", {"train.steps=2"}},
    };
    const train_job first = {.ranks = 2, .settings = {PAIR, TWO, "train.steps=4"}};
    job_run_ok(&first);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const train_job job = {.ranks = cases[i].ranks,
                               .settings = {PAIR, TWO, cases[i].settings[0], cases[i].settings[1]}};
        job_assert_agreed_failure(job_run(&job), job.ranks, -1, cases[i].status, cases[i].message);
    }
    /* Nothing was lost by that. */
    const train_job rest = {.ranks = 2, .settings = {PAIR, TWO, "checkpoint.resume=must"}};
    cod_test_assert_contains(job_run_ok(&rest)->log, "resumed at step 4");
}

/** Writes a part of a checkpoint anew, without one of its arrays or texts. */
static void leave_out(const char *run, int64_t step, const char *part, const char *name)
{
    char folder[200];
    cod_st_file *file = NULL;
    cod_checkpoint checkpoint = {0};
    snprintf(folder, sizeof folder, "%s", cod_test_at(run));
    snprintf(folder + strlen(folder), sizeof folder - strlen(folder), "/checkpoints");
    assert_ok(cod_checkpoint_open(folder, step, part, &file));
    for (size_t i = 0; i < cod_st_tensor_count(file); i++) {
        const cod_st_tensor *tensor = cod_st_tensor_at(file, i);
        if (strcmp(tensor->name, name) != 0)
            assert_ok(cod_checkpoint_add_f32(&checkpoint, tensor->name, tensor->data, cod_st_count(tensor)));
    }
    for (size_t i = 0; i < cod_st_metadata_count(file); i++) {
        const cod_st_text *text = cod_st_metadata_at(file, i);
        if (strcmp(text->key, name) != 0 && strcmp(text->key, "xxh3") != 0)
            assert_ok(cod_checkpoint_add_text(&checkpoint, text->key, text->value));
    }
    assert_ok(cod_checkpoint_write(&checkpoint, folder, step, part));
    cod_checkpoint_clear(&checkpoint);
    cod_st_close(file);
}

TEST_IN_FOLDER(what_a_checkpoint_lacks_is_named)
{
    static const struct {
        const char *part, *name;
    } cases[] = {
        {"group-0", "values"}, {"group-0", "critic.values"}, {"group-0", "adam_v"}, {"group-0", "critic.momentum"},
        {"group-0", "ema"},    {"group-0", "seed"},          {"group-0", "step"},   {"rank-1", "memory"}};
    const train_job first = {.ranks = 2, .settings = {PAIR, TWO, "train.steps=2"}};
    const train_job rest = {.ranks = 2, .settings = {PAIR, TWO}};
    job_run_ok(&first);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char message[64];
        void *whole = NULL;
        size_t bytes;
        assert_ok(cod_file_read(path_of("run", 2, cases[i].part), 1 << 20, &whole, &bytes));
        leave_out("run", 2, cases[i].part, cases[i].name);
        const job_report *report = job_run(&rest);
        snprintf(message, sizeof message, "'%s'", cases[i].name);
        job_assert_agreed_failure(report, 2, cases[i].part[0] == 'r' ? 1 : -1, COD_ERR_FORMAT, message);
        assert_ok(cod_file_write(path_of("run", 2, cases[i].part), whole, bytes));
        free(whole);
    }
    job_run_ok(&rest);
}

/** As versions before recipes wrote it: such a run trained as `supervised` does. */
TEST_IN_FOLDER(a_checkpoint_without_a_recipe_is_of_the_first)
{
    const listener_plan stops = {.stop_after = 2};
#define ALONE "train.strategy=listener", "train.ema=0.9", "train.steps=8", TWO
    const train_job whole = {.ranks = 2, .settings = {ALONE, "name=whole"}}, rest = {.ranks = 2, .settings = {ALONE}},
                    half = {.ranks = 2, .settings = {ALONE}, .plan = &stops},
                    pair = {.ranks = 2, .settings = {PAIR, TWO}};
    job_run_ok(&whole);
    job_run_ok(&half);
    leave_out("run", 4, "group-0", "recipe");
    job_assert_agreed_failure(job_run(&pair), 2, -1, COD_ERR_ARGUMENT, "with recipe 'supervised', not 'pair'");
    cod_test_assert_contains(job_run_ok(&rest)->log, "resumed at step 4");
    expect_equal("whole", "run", 8, parts_of_two, 3);
}

/** A file that is cut short makes its step incomplete: the run goes on from the one before, and says why. */
TEST_IN_FOLDER(a_truncated_file_is_passed_over)
{
#define SAVES PAIR, TWO, "checkpoint.every=2", "checkpoint.keep=9"
    const train_job whole = {.ranks = 2, .settings = {SAVES, "name=whole"}};
    const train_job rest = {.ranks = 2, .settings = {SAVES}},
                    must = {.ranks = 2, .settings = {SAVES, "checkpoint.resume=must"}};
    const listener_plan stops = {.stop_after = 2};
    const train_job half = {.ranks = 2, .settings = {SAVES}, .plan = &stops};
    job_run_ok(&whole);
    job_run_ok(&half);
    assert_int_equal(truncate(path_of("run", 4, "group-0"), 1000), 0);
    const job_report *report = job_run_ok(&rest);
    cod_test_assert_contains(report->log, "step-000000004/group-0.safetensors");
    cod_test_assert_contains(report->log, "group 0: resumed at step 2");
    expect_equal("whole", "run", 8, parts_of_two, 3);
    assert_int_equal(truncate(path_of("run", 8, "rank-1"), 0), 0);
    report = job_run_ok(&rest);
    cod_test_assert_contains(report->log, "step-000000008/rank-1.safetensors");
    cod_test_assert_contains(report->log, "group 0: resumed at step 6");
    expect_equal("whole", "run", 8, parts_of_two, 3);
    for (int64_t step = 2; step <= 8; step += 2)
        assert_int_equal(truncate(path_of("run", step, "group-0"), 1000), 0);
    job_assert_agreed_failure(job_run(&must), 2, -1, COD_ERR_FORMAT, "can be used (4 damaged): put a copy of one back");
}

/* NaN. */

TEST_IN_FOLDER(a_loss_that_is_no_number_is_named_with_its_step)
{
    static const struct {
        const char *spoils, *recipe;
        int rank;
        const char *message;
    } cases[] = {
        {"critic", "train.recipe=pair", 1,
         "the loss 'fool' became NaN or infinite at step 3 (first bad weight: layers.0.weight"},
        {"critic", "train.recipe=pair", 0,
         "the loss 'fool' became NaN or infinite at step 3 (first bad weight: layers.0.weight, critic.score.weight;"},
        {"model", "train.recipe=pair", 1, "the loss 'task' became NaN or infinite at step 3"},
        {"model", "train.recipe=supervised", 0, "the loss became NaN or infinite at step 3"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const listener_plan spoils = {.spoils = cases[i].spoils, .spoil_rank = cases[i].rank, .spoil_after = 3};
        const train_job job = {.ranks = 2, .settings = {PAIR, TWO, cases[i].recipe}, .plan = &spoils};
        const job_report *report = job_run(&job);
        job_assert_agreed_failure(report, 2, 0, COD_ERR_NUMERIC, cases[i].message);
        cod_test_assert_contains(report->ranks[0].message, "there is no checkpoint yet");
        assert_int_equal(report->ranks[1].status, COD_ERR_NUMERIC);
        cod_test_assert_contains(report->ranks[1].message, cases[i].message);
    }
}

/** Before the ranks have agreed on the loss, a checkpoint is due. */
TEST_IN_FOLDER(spoiled_weights_are_not_saved)
{
    const listener_plan spoils = {.spoils = "critic", .spoil_rank = 1, .spoil_after = 3};
    const train_job whole = {.ranks = 2, .settings = {PAIR, TWO, "name=whole"}};
    const train_job job = {
        .ranks = 2, .settings = {PAIR, TWO, "checkpoint.every=2", "checkpoint.keep=1"}, .plan = &spoils};
    const train_job rest = {.ranks = 2, .settings = {PAIR, TWO}};
    job_run_ok(&whole);
    job_assert_agreed_failure(
        job_run(&job), 2, 0, COD_ERR_NUMERIC,
        "the weights became NaN or infinite at step 4 (first bad weight: layers.0.weight; first bad "
        "gradient: layers.0.weight); the last good checkpoint is of step 2");
    cod_test_assert_contains(job_run_ok(&rest)->log, "resumed at step 2");
    expect_equal("whole", "run", 8, parts_of_two, 3);
}

/** The evaluation comes before the checkpoint that would find it. */
TEST_IN_FOLDER(a_spoiled_model_is_not_kept_as_the_best)
{
    const listener_plan spoils = {.spoils = "model", .spoil_rank = 0, .spoil_after = 4};
    const train_job job = {.ranks = 1,
                           .settings = {PAIR, "name=spoiled", "train.ema=0", "eval.every=4", "checkpoint.every=4"},
                           .plan = &spoils};
    const job_report *report = job_run(&job);
    job_assert_agreed_failure(report, 1, 0, COD_ERR_NUMERIC, "the weights became NaN or infinite at step 4");
    assert_false(cod_file_exists(cod_test_at("spoiled/checkpoints/best.group-0.safetensors")));
}

#define GUARDED PAIR, TWO, "log.every=2", "eval.every=2", "checkpoint.every=2", "checkpoint.keep=9", "pair.most=0.001"

TEST_IN_FOLDER(a_guard_warns_and_training_goes_on)
{
    const train_job job = {.ranks = 2, .settings = {GUARDED}};
    const job_report *report = job_run_ok(&job);
    const char *warning = strstr(report->log, "guard far: task is ");
    assert_non_null(warning);
    cod_test_assert_contains(warning, ", expected at most 0.001, since step 4: train it");
    assert_null(strstr(warning + 1, "guard far"));
    assert_true(cod_file_exists(path_of("run", 8, "group-0")));
    assert_true(cod_file_exists(cod_test_at("run/final.safetensors")));
    void *metrics = NULL;
    size_t bytes;
    assert_ok(cod_file_read(cod_test_at("run/metrics.0.jsonl"), 1 << 20, &metrics, &bytes));
    cod_test_assert_contains(metrics, "\"guard.far\": 1");
    free(metrics);
}

TEST_IN_FOLDER(a_diverged_model_is_neither_saved_nor_exported)
{
    const train_job job = {.ranks = 2, .settings = {GUARDED, "pair.spoils=true"}};
    const train_job stops = {
        .ranks = 2, .settings = {GUARDED, "pair.spoils=true", "name=stops"}, .plan = &(listener_plan){.stop_after = 5}};
    static const char message[] = "the model has diverged and is neither saved nor exported: task is ";
    const job_report *report = job_run(&job);
    job_assert_agreed_failure(report, 2, 0, COD_ERR_NUMERIC, message);
    cod_test_assert_contains(report->ranks[0].message, "; the last good checkpoint is of step 2");
    assert_true(cod_file_exists(path_of("run", 2, "group-0")));
    for (int64_t step = 4; step <= 8; step += 2)
        assert_false(cod_file_exists(path_of("run", step, "group-0")));
    assert_false(cod_file_exists(cod_test_at("run/group.0.safetensors")));
    assert_false(cod_file_exists(cod_test_at("run/final.safetensors")));
    job_assert_agreed_failure(job_run(&stops), 2, 0, COD_ERR_NUMERIC, message);
}

/** Nor does it take other groups' models with it: final.safetensors is made of these. */
TEST_IN_FOLDER(a_diverged_group_leaves_the_others_their_models)
{
    static const char *const guarded[] = {"pair.guarded=0", "pair.guarded=1"}, *const names[] = {"name=zero",
                                                                                                 "name=one"};
    for (int g = 0; g < 2; g++) {
        char paths[4][64];
        static const char *const files[] = {"group.0.safetensors", "group.1.safetensors", "final.safetensors",
                                            "summary.json"};
        for (int i = 0; i < 4; i++)
            snprintf(paths[i], sizeof paths[i], "%s/%s", g == 0 ? "zero" : "one", files[i]);
        const train_job job = {.ranks = 3,
                               .settings = {PAIR, "cluster.groups=[{ranks: 2}, {ranks: 1}]", "log.every=2",
                                            "checkpoint.every=2", "pair.most=0.001", "pair.spoils=true", guarded[g],
                                            names[g]}};
        const job_report *report = job_run(&job);
        job_assert_agreed_failure(report, 3, g == 0 ? 0 : 2, COD_ERR_NUMERIC,
                                  "the model has diverged and is neither saved nor exported: task is ");
        cod_test_assert_contains(report->ranks[g == 0 ? 2 : 0].message, "the model of another group has diverged");
        cod_test_assert_contains(report->log, g == 0 ? "the model of group 0 has diverged" : "the model of group 1");
        assert_int_equal(cod_file_exists(cod_test_at(paths[0])), g == 1);
        assert_int_equal(cod_file_exists(cod_test_at(paths[1])), g == 0);
        void *own = NULL, *final = NULL, *summary = NULL;
        size_t own_bytes, final_bytes, summary_bytes;
        assert_ok(cod_file_read(cod_test_at(paths[1 - g]), 1 << 24, &own, &own_bytes));
        assert_ok(cod_file_read(cod_test_at(paths[2]), 1 << 24, &final, &final_bytes));
        assert_ok(cod_file_read(cod_test_at(paths[3]), 1 << 20, &summary, &summary_bytes));
        assert_int_equal(own_bytes, final_bytes);
        assert_memory_equal(own, final, own_bytes);
        cod_test_assert_contains(summary, "\"diverged\": true");
        cod_test_assert_contains(summary, g == 0 ? "\"final_is\": \"group 1\"" : "\"final_is\": \"group 0\"");
        free(own), free(final), free(summary);
    }
}

/** A stop saves nothing bad, even where no line of metrics was due. */
TEST_IN_FOLDER(a_stop_looks_at_guards_before_it_saves)
{
    const train_job job = {.ranks = 2,
                           .settings = {PAIR, TWO, "log.every=100", "pair.most=0.001", "pair.spoils=true"},
                           .plan = &(listener_plan){.stop_after = 5}};
    const job_report *report = job_run(&job);
    job_assert_agreed_failure(report, 2, 0, COD_ERR_NUMERIC, "the model has diverged and is neither saved");
    assert_null(strstr(report->log, "stopped and saved"));
}

/* Old checkpoints. */

TEST_IN_FOLDER(the_newest_complete_checkpoints_are_kept)
{
    const train_job job = {.ranks = 2,
                           .settings = {PAIR, TWO, "checkpoint.every=2", "checkpoint.keep=2", "eval.every=4"}};
    job_run_ok(&job);
    for (int64_t step = 2; step <= 8; step += 2) {
        for (size_t i = 0; i < 3; i++)
            assert_int_equal(cod_file_exists(path_of("run", step, parts_of_two[i])), step > 4);
        assert_int_equal(cod_file_exists(path_of("run", step, "closing-0")), step == 8);
    }
    assert_true(cod_file_exists(cod_test_at("run/checkpoints/best.group-0.safetensors")));
}

/** A group that is two steps ahead of the other keeps the newest step that both have saved. */
TEST_IN_FOLDER(groups_in_step_keep_what_all_can_resume_from)
{
    static const char *const parts[] = {"group-0", "group-1", "rank-0", "rank-1", "rank-2"};
    const listener_plan fails = {.fails = "save", .fail_rank = 2, .fail_step = 5};
    const train_job half = {.ranks = 3,
                            .settings = {IN_STEP, "checkpoint.every=2", "checkpoint.keep=1"},
                            .fails_alone = true,
                            .plan = &fails};
    const train_job rest = {.ranks = 3,
                            .settings = {IN_STEP, "checkpoint.every=2", "checkpoint.keep=1", "checkpoint.resume=must"}};
    assert_int_equal(job_run(&half)->ranks[2].status, COD_ERR_IO);
    const job_report *report = job_run_ok(&rest);
    cod_test_assert_contains(report->log, "group 0: resumed at step 4");
    cod_test_assert_contains(report->log, "group 1: resumed at step 4");
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        assert_true(!cod_file_exists(path_of("run", 2, parts[i])) && cod_file_exists(path_of("run", 8, parts[i])));
}

/** A rank that fails to save leaves the step incomplete and the checkpoint before in its place. */
TEST_IN_FOLDER(a_failed_save_keeps_the_checkpoint_before)
{
    const listener_plan fails = {.fails = "save", .fail_rank = 1, .fail_step = 3};
    const train_job job = {
        .ranks = 2, .settings = {PAIR, TWO, "checkpoint.every=2", "checkpoint.keep=1"}, .plan = &fails};
    const train_job rest = {.ranks = 2, .settings = {PAIR, TWO, "checkpoint.resume=must"}};
    job_assert_agreed_failure(job_run(&job), 2, 1, COD_ERR_IO,
                              "planted in save; the last good checkpoint is of step 2");
    cod_test_assert_contains(job_run_ok(&rest)->log, "resumed at step 2");
}

TEST_GROUP(job_set_up, NULL)
