/* The end of a run: each group's model, and the best of them or their mean. */
#include "core/log.h"
#include "infer/model_file.h"
#include "train/summary_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void group_model_path(const trainer *t, int group, char path[4096])
{
    snprintf(path, 4096, "%s/group.%d.safetensors", t->folder, group);
}

/**
 * Other networks that were trained, such as a discriminator, for a run that begins with them: "SET.GROUP.safetensors".
 */
static cod_status save_other_sets(const trainer *t)
{
    const cod_train_session *session = &t->session;
    for (int s = 1; s < (int)cod_graph_set_count(session->recipe.model.graph); s++) {
        char path[4096];
        if (!session->recipe.sets[s].trained)
            continue;
        snprintf(path, sizeof path, "%s/%s.%d.safetensors", t->folder, session->recipe.sets[s].name,
                 cod_group_index(t->group));
        COD_TRY(cod_file_clean(path));
        COD_TRY(cod_set_save_weights(path, s, &session->weights));
    }
    return COD_OK;
}

/**
 * The leader's part: evaluate on all held-out and test data, write the last line of metrics and save the group's model;
 * of a model that has diverged only that line.
 */
static cod_status evaluate_group(trainer *t, closing *out)
{
    const uint64_t fingerprint = cod_graph_fingerprint(t->session.recipe.model.graph, cod_set_of(0));
    char path[4096];
    COD_TRY(trainer_check_owner(t));
    if (!out->diverged) {
        COD_TRY(trainer_validate(&t->evaluator, &t->context, 0, true, &out->results));
        COD_TRY(trainer_evaluate(&t->evaluator, &t->context, COD_SPLIT_TEST, true, &out->test));
    }
    COD_TRY(trainer_measure_baseline(&t->evaluator, &t->context, 0));
    if (t->evaluator.baseline_count > 0)
        out->baseline = t->evaluator.baseline.values[0];
    out->resumed_from = (double)t->first_step;
    out->steps = (double)t->context.step;
    out->without_best = (double)t->without_best;
    out->parameters = (double)t->session.weights.sets[0].range.count;
    out->fingerprint_high = (double)(fingerprint >> 32), out->fingerprint_low = (double)(uint32_t)fingerprint;
    if (cod_metrics_last_step(t->metrics) < t->context.step) /* else written before a resume */
        COD_TRY(trainer_log_line(t));
    group_model_path(t, cod_group_index(t->group), path);
    if (out->diverged)
        return cod_file_remove(path);
    COD_TRY(save_other_sets(t));
    return trainer_save_model(&t->evaluator, path);
}

/** The closing comes last: who finds it finds the model. */
static cod_status close_group(trainer *t)
{
    closing c = {.results = cod_task_results_unknown(),
                 .test = cod_task_quality_unknown(),
                 .baseline = NAN,
                 .diverged = cod_guards_spoilt(&t->guards) != NULL};
    COD_TRY(trainer_gather(t, NULL));
    const cod_status status = t->leader ? evaluate_group(t, &c) : COD_OK;
    COD_TRY(cod_group_agree(t->group, status, NULL));
    COD_TRY(trainer_measures_sum(&t->measures, &t->context, t->strategy, c.totals));
    c.elapsed_s = trainer_measures_elapsed_s(&t->measures);
    snprintf(c.device, sizeof c.device, "%s", t->session.backend->describe(t->session.device));
    return cod_group_agree(t->group, t->leader ? closing_write(t, &c) : COD_OK, NULL);
}

/** How groups of a job have ended: numbers of their ranks. */
typedef struct endings {
    double diverged, stopped;
} endings;

/**
 * Waits for every group of this job, but not for ever: a group that died has saved what it could.
 *
 * @param[in,out] sums  of all ranks' values
 */
static cod_status meet_others(const trainer *t, double patience, endings *sums)
{
    cod_request *request = NULL;
    cod_status status =
        cod_group_reduce_start(cod_comm_world(t->context.comm), &sums->diverged, 2, COD_REDUCE_SUM, &request);
    COD_THEN(status, cod_comm_wait_for_ranks(t->context.comm, &request, patience));
    return status == COD_ERR_INTERRUPTED
               ? cod_fail_prefix(COD_ERR_PEER, "this group's model and checkpoint are saved, but not all groups ended")
               : status;
}

/** Reads a group's final values; they must fit `count`. */
static cod_status read_values(const trainer *t, int group, float *values)
{
    char path[4096];
    group_model_path(t, group, path);
    return cod_model_load_values(path, &t->evaluator.model, COD_LOAD_STRICT, values, NULL);
}

/** Leaves the mean of all groups' models, which are alike, in the evaluator's weights, and its quality. */
static cod_status average_groups(trainer *t, cod_task_results *results)
{
    const int groups = cod_group_count(t->group);
    const size_t count = cod_weights_count(&t->evaluator.weights);
    float *values = calloc(2 * count, sizeof *values), *one = values + count;
    COD_REQUIRE_MEMORY(values);
    cod_status status = COD_OK;
    for (int g = 0; g < groups && status == COD_OK; g++) {
        status = read_values(t, g, one);
        for (size_t i = 0; i < count; i++)
            values[i] += one[i] / (float)groups;
    }
    COD_THEN(status, cod_weights_upload(&t->evaluator.weights, values));
    COD_THEN(status, trainer_evaluate_all(&t->evaluator, &t->context, results));
    free(values);
    return status;
}

static cod_status copy_file(const char *from, const char *to)
{
    void *data = NULL;
    size_t bytes = 0;
    COD_TRY(cod_file_read(from, SIZE_MAX / 2, &data, &bytes));
    const cod_status status = cod_file_write(to, data, bytes);
    free(data);
    return status;
}

/**
 * The group with the best model (the first that has one, where nothing is held out), or -1; and whether all groups' are
 * alike.
 */
static int best_group(const trainer *t, const closing *all, bool *alike)
{
    int best = -1;
    *alike = true;
    for (int g = 0; g < cod_group_count(t->group); g++) {
        const closing *c = &all[g];
        *alike = *alike && !c->diverged;
        if (c->diverged)
            cod_log_warn("the model of group %d has diverged: final.safetensors is made without it", g);
        else if (best < 0)
            best = g;
        else if (cod_task_compare(t->task->kind, cod_task_judged(t->task, &c->results),
                                  cod_task_judged(t->task, &all[best].results)) > 0)
            best = g;
        *alike =
            *alike && c->fingerprint_high == all[0].fingerprint_high && c->fingerprint_low == all[0].fingerprint_low;
    }
    return best;
}

/**
 * final.safetensors: the best group's model, or the mean of all where they are alike and it is better on held-out data.
 */
static cod_status choose_final(trainer *t, const closing *all, final_model *final)
{
    const int groups = cod_group_count(t->group);
    char path[4096], group_path[4096];
    bool alike;
    snprintf(path, sizeof path, "%s/final.safetensors", t->folder);
    const int best = best_group(t, all, &alike);
    if (best < 0)
        return cod_file_remove(path);
    final->results = all[best].results;
    final->test = all[best].test;
    snprintf(final->is, sizeof final->is, "group %d", best);
    group_model_path(t, best, group_path);
    if (!alike || groups == 1 || isnan(cod_task_judged(t->task, &final->results)->values[0]))
        return copy_file(group_path, path);
    cod_task_results together;
    COD_TRY(average_groups(t, &together));
    if (cod_task_compare(t->task->kind, cod_task_judged(t->task, &together),
                         cod_task_judged(t->task, &final->results)) <= 0)
        return copy_file(group_path, path);
    final->results = together;
    snprintf(final->is, sizeof final->is, "mean of %d groups", groups);
    COD_TRY(trainer_evaluate(&t->evaluator, &t->context, COD_SPLIT_TEST, false, &final->test));
    return trainer_save_model(&t->evaluator, path);
}

/**
 * Reads all groups' closings; those that are jobs of their own may be on their way.
 *
 * @param[out] missing  "" = none, or "1, 2"
 */
static cod_status read_closings(const trainer *t, closing *all, char missing[256])
{
    size_t used = 0;
    missing[0] = '\0';
    for (int g = 0; g < cod_group_count(t->group); g++) {
        const cod_status status = closing_read(t, g, &all[g]);
        if (status != COD_OK && t->config->only_group < 0)
            return status;
        if (status != COD_OK && status != COD_ERR_IO)
            cod_log_warn("%s", cod_error_message());
        if (status != COD_OK && used < 256)
            used += (size_t)snprintf(missing + used, 256 - used, "%s%d", used > 0 ? ", " : "", g);
    }
    return COD_OK;
}

/** ", 30.12 dB on set5" for each of data.val_sets */
static void describe_sets(const trainer *t, const cod_task_results *results, char *text, size_t bytes)
{
    const cod_task_figure *f = &t->task->kind->figures[0];
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < t->task->set_count && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, ", %.*f%s%s on %s", f->digits, results->sets[i].values[0],
                                 cod_task_figure_gap(f), f->unit, t->task->sets[i].name);
}

/** "26.31 dB on the held-out pictures, bicubic 25.90 dB" */
static void tell_quality(const trainer *t, const final_model *final, double baseline)
{
    const cod_train_task_kind *kind = t->task->kind;
    const cod_task_figure *f = &kind->figures[0];
    const char *space = cod_task_figure_gap(f);
    char test[80] = "", sets[COD_DATA_MAX_SETS * 64];
    describe_sets(t, &final->results, sets, sizeof sets);
    if (t->task->sizes[COD_SPLIT_TEST] > 0)
        snprintf(test, sizeof test, ", %.*f%s%s on the test %s", f->digits, final->test.values[0], space, f->unit,
                 kind->items);
    if (isnan(final->results.held_out.values[0]))
        cod_log_info("final.safetensors is %s; its quality is unknown, as no %s are held out%s%s", final->is,
                     kind->items, test, sets);
    else
        cod_log_info("final.safetensors is %s: %.*f%s%s on the held-out %s, %s %.*f%s%s%s%s", final->is, f->digits,
                     final->results.held_out.values[0], space, f->unit, kind->items, kind->baseline, f->digits,
                     baseline, space, f->unit, test, sets);
}

static cod_status write_crops(const trainer *t)
{
    char model[4096], path[4096], *text = NULL;
    cod_json json = {.indent = 2};
    snprintf(model, sizeof model, "%s/final.safetensors", t->folder);
    snprintf(path, sizeof path, "%s/crops.json", t->folder);
    cod_json_open(&json, NULL, '{');
    cod_status status = t->task->kind->show(t->task, model, t->folder, &json);
    cod_json_close(&json);
    if (status != COD_OK) {
        cod_json_clear(&json);
        return status;
    }
    COD_TRY(cod_json_end(&json, &text));
    status = cod_file_write(path, text, strlen(text));
    free(text);
    return status;
}

/** crops.json: parts of held-out pictures for the run's page, without which the run is complete, too. */
static void show_final(const trainer *t)
{
    if (t->task->kind->show != NULL && t->task->sizes[COD_SPLIT_VAL] > 0 && write_crops(t) != COD_OK)
        cod_log_warn("the run's page lacks parts of held-out pictures: %s", cod_error_message());
}

/** The run's part, by the first rank: of the job of all groups, or of the group's that ends last. */
static cod_status finish_run(trainer *t, closing *all)
{
    char missing[256];
    final_model final = {.is = ""}; /* none, where all groups' models have diverged */
    COD_TRY(trainer_check_owner(t));
    COD_TRY(read_closings(t, all, missing));
    if (missing[0] != '\0') {
        cod_log_info("group %d: %s %lld steps are done and its model is saved; the last group to end writes "
                     "final.safetensors and summary.json; still to end: group %s",
                     cod_group_index(t->group), trainer_ends_early(t) ? "its" : "all", (long long)t->context.steps,
                     missing);
        return COD_OK;
    }
    COD_TRY(choose_final(t, all, &final));
    if (final.is[0] == '\0')
        return COD_OK; /* each group says why */
    show_final(t);
    COD_TRY(trainer_write_summary(t, all, &final));
    tell_quality(t, &final, all[0].baseline);
    return COD_OK;
}

cod_status trainer_meet_stopped(trainer *t)
{
    return meet_others(t, t->config->cluster.teardown_timeout_s, &(endings){.stopped = 1});
}

cod_status trainer_finish(trainer *t, cod_train_ending *ending)
{
    const bool diverged = cod_guards_spoilt(&t->guards) != NULL;
    endings all = {.diverged = diverged};
    COD_TRY(close_group(t));
    const double elapsed_s = trainer_measures_elapsed_s(&t->measures);
    const double patience = fmax(t->config->cluster.teardown_timeout_s, 0.5 * elapsed_s);
    COD_TRY(meet_others(t, patience, &all));
    t->others_diverged = !diverged && all.diverged > 0;
    if (all.stopped > 0) {
        *ending = COD_TRAIN_STOPPED;
        if (t->leader)
            cod_log_info("group %d: all %lld steps are done and its model is saved; another group has stopped before: "
                         "the same command goes on",
                         cod_group_index(t->group), (long long)t->context.steps);
        return COD_OK;
    }
    if (cod_comm_rank(t->context.comm) == 0) {
        closing *closings = calloc((size_t)cod_group_count(t->group), sizeof *closings);
        COD_REQUIRE_MEMORY(closings);
        const cod_status status = finish_run(t, closings);
        free(closings);
        COD_TRY(status);
    }
    /* The others wait here, where patience is long, and not in the teardown, where it is short. */
    return meet_others(t, patience, &all);
}
