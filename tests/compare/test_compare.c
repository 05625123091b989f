/* Which runs a comparison asks its program for, what it says of them, and how it goes on after one that failed. */
#include "support/folder.h"
#include "support/test.h"

#include "compare/compare.h"
#include "io/file.h"
#include "ref/ref.h"
#include "train/predictions.h"
#include "train/recipe.h"
#include "train/strategy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

static const char config[] =
    "name: c\n"
    "cluster: {groups: 2}\n"
    "model: {name: mlp, hidden: [4]}\n"
    "data: {kind: synthetic, synthetic_count: 60, synthetic_shape: [2, 3, 4], synthetic_classes: 3, batch: 4}\n"
    "train: {strategy: single, steps: 10, backend: ref}\n"
    "compare: {arms: [single, allreduce], seeds: [1, 2]}\n";

/** The same for more steps. */
static const char longer[] =
    "name: c\n"
    "cluster: {groups: 2}\n"
    "model: {name: mlp, hidden: [4]}\n"
    "data: {kind: synthetic, synthetic_count: 60, synthetic_shape: [2, 3, 4], synthetic_classes: 3, batch: 4}\n"
    "train: {strategy: single, steps: 20, backend: ref}\n"
    "compare: {arms: [single, allreduce], seeds: [1, 2]}\n";

/** A program that trains nothing: it notes what it is asked for and leaves a summary. */
typedef struct program {
    char said[2048], runs[512];
    const char *budget;            /**< an override of the configuration; NULL = none */
    const char *fails;             /**< part of the names of runs that fail; NULL = none */
    const char *stops;             /**< part of the names of runs that save and stop before their end; NULL = none */
    int begun, most;               /**< runs; after so many somebody asks to stop */
    char folder[COD_COMPARE_PATH]; /**< of what was written of the comparison */
    int groups;                    /**< that a run says it had; 0 = one, and nothing but a summary is left */
    long steps;                    /**< that the last run was asked for */
    const char *seeds;             /**< of the command line; NULL = the configuration's */
    double trained_s;              /**< that a run says its group trained; 0 = 4 */
} program;

static void say(void *context, const char *line)
{
    program *p = context;
    const size_t used = strlen(p->said);
    snprintf(p->said + used, sizeof p->said - used, "%s\n", line);
}

static bool is_asked(void *context)
{
    const program *p = context;
    return p->begun >= p->most;
}

/** The value of an override, the last of which counts. */
static const char *value_of(const char *const *args, const char *key)
{
    const char *value = "";
    for (; *args != NULL; args++)
        value = strncmp(*args, key, strlen(key)) == 0 ? *args + strlen(key) : value;
    return value;
}

static int run(void *context, const char *const *args, bool in_laboratory, char message[COD_COMPARE_MESSAGE])
{
    static const char line[] = "{\"step\": 10, \"trained_s\": 2}\n";
    program *p = context;
    const char *name = value_of(args, "name=");
    const size_t used = strlen(p->runs);
    char path[1024];
    assert_false(in_laboratory);
    assert_string_equal(args[1], "train");
    p->begun++;
    p->steps = atol(value_of(args, "train.steps="));
    snprintf(p->runs + used, sizeof p->runs - used, "%s by %s, ", name, value_of(args, "train.strategy="));
    if (p->fails != NULL && strstr(name, p->fails) != NULL) {
        snprintf(message, COD_COMPARE_MESSAGE, "no reason at all\033[31m");
        return 1 << 8; /* as waitpid() tells of exit code 1 */
    }
    if (p->stops != NULL && strstr(name, p->stops) != NULL)
        return EX_TEMPFAIL << 8;
    snprintf(path, sizeof path, "%s/%s", value_of(args, "output="), name);
    assert_ok(cod_folder_create(path));
    snprintf(path, sizeof path, "%s/%s/summary.json", value_of(args, "output="), name);
    char summary[256];
    snprintf(summary, sizeof summary, "{\"steps\": 10, \"group_results\": [{\"accuracy\": 50, \"trained_s\": %g}",
             p->trained_s > 0 ? p->trained_s : 4);
    for (int g = 1; g < p->groups; g++)
        strcat(summary, ", {\"accuracy\": 50, \"trained_s\": 4}");
    strcat(summary, "]}");
    assert_ok(cod_file_write(path, summary, strlen(summary)));
    for (int g = 0; g < p->groups; g++) {
        snprintf(path, sizeof path, "%s/%s/metrics.%d.jsonl", value_of(args, "output="), name, g);
        assert_ok(cod_file_write(path, line, sizeof line - 1));
    }
    return 0;
}

/** Compares in a folder of its own. @param[out] tables  new; free() */
static cod_status compare(const char *folder, program *p, char **tables)
{
    char output[1024];
    size_t bytes;
    snprintf(output, sizeof output, "output=%s", cod_test_at(folder));
    const char *const overrides[] = {output, p->budget};
    const cod_compare_arguments arguments = {.path = cod_test_at("c.yaml"),
                                             .overrides = overrides,
                                             .count = p->budget != NULL ? 2 : 1,
                                             .strategies = "",
                                             .seeds = p->seeds != NULL ? p->seeds : ""};
    const cod_compare_host host = {.context = p, .version = "test", .say = say, .is_asked = is_asked, .run = run};
    cod_comparison *c;
    *tables = NULL;
    COD_TRY(cod_comparison_create(&arguments, &host, &c));
    cod_status status = cod_comparison_train(c);
    FILE *out = open_memstream(tables, &bytes);
    if (status == COD_OK)
        cod_comparison_print(c, out);
    fclose(out);
    if (p->groups > 0)
        COD_THEN(status, cod_comparison_write(c, p->folder));
    COD_THEN(status, cod_comparison_check(c));
    cod_comparison_destroy(c);
    return status;
}

static int set_up(void **state)
{
    assert_ok(cod_backend_register(&cod_ref_backend));
    cod_recipe_register_supervised();
    cod_strategies_register_basic();
    const int made = cod_test_folder_make(state);
    assert_ok(cod_file_write(cod_test_at("c.yaml"), config, strlen(config)));
    return made;
}

TEST(a_run_for_each_seed_and_arm)
{
    program p = {.most = 100};
    char *tables;
    assert_ok(compare("first", &p, &tables));
    assert_string_equal(p.runs, "c-single-seed1 by single, c-allreduce-seed1 by allreduce, "
                                "c-single-seed2 by single, c-allreduce-seed2 by allreduce, ");
    cod_test_assert_contains(p.said, "== c-allreduce-seed2 (4 of 4), about ");
    cod_test_assert_contains(tables, "\nc-single-seed1 ");
    cod_test_assert_contains(tables, "\nallreduce                none          2           50.000");
    cod_test_assert_contains(tables, " groups' accuracy "); /* another figure than the final model's */
    cod_test_assert_contains(tables, " final accuracy ");
    free(tables);

    program again = {.most = 100};
    assert_ok(compare("first", &again, &tables));
    assert_string_equal(again.runs, "");
    cod_test_assert_contains(again.said, "== c-single-seed1 (1 of 4): done before\n");
    free(tables);
}

TEST(others_go_on_after_one_that_failed)
{
    program p = {.most = 100, .fails = "single-seed1"};
    char *tables;
    assert_fails(COD_ERR_PEER, "1 of 4 runs failed, the first 'c-single-seed1': no reason at all",
                 compare("failing", &p, &tables));
    assert_int_equal(p.begun, 4);
    cod_test_assert_contains(p.said, "== c-single-seed1 failed: no reason at all\\x1B[31m\n"); /* no terminal obeys */
    cod_test_assert_contains(tables, " failed: no reason at all\\x1B[31m\n");
    free(tables);
}

/** The first arm trains for 4 s; the other one's pilot takes 2 s for 10 steps. */
TEST(an_equal_time_is_measured_by_a_pilot)
{
    program p = {.most = 3, .groups = 1, .budget = "compare.budget=time"};
    char *tables;
    assert_fails(COD_ERR_INTERRUPTED, "stopped at step 0 of ", compare("timed", &p, &tables));
    assert_string_equal(p.runs, "c-single-seed1 by single, c-allreduce-pilot by allreduce, "
                                "c-allreduce-seed1 by allreduce, ");
    assert_int_equal(p.steps, 20);
    free(tables);
}

/** Another seed's training of the first arm takes a little longer or shorter; nobody asked for that. */
TEST(a_measured_budget_may_differ_a_little)
{
    program p = {.most = 100, .groups = 1, .budget = "compare.budget=time", .seeds = "1"};
    program again = {.most = 100, .groups = 1, .budget = "compare.budget=time", .seeds = "2", .trained_s = 4.2};
    program other = {.most = 100, .groups = 1, .budget = "compare.budget=time", .seeds = "3"};
    program steps = {.most = 100, .groups = 1, .seeds = "4"};
    char *tables;
    assert_ok(compare("measured", &p, &tables));
    free(tables);
    assert_ok(compare("measured", &again, &tables));
    free(tables);
    cod_test_assert_contains(again.said, "2 runs of an earlier comparison stay in ");
    assert_ok(cod_file_write(cod_test_at("c.yaml"), longer, strlen(longer)));
    assert_ok(compare("measured", &other, &tables));
    free(tables);
    cod_test_assert_contains(other.said, "compare-1.json: its budget differs from this one's");
    assert_ok(cod_file_write(cod_test_at("c.yaml"), config, strlen(config)));
    assert_ok(compare("measured", &steps, &tables));
    free(tables);
    cod_test_assert_contains(steps.said, "compare-2.json: its budget differs from this one's");
}

/** Of three groups, each wrong in so many of ten examples, the first ones. */
static void keep_predictions(const char *folder, const int wrong[3])
{
    enum { COUNT = 10 };
    float predicted[COUNT], confidence[COUNT], truth[COUNT] = {0};
    for (int g = 0; g < 3; g++) {
        for (int i = 0; i < COUNT; i++)
            predicted[i] = i < wrong[g] ? 1 : 0, confidence[i] = 0.75f;
        assert_ok(cod_predictions_write(
            folder, COD_SPLIT_VAL, g, 10,
            &(cod_classification){
                .count = COUNT, .classes = 2, .predicted = predicted, .confidence = confidence, .truth = truth}));
    }
}

/** Pairs of groups differ on 1, 3, 2 and on 1, 6, 5 of ten examples; groups of one number in two runs on 1, 1, 4. */
TEST(predictions_are_compared_by_pairs)
{
    static const int wrong[2][3] = {{0, 1, 3}, {1, 2, 7}};
    program p = {.most = 100, .groups = 3};
    char *tables;
    char path[COD_COMPARE_PATH + 16];
    void *json;
    size_t bytes;
    assert_ok(compare("kept", &p, &tables));
    free(tables);
    for (int seed = 1; seed <= 2; seed++) {
        char name[64];
        snprintf(name, sizeof name, "kept/c-single-seed%d", seed);
        keep_predictions(cod_test_at(name), wrong[seed - 1]);
    }
    program again = {.most = 100, .groups = 3};
    assert_ok(compare("kept", &again, &tables));
    free(tables);
    snprintf(path, sizeof path, "%s/compare.json", again.folder);
    assert_ok(cod_file_read(path, 1 << 20, &json, &bytes));
    char *text = strndup(json, bytes);
    free(json);
    cod_test_assert_contains(text, "\"disagreement\": [\n      {\n       \"step\": 10,\n       \"percent\": 20\n");
    cod_test_assert_contains(text, "\"disagreement\": [\n      {\n       \"step\": 10,\n       \"percent\": 40\n");
    cod_test_assert_contains(text, "\"between_seeds\": [\n   {\n    \"arm\": \"single\",\n    \"percent\": 20\n");
    cod_test_assert_contains(text, "\"between_groups\": [\n   {\n    \"arm\": \"single\",\n    \"percent\": 30\n");
    free(text);
}

TEST(no_run_is_begun_once_asked_to_stop)
{
    program p = {.most = 2};
    char *tables;
    assert_fails(COD_ERR_INTERRUPTED, "run 'c-single-seed2' stopped at step 0 of 10", compare("stopped", &p, &tables));
    assert_int_equal(p.begun, 2);
    free(tables);
}

TEST(a_run_that_saved_and_stopped_ends_the_comparison)
{
    program p = {.most = 100, .stops = "allreduce-seed1"};
    char *tables;
    assert_fails(COD_ERR_INTERRUPTED, "run 'c-allreduce-seed1' stopped at step 0 of 10", compare("part", &p, &tables));
    assert_int_equal(p.begun, 2);
    free(tables);
}

TEST(problems_of_the_section_are_said)
{
    program p = {.most = 100};
    const cod_compare_arguments arguments = {.path = cod_test_at("c.yaml"), .strategies = "sinle", .seeds = ""};
    const cod_compare_host host = {.context = &p, .say = say, .is_asked = is_asked, .run = run};
    cod_comparison *c;
    assert_fails(COD_ERR_ARGUMENT, "there is no strategy 'sinle'; did you mean 'single'?",
                 cod_comparison_create(&arguments, &host, &c));
    assert_int_equal(p.begun, 0);
}

TEST_GROUP(set_up, cod_test_folder_remove)
