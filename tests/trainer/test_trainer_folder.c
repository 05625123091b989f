/* The run's folder: whose it is, and what others did to it. */
#include "train_job.h"

#include "support/folder.h"

#include "io/file.h"
#include "listener.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PAIR "train.strategy=listener", "train.recipe=pair", "train.accumulate=2", "pair.every=2", "train.steps=8"

static bool has(const char *name)
{
    return cod_file_exists(cod_test_at(name));
}

/** As one who removes the folder's files and starts the same run again. */
static void replace_lock(int64_t step)
{
    if (step != 3)
        return;
    unlink(cod_test_at("run/.lock"));
    if (cod_file_write(cod_test_at("run/.lock"), "another job", 11) != COD_OK)
        abort();
}

static void remove_lock(int64_t step)
{
    if (step == 3)
        unlink(cod_test_at("run/.lock"));
}

/** The next checkpoint ends the job. */
TEST_IN_FOLDER(a_job_whose_folder_is_anothers_saves_nothing)
{
    static const struct {
        void (*meanwhile)(int64_t step);
        const char *message;
    } cases[] = {{replace_lock, "run/.lock' was replaced while this job ran"},
                 {remove_lock, "run/.lock' was removed while this job ran"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const listener_plan plan = {.meanwhile = cases[i].meanwhile};
        const train_job job = {
            .ranks = 2,
            .settings = {PAIR, "cluster.ranks_per_group=2", "checkpoint.every=2", "checkpoint.resume=never"},
            .plan = &plan};
        const job_report *report = job_run(&job);
        job_assert_agreed_failure(report, 2, 0, COD_ERR_IO, cases[i].message);
        cod_test_assert_contains(report->ranks[0].message, "nothing more is saved, and the job ends");
        assert_true(has("run/checkpoints/step-000000002/group-0.safetensors"));
        assert_false(has("run/checkpoints/step-000000004") || has("run/checkpoints/step-000000008"));
        assert_false(has("run/final.safetensors") || has("run/summary.json") || has("run/group.0.safetensors"));
    }
}

/** Leaders of other groups, on which the lock is not, see it too. */
TEST_IN_FOLDER(each_group_sees_whose_the_folder_is)
{
    const listener_plan plan = {.meanwhile = replace_lock, .meanwhile_rank = 1};
    const train_job job = {.ranks = 2,
                           .fails_alone = true,
                           .settings = {PAIR, "cluster.groups=[{ranks: 1}, {ranks: 1}]", "checkpoint.every=2"},
                           .plan = &plan};
    const job_report *report = job_run(&job);
    assert_true(report->ranks[1].ended && report->ranks[1].status == COD_ERR_IO);
    cod_test_assert_contains(report->ranks[1].message, "run/.lock' was replaced while this job ran");
    assert_true(has("run/checkpoints/step-000000002/group-1.safetensors"));
    assert_false(has("run/checkpoints/step-000000004/group-1.safetensors"));
    assert_false(has("run/group.1.safetensors"));
}

#define SAVES PAIR, "checkpoint.every=2", "checkpoint.keep=2"

static void overwrite(const char *name, const char *text)
{
    assert_ok(cod_file_write(cod_test_at(name), text, strlen(text)));
}

/** Where none of the checkpoints can be used the run does not begin anew on its own, over what may be saved yet. */
TEST_IN_FOLDER(damaged_checkpoints_are_not_overwritten)
{
    const train_job first = {.ranks = 1, .settings = {SAVES, "train.steps=6"}};
    const train_job rest = {.ranks = 1, .settings = {SAVES}};
    const train_job anew = {.ranks = 1, .settings = {SAVES, "checkpoint.resume=never"}};
    job_run_ok(&first);
    overwrite("run/checkpoints/step-000000006/group-0.safetensors", "damaged");
    overwrite("run/checkpoints/step-000000004/group-0.safetensors", "damaged");
    job_assert_agreed_failure(job_run(&rest), 1, 0, COD_ERR_FORMAT, "can be used (2 damaged): put a copy of one back");
    assert_true(has("run/checkpoints/step-000000006/group-0.safetensors"));
    job_run_ok(&anew);
    assert_true(has("run/checkpoints/step-000000008/group-0.safetensors"));
}

TEST_IN_FOLDER(a_file_in_the_newest_checkpoints_place_is_passed_over)
{
    const train_job first = {.ranks = 1, .settings = {SAVES, "train.steps=6"}};
    const train_job rest = {.ranks = 1, .settings = {SAVES}};
    job_run_ok(&first);
    assert_int_equal(rename(cod_test_at("run/checkpoints/step-000000006"), cod_test_at("away")), 0);
    overwrite("run/checkpoints/step-000000006", "");
    const job_report *report = job_run_ok(&rest);
    cod_test_assert_contains(report->log, "step-000000006/group-0.safetensors': Not a directory; looking for an older");
    cod_test_assert_contains(report->log, "resumed at step 4");
    assert_true(has("run/checkpoints/step-000000006/group-0.safetensors"));
}

/** As a full disk or a power cut leaves them. */
TEST_IN_FOLDER(empty_files_are_not_believed)
{
    const train_job job = {.ranks = 1, .settings = {SAVES}};
    const train_job anew = {.ranks = 1, .settings = {SAVES, "checkpoint.resume=never"}};
    job_run_ok(&job);
    overwrite("run/summary.json", "");
    cod_test_assert_contains(job_run_ok(&job)->log, "summary.json' is empty or damaged: it is made again");
    assert_true(cod_file_bytes(cod_test_at("run/summary.json")) > 100);
    cod_test_assert_contains(job_run_ok(&job)->log, "nothing is left to do");
    overwrite("run/config.yaml", "\n");
    job_assert_agreed_failure(job_run(&job), 1, 0, COD_ERR_FORMAT, "config.yaml' is empty: put a copy back");
    job_run_ok(&anew);
}

TEST_GROUP(job_set_up, NULL)
