/* Compares predictions example by example: disagreement of groups and of retrainings, and calibration. */
#include "compare/compare_internal.h"

#include "train/predictions.h"

#include <math.h>
#include <stdlib.h>

/** Predictions of all groups of a run at a step. */
typedef struct statements {
    cod_predictions *groups; /**< [count] */
    int count;
} statements;

static void clear(statements *s)
{
    for (int g = 0; g < s->count; g++)
        cod_predictions_clear(&s->groups[g]);
    free(s->groups);
    *s = (statements){0};
}

static cod_status read_all(const char *folder, cod_split split, int groups, int64_t step, statements *out)
{
    *out = (statements){.groups = calloc((size_t)groups, sizeof *out->groups), .count = groups};
    COD_REQUIRE_MEMORY(out->groups);
    for (int g = 0; g < groups; g++) {
        const cod_status status = cod_predictions_read(folder, split, g, step, &out->groups[g]);
        if (status != COD_OK) {
            clear(out);
            return status;
        }
    }
    return COD_OK;
}

/**
 * The models that the groups ended with, on test data or, where there are none, on the held-out ones; empty = not kept.
 */
static cod_status read_last(const cod_comparison *c, const cod_compare_run *run, statements *out)
{
    char folder[COD_COMPARE_PATH];
    const int groups = cod_compare_groups(run);
    *out = (statements){0};
    cod_compare_run_path(c, run, "", folder);
    for (int i = 0; i < 2 && out->count == 0 && groups > 0; i++) {
        const cod_split split = i == 0 ? COD_SPLIT_TEST : COD_SPLIT_VAL;
        cod_arena arena = {0};
        cod_int_list steps = {0};
        cod_status status = cod_predictions_steps(folder, split, groups, &arena, &steps);
        if (steps.count > 0)
            COD_THEN(status, read_all(folder, split, groups, steps.items[steps.count - 1], out));
        cod_arena_clear(&arena);
        COD_TRY(status);
    }
    return COD_OK;
}

/** Percent of the examples on which two differ; NaN where they are not of the same examples. */
static double percent_apart(const cod_predictions *a, const cod_predictions *b)
{
    size_t apart = 0;
    for (size_t i = 0; i < a->count && a->count == b->count; i++)
        apart += a->predicted[i] != b->predicted[i];
    return a->count == b->count && a->count > 0 ? 100.0 * (double)apart / (double)a->count : NAN;
}

/** Mean over all pairs of groups; NaN of one. */
static double between_groups(const statements *s)
{
    double sum = 0;
    int pairs = 0;
    for (int a = 0; a < s->count; a++)
        for (int b = a + 1; b < s->count; b++, pairs++)
            sum += percent_apart(&s->groups[a], &s->groups[b]);
    return pairs > 0 ? sum / pairs : NAN;
}

/** Mean over groups of the same number in two runs; NaN where these are not equally many. */
static double between_runs(const statements *a, const statements *b)
{
    double sum = 0;
    for (int g = 0; g < a->count && a->count == b->count; g++)
        sum += percent_apart(&a->groups[g], &b->groups[g]);
    return a->count == b->count && a->count > 0 ? sum / a->count : NAN;
}

cod_status cod_compare_write_disagreement(const cod_comparison *c, const cod_compare_run *run, cod_json *json)
{
    char folder[COD_COMPARE_PATH];
    cod_arena arena = {0};
    cod_int_list steps;
    const int groups = cod_compare_groups(run);
    cod_compare_run_path(c, run, "", folder);
    cod_status status = groups > 1 ? cod_predictions_steps(folder, COD_SPLIT_VAL, groups, &arena, &steps) : COD_OK;
    const size_t count = groups > 1 && status == COD_OK ? steps.count : 0;
    if (count > 0)
        cod_json_open(json, "disagreement", '[');
    for (size_t i = 0; i < count && status == COD_OK; i++) {
        statements s;
        status = read_all(folder, COD_SPLIT_VAL, groups, steps.items[i], &s);
        if (status != COD_OK)
            break;
        cod_json_open(json, NULL, '{');
        cod_json_integer(json, "step", steps.items[i]);
        cod_json_number(json, "percent", between_groups(&s));
        cod_json_close(json);
        clear(&s);
    }
    if (count > 0)
        cod_json_close(json);
    cod_arena_clear(&arena);
    return status;
}

/** Predictions by the bin of their confidence, as calibration error counts them. */
typedef struct bins {
    double confidence[COD_CALIBRATION_BINS];
    int64_t count[COD_CALIBRATION_BINS], right[COD_CALIBRATION_BINS];
} bins;

static void sort_into(const cod_predictions *p, bins *out)
{
    for (size_t i = 0; i < p->count; i++) {
        const double confidence = (double)p->confidence[i];
        /* The file's confidence may be anything: fmax() takes 0 in the place of NaN. */
        const int bin = (int)fmin(fmax(ceil(confidence * COD_CALIBRATION_BINS) - 1, 0), COD_CALIBRATION_BINS - 1);
        out->confidence[bin] += confidence;
        out->count[bin]++;
        out->right[bin] += p->predicted[i] == p->truth[i];
    }
}

cod_status cod_compare_write_reliability(const cod_comparison *c, const cod_compare_run *run, cod_json *json)
{
    statements s;
    bins b = {0};
    COD_TRY(read_last(c, run, &s));
    if (s.count == 0)
        return COD_OK;
    for (int g = 0; g < s.count; g++)
        sort_into(&s.groups[g], &b);
    clear(&s);
    cod_json_open(json, "reliability", '[');
    for (int i = 0; i < COD_CALIBRATION_BINS; i++) {
        const double count = (double)b.count[i];
        cod_json_open(json, NULL, '{');
        cod_json_number(json, "confidence",
                        b.count[i] > 0 ? b.confidence[i] / count : (i + 0.5) / COD_CALIBRATION_BINS);
        cod_json_number(json, "accuracy", b.count[i] > 0 ? (double)b.right[i] / count : NAN);
        cod_json_integer(json, "count", b.count[i]);
        cod_json_close(json);
    }
    cod_json_close(json);
    return COD_OK;
}

/** An arm's finished runs at the first rate. @param[out] all  [seed_count]; clear() each */
static cod_status read_arm(const cod_comparison *c, size_t arm, statements *all, size_t *count)
{
    *count = 0;
    for (size_t i = 0; i < c->run_count; i++) {
        const cod_compare_run *run = &c->runs[i];
        if (run->arm != arm || run->rate != 0 || run->state != COD_COMPARE_FINISHED)
            continue;
        COD_TRY(read_last(c, run, &all[*count]));
        if (all[*count].count > 0)
            ++*count;
    }
    return COD_OK;
}

typedef struct churn {
    double seeds, groups; /**< percent; NaN = not known */
} churn;

static cod_status measure(const cod_comparison *c, size_t arm, churn *out)
{
    statements *all = calloc(c->seed_count, sizeof *all);
    size_t count = 0;
    COD_REQUIRE_MEMORY(all);
    const cod_status status = read_arm(c, arm, all, &count);
    double seeds = 0, groups = 0;
    size_t pairs = 0;
    for (size_t a = 0; a < count; a++) {
        groups += between_groups(&all[a]) / (double)count;
        for (size_t b = a + 1; b < count; b++, pairs++)
            seeds += between_runs(&all[a], &all[b]);
    }
    *out = (churn){.seeds = pairs > 0 ? seeds / (double)pairs : NAN, .groups = count > 0 ? groups : NAN};
    for (size_t i = 0; i < c->seed_count; i++)
        clear(&all[i]);
    free(all);
    return status;
}

static void write_list(const cod_comparison *c, const churn *all, bool seeds, cod_json *json)
{
    cod_json_open(json, seeds ? "between_seeds" : "between_groups", '[');
    for (size_t i = 0; i < c->arm_count; i++) {
        const double percent = seeds ? all[i].seeds : all[i].groups;
        if (isnan(percent))
            continue;
        cod_json_open(json, NULL, '{');
        cod_json_string(json, "arm", c->arms[i].name);
        cod_json_number(json, "percent", percent);
        cod_json_close(json);
    }
    cod_json_close(json);
}

cod_status cod_compare_write_churn(const cod_comparison *c, cod_json *json)
{
    churn *all = calloc(c->arm_count, sizeof *all);
    COD_REQUIRE_MEMORY(all);
    cod_status status = COD_OK;
    bool any = false;
    for (size_t i = 0; i < c->arm_count && status == COD_OK; i++) {
        status = measure(c, i, &all[i]);
        any = any || !isnan(all[i].seeds) || !isnan(all[i].groups);
    }
    if (status == COD_OK && any) {
        cod_json_open(json, "churn", '{');
        write_list(c, all, true, json);
        write_list(c, all, false, json);
        cod_json_close(json);
    }
    free(all);
    return status;
}
