/* The tables of runs and arms. */
#include "compare/compare_internal.h"

#include "core/shown.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { LEAST_WIDTH = 9 };

static int width_of(const char *heading)
{
    return (int)strlen(heading) > LEAST_WIDTH ? (int)strlen(heading) : LEAST_WIDTH;
}

/** In a column; "none" where there is nothing to tell. */
static void print_number(FILE *out, int width, int digits, double value)
{
    if (isnan(value))
        fprintf(out, " %*s", width, "none");
    else
        fprintf(out, " %*.*f", width, digits, value);
}

/** Longest name of a run, for its column. */
static int name_width(const cod_comparison *c)
{
    size_t width = 24;
    for (size_t i = 0; i < c->run_count; i++)
        width = strlen(cod_shown(c->runs[i].name).text) > width ? strlen(cod_shown(c->runs[i].name).text) : width;
    return (int)width;
}

/** Each run's final model, which is another figure than the mean of its groups' models. */
static void print_runs(const cod_comparison *c, FILE *out)
{
    const char *figure = c->task->figures[0].key, *baseline = c->task->figures[0].baseline;
    const int wide = name_width(c);
    char final[80];
    snprintf(final, sizeof final, "final %s", figure);
    fprintf(out, "%-*s %*s %*s %12s %10s %14s %14s %9s\n", wide, "run", width_of(final), final, width_of(baseline),
            baseline, "samples", "core-s", "between, MB", "inside, MB", "wall, s");
    for (size_t i = 0; i < c->run_count; i++) {
        const cod_compare_run *run = &c->runs[i];
        if (run->same != NULL)
            continue;
        fprintf(out, "%-*s", wide, cod_shown(run->name).text);
        if (run->state != COD_COMPARE_FINISHED) {
            fprintf(out, " failed: %s\n", cod_shown(run->message).text);
            continue;
        }
        print_number(out, width_of(final), 3, cod_compare_number(run, figure));
        print_number(out, width_of(baseline), 3, cod_compare_number(run, baseline));
        print_number(out, 12, 0, cod_compare_number(run, "samples_per_group") * cod_compare_number(run, "groups"));
        print_number(out, 10, 0, cod_compare_number(run, "core_s"));
        print_number(out, 14, 3, cod_compare_between_bytes(c, run) / 1e6);
        print_number(out, 14, 1, cod_compare_inside_bytes(c, run) / 1e6);
        print_number(out, 9, 1, cod_compare_number(run, "wall_s"));
        fprintf(out, "\n");
    }
}

/** Mean and deviation of an arm's finished runs at a rate. @return how many */
static int sum_up(const cod_comparison *c, size_t arm, size_t rate, const char *key, double *mean, double *deviation)
{
    double sum = 0, squares = 0;
    int count = 0;
    for (size_t i = 0; i < c->run_count; i++) {
        const cod_compare_run *run = &c->runs[i];
        if (run->arm != arm || run->rate != rate || run->state != COD_COMPARE_FINISHED)
            continue;
        const double value = cod_compare_mean_of_groups(run, key);
        sum += value, squares += value * value;
        count++;
    }
    *mean = count > 0 ? sum / count : NAN;
    *deviation = count > 1 ? sqrt(fmax(0, squares - sum * *mean) / (count - 1)) : NAN;
    return count;
}

void cod_compare_print_table(const cod_comparison *c, FILE *out)
{
    char key[64], groups[80];
    cod_compare_metric_key(c, key);
    snprintf(groups, sizeof groups, "groups' %s", key);
    print_runs(c, out);
    fprintf(out, "\n%-24s %-8s %6s %*s %10s   mean of the groups' own models, and over seeds\n", "arm", "rate", "runs",
            width_of(groups), groups, "deviation");
    for (size_t i = 0; i < c->arm_count; i++)
        for (size_t r = 0; r < c->rate_count; r++) {
            double mean, deviation;
            const int count = sum_up(c, i, r, key, &mean, &deviation);
            fprintf(out, "%-24s %-8s %6d", cod_shown(c->arms[i].name).text, cod_shown(c->rates[r]).text, count);
            print_number(out, width_of(groups), c->task->figures[0].digits + 1, mean);
            print_number(out, 10, c->task->figures[0].digits + 1, deviation);
            fprintf(out, "\n");
        }
}
