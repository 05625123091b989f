#include "support/test.h"

#include "support/folder.h"

#include "config/config.h"
#include "core/rng.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct run_options {
    const char *name;
    int64_t seed;
} run_options;

typedef struct train_options {
    int64_t steps;
    double rate;
    bool resume;
    int precision;
    cod_int_list sizes;
    cod_string_list roots;
} train_options;

typedef struct distill_options {
    int64_t burn_in;
} distill_options;

typedef struct exchange_options {
    int64_t period;
} exchange_options;

typedef struct model_options {
    const char *name;
    int64_t scale;
} model_options;

typedef struct srresnet_options {
    int64_t blocks;
} srresnet_options;

typedef struct mlp_options {
    int64_t hidden;
} mlp_options;

typedef struct cluster_options {
    int64_t groups;
} cluster_options;

static const char *const precisions[] = {"auto", "bf16", "f32", NULL};
static const cod_option run_list[] = {
    {"name", COD_OPTION_STRING, offsetof(run_options, name), "run", 0, 0, NULL, "name of the run"},
    {"seed", COD_OPTION_INT, offsetof(run_options, seed), "1", 0, 1e15, NULL, "seed"},
};
static const cod_option train_list[] = {
    {"steps", COD_OPTION_INT, offsetof(train_options, steps), "1000", 1, 1e9, NULL, "steps"},
    {"rate", COD_OPTION_FLOAT, offsetof(train_options, rate), "1e-3", 0, 1, NULL, "learning rate | per step"},
    {"resume", COD_OPTION_BOOL, offsetof(train_options, resume), "false", 0, 0, NULL, "resume"},
    {"precision", COD_OPTION_CHOICE, offsetof(train_options, precision), "auto", 0, 0, precisions, "precision"},
    {"sizes", COD_OPTION_INT_LIST, offsetof(train_options, sizes), "8, 16", 1, 64, NULL, "sizes"},
    {"roots", COD_OPTION_STRING_LIST, offsetof(train_options, roots), "", 0, 0, NULL, "roots"},
};
static const cod_option distill_list[] = {
    {"burn_in", COD_OPTION_INT, offsetof(distill_options, burn_in), "100", 0, 1e9, NULL, "steps before distillation"}};
static const cod_option exchange_list[] = {
    {"period", COD_OPTION_INT, offsetof(exchange_options, period), "50", 1, 1e6, NULL, "steps"}};
static const cod_option model_list[] = {
    {"name", COD_OPTION_STRING, offsetof(model_options, name), "srresnet", 0, 0, NULL, "model"},
    {"scale", COD_OPTION_INT, offsetof(model_options, scale), "4", 2, 4, NULL, "scale"},
};
static const cod_option srresnet_list[] = {
    {"blocks", COD_OPTION_INT, offsetof(srresnet_options, blocks), "16", 1, 64, NULL, "residual blocks"}};
static const cod_option mlp_list[] = {
    {"hidden", COD_OPTION_INT, offsetof(mlp_options, hidden), "32", 1, 4096, NULL, "hidden units"}};
static const cod_option cluster_list[] = {
    {"groups", COD_OPTION_INT, offsetof(cluster_options, groups), "1", 1, 1024, NULL, "groups"}};
static const cod_option_table run_table = {"", "The run.", run_list, 2, sizeof(run_options)};
static const cod_option_table train_table = {"train", "The step loop.", train_list, 6, sizeof(train_options)};
static const cod_option_table distill_table = {"distill", "Distillation.", distill_list, 1, sizeof(distill_options)};
static const cod_option_table exchange_table = {"distill.exchange", "", exchange_list, 1, sizeof(exchange_options)};
static const cod_option_table model_table = {"model", "The model.", model_list, 2, sizeof(model_options)};
static const cod_option_table srresnet_table = {"model", "SRResNet.", srresnet_list, 1, sizeof(srresnet_options)};
static const cod_option_table mlp_table = {"model", "A perceptron.", mlp_list, 1, sizeof(mlp_options)};
static const cod_option_table cluster_table = {"cluster", "Ranks.", cluster_list, 1, sizeof(cluster_options)};

/** All values of the sample schema. */
typedef struct sample {
    run_options run;
    train_options train;
    distill_options distill;
    exchange_options exchange;
    model_options model;
    srresnet_options srresnet;
    mlp_options mlp;
    cluster_options cluster;
    cod_config_table tables[6];
    cod_config_selector selector;
    cod_config_schema schema;
} sample;

static const char *const model_names[] = {"srresnet", "mlp", "plain", NULL};
static const char *const raw_keys[] = {"cluster.groups", "data.extra", NULL};

static const cod_option_table *select_model(void *context, const char *name, void **values)
{
    sample *s = context;
    const bool srresnet = strcmp(name, "srresnet") == 0;
    if (!srresnet && strcmp(name, "mlp") != 0)
        return NULL;
    if (values != NULL)
        *values = srresnet ? (void *)&s->srresnet : (void *)&s->mlp;
    return srresnet ? &srresnet_table : &mlp_table;
}

static void sample_init(sample *s)
{
    memset(s, 0, sizeof *s);
    const cod_config_table tables[] = {{&run_table, &s->run},         {&train_table, &s->train},
                                       {&distill_table, &s->distill}, {&exchange_table, &s->exchange},
                                       {&model_table, &s->model},     {&cluster_table, &s->cluster}};
    memcpy(s->tables, tables, sizeof tables);
    s->selector = (cod_config_selector){"model", "name", model_names, select_model, s};
    s->schema = (cod_config_schema){
        .tables = s->tables, .count = 6, .selectors = &s->selector, .selector_count = 1, .raw = raw_keys};
}

static cod_status load(sample *s, const char *text, const char *const *overrides, size_t count, cod_config **config)
{
    sample_init(s);
    *config = NULL;
    COD_TRY(cod_config_open_text("a.yaml", text, strlen(text), overrides, count, config));
    cod_status status = cod_config_apply(*config, &s->schema);
    COD_THEN(status, cod_config_check(*config));
    if (status != COD_OK) {
        cod_config_destroy(*config);
        *config = NULL;
    }
    return status;
}

TEST(values_come_from_defaults_file_and_overrides)
{
    sample s;
    cod_config *config = NULL;
    const char *overrides[] = {"train.steps=7", "train.sizes=[1, 2, 3]", "name=it's #1: good", "train.steps=9",
                               "distill.exchange.period=5"};
    assert_ok(load(&s,
                   "seed: 42\ntrain:\n  rate: 0.5\n  resume: yes\n  precision: bf16\n  roots: [a, 'b c']\n  steps: 3\n"
                   "distill:\nmodel: {name: mlp, hidden: 64}\n",
                   overrides, 5, &config));
    assert_string_equal(s.run.name, "it's #1: good");
    assert_true(s.run.seed == 42 && s.train.steps == 9 && s.train.rate == 0.5 && s.train.resume &&
                s.train.precision == 1);
    assert_true(s.train.sizes.count == 3 && s.train.sizes.items[2] == 3);
    assert_true(s.train.roots.count == 2 && strcmp(s.train.roots.items[1], "b c") == 0);
    assert_true(s.distill.burn_in == 100 && s.exchange.period == 5);
    assert_true(s.mlp.hidden == 64 && s.model.scale == 4);
    cod_config_destroy(config);
    assert_ok(load(&s, "", NULL, 0, &config));
    assert_true(s.srresnet.blocks == 16 && s.train.sizes.count == 2);
    cod_config_destroy(config);
}

TEST(each_mistake_says_where_and_what_would_be_right)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"distill:\n  burnin: 3\n", "a.yaml:2:3: unknown key 'burnin' in 'distill'; did you mean 'burn_in'?"},
        {"trian:\n  steps: 3\n", "a.yaml:1:1: unknown section 'trian'; did you mean 'train'?"},
        {"sed: 3\n", "a.yaml:1:1: unknown key 'sed'; did you mean 'seed'?"},
        {"distill:\n  steps: 3\n", "unknown key 'steps' in 'distill'; it belongs in 'train'"},
        {"distill: {seed: 3}\n", "unknown key 'seed' in 'distill'; it belongs to the top level"},
        {"distill: {completely: 3}\n", "known here: burn_in, exchange"},
        {"train:\n  steps: abc\n", "a.yaml:2:3: train.steps: 'abc' is not a whole number from 1 to 1000000000"},
        {"train:\n  steps: 0\n", "'0' is not a whole number from 1"},
        {"train:\n  steps: 1.5\n", "'1.5' is not a whole number"},
        {"train:\n  rate: nan\n", "'nan' is not a number from 0 to 1"},
        {"train:\n  precision: bf61\n", "'bf61' is not one of: auto, bf16, f32; did you mean 'bf16'?"},
        {"train:\n  resume: maybe\n", "'maybe' is not true or false"},
        {"train:\n  steps:\n", "train.steps has no value; it takes a whole number"},
        {"train:\n  steps: ~\n", "train.steps has no value"},
        {"train:\n  steps: [1, 2]\n", "train.steps: a list is not a whole number"},
        {"train:\n  steps: {a: 1}\n", "train.steps: a mapping is not a whole number"},
        {"train:\n  sizes: [1, [2]]\n", "item 2 of train.sizes is no single value"},
        {"train:\n  sizes: [1, 99]\n", "'99' is not a list of whole numbers from 1 to 64"},
        {"train: 5\n", "a.yaml:1:1: 'train' is a section"},
        {"seed: 1\nseed: 2\n", "a.yaml:2:1: 'seed' stands twice here; first in line 1"},
        {"model: {name: mlp, blocks: 3}\n",
         "a.yaml:1:20: 'blocks' is no option of model 'mlp'; it belongs to 'srresnet'"},
        {"model: {name: srresnt}\n", "a.yaml:1:9: model.name: 'srresnt' is unknown; did you mean 'srresnet'?"},
        {"model: {name: zzzzzzzzzz}\n", "is not one of: srresnet, mlp, plain"},
        {"model: {name: mlp, hiden: 3}\n", "did you mean 'hidden'?"},
        {"train:\n\tsteps: 3\n",
         "a.yaml:2:1: found character that cannot start any token; YAML is indented with spaces"},
        {"train: [1, 2\nseed: 3\n", "a.yaml:2:"},
        {"- a\n- b\n", "a.yaml:1:1: a configuration consists of lines"},
        {"seed: *none\n", "a.yaml:1:7: the alias '*none' has no anchor"},
        {"seed: !thing 3\n", "the tag '!thing' has no meaning here"},
        {"seed: 1\n---\nseed: 2\n", "a second document"},
        {"[a, b]: 1\n", "a key must be a word"},
        {"name: \"a\\0b\"\n", "a zero byte"},
        {"name: \xff\xfe\xfd\n", "no UTF-8 text"},
        {"train:\n  <<: 5\n", "merges a mapping"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sample s;
        cod_config *config = NULL;
        assert_fails(COD_ERR_ARGUMENT, cases[i].message, load(&s, cases[i].text, NULL, 0, &config));
        assert_null(config);
    }
}

TEST(overrides_are_cited)
{
    static const struct {
        const char *argument, *message;
    } cases[] = {
        {"train.steps=abc", "command line: train.steps=abc: train.steps: 'abc' is not a whole number"},
        {"train.stepz=1", "command line: train.stepz=1: unknown key 'stepz' in 'train'; did you mean 'steps'?"},
        {"trian.steps=1", "unknown section 'trian'; did you mean 'train'?"},
        {"steps", "command line: steps: an override is written as key.path=value"},
        {"=3", "an override is written as key.path=value"},
        {"a..b=3", "an empty word in the key"},
        {"seed.x=3", "there is no 'x' to set"},
        {"train.sizes=[1, 2", "command line: train.sizes=[1, 2: did not find expected"},
        {"train.steps=", "train.steps has no value"},
        {"name=\xff", "in UTF-8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sample s;
        cod_config *config = NULL;
        assert_fails(COD_ERR_ARGUMENT, cases[i].message, load(&s, "seed: 1\n", &cases[i].argument, 1, &config));
    }
}

TEST(all_problems_come_at_once_in_order)
{
    sample s;
    cod_config *config = NULL;
    const char *override = "train.rate=2";
    assert_fails(COD_ERR_ARGUMENT,
                 "a.yaml: 4 problems\n"
                 "a.yaml:1:1: unknown key 'sed'; did you mean 'seed'?\n"
                 "a.yaml:3:3: train.steps: '-1' is not a whole number from 1 to 1000000000\n"
                 "a.yaml:4:1: 'train' stands twice here; first in line 2\n"
                 "command line: train.rate=2: train.rate: '2' is not a number from 0 to 1",
                 load(&s, "sed: 1\ntrain:\n  steps: -1\ntrain: {}\n", &override, 1, &config));
    char text[2048] = "";
    for (int i = 0; i < 30; i++)
        sprintf(text + strlen(text), "wrong%d: 1\n", i);
    assert_fails(COD_ERR_ARGUMENT, "a.yaml: 30 problems\n", load(&s, text, NULL, 0, &config));
    cod_test_assert_contains(cod_error_message(), "a.yaml:20:1: ");
    cod_test_assert_contains(cod_error_message(), "\nand 10 more");
    assert_null(strstr(cod_error_message(), "a.yaml:21:1"));
}

TEST(the_caller_adds_problems_of_his_own)
{
    sample s;
    sample_init(&s);
    cod_config *config = NULL;
    const char text[] = "train:\n  steps: 10\n";
    assert_ok(cod_config_open_text("a.yaml", text, strlen(text), NULL, 0, &config));
    assert_ok(cod_config_apply(config, &s.schema));
    cod_config_problem_key(config, "distill.burn_in", "%d is more than train.steps", 100);
    cod_config_problem_key(config, "train.steps", "too few");
    assert_int_equal(cod_config_problem_count(config), 2);
    assert_fails(COD_ERR_ARGUMENT, "a.yaml:2:3: train.steps: too few", cod_config_check(config));
    cod_test_assert_contains(cod_error_message(), "a.yaml: distill.burn_in (not set, the default holds): 100 is more");
    cod_config_destroy(config);
}

TEST(anchors_aliases_and_merge_keys_work)
{
    sample s;
    cod_config *config = NULL;
    const char *override = "train.steps=8";
    assert_ok(
        load(&s,
             "data:\n  extra: {base: &base {steps: 5, rate: 0.25}}\nseed: &n 7\ntrain:\n  <<: *base\n  rate: 0.5\n"
             "distill: {burn_in: *n}\n",
             &override, 1, &config));
    assert_true(s.train.steps == 8 && s.train.rate == 0.5 && s.distill.burn_in == 7);
    assert_string_equal(cod_config_find(config, "data.extra.base.steps")->scalar, "5");
    cod_config_destroy(config);
}

TEST(hostile_files_end_soon)
{
    sample s;
    cod_config *config = NULL;
    char text[4096] = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
    for (int i = 1; i < 12; i++)
        sprintf(text + strlen(text), "a%d: &a%d [*a%d, *a%d, *a%d, *a%d, *a%d, *a%d, *a%d, *a%d]\n", i, i, i - 1, i - 1,
                i - 1, i - 1, i - 1, i - 1, i - 1, i - 1);
    assert_fails(COD_ERR_ARGUMENT, "more than 65536 values, aliases expanded", load(&s, text, NULL, 0, &config));
    assert_fails(COD_ERR_ARGUMENT, "no anchor", load(&s, "a: &a [*a]\n", NULL, 0, &config));
    char *deep = malloc(COD_CONFIG_BYTES_MAX + 2);
    memset(deep, '[', 100000);
    deep[100000] = '\0';
    assert_fails(COD_ERR_ARGUMENT, "more than 32 levels", load(&s, deep, NULL, 0, &config));
    memset(deep, '#', COD_CONFIG_BYTES_MAX + 1);
    deep[COD_CONFIG_BYTES_MAX + 1] = '\0';
    assert_fails(COD_ERR_ARGUMENT, "more than 1048576 bytes", load(&s, deep, NULL, 0, &config));
    char *at = deep;
    for (int i = 0; i < 5000; i++)
        at += sprintf(at, "k%d: 1\n", i);
    assert_fails(COD_ERR_ARGUMENT, "more than 4096 keys", load(&s, deep, NULL, 0, &config));
    free(deep);
}

TEST(groups_are_read_raw_and_vary_the_base)
{
    sample s;
    cod_config *config = NULL;
    const char *override = "cluster.groups.0.ranks=3";
    assert_ok(load(&s,
                   "model: {name: srresnet, blocks: 5, scale: 2}\ncluster:\n  groups:\n  - {ranks: 4}\n"
                   "  - {ranks: 2, model: {blocks: 9}}\n  - model: {name: mlp}\n",
                   &override, 1, &config));
    assert_int_equal(s.cluster.groups, 1);
    const cod_config_node *groups = cod_config_find(config, "cluster.groups");
    assert_non_null(groups);
    assert_true(groups->kind == COD_CONFIG_LIST && groups->count == 3 && groups->line == 3);
    assert_string_equal(cod_config_find(config, "cluster.groups.0.ranks")->scalar, "3");
    const char *ranks_key[] = {"ranks", NULL};
    for (const cod_config_node *group = groups->first; group != NULL; group = group->next) {
        sample own = s;
        own.tables[0] = (cod_config_table){&model_table, &own.model};
        own.selector.context = &own;
        own.schema = (cod_config_schema){
            .tables = own.tables, .count = 1, .selectors = &own.selector, .selector_count = 1, .raw = ranks_key};
        assert_ok(cod_config_apply_node(config, group, &own.schema));
        if (group == groups->first)
            assert_true(own.srresnet.blocks == 5 && own.model.scale == 2);
        else if (group->next != NULL)
            assert_true(own.srresnet.blocks == 9 && own.model.scale == 2);
        else
            assert_true(own.mlp.hidden == 32 && strcmp(own.model.name, "mlp") == 0 && own.model.scale == 2);
    }
    assert_ok(cod_config_check(config));
    cod_config_destroy(config);
    assert_ok(load(&s, "cluster: {groups: 6}\n", NULL, 0, &config));
    assert_true(s.cluster.groups == 6);
    cod_config_destroy(config);
}

TEST(resolved_text_loads_to_equal_values)
{
    sample s, again;
    cod_config *config = NULL, *second = NULL;
    const char *overrides[] = {"name=null # \"x\"\\", "train.rate=0.1",
                               "train.roots=[\"null\", '~', \"a\\tb\\x7f\", '#']"};
    assert_ok(load(&s,
                   "model: {name: mlp, hidden: 3}\ncluster: {groups: [{ranks: 1, x: [~, -1]}, {ranks: 2}]}\n"
                   "data: {extra: {a: [1, {b: 'c d'}]}}\n",
                   overrides, 3, &config));
    for (int comments = 0; comments < 2; comments++) {
        char *text = NULL, *text_again = NULL;
        assert_ok(cod_config_resolved(config, &s.schema, comments != 0, &text));
        assert_ok(load(&again, text, NULL, 0, &second));
        assert_string_equal(again.run.name, s.run.name);
        assert_true(again.train.rate == s.train.rate && again.mlp.hidden == 3 && again.train.roots.count == 4);
        for (size_t i = 0; i < 4; i++)
            assert_string_equal(again.train.roots.items[i], s.train.roots.items[i]);
        assert_ok(cod_config_resolved(second, &again.schema, comments != 0, &text_again));
        assert_string_equal(text, text_again);
        cod_test_assert_contains(text, "  groups: [{ranks: 1, x: [null, \"-1\"]}, {ranks: 2}]");
        cod_test_assert_contains(text, "  exchange:\n    period: 50");
        cod_test_assert_contains(text, "data:\n  extra: {a: [1, {b: \"c d\"}]}\n");
        free(text);
        free(text_again);
        cod_config_destroy(second);
    }
    cod_config_destroy(config);
}

TEST(the_text_null_survives)
{
    sample s, again;
    cod_config *config = NULL, *second = NULL;
    char *text = NULL;
    assert_ok(load(&s, "name: 'null'\n", NULL, 0, &config));
    assert_string_equal(s.run.name, "null");
    assert_ok(cod_config_resolved(config, &s.schema, false, &text));
    assert_ok(load(&again, text, NULL, 0, &second));
    assert_string_equal(again.run.name, "null");
    free(text);
    cod_config_destroy(config);
    cod_config_destroy(second);
    assert_ok(load(&s, "name:\n", NULL, 0, &config));
    assert_string_equal(s.run.name, "");
    cod_config_destroy(config);
}

TEST(documents_name_every_option)
{
    sample s;
    sample_init(&s);
    static const char *const verbs[] = {"run", "walk", NULL};
    const cod_config_names names[] = {{"", "name", verbs}};
    s.schema.names = names;
    s.schema.name_count = 1;
    char *text = NULL;
    assert_ok(cod_config_document(&s.schema, COD_CONFIG_MARKDOWN, &text));
    cod_test_assert_contains(text, "| `name` | `run` | one of: run, walk | name of the run |");
    cod_test_assert_contains(text, "| `name` | `srresnet` | one of: srresnet, mlp, plain | model |");
    cod_test_assert_contains(text, "## `train`\n\nThe step loop.\n\n| key | default | takes | meaning |");
    cod_test_assert_contains(text, "| `rate` | `0.001` | a number from 0 to 1 | learning rate \\| per step |");
    cod_test_assert_contains(text, "### `model` with `name: mlp`");
    cod_test_assert_contains(text, "| `precision` | `auto` | one of: auto, bf16, f32 | precision |");
    cod_test_assert_contains(text, "- [`train`](#train): The step loop.\n");
    cod_test_assert_contains(text, "\n  [mlp](#model-with-name-mlp)");
    cod_test_assert_contains(text, "- [`distill.exchange`](#distillexchange)");
    free(text);
    assert_ok(cod_config_document(&s.schema, COD_CONFIG_PLAIN, &text));
    cod_test_assert_contains(text, "  distill.exchange.period: 50  (a whole number from 1 to 1000000)\n      steps\n");
    free(text);
    assert_ok(cod_config_document(&s.schema, COD_CONFIG_WORDS, &text));
    cod_test_assert_contains(text, "name\t-\trun walk\tname of the run\n");
    cod_test_assert_contains(text, "distill.exchange.period\t-\t\tsteps\n");
    free(text);
}

TEST(files_are_read_and_missing_ones_named)
{
    sample s;
    sample_init(&s);
    cod_config *config = NULL;
    assert_fails(COD_ERR_IO, "cannot open '/nowhere/x.yaml': No such file",
                 cod_config_open("/nowhere/x.yaml", NULL, 0, &config));
    assert_fails(COD_ERR_IO, "cannot read '/tmp': Is a directory", cod_config_open("/tmp", NULL, 0, &config));
    char path[] = "/tmp/cod_config_XXXXXX";
    const int file = mkstemp(path);
    assert_true(file >= 0 && write(file, "seed: 5\n", 8) == 8);
    close(file);
    assert_ok(cod_config_open(path, NULL, 0, &config));
    assert_ok(cod_config_apply(config, &s.schema));
    assert_int_equal(s.run.seed, 5);
    cod_config_destroy(config);
    unlink(path);
    assert_fails(COD_ERR_ARGUMENT, "more than 1048576 bytes", cod_config_open("/dev/zero", NULL, 0, &config));
    assert_ok(cod_config_open(NULL, NULL, 0, &config));
    cod_config_destroy(config);
}

static void write_file(const char *name, const char *text)
{
    FILE *file = fopen(cod_test_at(name), "w");
    assert_true(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
}

/** Sections are joined, other values replaced; a base has a base of its own, relative to its own folder. */
TEST_IN_FOLDER(a_base_gives_what_a_file_does_not_set)
{
    sample s;
    cod_config *config = NULL;
    const char *overrides[] = {"train.steps=9"};
    assert_int_equal(mkdir(cod_test_at("more"), 0755), 0);
    write_file("own.yaml", "base: more/middle.yaml\nseed: 3\ntrain: {sizes: [4], rate: 0.5}\ndistill:\n");
    write_file("more/middle.yaml", "train: {sizes: [1, 2], steps: 5}\nbase: ../first.yaml\nmodel: {name: mlp}\n");
    write_file("first.yaml",
               "seed: 1\nname: first\ntrain: {resume: yes}\ndistill: {burn_in: 7}\nmodel: {hidden: 16}\n");
    sample_init(&s);
    assert_ok(cod_config_open(cod_test_at("own.yaml"), overrides, 1, &config));
    assert_ok(cod_config_apply(config, &s.schema));
    assert_ok(cod_config_check(config));
    assert_true(s.run.seed == 3 && strcmp(s.run.name, "first") == 0);
    assert_true(s.train.sizes.count == 1 && s.train.sizes.items[0] == 4);
    assert_true(s.train.rate == 0.5 && s.train.steps == 9 && s.train.resume);
    assert_true(s.distill.burn_in == 7 && s.mlp.hidden == 16);
    cod_config_destroy(config);
}

/** Problems say in which of the files they are; what is no base is refused where it is named. */
TEST_IN_FOLDER(problems_of_a_base_are_told_by_its_name)
{
    static const struct {
        const char *base, *own, *message;
    } cases[] = {
        {"seed: 1", "base: gone.yaml", "own.yaml:1:1: base: cannot open '"},
        {"seed: 1", "base: own.yaml", "own.yaml:1:1: a chain of more than 8 files; is one of them its own base?"},
        {"seed: 1", "base: [base.yaml]", "own.yaml:1:1: base must be the path of one configuration"},
        {"seed: 1", "base:", "own.yaml:1:1: base must be the path of one configuration"},
        {"- 1", "base: base.yaml", "base.yaml:1:1: a configuration consists of lines"},
        {"seed: {", "base: base.yaml", "base.yaml:2:1: "},
        {"\ntrain: {steps: x}", "base: base.yaml", "base.yaml:2:9: train.steps"},
        {"train: {base: 1}", "base: base.yaml", "base.yaml:1:9: unknown key 'base' in 'train'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sample s;
        cod_config *config = NULL;
        sample_init(&s);
        write_file("base.yaml", cases[i].base);
        write_file("own.yaml", cases[i].own);
        cod_status status = cod_config_open(cod_test_at("own.yaml"), NULL, 0, &config);
        COD_THEN(status, cod_config_apply(config, &s.schema));
        COD_THEN(status, cod_config_check(config));
        assert_true(status != COD_OK);
        cod_test_assert_contains(cod_error_message(), cases[i].message);
        cod_config_destroy(config);
    }
}

/** Whatever the bytes, loading ends, with values or a message; the sanitizers watch. */
TEST(mangled_files_are_survived)
{
    static const char seed_text[] =
        "seed: &n 7\nname: \"a b\"\ntrain:\n  <<: {steps: 5}\n  sizes: [1, 2]\n  roots:\n  - a\n  - 'b'\n"
        "model: {name: mlp, hidden: 3}\ncluster:\n  groups:\n  - {ranks: *n}\n";
    static const char alphabet[] = ":-[]{}&*!|>'\"%@`#, \n\tab0~<\xC3\xA9\xFF";
    cod_rng rng = cod_rng_open(11, 0, 0, 0, COD_RNG_TEST, 0);
    for (int round = 0; round < 3000; round++) {
        char text[sizeof seed_text];
        memcpy(text, seed_text, sizeof text);
        const uint32_t changes = 1 + cod_rng_below(&rng, 4);
        for (uint32_t i = 0; i < changes; i++)
            text[cod_rng_below(&rng, sizeof text - 1)] = alphabet[cod_rng_below(&rng, sizeof alphabet - 1)];
        const size_t bytes = round % 3 == 0 ? cod_rng_below(&rng, sizeof text) : sizeof text - 1;
        text[bytes] = '\0';
        const char *override = text + cod_rng_below(&rng, (uint32_t)bytes + 1);
        sample s;
        cod_config *config = NULL;
        const cod_status status = load(&s, text, &override, 1, &config);
        assert_true(status == COD_OK || status == COD_ERR_ARGUMENT);
        cod_config_destroy(config);
    }
}
