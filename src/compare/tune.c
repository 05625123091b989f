/*
 * compare.tune: each arm is trained with each candidate, and its runs use the candidate that is best on held-out data.
 */
#include "compare/compare_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/** The next of a candidate's texts from `at` on that the arm leaves to it; NULL = there is none. */
static const char *next_text(const cod_compare_arm *arm, const cod_compare_candidate *candidate, size_t *at)
{
    while (*at < candidate->set_count && cod_compare_is_own(arm, candidate->set[*at]))
        (*at)++;
    return *at < candidate->set_count ? candidate->set[(*at)++] : NULL;
}

/** Whether two candidates differ in nothing that the arm leaves to them. */
static bool are_equal(const cod_compare_arm *arm, const cod_compare_candidate *a, const cod_compare_candidate *b)
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

/**
 * Finds the first folder of the arm that belongs to this trial or is free, so that a changed list of candidates reuses
 * its old trials.
 */
static cod_status find_folder(const cod_comparison *c, const cod_compare_arm *arm, cod_compare_trial *trial)
{
    char difference[256] = "?";
    for (size_t number = 1; difference[0] != '\0'; number++) {
        snprintf(trial->run.name, sizeof trial->run.name, "%s-%s-tune%zu", c->config.root.name, arm->name, number);
        bool taken = false;
        for (const cod_compare_trial *other = arm->trials; other < trial; other++)
            taken = taken || strcmp(other->run.name, trial->run.name) == 0;
        if (!taken)
            COD_TRY(cod_compare_find_difference(c, &trial->run, difference));
    }
    return cod_compare_look_at(c, &trial->run);
}

static cod_status add_trials(cod_comparison *c, size_t index)
{
    cod_compare_arm *arm = &c->arms[index];
    arm->trials = cod_arena_alloc(cod_config_arena(c->config.config), c->candidate_count * sizeof *arm->trials);
    COD_REQUIRE_MEMORY(arm->trials);
    for (size_t k = 0; k < c->candidate_count; k++) {
        cod_compare_trial *trial = &arm->trials[k];
        const cod_compare_candidate *candidate = &c->candidates[k];
        *trial = (cod_compare_trial){.quality = NAN};
        trial->run = (cod_compare_run){.arm = index, .seed = c->config.compare.tune_seed, .candidate = candidate};
        for (size_t i = k; i-- > 0;)
            if (are_equal(arm, candidate, &c->candidates[i]))
                trial->run.same = &arm->trials[i].run;
        if (trial->run.same != NULL)
            continue;
        COD_TRY(cod_compare_decide_steps(c, &trial->run));
        COD_TRY(find_folder(c, arm, trial));
    }
    return COD_OK;
}

/** How many of an arm's trials differ. */
static size_t count_trials(const cod_comparison *c, const cod_compare_arm *arm)
{
    size_t count = 0;
    for (size_t k = 0; k < c->candidate_count; k++)
        count += arm->trials[k].run.same == NULL;
    return count;
}

/** Trains what is not trained yet and reads how good it is. @param place  "3 of 12" */
static cod_status try_candidate(const cod_comparison *c, const cod_compare_arm *arm, cod_compare_trial *trial,
                                const char *place)
{
    cod_compare_run *run = &trial->run;
    char text[512];
    if (c->host->is_asked(c->host->context) && run->state == COD_COMPARE_MISSING)
        return cod_compare_stopped(c, run);
    cod_compare_describe_candidate(arm, run->candidate, text, sizeof text);
    cod_compare_say(c, "== %s (%s, tuning): %s%s", run->name, place, text,
                    run->state == COD_COMPARE_FINISHED ? ": done before" : "");
    if (run->state == COD_COMPARE_MISSING)
        COD_TRY(cod_compare_train(c, run));
    if (run->state == COD_COMPARE_FINISHED) {
        COD_TRY(cod_compare_read_summary(c, run));
        trial->quality = cod_compare_mean_of_groups(run, c->task->figures[0].key);
        cod_json_free(run->summary);
        run->summary = NULL;
    }
    if (run->state == COD_COMPARE_FINISHED && isnan(trial->quality)) {
        run->state = COD_COMPARE_FAILED;
        snprintf(run->message, sizeof run->message, "it has no quality on held-out data");
    }
    if (run->state == COD_COMPARE_FAILED)
        cod_compare_say(c, "== %s failed: %s", run->name, run->message);
    return COD_OK;
}

/** The best candidate; the first of equally good ones. */
static const cod_compare_trial *find_best(const cod_comparison *c, const cod_compare_arm *arm)
{
    const cod_compare_trial *best = NULL;
    const double sign = c->task->figures[0].less_is_better ? -1 : 1;
    for (size_t k = 0; k < c->candidate_count; k++) {
        const cod_compare_trial *trial = &arm->trials[k];
        if (!isnan(trial->quality) && (best == NULL || sign * trial->quality > sign * best->quality))
            best = trial;
    }
    return best;
}

/** Gives an arm its best candidate; where there is none, its runs have failed. */
static cod_status choose(cod_comparison *c, size_t index)
{
    cod_compare_arm *arm = &c->arms[index];
    const cod_compare_trial *best = count_trials(c, arm) > 1 ? find_best(c, arm) : &arm->trials[0];
    char text[512];
    if (best != NULL) {
        arm->chosen = best->run.candidate;
        cod_compare_describe_candidate(arm, arm->chosen, text, sizeof text);
        cod_compare_say(c, "== arm '%s' is tuned: %s", arm->name, text);
        return cod_compare_describe_arm(c, index);
    }
    for (size_t i = 0; i < c->run_count; i++)
        if (c->runs[i].arm == index) {
            c->runs[i].state = COD_COMPARE_FAILED;
            snprintf(c->runs[i].message, sizeof c->runs[i].message,
                     "no candidate of compare.tune could be trained, the first: %.900s", arm->trials[0].run.message);
        }
    return COD_OK;
}

cod_status cod_compare_tune(cod_comparison *c)
{
    size_t count = 0, number = 0;
    if (c->candidate_count == 0)
        return COD_OK;
    for (size_t a = 0; a < c->arm_count; a++) {
        COD_TRY(add_trials(c, a));
        count += count_trials(c, &c->arms[a]) > 1 ? count_trials(c, &c->arms[a]) : 0;
    }
    for (size_t a = 0; a < c->arm_count; a++) {
        cod_compare_arm *arm = &c->arms[a];
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
