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

TEST_GROUP(job_set_up, NULL)
