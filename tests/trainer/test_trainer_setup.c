/* What the trainer refuses before the first step, by name and on all ranks. */
#include "train_job.h"

#include "support/folder.h"

#include "io/file.h"

typedef struct refusal {
    int ranks;
    const char *settings[4], *message;
} refusal;

static void expect_refusals(const refusal *refusals, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const refusal *r = &refusals[i];
        const train_job job = {.ranks = r->ranks,
                               .settings = {"train.strategy=listener", "train.recipe=pair", "cluster.ranks_per_group=2",
                                            r->settings[0], r->settings[1], r->settings[2], r->settings[3]}};
        job_assert_agreed_failure(job_run(&job), r->ranks, -1, COD_ERR_ARGUMENT, r->message);
        assert_false(cod_file_exists(cod_test_at("run/config.yaml")));
    }
}

TEST_IN_FOLDER(a_recipe_with_a_flaw_is_refused)
{
    static const refusal refusals[] = {
        {2, {"pair.flaw=twice"}, "recipe 'pair': two sub-steps are called 'critic'"},
        {2, {"pair.flaw=unnamed"}, "recipe 'pair': sub-step 1 has no name"},
        {2, {"pair.flaw=loss"}, "recipe 'pair': loss 1 of 'model' needs a name"},
        {2, {"pair.flaw=optimiser"}, "recipe 'pair': 'critic' trains 'critic', which has no optimiser"},
        {2, {"pair.flaw=set"}, "recipe 'pair': 'critic' trains 'judge', which has no optimiser"},
        {2, {"pair.flaw=across", "train.accumulate=2"}, "'model' can be given only what earlier sub-steps have left"},
        {2, {"pair.flaw=both"}, "recipe 'pair': 2 sub-steps distil; at most one can"},
        {2, {"pair.flaw=idle"}, "recipe 'pair' trains nothing"},
        {2, {"pair.flaw=aim"}, "recipe 'pair' has no task loss"},
        {2, {"pair.flaw=constant"}, "recipe 'pair': the graph has no input 'noughts'"},
    };
    expect_refusals(refusals, sizeof refusals / sizeof refusals[0]);
}

TEST_IN_FOLDER(ranks_and_strategies_that_do_not_fit_are_refused)
{
    static const refusal refusals[] = {
        {3, {"cluster.groups=1"}, "cluster asks for 1 groups with 2 ranks in all, but the job has 3"},
        {2, {"train.strategy=single"}, "strategy 'single' trains on one rank, but the job has 2"},
        {2, {"train.strategy=model_parallel"}, "strategy 'model_parallel' trains one network, but recipe 'pair' has 2"},
        {2,
         {"train.strategy=model_parallel", "pair.flaw=alone"},
         "strategy 'model_parallel' runs one program a step, but recipe 'pair' has 2"},
        {1, {"train.strategy=model_parallel", "train.recipe=supervised"}, "divides the layers over 2 ranks or more"},
        {3,
         {"train.strategy=model_parallel", "train.recipe=supervised", "model_parallel.stages=2"},
         "3 ranks are no whole number of networks of 2 stages"},
        {2, {"train.strategy=listner"}, "there is no strategy 'listner'; did you mean 'listener'?"},
        {2, {"train.recipe=pear"}, "there is no recipe 'pear'; did you mean 'pair'?"},
    };
    expect_refusals(refusals, sizeof refusals / sizeof refusals[0]);
}

TEST_GROUP(job_set_up, NULL)
