/* compare.tune: each arm is trained with each candidate, and its runs have the one that is best on held-out data. */
#include "tools/compare.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static cod_status read_candidate(comparison *c, const cod_config_node *item)
{
    compare_candidate *candidate = &c->candidates[c->candidate_count];
    if (item->kind == COD_CONFIG_LIST && item->count == 0) {
        cod_config_problem(c->config.config, item,
                           "an empty candidate; for the configuration as it stands repeat a value that it has");
        return COD_OK;
    }
    candidate->node = item;
    COD_TRY(compare_read_set(c, item, COMPARE_CANDIDATE_SETS, &candidate->set, &candidate->set_count));
    c->candidate_count += candidate->set_count > 0;
    return COD_OK;
}

static void check_tune(comparison *c)
{
    cod_config *config = c->config.config;
    const cod_data_options *data = &c->config.data;
    for (size_t i = 0; i < c->seed_count; i++)
        if (c->seeds[i] == c->config.compare.tune_seed)
            cod_config_problem_key(config, "compare.tune_seed",
                                   "%lld is one of the seeds that arms are compared with; take one that is not",
                                   (long long)c->seeds[i]);
    if (data->val_count == 0 && data->val_fraction == 0 && data->val_path.count == 0 && data->folds == 0)
        cod_config_problem_key(config, "compare.tune",
                               "no data are held out to choose by; set data.val_fraction or data.val_count");
}

cod_status compare_read_tune(comparison *c)
{
    const cod_config_node *node = cod_config_find(c->config.config, "compare.tune");
    const bool none = node == NULL || (node->kind == COD_CONFIG_SCALAR && node->scalar[0] == '\0') ||
                      (node->kind == COD_CONFIG_LIST && node->count == 0);
    if (none)
        return COD_OK;
    if (node->kind != COD_CONFIG_LIST || node->count < 2) {
        cod_config_problem(c->config.config, node,
                           "compare.tune is a list of two or more candidates, each key.path=value or a list of such");
        return COD_OK;
    }
    c->candidates = cod_arena_alloc(cod_config_arena(c->config.config), node->count * sizeof *c->candidates);
    COD_REQUIRE_MEMORY(c->candidates);
    for (const cod_config_node *item = node->first; item != NULL; item = item->next)
        COD_TRY(read_candidate(c, item));
    check_tune(c);
    return COD_OK;
}

bool compare_overlap(const char *a, const char *b)
{
    const size_t length_a = strcspn(a, "="), length_b = strcspn(b, "=");
    const size_t length = length_a < length_b ? length_a : length_b;
    return strncmp(a, b, length) == 0 && strchr("=.", a[length]) != NULL && strchr("=.", b[length]) != NULL;
}

bool compare_is_own(const compare_arm *arm, const char *text)
{
    for (size_t i = 0; i < arm->set_count; i++)
        if (compare_overlap(arm->set[i], text))
            return true;
    return false;
}

/** The next of a candidate's texts from `at` on that the arm leaves to it; NULL = there is none. */
static const char *next_text(const compare_arm *arm, const compare_candidate *candidate, size_t *at)
{
    while (*at < candidate->set_count && compare_is_own(arm, candidate->set[*at]))
        (*at)++;
    return *at < candidate->set_count ? candidate->set[(*at)++] : NULL;
}

/** Whether two candidates differ in nothing that the arm leaves to them. */
static bool are_equal(const compare_arm *arm, const compare_candidate *a, const compare_candidate *b)
{
    size_t at_a = 0, at_b = 0;
    for (;;) {
        const char *text_a = next_text(arm, a, &at_a), *text_b = next_text(arm, b, &at_b);
        if (text_a == NULL || text_b == NULL)
            return text_a == text_b;
        if (strcmp(text_a, text_b) != 0)
            return false;
    }
}

/** The first folder of the arm that is this trial's or nobody's: a grid that has changed finds again what it shares with the former. */
static cod_status find_folder(const comparison *c, const compare_arm *arm, compare_trial *trial)
{
    char difference[256] = "?";
    for (size_t number = 1; difference[0] != '\0'; number++) {
        snprintf(trial->run.name, sizeof trial->run.name, "%s-%s-tune%zu", c->config.root.name, arm->name, number);
        bool taken = false;
        for (const compare_trial *other = arm->trials; other < trial; other++)
            taken = taken || strcmp(other->run.name, trial->run.name) == 0;
        if (!taken)
            COD_TRY(compare_find_difference(c, &trial->run, difference));
    }
    return compare_look_at(c, &trial->run);
}

static cod_status add_trials(comparison *c, size_t index)
{
    compare_arm *arm = &c->arms[index];
    arm->trials = cod_arena_alloc(cod_config_arena(c->config.config), c->candidate_count * sizeof *arm->trials);
    COD_REQUIRE_MEMORY(arm->trials);
    for (size_t k = 0; k < c->candidate_count; k++) {
        compare_trial *trial = &arm->trials[k];
        const compare_candidate *candidate = &c->candidates[k];
        *trial = (compare_trial){.quality = NAN};
        trial->run = (compare_run){.arm = index, .seed = c->config.compare.tune_seed, .candidate = candidate};
        for (size_t i = k; i-- > 0;)
            if (are_equal(arm, candidate, &c->candidates[i]))
                trial->run.same = &arm->trials[i].run;
        if (trial->run.same != NULL)
            continue;
        COD_TRY(compare_decide_steps(c, &trial->run));
        COD_TRY(find_folder(c, arm, trial));
    }
    return COD_OK;
}

/** How many of an arm's trials differ. */
static size_t count_trials(const comparison *c, const compare_arm *arm)
{
    size_t count = 0;
    for (size_t k = 0; k < c->candidate_count; k++)
        count += arm->trials[k].run.same == NULL;
    return count;
}

/** Trains what is not trained yet and reads how good it is. @param place  "3 of 12" */
static cod_status try_candidate(const comparison *c, const compare_arm *arm, compare_trial *trial, const char *place)
{
    compare_run *run = &trial->run;
    char text[512];
    if (compare_is_asked() && run->state == COMPARE_MISSING)
        return compare_stopped(c, run);
    compare_describe_candidate(arm, run->candidate, text, sizeof text);
    fprintf(stderr, "== %s (%s, tuning): %s%s\n", run->name, place, text,
            run->state == COMPARE_FINISHED ? ": done before" : "");
    if (run->state == COMPARE_MISSING)
        COD_TRY(compare_train(c, run));
    if (run->state == COMPARE_FINISHED) {
        COD_TRY(compare_read_summary(c, run));
        trial->quality = compare_mean_of_groups(run, c->task->figures[0].key);
        cod_json_free(run->summary);
        run->summary = NULL;
    }
    if (run->state == COMPARE_FINISHED && isnan(trial->quality)) {
        run->state = COMPARE_FAILED;
        snprintf(run->message, sizeof run->message, "it has no quality on held-out data");
    }
    if (run->state == COMPARE_FAILED)
        fprintf(stderr, "== %s failed: %s\n", run->name, run->message);
    return COD_OK;
}

/** Of equally good ones the first. */
static const compare_trial *find_best(const comparison *c, const compare_arm *arm)
{
    const compare_trial *best = NULL;
    const double sign = c->task->figures[0].less_is_better ? -1 : 1;
    for (size_t k = 0; k < c->candidate_count; k++) {
        const compare_trial *trial = &arm->trials[k];
        if (!isnan(trial->quality) && (best == NULL || sign * trial->quality > sign * best->quality))
            best = trial;
    }
    return best;
}

/** Gives an arm its best candidate; where there is none, its runs have failed. */
static cod_status choose(comparison *c, size_t index)
{
    compare_arm *arm = &c->arms[index];
    const compare_trial *best = count_trials(c, arm) > 1 ? find_best(c, arm) : &arm->trials[0];
    char text[512];
    if (best != NULL) {
        arm->chosen = best->run.candidate;
        compare_describe_candidate(arm, arm->chosen, text, sizeof text);
        fprintf(stderr, "== arm '%s' is tuned: %s\n", arm->name, text);
        return compare_describe_arm(c, index);
    }
    for (size_t i = 0; i < c->run_count; i++)
        if (c->runs[i].arm == index) {
            c->runs[i].state = COMPARE_FAILED;
            snprintf(c->runs[i].message, sizeof c->runs[i].message,
                     "no candidate of compare.tune could be trained, the first: %.900s", arm->trials[0].run.message);
        }
    return COD_OK;
}

cod_status compare_tune(comparison *c)
{
    size_t count = 0, number = 0;
    if (c->candidate_count == 0)
        return COD_OK;
    for (size_t a = 0; a < c->arm_count; a++) {
        COD_TRY(add_trials(c, a));
        count += count_trials(c, &c->arms[a]) > 1 ? count_trials(c, &c->arms[a]) : 0;
    }
    for (size_t a = 0; a < c->arm_count; a++) {
        compare_arm *arm = &c->arms[a];
        for (size_t k = 0; k < c->candidate_count && count_trials(c, arm) > 1; k++) {
            char place[64];
            if (arm->trials[k].run.same != NULL)
                continue;
            snprintf(place, sizeof place, "%zu of %zu", ++number, count);
            COD_TRY(try_candidate(c, arm, &arm->trials[k], place));
        }
        COD_TRY(choose(c, a));
    }
    return COD_OK;
}
