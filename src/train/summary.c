/* summary.json: the results of a run. */
#include "train/summary_internal.h"

#include "core/log.h"
#include "core/processors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/**
 * The task's figures on held-out data, as FIGURE.SET on each set, and as test_FIGURE on test data where there are such.
 */
static void summarise_quality(const trainer *t, cod_json *json, const cod_task_results *results,
                              const cod_task_quality *test)
{
    const cod_task_figure *figures = t->task->kind->figures;
    char key[64];
    for (int i = 0; i < t->task->kind->figure_count; i++)
        cod_json_number(json, figures[i].key, results->held_out.values[i]);
    for (size_t set = 1; set <= t->task->set_count; set++)
        for (int i = 0; i < t->task->kind->figure_count; i++) {
            cod_task_set_key(t->task, set, i, key);
            cod_json_number(json, key, results->sets[set - 1].values[i]);
        }
    for (int i = 0; i < t->task->kind->figure_count && t->task->sizes[COD_SPLIT_TEST] > 0; i++) {
        snprintf(key, sizeof key, "test_%s", figures[i].key);
        cod_json_number(json, key, test->values[i]);
    }
}

/** Copies publications and peers from a group's last line of metrics. */
static void summarise_exchange(const trainer *t, cod_json *json, int group)
{
    static const char *const keys[] = {"entropy", "peers"};
    cod_json_value *line = NULL;
    if (cod_metrics_read_last(t->folder, group, &line) != COD_OK)
        cod_log_warn("summary.json says nothing of group %d's peers: %s", group, cod_error_message());
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (cod_json_get(line, keys[i]) != NULL)
            cod_json_copy(json, keys[i], cod_json_get(line, keys[i]));
    cod_json_free(line);
}

/** Parts of a group's time, over all its processes. */
static void summarise_times(cod_json *json, const closing *c)
{
    const double *totals = c->totals, a_step = 1e3 / c->steps;
    cod_json_number(json, "trained_s", totals[TOTAL_STEPS_S]);
    cod_json_number(json, "step_ms_mean", a_step * totals[TOTAL_STEPS_S]);
    cod_json_number(json, "teacher_ms_mean", a_step * totals[TOTAL_TEACHER_S]);
    cod_json_number(json, "wait_ms_mean", a_step * totals[TOTAL_WAIT_S]);
    cod_json_number(json, "exchange_ms_mean", a_step * totals[TOTAL_EXCHANGE_S]);
}

static bool ended_early(const trainer *t, const closing *c)
{
    return c->steps < (double)t->config->train.steps;
}

/** That a group ended early, and why. */
static void summarise_early_end(const trainer *t, cod_json *json, const closing *c)
{
    char why[160], judge[64];
    cod_json_bool(json, "ended_early", true);
    cod_task_set_key(t->task, t->task->judge, 0, judge);
    snprintf(why, sizeof why, "%.0f evaluations in a row had no new best %s (eval.patience)", c->without_best, judge);
    cod_json_string(json, "ended_because", why);
}

static void summarise_groups(trainer *t, cod_json *json, const closing *all)
{
    cod_json_open(json, "group_results", '[');
    for (int g = 0; g < cod_group_count(t->group); g++) {
        const closing *c = &all[g];
        cod_json_open(json, NULL, '{');
        cod_json_integer(json, "group", g);
        cod_json_integer(json, "ranks", cod_group_members_of(t->group, g).size);
        cod_json_string(json, "model", cod_run_config_group(t->config, g)->kind->name);
        cod_json_integer(json, "parameters", (int64_t)c->parameters);
        cod_json_string(json, "device", c->device);
        cod_json_integer(json, "steps", (int64_t)c->steps);
        if (ended_early(t, c))
            summarise_early_end(t, json, c);
        if (c->diverged)
            cod_json_bool(json, "diverged", true);
        summarise_quality(t, json, &c->results, &c->test);
        cod_json_number(json, "step_ms_median", c->totals[TOTAL_STEP_MS]);
        const double memory = c->totals[TOTAL_MEMORY_BYTES];
        cod_json_number(json, "memory_bytes", memory > 0 ? memory : NAN);
        cod_json_number(json, "teacher_ms_median", c->totals[TOTAL_TEACHER_MS]);
        cod_json_number(json, "exchange_ms_per_step", c->totals[TOTAL_EXCHANGE_MS]);
        cod_json_number(json, "exchange_share", c->totals[TOTAL_EXCHANGE_SHARE]);
        summarise_times(json, c);
        cod_json_number(json, "pulls", c->totals[TOTAL_PULLS]);
        cod_json_number(json, "rejected", c->totals[TOTAL_REJECTED]);
        cod_json_number(json, "publications", c->totals[TOTAL_PUBLICATIONS]);
        cod_json_number(json, "teacher_switches", c->totals[TOTAL_SWITCHES]);
        cod_json_number(json, "merges", c->totals[TOTAL_MERGES]);
        if (c->totals[TOTAL_PUSHES] > 0) {
            cod_json_number(json, "pushes", c->totals[TOTAL_PUSHES]);
            cod_json_number(json, "push_staleness_mean", c->totals[TOTAL_PUSH_STALENESS] / c->totals[TOTAL_PUSHES]);
            cod_json_number(json, "push_staleness_max", c->totals[TOTAL_PUSH_STALENESS_MAX]);
        }
        summarise_exchange(t, json, g);
        cod_json_close(json);
    }
    cod_json_close(json);
}

/** The losses by name, and the networks with their optimisers. */
static void summarise_recipe(const trainer *t, cod_json *json)
{
    const cod_recipe *recipe = &t->session.recipe;
    cod_json_string(json, "recipe", recipe->kind->name);
    cod_json_open(json, "losses", '[');
    for (size_t i = 0; i < t->losses.count; i++)
        if (!t->losses.items[i].is_figure)
            cod_json_string(json, NULL, t->losses.items[i].name);
    cod_json_close(json);
    cod_json_open(json, "sets", '[');
    for (size_t s = 0; s < cod_graph_set_count(recipe->model.graph); s++) {
        const cod_recipe_set *set = &recipe->sets[s];
        cod_json_open(json, NULL, '{');
        cod_json_string(json, "name", set->name);
        cod_json_integer(json, "parameters", (int64_t)t->session.weights.sets[s].range.count);
        if (set->trained)
            cod_json_string(json, "optimiser", cod_optimiser_names[set->optimiser.kind]);
        cod_json_bool(json, "travels", set->travels);
        cod_json_close(json);
    }
    cod_json_close(json);
}

cod_status trainer_write_summary(trainer *t, const closing *all, const final_model *final)
{
    const cod_train_session *session = &t->session;
    const cod_run_config *config = t->config;
    const cod_task_figure *judge = &t->task->kind->figures[0];
    const int ranks = trainer_ranks(t), groups = cod_group_count(t->group);
    const int first_size = cod_group_members_of(t->group, 0).size;
    double inter = 0, intra = 0, wall = 0, core = 0, elapsed = 0, steps = 0;
    char machine[256];
    cod_processors_describe((int)sysconf(_SC_NPROCESSORS_ONLN), machine, sizeof machine);
    for (int g = 0; g < groups && config->only_group < 0; g++)
        elapsed = fmax(elapsed, all[g].elapsed_s);
    for (int g = 0; g < groups; g++) {
        steps = fmax(steps, all[g].steps);
        inter += all[g].totals[TOTAL_INTERGROUP_BYTES];
        intra += all[g].totals[TOTAL_INTRAGROUP_BYTES];
        wall = fmax(wall, all[g].totals[TOTAL_WALL_S]);
        /* In a job of all groups, a group's cores also wait for the last one. */
        core += all[g].totals[TOTAL_CORE_S];
        core += cod_group_members_of(t->group, g).size * fmax(0, elapsed - all[g].elapsed_s);
    }
    /* A ring all-reduce of every gradient over all ranks sends 2·S·(R-1)/R a rank and step; between g groups of
     * contiguous ranks, g of the R links of the ring cross. */
    const double bytes = 4 * all[0].parameters;
    const double allreduce_between = groups > 1 ? steps * groups * 2 * bytes * (ranks - 1) / ranks : 0;
    cod_json json = {.indent = 2};
    cod_json_open(&json, NULL, '{');
    cod_json_string(&json, "name", config->root.name);
    cod_json_string(&json, "version", t->request->version);
    trainer_data_summarise(&t->data, &json);
    summarise_recipe(t, &json);
    cod_json_string(&json, "strategy", config->strategy->name);
    cod_json_string(&json, "model", cod_run_config_group(config, 0)->kind->name);
    cod_json_integer(&json, "parameters", (int64_t)all[0].parameters);
    cod_json_integer(&json, "seed", config->root.seed);
    cod_json_integer(&json, "groups", groups);
    cod_json_integer(&json, "ranks_per_group", first_size);
    cod_json_integer(&json, "ranks", ranks);
    cod_json_integer(&json, "steps", (int64_t)steps);
    if (steps < (double)config->train.steps) /* of all groups; each has its reason among group_results, too */
        summarise_early_end(t, &json, &all[0]);
    cod_json_integer(&json, "resumed_from", (int64_t)all[0].resumed_from);
    cod_json_integer(&json, "samples_per_group",
                     (int64_t)steps * session->sample.n * config->train.accumulate *
                         ((first_size - trainer_servers(t)) / trainer_stages(t)));
    cod_json_string(&json, "precision", cod_dtype_name(session->activation));
    cod_json_string(&json, "device", session->backend->describe(session->device));
    cod_json_string(&json, "machine", machine);
    cod_json_number(&json, "wall_s", wall);
    cod_json_number(&json, "core_s", core);
    cod_json_number(&json, "step_ms_median", all[0].totals[TOTAL_STEP_MS]);
    cod_json_number(&json, "teacher_ms_median", all[0].totals[TOTAL_TEACHER_MS]);
    cod_json_number(&json, "intergroup_bytes", inter);
    cod_json_number(&json, "intragroup_bytes", intra);
    cod_json_number(&json, "allreduce_intergroup_bytes", allreduce_between);
    cod_json_string(&json, "task", cod_task_name(t->task->kind->task));
    cod_json_string(&json, "figure", judge->key);
    summarise_quality(t, &json, &final->results, &final->test);
    cod_json_number(&json, judge->baseline, all[0].baseline);
    cod_json_string(&json, "baseline", judge->baseline);
    cod_json_string(&json, "final_is", final->is);
    summarise_groups(t, &json, all);
    cod_json_close(&json);
    char *text = NULL, path[4096];
    COD_TRY(cod_json_end(&json, &text));
    snprintf(path, sizeof path, "%s/summary.json", t->folder);
    const cod_status status = cod_file_write(path, text, strlen(text));
    free(text);
    return status;
}
