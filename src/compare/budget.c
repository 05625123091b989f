/* The budget that is equal for all arms, and the number of steps that it gives each arm. */
#include "compare/compare_internal.h"

#include "io/file.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/** The use of the budget by a finished run: seconds or bytes. */
static double used_by(const cod_comparison *c, const cod_compare_run *run)
{
    return c->config.compare.budget == COD_BUDGET_TIME ? cod_compare_mean_of_groups(run, "trained_s")
                                                       : cod_compare_between_bytes(c, run);
}

static cod_status fail_run(cod_compare_run *run, const char *message)
{
    run->state = COD_COMPARE_FAILED;
    snprintf(run->message, sizeof run->message, "%s", message);
    return COD_OK;
}

/** The first arm's run with the first seed at the same rate: what the others are measured against. */
static cod_compare_run *first_run(const cod_comparison *c, const cod_compare_run *run)
{
    for (size_t i = 0; i < c->run_count; i++)
        if (c->runs[i].arm == 0 && c->runs[i].rate == run->rate && c->runs[i].seed == c->seeds[0])
            return &c->runs[i];
    return NULL;
}

/** The last line of a pilot's metrics, which a time limit may have ended: its step and seconds. */
static cod_status read_pace(const cod_comparison *c, const cod_compare_run *pilot, double *steps, double *seconds)
{
    char path[COD_COMPARE_PATH];
    cod_json_value *line = NULL;
    cod_compare_run_path(c, pilot, "", path);
    COD_TRY(cod_metrics_read_last(path, 0, &line));
    *steps = cod_json_get_number(cod_json_get(line, "step"), NAN);
    *seconds = cod_json_get_number(cod_json_get(line, "trained_s"), NAN);
    cod_json_free(line);
    return COD_OK;
}

/** Whether a pilot that was ended by its time limit has told its pace. */
static bool has_told(const cod_comparison *c, const cod_compare_run *pilot)
{
    double steps, seconds;
    return pilot->max_time_s > 0 && read_pace(c, pilot, &steps, &seconds) == COD_OK && steps > 0 &&
           seconds > 0.5 * pilot->max_time_s;
}

/** The seed of the pilot that is there, whichever seeds are asked for now: what a step uses does not hang on it. */
static int64_t seed_of_pilot(const cod_comparison *c, const cod_compare_run *pilot)
{
    char path[COD_COMPARE_PATH];
    cod_run_config config;
    cod_compare_run_path(c, pilot, "config.yaml", path);
    if (!cod_file_exists(path) || cod_run_config_load_saved(path, &config) != COD_OK)
        return pilot->seed;
    const int64_t seed = config.root.seed;
    cod_run_config_clear(&config);
    return seed;
}

/** Trains what measures the arm's need of a step: the arm as it is, for as long as the budget allows at most. */
static cod_status run_pilot(const cod_comparison *c, cod_compare_run *pilot)
{
    COD_TRY(cod_compare_look_at(c, pilot));
    if (pilot->state == COD_COMPARE_FINISHED || has_told(c, pilot))
        return COD_OK;
    cod_compare_say(c, "== %s: how much a step of arm '%s' uses", pilot->name, c->arms[pilot->arm].name);
    const cod_status status = cod_compare_train(c, pilot);
    if (status == COD_ERR_INTERRUPTED && !c->host->is_asked(c->host->context) && has_told(c, pilot))
        return COD_OK;
    return status;
}

/**
 * The use of the budget by a step of the run's arm, measured by a pilot; NaN, and the run is FAILED, if the pilot
 * failed.
 */
static cod_status measure_step(const cod_comparison *c, cod_compare_run *run, double budget, double *used)
{
    const cod_compare_arm *arm = &c->arms[run->arm];
    const char *rate = c->rates[run->rate];
    const bool time = c->config.compare.budget == COD_BUDGET_TIME;
    const bool plain = !cod_compare_is_in_laboratory(c, run);
    cod_compare_run pilot = {.arm = run->arm,
                             .rate = run->rate,
                             .seed = c->seeds[0],
                             .steps = arm->steps,
                             .pilot = true,
                             .max_time_s = time ? budget : 0};
    snprintf(pilot.name, sizeof pilot.name, "%s-%s%s%s-pilot", c->config.root.name, arm->name, plain ? "" : "-",
             plain ? "" : rate);
    *used = NAN;
    pilot.seed = seed_of_pilot(c, &pilot);
    COD_TRY(run_pilot(c, &pilot));
    if (pilot.state == COD_COMPARE_FAILED)
        return fail_run(run, pilot.message);
    double steps = (double)pilot.steps, amount = NAN;
    if (time)
        COD_TRY(read_pace(c, &pilot, &steps, &amount));
    else
        COD_TRY(cod_compare_read_summary(c, &pilot));
    if (!time)
        amount = used_by(c, &pilot);
    cod_json_free(pilot.summary);
    *used = amount / steps;
    return isnan(*used) ? fail_run(run, "its pilot does not say how long its steps took") : COD_OK;
}

/** Steps that use up `budget` seconds or bytes. */
static cod_status scale_steps(cod_comparison *c, cod_compare_run *run, double budget)
{
    cod_compare_arm *arm = &c->arms[run->arm];
    double used;
    for (size_t i = 0; i < c->run_count; i++)
        if (c->runs[i].arm == run->arm && c->runs[i].rate == run->rate && c->runs[i].steps > 0)
            run->steps = c->runs[i].steps; /* measured for an earlier seed */
    if (run->steps > 0)
        return COD_OK;
    COD_TRY(measure_step(c, run, budget, &used));
    if (run->state == COD_COMPARE_FAILED)
        return COD_OK;
    if (used > 0) {
        run->steps = (int64_t)fmin(fmax(1, floor(budget / used)), 1e12);
        return COD_OK;
    }
    snprintf(arm->note, sizeof arm->note, "sends nothing between groups: it has the configuration's %lld steps",
             (long long)arm->steps);
    run->steps = arm->steps;
    return COD_OK;
}

/** Time and bytes: measured on the first arm unless the configuration says how much. */
static cod_status decide_measured(cod_comparison *c, cod_compare_run *run)
{
    double budget = c->config.compare.budget_value;
    if (budget == 0) {
        const cod_compare_run *first = first_run(c, run);
        if (first->seed == run->seed && run->arm == 0) {
            run->steps = c->arms[0].steps;
            return COD_OK;
        }
        if (first->same != NULL)
            first = first->same;
        if (first->state != COD_COMPARE_FINISHED)
            return fail_run(run, "there is no budget to keep to: the first arm's run failed");
        budget = used_by(c, first);
        COD_REQUIRE(budget > 0,
                    "compare.budget: %s is what arm '%s' uses, which is none; put another arm first, or set "
                    "compare.budget_value",
                    cod_budget_names[c->config.compare.budget], c->arms[0].name);
        if (run->arm == 0)
            run->steps = c->arms[0].steps;
    }
    c->budget = c->budget > 0 ? c->budget : budget;
    return run->steps > 0 ? COD_OK : scale_steps(c, run, budget);
}

cod_status cod_compare_decide_steps(cod_comparison *c, cod_compare_run *run)
{
    const cod_compare_arm *arm = &c->arms[run->arm], *first = &c->arms[0];
    const double value = c->config.compare.budget_value;
    const int kind = c->config.compare.budget;
    if (run->steps > 0 || run->same != NULL)
        return COD_OK;
    if (kind == COD_BUDGET_STEPS)
        c->budget = value > 0 ? value : (double)first->steps;
    else if (kind == COD_BUDGET_SAMPLES)
        c->budget = value > 0 ? value : (double)(first->steps * first->samples_per_step);
    if (arm->own_steps)
        run->steps = arm->steps;
    else if (kind == COD_BUDGET_STEPS)
        run->steps = (int64_t)c->budget;
    else if (kind == COD_BUDGET_SAMPLES)
        run->steps = (int64_t)fmax(1, round(c->budget / (double)arm->samples_per_step));
    else if (run->candidate != NULL)
        run->steps = arm->steps; /* what a step uses may hang on what is chosen */
    else
        return decide_measured(c, run);
    return COD_OK;
}

void cod_compare_describe_budget(const cod_comparison *c, char *text, size_t bytes)
{
    const double value = c->budget;
    switch (c->config.compare.budget) {
    case COD_BUDGET_STEPS:
        snprintf(text, bytes, "%.0f steps each", value);
        break;
    case COD_BUDGET_SAMPLES:
        snprintf(text, bytes, "%.0f samples each, of all ranks together", value);
        break;
    case COD_BUDGET_TIME:
        snprintf(text, bytes, "%.3g s of training each", value);
        break;
    default:
        snprintf(text, bytes, "%.3g MB between groups each", 1e-6 * value);
    }
    for (size_t i = 0; i < c->arm_count; i++) {
        const cod_compare_arm *arm = &c->arms[i];
        const size_t used = strlen(text);
        if (arm->own_steps && used < bytes)
            snprintf(text + used, bytes - used, "; %s has %lld steps, as it asks for", arm->name,
                     (long long)arm->steps);
        else if (arm->note[0] != '\0' && used < bytes)
            snprintf(text + used, bytes - used, "; %s %s", arm->name, arm->note);
    }
}

/** Whether the budget is what the first arm uses, which another training of that arm measures a little differently. */
static bool is_measured(const cod_comparison *c)
{
    const int kind = c->config.compare.budget;
    return (kind == COD_BUDGET_TIME || kind == COD_BUDGET_BYTES) && c->config.compare.budget_value == 0;
}

void cod_compare_write_asked(const cod_comparison *c, cod_json *json)
{
    const cod_compare_arm *first = &c->arms[0];
    cod_json_open(json, "asked", '{');
    cod_json_number(json, "value", c->config.compare.budget_value);
    if (is_measured(c)) {
        cod_json_string(json, "arm", first->name);
        cod_json_integer(json, "steps", first->steps);
    }
    cod_json_close(json);
}

bool cod_compare_is_same_budget(const cod_comparison *c, const cod_json_value *earlier)
{
    const cod_json_value *asked = cod_json_get(earlier, "asked");
    const cod_compare_arm *first = &c->arms[0];
    if (strcmp(cod_json_get_string(cod_json_get(earlier, "kind"), ""), cod_budget_names[c->config.compare.budget]) != 0)
        return false;
    if (asked == NULL || !is_measured(c)) /* what is not measured has one value; older files say only that */
        return c->budget == 0 || cod_json_get_number(cod_json_get(earlier, "value"), -1) == c->budget;
    return cod_json_get_number(cod_json_get(asked, "value"), -1) == 0 &&
           strcmp(cod_json_get_string(cod_json_get(asked, "arm"), ""), first->name) == 0 &&
           cod_json_get_number(cod_json_get(asked, "steps"), -1) == (double)first->steps;
}
