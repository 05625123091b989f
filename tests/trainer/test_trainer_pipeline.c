/* Layers divided over ranks train as one rank does that holds them all. */
#include "train_job.h"

#include "support/folder.h"

#include <stdio.h>

#define MODEL   "model.hidden=[6,5,4]", "train.steps=6", "train.ema=0.9"
#define DIVIDED "train.strategy=model_parallel"

/** Moments, moving average and weights: all that the group's part of the last checkpoint holds. */
static void expect_equal(const char *run, const char *other, double tolerance)
{
    const double difference = job_difference(run, other, 6, "group-0");
    if (!(difference <= tolerance))
        fail_msg("'%s' and '%s' differ by %g", run, other, difference);
}

TEST_IN_FOLDER(stages_train_to_the_bits_of_one_rank)
{
    static const char *const batches[] = {"train.accumulate=1", "train.accumulate=2", "train.accumulate=5"};
    for (size_t i = 0; i < sizeof batches / sizeof batches[0]; i++) {
        const train_job one = {
            .ranks = 1,
            .settings = {MODEL, batches[i], "train.strategy=single", "name=one", "checkpoint.resume=never"}};
        job_run_ok(&one);
        for (int ranks = 2; ranks <= 3; ranks++) {
            char size[40];
            const train_job job = {.ranks = ranks,
                                   .settings = {MODEL, batches[i], DIVIDED, size, "checkpoint.resume=never"}};
            snprintf(size, sizeof size, "cluster.ranks_per_group=%d", ranks);
            job_run_ok(&job);
            expect_equal("one", "run", 0);
        }
    }
}

/**
 * Two networks of two stages are data-parallel training of two. A clipped gradient's norm is summed in another order.
 */
TEST_IN_FOLDER(networks_side_by_side_average_their_gradients)
{
    static const char *const clips[] = {"train.clip_norm=0", "train.clip_norm=0.05"};
    static const double tolerances[] = {0, 1e-5};
#define AVERAGED MODEL, "train.accumulate=3", "checkpoint.resume=never", "train.bucket_kb=1"
    const train_job free_of = {.ranks = 2, .settings = {AVERAGED, "train.strategy=allreduce", "name=free"}};
    job_run_ok(&free_of);
    for (size_t i = 0; i < 2; i++) {
        const train_job one = {.ranks = 2, .settings = {AVERAGED, clips[i], "train.strategy=allreduce", "name=one"}};
        const train_job job = {
            .ranks = 4,
            .settings = {AVERAGED, clips[i], DIVIDED, "model_parallel.stages=2", "cluster.ranks_per_group=4"}};
        job_run_ok(&one);
        job_run_ok(&job);
        expect_equal("one", "run", tolerances[i]);
    }
    assert_true(job_difference("one", "free", 6, "group-0") > 1e-3); /* clipping shows */
}

/** The whole network is in the checkpoint: it goes on with other stages. */
TEST_IN_FOLDER(another_number_of_stages_goes_on)
{
    const train_job one = {.ranks = 1, .settings = {MODEL, "train.accumulate=2", "train.strategy=single", "name=one"}};
    const train_job half = {.ranks = 3,
                            .settings = {MODEL, "train.accumulate=2", DIVIDED, "cluster.ranks_per_group=3",
                                         "train.schedule=constant", "train.steps=3"}};
    const train_job rest = {.ranks = 2,
                            .settings = {MODEL, "train.accumulate=2", DIVIDED, "cluster.ranks_per_group=2",
                                         "train.schedule=constant", "checkpoint.resume=must"}};
    const train_job constant = {
        .ranks = 1,
        .settings = {MODEL, "train.accumulate=2", "train.strategy=single", "name=constant", "train.schedule=constant"}};
    job_run_ok(&one);
    job_run_ok(&constant);
    job_run_ok(&half);
    cod_test_assert_contains(job_run_ok(&rest)->log, "resumed at step 3");
    expect_equal("constant", "run", 0);
    assert_true(job_difference("constant", "one", 6, "group-0") > 1e-6);
}

TEST_GROUP(job_set_up, NULL)
