/* The configuration of a run as a whole: groups, ranges, what contradicts itself, and times. */
#include "support/folder.h"
#include "support/test.h"

#include "io/file.h"
#include "ref/ref.h"
#include "strategies/local_sgd.h"
#include "strategies/local_steps.h"
#include "strategies/model_parallel.h"
#include "train/config.h"
#include "train/strategy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int set_up(void **state)
{
    assert_ok(cod_backend_register(&cod_ref_backend));
    cod_recipe_register_supervised();
    cod_strategies_register_basic();
    cod_strategy_register_local_sgd();
    cod_strategy_register_model_parallel();
    return cod_test_folder_make(state);
}

/** Loads `text` as a file, with what makes it whole and one more override. */
static cod_status load(const char *text, const char *override, cod_run_config *config)
{
    const char *const overrides[] = {"train.strategy=allreduce", "train.backend=ref", "data.kind=synthetic", override};
    assert_ok(cod_file_write(cod_test_at("run.yaml"), text, strlen(text)));
    return cod_run_config_load(cod_test_at("run.yaml"), overrides, override != NULL ? 4 : 3, config);
}

/** Demands that `text` and `override` are refused in these words. */
static void refuse(const char *text, const char *override, const char *words)
{
    cod_run_config config;
    if (load(text, override, &config) == COD_OK) {
        cod_run_config_clear(&config);
        fail_msg("accepted: %s %s", text, override ? override : "");
    }
    cod_test_assert_contains(cod_error_message(), words);
}

/** Ranks of each group, as "4 2". */
static const char *groups_of(const char *text)
{
    static char out[256];
    cod_run_config config;
    int ranks = 0;
    assert_ok(load(text, NULL, &config));
    out[0] = '\0';
    for (size_t i = 0; i < config.group_count; i++) {
        snprintf(out + strlen(out), sizeof out - strlen(out), "%s%d", i ? " " : "", config.groups[i].ranks);
        ranks += config.groups[i].ranks;
    }
    assert_int_equal(cod_run_config_ranks(&config), ranks);
    cod_run_config_clear(&config);
    return out;
}

TEST(groups_are_a_number_or_a_list)
{
    assert_string_equal(groups_of("cluster: {groups: 3}"), "1 1 1");
    assert_string_equal(groups_of("cluster: {groups: 2, ranks_per_group: 4}"), "4 4");
    assert_string_equal(groups_of("cluster: {groups: [{ranks: 4}, {ranks: 2}]}"), "4 2");
    assert_string_equal(groups_of("cluster: {groups: [{ranks: 4}, {}, {ranks: 1}], ranks_per_group: 3}"), "4 3 1");
    assert_string_equal(groups_of("cluster: {groups: by_node}"), ""); /* as many as there are nodes */
}

TEST(wrong_groups_are_refused)
{
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"cluster: {groups: []}", "empty list"},
        {"cluster: {groups: 0}", "from 1 to 4096"},
        {"cluster: {groups: 4097}", "from 1 to 4096"},
        {"cluster: {groups: two}", "from 1 to 4096"},
        {"cluster: {groups: 2.5}", "from 1 to 4096"},
        {"cluster: {groups: {ranks: 2}}", "a list of {ranks, model, device}"},
        {"cluster: {groups: [2, 2]}", "a group is a mapping"},
        {"cluster: {groups: [{ranks: 0}]}", "ranks must be a whole number from 1"},
        {"cluster: {groups: [{ranks: [1]}]}", "ranks must be a whole number from 1"},
        {"cluster: {groups: [{ranks: 99999999999}]}", "ranks must be a whole number from 1"},
        {"cluster:\n  groups:\n    - {ranks: 1}\n    - {rank: 1}\n", "run.yaml:4:8: unknown key 'rank' in a group"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        refuse(cases[i].text, NULL, cases[i].words);
}

static const char *option_of(const cod_group_config *group, const char *key, cod_run_config *config)
{
    return cod_option_format(cod_option_find(group->kind->table, key), group->architecture,
                             cod_config_arena(config->config));
}

TEST(a_group_may_have_a_device_of_its_own)
{
    static const cod_strategy_kind apart = {.name = "groups"};
    cod_strategy_register(&apart);
    const char *groups =
        "train: {backend: auto, strategy: groups}\ncluster: {groups: [{device: cuda}, {}, {device: cpu}]}\n";
    const char *const overrides[] = {"data.kind=synthetic", "cluster.device=cpu"};
    cod_run_config config;
    assert_ok(cod_file_write(cod_test_at("run.yaml"), groups, strlen(groups)));
    for (size_t count = 1; count <= 2; count++) {
        char told[256] = "";
        assert_ok(cod_run_config_load(cod_test_at("run.yaml"), overrides, count, &config));
        for (int i = 0; i < 3; i++) {
            const cod_device_choice choice = cod_run_config_device(&config, i);
            snprintf(told + strlen(told), sizeof told - strlen(told), "%s by %s; ", cod_device_names[choice.device],
                     choice.setting);
            assert_string_equal(choice.backend, COD_BACKEND_AUTO);
            assert_null(choice.host_only);
        }
        assert_string_equal(told, count == 1 ? "cuda by cluster.groups.0.device; auto by cluster.device; "
                                               "cpu by cluster.groups.2.device; "
                                             : "cuda by cluster.groups.0.device; cpu by cluster.device; "
                                               "cpu by cluster.groups.2.device; ");
        assert_int_equal(cod_run_config_device(&config, -1).device, count == 1 ? COD_DEVICE_AUTO : COD_DEVICE_CPU);
        cod_run_config_clear(&config);
    }
    refuse("cluster: {groups: [{device: gpu}]}\n", NULL, "device: 'gpu' is not one of: auto, cpu, cuda");
    refuse("cluster: {groups: [{device: [cpu, cuda]}]}\n", NULL, "device must be one of: auto, cpu, cuda");
    refuse("cluster: {device: gpu}\n", NULL, "cluster.device: 'gpu' is not one of: auto, cpu, cuda");
}

/** A group's own model starts from the run's and changes what it names. */
TEST(a_group_may_have_a_model_of_its_own)
{
    cod_run_config config;
    assert_ok(
        load("model: {name: srresnet, blocks: 3, channels: 24}\n"
             "cluster: {groups: [{ranks: 1}, {model: {channels: 8}}, {model: {name: msrresnet, num_block: 2}}]}\n",
             NULL, &config));
    assert_int_equal(config.group_count, 3);
    assert_string_equal(option_of(&config.groups[0], "blocks", &config), "3");
    assert_string_equal(option_of(&config.groups[0], "channels", &config), "24");
    assert_string_equal(option_of(&config.groups[1], "blocks", &config), "3");
    assert_string_equal(option_of(&config.groups[1], "channels", &config), "8");
    assert_string_equal(config.groups[2].kind->name, "msrresnet");
    assert_string_equal(option_of(&config.groups[2], "num_block", &config), "2");
    /* Where all ranks train as one group, that group trains the run's. */
    assert_ptr_equal(cod_run_config_group(&config, 1), &config.whole);
    cod_run_config_clear(&config);
    refuse("cluster: {groups: [{}, {model: {chanels: 8}}]}\n", NULL, "did you mean 'channels'?");
    refuse("model: {scale: 4}\ncluster: {groups: [{}, {model: {scale: 2}}]}\n", NULL,
           "run.yaml:2:24: this group's model upscales by 2, the run's by 4");
    refuse("cluster: {groups: [{}, {model: {name: srresnett}}]}\n", NULL,
           "run.yaml:1:33: name: 'srresnett' is unknown");
    refuse("cluster: {groups: [{}, {model: {name: mlp}}]}\n", NULL,
           "run.yaml:1:33: cluster.groups.1.model.name: model 'mlp' is for classification, the run's 'srresnet' for "
           "super-resolution");
    refuse("model: {name: mlp, classes: 3}\ncluster: {groups: [{}, {model: {classes: 4}}]}\n", NULL,
           "run.yaml:2:24: this group's model tells 4 classes, the run's 3: groups must agree on the classes");
    refuse("cluster: {groups: [{}, {model: {init: b}}]}\n", NULL,
           "run.yaml:1:33: cluster.groups.1.model.init: 'b' is not");
    /* The number of ranks is looked at though the run's model is unknown. */
    refuse("model: {name: srresnett}\ncluster: {groups: [{ranks: 0, model: {blocks: 2}}]}\n", NULL, "ranks must be");
}

TEST(unknown_keys_and_ranges_are_refused)
{
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"train: {stepz: 5}", "run.yaml:1:9: unknown key 'stepz' in 'train'; did you mean 'steps'?"},
        {"train: {lr: 5}", "run.yaml:1:9: unknown key 'lr' in 'train'; here it is called 'train.rate'"},
        {"batch_size: 5", "run.yaml:1:1: unknown key 'batch_size'; here it is called 'data.batch'"},
        {"train: {epochs: 5}",
         "unknown key 'epochs' in 'train'; here it is called 'train.steps', which counts updates"},
        {"trian: {steps: 5}", "did you mean 'train'?"},
        {"train: {steps: 0}", "'0' is not a whole number"},
        {"train: {steps: 1e13}", "1e13"},
        {"train: {rate: -1}", "-1"},
        {"train: {rate: .nan}", ".nan"},
        {"train: {accumulate: 4097}", "4096"},
        {"train: {loss: l3}", "did you mean 'l1'?"},
        {"checkpoint: {keep: 0}", "'0'"},
        {"checkpoint: {resume: maybe}", "auto, never, must"},
        {"seed: -1", "-1"},
        {"data: {batch: 0}", "'0'"},
        {"model: {name: srresnett}", "did you mean 'srresnet'?"},
        {"model: {name: srresnet, block: 3}", "did you mean 'blocks'?"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        refuse(cases[i].text, NULL, cases[i].words);
}

TEST(contradictions_are_refused)
{
    refuse("train: {steps: 10, warmup: 10}", NULL, "leave nothing of 10 steps");
    refuse("train: {nesterov: true, momentum: 0}", NULL, "needs train.momentum above 0");
    refuse("train: {max_time: soon}", NULL, "'soon' is no time");
    refuse("model: {init: weights.onnx}", NULL,
           "is not `shared`, `own`, a .safetensors or .pth file, the folder of a run, or a model that comes along");
    refuse("", "train.strategy=allreduced", "did you mean 'allreduce'?");
    refuse("", "train.backend=gpu", "backends are: ref");
    static const char *const names[] = {"name=", "name=a/b", "name=..", "name=."};
    for (size_t i = 0; i < 4; i++)
        refuse("", names[i], "cannot be a folder's name");
    refuse("data: {synthetic_count: 4, val_count: 4}", NULL, "leaves none");
    refuse("train: {loss: cross_entropy}", NULL, "train.loss: cross_entropy is for classification");
    refuse("data: {placement: dirichlet}", NULL, "dirichlet divides classes");
    refuse("train: {prior_correction: true}", NULL,
           "train.prior_correction: shares of classes are corrected for; model 'srresnet' is for super-resolution");
    refuse("model: {name: mlp}\ntrain: {prior_correction: true, loss: mse}", NULL,
           "train.prior_correction: only the logits of cross_entropy can be corrected");
    refuse("data: {folds: 3, fold: 3}", NULL, "data.fold: 3 is not one of 3 folds, 0 to 2");
    refuse("model: {name: mlp}", "data.kind=pictures",
           "data.kind: model 'mlp' is for classification, which wants mnist, iris, folder or synthetic, not pictures");
    refuse("", "data.kind=mnist",
           "data.kind: model 'srresnet' is for super-resolution, which wants pictures or synthetic, not mnist");
}

TEST(all_problems_come_in_one_message)
{
    refuse("train: {steps: 0, stepz: 1}\neval: {evry: 3}\ncluster: {groups: [{rank: 1}]}\n", NULL, "'0' is not");
    cod_test_assert_contains(cod_error_message(), "'stepz'");
    cod_test_assert_contains(cod_error_message(), "'evry'");
    cod_test_assert_contains(cod_error_message(), "'rank'");
    /* What concerns several options is looked at although single ones are wrong, … */
    refuse("train: {stepz: 1, steps: 10, warmup: 10, max_time: soon, nesterov: true, momentum: 0}\n"
           "data: {path: [a, b], weights: [1, 2, 3], low_path: [c], val_path: [d], val_count: 3}\n"
           "model: {init: weights.onnx}\nname: a/b\n",
           "data.kind=pictures", "9 problems");
    static const char *const words[] = {"run.yaml:1:9: unknown key 'stepz'",
                                        "run.yaml:1:30: train.warmup: 10 steps",
                                        "train.max_time: 'soon'",
                                        "train.nesterov:",
                                        "run.yaml:2:22: data.weights: 3 given for 2",
                                        "data.low_path: 1 given for 2",
                                        "data.val_count: val_path already",
                                        "run.yaml:3:9: model.init: 'weights.onnx'",
                                        "run.yaml:4:1: name: 'a/b'"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        cod_test_assert_contains(cod_error_message(), words[i]);
    /* … but not held against the default of one that is wrong. */
    refuse("train: {steps: 0, warmup: 1000000}", NULL, "run.yaml:1:9: train.steps");
    assert_null(strstr(cod_error_message(), "problems"));
}

/** What training needs is looked for before anything is created, and only by who is about to train. */
TEST(absent_files_are_refused_before_training)
{
    static const char text[] = "data: {kind: pictures, path: [absent, .], val_path: [gone]}\n"
                               "model: {init: nosuch.safetensors}\n"
                               "cluster: {groups: [{model: {init: noother.safetensors}}, {ranks: 2}]}\n";
    const char *const overrides[] = {"train.strategy=allreduce", "train.backend=ref", "checkpoint.resume=must"};
    cod_run_config config;
    assert_ok(cod_file_write(cod_test_at("run.yaml"), text, strlen(text)));
    assert_ok(cod_run_config_load(cod_test_at("run.yaml"), overrides, 3, &config));
    cod_run_config_clear(&config);
    assert_fails(COD_ERR_ARGUMENT, "5 problems",
                 cod_run_config_load_to_train(cod_test_at("run.yaml"), overrides, 3, &config));
    static const char *const words[] = {"run.yaml:1:24: data.path: there is no 'absent'",
                                        "data.val_path: there is no 'gone'",
                                        "run.yaml:2:9: model.init: there is no 'nosuch.safetensors'",
                                        "run.yaml:3:29: cluster.groups.0.model.init: there is no 'noother.safetensors'",
                                        "checkpoint.resume: there is no checkpoint to resume from in 'runs/"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        cod_test_assert_contains(cod_error_message(), words[i]);
}

/** What config.yaml says loads again and says the same. */
TEST(the_resolved_configuration_loads_again)
{
    cod_run_config config;
    char *first = NULL, *second = NULL;
    assert_ok(load("cluster: {groups: [{ranks: 4}, {ranks: 2, model: {channels: 8}}]}\n"
                   "train: {milestones: [100, 200], max_time: 1h30m}\nname: 'a: b'\n",
                   NULL, &config));
    assert_true(config.max_time_s == 5400);
    assert_ok(cod_run_config_resolved(&config, true, &first));
    cod_run_config_clear(&config);
    assert_ok(load(first, NULL, &config));
    assert_int_equal(config.group_count, 2);
    assert_int_equal(config.groups[1].ranks, 2);
    assert_int_equal(config.train.milestones.count, 2);
    assert_string_equal(config.root.name, "a: b");
    assert_ok(cod_run_config_resolved(&config, true, &second));
    assert_string_equal(first, second);
    cod_run_config_clear(&config);
    free(first);
    free(second);
}

static const char *difference_in(cod_run_config_scope scope, const char *text, const char *override)
{
    static char difference[256];
    cod_run_config config;
    char *before = NULL;
    assert_ok(load("train: {steps: 20}\nname: a\n", NULL, &config));
    assert_ok(cod_run_config_resolved(&config, true, &before));
    cod_run_config_clear(&config);
    assert_ok(cod_file_write(cod_test_at("before.yaml"), before, strlen(before)));
    free(before);
    assert_ok(load(text, override, &config));
    assert_ok(cod_run_config_compare(&config, cod_test_at("before.yaml"), scope, difference));
    /* The other one's values have not stayed in the tables. */
    char *after = NULL;
    cod_run_config again;
    assert_ok(cod_run_config_resolved(&config, true, &before));
    cod_run_config_clear(&config);
    assert_ok(load(text, override, &again));
    assert_ok(cod_run_config_resolved(&again, true, &after));
    assert_string_equal(before, after);
    cod_run_config_clear(&again);
    free(before);
    free(after);
    return difference;
}

static const char *difference_of(const char *text, const char *override)
{
    return difference_in(COD_COMPARE_RESULT, text, override);
}

/**
 * A run's backend or device that was left to the machine differs from none: nor does one from before there was a device
 * to choose.
 */
TEST(what_is_left_to_the_machine_is_no_difference)
{
    static const char same[] = "train: {steps: 20}\nname: a\n";
    static const cod_backend cpu = {.version = COD_BACKEND_VERSION, .name = "cpu"};
    assert_ok(cod_backend_register(&cpu));
    assert_string_equal(difference_of(same, "train.backend=auto"), "");
    assert_string_equal(difference_of(same, "train.backend=cpu"), "train.backend: ref there, cpu here");
    assert_string_equal(difference_of(same, "cluster.device=cuda"), "");
}

TEST(jobs_of_groups_must_agree_on_less)
{
    static const char same[] = "train: {steps: 20}\nname: a\n";
    assert_string_equal(difference_in(COD_COMPARE_SHARED, same, "train.steps=40"), "");
    assert_string_equal(difference_in(COD_COMPARE_SHARED, same, "cluster.threads=3"), "");
    assert_string_equal(difference_in(COD_COMPARE_SHARED, same, "seed=7"), "seed: 1 there, 7 here");
    assert_string_equal(difference_in(COD_COMPARE_SHARED, same, "cluster.groups=[{}, {ranks: 2}]"),
                        "cluster.groups: 1 there, [{}, {ranks: 2}] here");
    assert_string_equal(difference_in(COD_COMPARE_SHARED, same, "model.init=own"),
                        "model.init: shared there, own here");
}

static cod_status allowed(const cod_run_config *run)
{
    (void)run;
    return COD_OK;
}

TEST(one_group_of_several_can_be_chosen)
{
    static const cod_strategy_kind apart = {.name = "apart", .check_apart = allowed};
    cod_strategy_register(&apart);
    cod_run_config config;
    assert_ok(load("cluster: {groups: [{ranks: 1}, {ranks: 3}]}\n", "train.strategy=apart", &config));
    assert_int_equal(cod_run_config_ranks(&config), 4);
    assert_int_equal(cod_run_config_group_of_rank(&config, 0), 0);
    assert_fails(COD_ERR_ARGUMENT, "there is no group 2", cod_run_config_choose_group(&config, 2));
    assert_fails(COD_ERR_ARGUMENT, "there is no group -1", cod_run_config_choose_group(&config, -1));
    assert_int_equal(config.only_group, -1);
    assert_ok(cod_run_config_choose_group(&config, 1));
    assert_int_equal(cod_run_config_ranks(&config), 3);
    assert_int_equal(cod_run_config_group_of_rank(&config, 0), 1);
    cod_run_config_clear(&config);
    assert_ok(load("cluster: {groups: by_node}\n", "train.strategy=apart", &config));
    assert_fails(COD_ERR_ARGUMENT, "by_node", cod_run_config_choose_group(&config, 0));
    cod_run_config_clear(&config);
    assert_ok(load("cluster: {groups: 2}\n", NULL, &config));
    assert_fails(COD_ERR_ARGUMENT, "'allreduce'", cod_run_config_choose_group(&config, 0));
    cod_run_config_clear(&config);
}

TEST(configurations_are_compared_by_what_bears_on_the_result)
{
    static const char same[] = "train: {steps: 20}\nname: a\n";
    assert_string_equal(difference_of(same, NULL), "");
    assert_string_equal(difference_of(same, "log.every=7"), "");
    assert_string_equal(difference_of(same, "checkpoint.keep=7"), "");
    assert_string_equal(difference_of(same, "train.max_time=7h"), "");
    assert_string_equal(difference_of(same, "name=b"), "");
    assert_string_equal(difference_of(same, "compare.seeds=[1, 2]"), "");
    assert_string_equal(difference_of(same, "compare.arms=[single, {name: a, strategy: allreduce}]"), "");
    assert_string_equal(difference_of(same, "compare.tune=[train.rate=1, [train.rate=2, train.warmup=1]]"), "");
    assert_string_equal(difference_of(same, "eval.predictions=true"), "");
    assert_string_equal(difference_of(same, "seed=7"), "seed: 1 there, 7 here");
    assert_string_equal(difference_of("seed: 2\ntrain: {ema: 0.9}\n", "train.steps=20"),
                        "seed: 1 there, 2 here, train.ema: 0 there, 0.9 here");
    static const char many[] = "seed: 2\ntrain: {ema: 0.9, rate: 0.5, warmup: 7, weight_decay: 0.25, clip_norm: 3}\n"
                               "data: {batch: 3, patch: 24, threads: 3, prefetch: 9}\n";
    cod_test_assert_contains(difference_of(many, "train.steps=20"), ", and more");
    assert_string_equal(difference_of(same, "train.steps=40"), "train.steps: 20 there, 40 here");
    assert_string_equal(difference_of(same, "train.milestones=[3, 5]"), "train.milestones: [] there, [3, 5] here");
    assert_string_equal(difference_of("model: {name: msrresnet}\ntrain: {steps: 20}\n", NULL),
                        "model.name: srresnet there, msrresnet here");
    assert_string_equal(difference_of("cluster: {groups: [{}, {ranks: 2}]}\ntrain: {steps: 20}\n", NULL),
                        "cluster.groups: 1 there, [{}, {ranks: 2}] here");
}

/** Steps from one meeting of a local_sgd run's groups to the next: as planned, in the section, and of a strategy. */
static void assert_period(const cod_run_config *run, int64_t period)
{
    const cod_local_sgd_options *options = cod_run_config_section(run, run->strategy->tables[0]);
    cod_strategy_plan plan;
    cod_strategy *strategy;
    run->strategy->plan(run, 100, 10, &plan);
    assert_int_equal(plan.every_steps, period);
    assert_int_equal(options->period, period);
    assert_ok(run->strategy->create(run, &strategy));
    const int64_t kept = ((const cod_local_steps *)strategy)->period;
    strategy->ops->destroy(strategy);
    assert_int_equal(kept, period);
}

TEST(runs_of_one_strategy_keep_their_options)
{
    cod_run_config often, seldom;
    char *text;
    assert_ok(load("local_sgd: {period: 10}\ncluster: {groups: 2}\n", "train.strategy=local_sgd", &often));
    assert_ok(load("local_sgd: {period: 20}\ncluster: {groups: 2}\n", "train.strategy=local_sgd", &seldom));
    assert_period(&often, 10);
    assert_period(&seldom, 20);
    assert_ok(cod_run_config_resolved(&often, false, &text));
    cod_test_assert_contains(text, "local_sgd:\n  period: 10\n");
    free(text);
    cod_run_config_clear(&seldom);
    assert_period(&often, 10);
    cod_run_config_clear(&often);
}

TEST(runs_of_several_strategies_keep_their_options)
{
    static const char pipeline[] = "model_parallel: {stages: 3}\nlocal_sgd: {period: 7}\ncluster: {groups: 6}\n";
    cod_run_config local, three, two;
    assert_ok(load("local_sgd: {period: 10}\ncluster: {groups: 2}\n", "train.strategy=local_sgd", &local));
    assert_ok(load(pipeline, "train.strategy=model_parallel", &three));
    assert_ok(load("model_parallel: {stages: 2}\ncluster: {groups: 6}\n", "train.strategy=model_parallel", &two));
    assert_period(&local, 10);
    assert_int_equal(cod_run_config_stages(&local), 1);
    assert_int_equal(cod_run_config_stages(&three), 3);
    assert_int_equal(cod_run_config_stages(&two), 2);
    /* A section that the strategy does not read is checked, but nobody gets it. */
    assert_null(cod_run_config_section(&three, local.strategy->tables[0]));
    assert_null(cod_run_config_section(&local, three.strategy->tables[0]));
    refuse("local_sgd: {period: 0}", "train.strategy=model_parallel", "local_sgd.period");
    assert_period(&local, 10);
    cod_run_config_clear(&local);
    cod_run_config_clear(&three);
    cod_run_config_clear(&two);
}

TEST(documents_name_what_is_registered)
{
    char *text;
    assert_ok(cod_run_config_document(COD_CONFIG_PLAIN, &text));
    cod_test_assert_contains(text, "train.recipe: supervised  (one of: supervised)");
    cod_test_assert_contains(text, "train.strategy: codistill  (one of: single, allreduce, local_sgd, model_parallel");
    free(text);
}

TEST(times_are_read)
{
    static const struct {
        const char *text;
        double seconds;
    } good[] = {{"", 0},         {"90", 90},         {"90s", 90},           {"10m", 600},  {"1.5h", 5400},
                {"1h30m", 5400}, {"1h30m5s", 5405},  {"2h1s", 7201},        {"90m", 5400}, {"0", 0},
                {"1:30", 90},    {"01:30:00", 5400}, {"100:00:00", 360000}, {"0.5", 0.5},  {"00:00:01.5", 1.5}};
    static const char *const bad[] = {"soon", "-5",    "-5s",   "5x", "5 s", "s",       "m5",   "1m1h",
                                      "1m1m", "1h30",  "1:60",  "1:", ":30", "1:2:3:4", "1:2h", "inf",
                                      "nan",  "1e999", "1h-5m", "+5", " 5",  "5s ",     "1:-1", "1:30s"};
    double seconds;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        seconds = -1;
        if (cod_duration_parse(good[i].text, &seconds) != COD_OK || seconds != good[i].seconds)
            fail_msg("'%s' gave %g, not %g", good[i].text, seconds, good[i].seconds);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (cod_duration_parse(bad[i], &seconds) == COD_OK)
            fail_msg("'%s' gave %g", bad[i], seconds);
        cod_test_assert_contains(cod_error_message(), bad[i]);
        assert_true(seconds == 0);
    }
}

TEST_GROUP(set_up, cod_test_folder_remove)
