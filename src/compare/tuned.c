/* Shows what tuning tried and chose, in compare.json and on the terminal. */
#include "compare/compare_internal.h"

#include "core/shown.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_chosen(const cod_compare_arm *arm, const cod_compare_trial *trial)
{
    return arm->chosen == trial->run.candidate;
}

/** The number behind the '='; NaN = it is none. */
static double value_of(const char *text)
{
    char *end = NULL;
    const char *value = text + strcspn(text, "=") + 1;
    const double number = strtod(value, &end);
    return end != value && *end == '\0' ? number : NAN;
}

/** Whether candidates, also those that failed, have a lower or a higher number for what `text` sets. */
static void find_beyond(const cod_comparison *c, const char *text, bool *lower, bool *higher)
{
    const size_t key = strcspn(text, "=") + 1;
    *lower = *higher = false;
    for (size_t k = 0; k < c->candidate_count; k++)
        for (size_t i = 0; i < c->candidates[k].set_count; i++) {
            const char *other = c->candidates[k].set[i];
            *lower = *lower || (strncmp(other, text, key) == 0 && value_of(other) < value_of(text));
            *higher = *higher || (strncmp(other, text, key) == 0 && value_of(other) > value_of(text));
        }
}

/** Text that names chosen numbers that are the lowest or highest tried; "" = none. */
static void describe_edge(const cod_comparison *c, const cod_compare_arm *arm, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; arm->chosen != NULL && i < arm->chosen->set_count && used < bytes; i++) {
        const char *chosen = arm->chosen->set[i];
        bool lower, higher;
        find_beyond(c, chosen, &lower, &higher);
        if (lower != higher && !cod_compare_is_own(arm, chosen))
            used += (size_t)snprintf(text + used, bytes - used, "%s%s is the %s tried", used > 0 ? ", " : "", chosen,
                                     lower ? "highest" : "lowest");
    }
    if (used > 0 && used < bytes)
        snprintf(text + used, bytes - used, "; the best may lie beyond");
}

/** Text that names options that the arm sets itself and that are therefore not tuned; "" = none. */
static void describe_own(const cod_comparison *c, const cod_compare_arm *arm, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < arm->set_count && used < bytes; i++) {
        bool tuned = false;
        for (size_t k = 0; k < c->candidate_count; k++)
            for (size_t n = 0; n < c->candidates[k].set_count; n++)
                tuned = tuned || cod_compare_overlap(arm->set[i], c->candidates[k].set[n]);
        if (tuned)
            used += (size_t)snprintf(text + used, bytes - used, "%s%s", used > 0 ? ", " : "", arm->set[i]);
    }
    if (used > 0 && used < bytes)
        snprintf(text + used, bytes - used, " is set by the arm itself");
}

void cod_compare_write_tuning(const cod_comparison *c, cod_json *json)
{
    char label[128];
    if (c->candidate_count == 0)
        return;
    cod_compare_describe_figure(c, false, label);
    cod_json_open(json, "tuning", '{');
    cod_json_integer(json, "seed", c->config.compare.tune_seed);
    cod_json_string(json, "label", label);
    cod_json_close(json);
}

static void write_trial(const cod_comparison *c, const cod_compare_arm *arm, const cod_compare_trial *trial,
                        cod_json *json)
{
    const cod_compare_run *run = &trial->run;
    char folder[COD_COMPARE_PATH];
    cod_compare_run_path(c, run, "", folder);
    cod_json_open(json, NULL, '{');
    cod_json_open(json, "set", '[');
    for (size_t i = 0; i < run->candidate->set_count; i++)
        if (!cod_compare_is_own(arm, run->candidate->set[i]))
            cod_json_string(json, NULL, run->candidate->set[i]);
    cod_json_close(json);
    cod_json_bool(json, "chosen", is_chosen(arm, trial));
    cod_json_string(json, "state", cod_compare_state_names[run->state]);
    cod_json_string(json, "folder", folder);
    if (run->state == COD_COMPARE_FAILED)
        cod_json_string(json, "message", run->message);
    if (!isnan(trial->quality))
        cod_json_number(json, "quality", trial->quality);
    cod_json_close(json);
}

void cod_compare_write_tuned(const cod_comparison *c, const cod_compare_arm *arm, cod_json *json)
{
    char note[512];
    if (arm->trials == NULL)
        return;
    cod_json_open(json, "tuned", '{');
    cod_json_open(json, "candidates", '[');
    for (size_t k = 0; k < c->candidate_count; k++)
        if (arm->trials[k].run.same == NULL)
            write_trial(c, arm, &arm->trials[k], json);
    cod_json_close(json);
    describe_own(c, arm, note, sizeof note);
    if (note[0] != '\0')
        cod_json_string(json, "own", note);
    describe_edge(c, arm, note, sizeof note);
    if (note[0] != '\0')
        cod_json_string(json, "edge", note);
    cod_json_close(json);
}

static void print_trial(const cod_comparison *c, const cod_compare_arm *arm, const cod_compare_trial *trial, FILE *out)
{
    char text[512], note[512];
    cod_compare_describe_candidate(arm, trial->run.candidate, text, sizeof text);
    fprintf(out, "%-24s ", cod_shown(arm->name).text);
    if (trial->run.state == COD_COMPARE_FAILED)
        fprintf(out, "%9s  %s failed: %s", "none", cod_shown(text).text, cod_shown(trial->run.message).text);
    else if (isnan(trial->quality))
        fprintf(out, "%9s  %s", "none", cod_shown(text).text);
    else
        fprintf(out, "%9.*f  %s", c->task->figures[0].digits + 1, trial->quality, cod_shown(text).text);
    if (is_chosen(arm, trial)) {
        fprintf(out, " (chosen)");
        describe_own(c, arm, note, sizeof note);
        fprintf(out, "%s%s", note[0] != '\0' ? "; " : "", cod_shown(note).text);
        describe_edge(c, arm, note, sizeof note);
        fprintf(out, "%s%s", note[0] != '\0' ? "; " : "", cod_shown(note).text);
    }
    fprintf(out, "\n");
}

void cod_compare_print_tuned(const cod_comparison *c, FILE *out)
{
    if (c->candidate_count == 0)
        return;
    fprintf(out, "\n%-24s %9s  tried with seed %lld, on held-out data, mean of the groups\n", "arm",
            c->task->figures[0].key, (long long)c->config.compare.tune_seed);
    for (size_t a = 0; a < c->arm_count; a++)
        for (size_t k = 0; k < c->candidate_count; k++)
            if (c->arms[a].trials[k].run.same == NULL)
                print_trial(c, &c->arms[a], &c->arms[a].trials[k], out);
}
