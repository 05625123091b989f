/* Paths of runs' folders, and results from the summaries of finished runs. */
#include "compare/compare_internal.h"

#include <math.h>
#include <stdio.h>

const char *const cod_compare_state_names[] = {"missing", "finished", "failed"};

void cod_compare_run_path(const cod_comparison *c, const cod_compare_run *run, const char *file,
                          char path[COD_COMPARE_PATH])
{
    const char *name = run->same != NULL ? run->same->name : run->name;
    snprintf(path, COD_COMPARE_PATH, "%s/%s%s%s", c->config.root.output, name, file[0] != '\0' ? "/" : "", file);
}

const cod_compare_run *cod_compare_finished_run(const cod_comparison *c, size_t arm)
{
    for (size_t i = 0; i < c->run_count; i++)
        if (c->runs[i].arm == arm && c->runs[i].state == COD_COMPARE_FINISHED)
            return &c->runs[i];
    return NULL;
}

double cod_compare_number(const cod_compare_run *run, const char *key)
{
    return cod_json_get_number(cod_json_get(run->summary, key), NAN);
}

double cod_compare_group_number(const cod_compare_run *run, int group, const char *key)
{
    const cod_json_value *one = cod_json_first(cod_json_get(run->summary, "group_results"));
    for (; one != NULL && group > 0; group--)
        one = cod_json_next(one);
    return cod_json_get_number(cod_json_get(one, key), NAN);
}

int cod_compare_groups(const cod_compare_run *run)
{
    return (int)cod_json_count(cod_json_get(run->summary, "group_results"));
}

double cod_compare_mean_of_groups(const cod_compare_run *run, const char *key)
{
    const int groups = cod_compare_groups(run);
    double sum = 0;
    for (int g = 0; g < groups; g++)
        sum += cod_compare_group_number(run, g, key);
    return groups > 0 ? sum / groups : NAN;
}

void cod_compare_metric_key(const cod_comparison *c, char key[64])
{
    const char *figure = c->task->figures[0].key;
    snprintf(key, 64, "test_%s", figure);
    for (size_t i = 0; i < c->run_count; i++)
        if (c->runs[i].state == COD_COMPARE_FINISHED) {
            const cod_json_value *group = cod_json_first(cod_json_get(c->runs[i].summary, "group_results"));
            if (cod_json_get(group, key) == NULL)
                snprintf(key, 64, "%s", figure);
            return;
        }
    snprintf(key, 64, "%s", figure);
}

void cod_compare_describe_figure(const cod_comparison *c, bool test, char text[128])
{
    snprintf(text, 128, "%s on the %s%s", c->task->figures[0].label, test ? "test " : "held-out ", c->task->items);
}
