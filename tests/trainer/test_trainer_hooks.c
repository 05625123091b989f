/*
 * The order in which the trainer calls a strategy, by the recipe's sets and sub-steps, and what it does with hooks
 * that fail.
 */
#include "train_job.h"

#include "support/folder.h"

#include "listener.h"

#include <stdio.h>
#include <string.h>

static void expect_notes(const job_report *report, int rank, const char *expected)
{
    if (strcmp(report->ranks[rank].notes, expected) != 0)
        fail_msg("rank %d noted:\n%s\nnot:\n%s", rank, report->ranks[rank].notes, expected);
}

#define START "create add_losses start \n"

TEST_IN_FOLDER(one_set_is_updated_each_step)
{
    const train_job job = {.ranks = 1, .settings = {"train.strategy=listener", "checkpoint.every=2"}};
#define MODEL(program)                                                                                                 \
    "choose(" program                                                                                                  \
    ") before_batch gradient_ready(model) before_update(model) after_update(model) after_step flags_out\n"
    expect_notes(job_run_ok(&job), 0,
                 START "before_step(0) " MODEL("plain") "before_step(1) " MODEL(
                     "plain") "save(2) \n"
                              "flags_in(0) before_step(2) " MODEL("plain") "flags_in(1) before_step(3) " MODEL(
                                  "plain") "save(4) \nflags_in(2) flags_in(3) finish destroy");
}

/** The strategy lets the update be queued with its gradients: a single rank does so, two average in between. */
TEST_IN_FOLDER(an_update_joins_the_gradients_of_a_single_rank)
{
#define BYSTANDER(hooks)                                                                                               \
    "choose(plain) before_batch " hooks "before_update(model) after_update(model) after_step flags_out\n"
#define BYSTANDERS(hooks)                                                                                              \
    START "before_step(0) " BYSTANDER(hooks) "before_step(1) " BYSTANDER(                                              \
        hooks) "save(2) \nflags_in(0) flags_in(1) finish destroy"
    for (int ranks = 1; ranks <= 2; ranks++) {
        const train_job job = {.ranks = ranks,
                               .settings = {"train.strategy=bystander", "train.steps=2", "checkpoint.resume=never",
                                            ranks == 1 ? "cluster.ranks_per_group=1" : "cluster.ranks_per_group=2"}};
        const job_report *report = job_run_ok(&job);
        for (int r = 0; r < ranks; r++)
            expect_notes(report, r, ranks == 1 ? BYSTANDERS("") : BYSTANDERS("gradient_ready(model) "));
    }
}

TEST_IN_FOLDER(programs_of_the_strategy_run_in_the_marked_sub_step)
{
    const listener_plan teaches = {.teaches = true};
    const train_job job = {.ranks = 2,
                           .settings = {"train.strategy=listener", "train.steps=2", "cluster.ranks_per_group=2"},
                           .plan = &teaches};
    const job_report *report = job_run_ok(&job);
    for (int r = 0; r < 2; r++)
        expect_notes(report, r,
                     START "before_step(0) " MODEL("plain") "before_step(1) " MODEL(
                         "taught") "save(2) \nflags_in(0) flags_in(1) finish destroy");
}

#define PAIR   "train.strategy=listener", "train.recipe=pair", "train.steps=3", "pair.every=2"
#define CRITIC "gradient_ready(critic) before_update(critic) after_update(critic) "
#define STEP(step, critic, batches)                                                                                    \
    "before_step(" step ") choose(model) " critic batches                                                              \
    "gradient_ready(model) before_update(model) after_update(model) after_step flags_out\n"

TEST_IN_FOLDER(sets_are_updated_one_after_the_other)
{
    const train_job job = {.ranks = 2, .settings = {PAIR, "cluster.ranks_per_group=2"}};
    const job_report *report = job_run_ok(&job);
    for (int r = 0; r < 2; r++)
        expect_notes(report, r,
                     START STEP("0", CRITIC, "before_batch ") STEP("1", "", "before_batch ") "flags_in(0) " STEP(
                         "2", CRITIC, "before_batch ") "save(3) \nflags_in(1) flags_in(2) finish destroy");
}

TEST_IN_FOLDER(gradients_come_with_the_last_mini_batch)
{
    const train_job job = {.ranks = 2,
                           .settings = {PAIR, "cluster.ranks_per_group=2", "train.accumulate=3", "train.bucket_kb=1",
                                        "model.hidden=[120]"}};
    const job_report *report = job_run_ok(&job);
    for (int r = 0; r < 2; r++)
        expect_notes(
            report, r,
            START STEP("0", CRITIC, "before_batch before_batch before_batch ")
                STEP("1", "", "before_batch before_batch before_batch ") "flags_in(0) " STEP(
                    "2", CRITIC,
                    "before_batch before_batch before_batch ") "save(3) \nflags_in(1) flags_in(2) finish destroy");
}

TEST_IN_FOLDER(two_groups_keep_to_themselves)
{
    const train_job job = {.ranks = 4,
                           .settings = {PAIR, "cluster.groups=2", "cluster.ranks_per_group=2", "eval.every=2"}};
    const job_report *report = job_run_ok(&job);
    for (int r = 0; r < 4; r++)
        expect_notes(report, r,
                     r % 2 == 0
                         ? START STEP("0", CRITIC, "before_batch ")
                               STEP("1", "", "before_batch ") "validated(2) flags_in(0) " STEP(
                                   "2", CRITIC, "before_batch ") "save(3) \nflags_in(1) flags_in(2) finish destroy"
                         : START STEP("0", CRITIC, "before_batch ") STEP("1", "", "before_batch ") "flags_in(0) " STEP(
                               "2", CRITIC, "before_batch ") "save(3) \nflags_in(1) flags_in(2) finish destroy");
}

TEST_IN_FOLDER(flags_take_as_long_as_ranks_may_be_apart)
{
    const listener_plan apart = {.agree_within = 3};
    const train_job job = {.ranks = 3,
                           .settings = {"train.strategy=listener", "train.steps=6", "cluster.ranks_per_group=3"},
                           .plan = &apart};
    const job_report *report = job_run_ok(&job);
    for (int r = 0; r < 3; r++) {
        cod_test_assert_contains(report->ranks[r].notes, "\nbefore_step(3)");
        cod_test_assert_contains(report->ranks[r].notes, "\nflags_in(0) before_step(4)");
        cod_test_assert_contains(report->ranks[r].notes, "\nflags_in(1) before_step(5)");
        cod_test_assert_contains(report->ranks[r].notes, "\nflags_in(2) flags_in(3) flags_in(4) flags_in(5) finish");
    }
}

/* Mini-batches. */

/** Hashes of the mini-batches, three a step, on which the sub-step that distils runs. */
static void note_batches(const char *distils, char hashes[1024])
{
    const listener_plan notes = {.notes_data = true};
    const train_job job = {.ranks = 1,
                           .settings = {"train.strategy=listener", "train.recipe=pair", "train.accumulate=3",
                                        "checkpoint.resume=never", distils},
                           .plan = &notes};
    const char *at = job_run_ok(&job)->ranks[0].notes;
    hashes[0] = '\0';
    while ((at = strstr(at, "before_batch(")) != NULL) {
        at += strlen("before_batch(");
        snprintf(hashes + strlen(hashes), 1024 - strlen(hashes), "%.16s ", at);
    }
}

/** The critic's round is the first and takes its mini-batches from the loader, the model's is the second. */
TEST_IN_FOLDER(each_round_sees_the_same_mini_batches)
{
    char first[1024], second[1024];
    note_batches("pair.distils=critic", first);
    note_batches("pair.distils=model", second);
    assert_string_equal(first, second);
    assert_int_equal(strlen(first), 4 * 3 * 17);
    for (size_t a = 0; a < strlen(first); a += 17)
        for (size_t b = 0; b < a; b += 17)
            assert_memory_not_equal(first + a, first + b, 16);
}

/**
 * What three mini-batches of two do to both sets, one of six does, and those of three ranks: they are the same
 * examples.
 */
TEST_IN_FOLDER(mini_batches_are_parts_of_one)
{
    const train_job jobs[] = {
        {.ranks = 1, .settings = {PAIR, "name=whole", "data.batch=6"}},
        {.ranks = 1, .settings = {PAIR, "name=parts", "train.accumulate=3"}},
        {.ranks = 3, .settings = {PAIR, "name=ranks", "cluster.ranks_per_group=3"}},
        {.ranks = 1, .settings = {PAIR, "name=other", "train.accumulate=3", "seed=2"}},
    };
    for (size_t i = 0; i < sizeof jobs / sizeof jobs[0]; i++)
        job_run_ok(&jobs[i]);
    const double parts = job_difference("whole", "parts", 3, "group-0"),
                 ranks = job_difference("whole", "ranks", 3, "group-0"),
                 other = job_difference("whole", "other", 3, "group-0");
    if (!(parts < 1e-6 && ranks < 1e-6 && other > 1e-2))
        fail_msg("they differ by %g and %g, and with another seed by %g", parts, ranks, other);
}

/* Failures. */

/** Work that each rank does by itself is agreed on: all ranks come back, and one speaks. */
TEST_IN_FOLDER(a_hook_that_fails_is_agreed_on)
{
    static const char *const hooks[] = {"create", "add_losses", "save"};
    for (size_t i = 0; i < sizeof hooks / sizeof hooks[0]; i++) {
        char part[64];
        const listener_plan fails = {.fails = hooks[i], .fail_rank = 1};
        const train_job job = {
            .ranks = 3, .settings = {PAIR, "cluster.ranks_per_group=3", "checkpoint.resume=never"}, .plan = &fails};
        snprintf(part, sizeof part, "planted in %s", hooks[i]);
        job_assert_agreed_failure(job_run(&job), 3, 1, COD_ERR_IO, part);
    }
}

/** Elsewhere the rank that fails comes back and ends the job; the others of its group wait for it in vain. */
TEST_IN_FOLDER(a_hook_that_fails_ends_the_job)
{
    static const char *const hooks[] = {"start",         "before_step",  "choose",     "before_batch", "gradient_ready",
                                        "before_update", "after_update", "after_step", "flags_in",     "finish"};
    for (size_t i = 0; i < sizeof hooks / sizeof hooks[0]; i++) {
        char part[64];
        const listener_plan fails = {.fails = hooks[i], .fail_rank = 1, .fail_step = strcmp(hooks[i], "start") != 0};
        const train_job job = {.ranks = 2,
                               .settings = {PAIR, "cluster.ranks_per_group=2", "checkpoint.resume=never"},
                               .fails_alone = true,
                               .plan = &fails};
        const job_report *report = job_run(&job);
        const rank_report *failed = &report->ranks[1], *other = &report->ranks[0];
        assert_false(report->killed);
        assert_true(failed->ended && failed->status == COD_ERR_IO && !failed->said_elsewhere);
        snprintf(part, sizeof part, "planted in %s", hooks[i]);
        cod_test_assert_contains(failed->message, part);
        if (other->ended && other->status == COD_OK)
            fail_msg("%s failed on rank 1, and rank 0 trained on to the end", hooks[i]);
    }
}

TEST_IN_FOLDER(a_program_that_is_not_there_is_refused)
{
    const listener_plan chooses = {.chooses = "tought"};
    const train_job job = {.ranks = 1, .settings = {PAIR, "checkpoint.resume=never"}, .plan = &chooses};
    job_assert_agreed_failure(job_run(&job), 1, 0, COD_ERR_ARGUMENT,
                              "strategy 'listener' chose the program 'tought', which does not exist");
}

TEST_GROUP(job_set_up, NULL)
