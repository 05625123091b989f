/* What an earlier comparison of the same name found: its runs stay in compare.json beside those of this one. */
#include "compare/compare_internal.h"

#include "core/compare_format.h"
#include "io/file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COMPARISON_BYTES = 1 << 28 };

static const char *text_of(const cod_json_value *object, const char *key)
{
    return cod_json_get_string(cod_json_get(object, key), "");
}

/** The arm of this comparison that has the name of an earlier one; c->arm_count = none has. */
static size_t arm_called(const cod_comparison *c, const char *name)
{
    size_t index = 0;
    while (index < c->arm_count && strcmp(c->arms[index].name, name) != 0)
        index++;
    return index;
}

/** Whether both train in the same way. */
static bool is_same_arm(const cod_compare_arm *arm, const cod_json_value *earlier)
{
    const cod_json_value *set = cod_json_get(earlier, "set"), *item = cod_json_first(set);
    if (strcmp(text_of(earlier, "strategy"), arm->kind->name) != 0 || cod_json_count(set) != arm->set_count)
        return false;
    for (size_t i = 0; i < arm->set_count; i++, item = cod_json_next(item))
        if (strcmp(cod_json_get_string(item, ""), arm->set[i]) != 0)
            return false;
    return true;
}

/** Whether an earlier run is finished and this comparison has none in its place. */
static bool is_kept(const cod_comparison *c, size_t arm, const cod_json_value *run)
{
    const double seed = cod_json_get_number(cod_json_get(run, "seed"), -1);
    if (strcmp(text_of(run, "state"), cod_compare_state_names[COD_COMPARE_FINISHED]) != 0)
        return false;
    for (size_t i = 0; i < c->run_count; i++)
        if (c->runs[i].arm == arm && (double)c->runs[i].seed == seed &&
            strcmp(c->rates[c->runs[i].rate], text_of(run, "rate")) == 0)
            return false;
    return true;
}

/** The summary of a finished run of this comparison; NULL = none is finished. */
static const cod_json_value *any_summary(const cod_comparison *c)
{
    for (size_t i = 0; i < c->run_count; i++)
        if (c->runs[i].summary != NULL)
            return c->runs[i].summary;
    return NULL;
}

/** Counts the earlier runs that stay, and says what of them does not compare with this comparison's; NULL = nothing. */
static const char *find_difference(const cod_comparison *c, const cod_json_value *earlier, size_t *kept)
{
    const cod_json_value *summary = any_summary(c);
    const char *difference = NULL, *judged_by = text_of(summary, "data_held_out");
    char metric[64];
    cod_compare_metric_key(c, metric);
    if (!cod_compare_is_same_budget(c, cod_json_get(earlier, "budget")))
        difference = "budget";
    if (summary != NULL && strcmp(text_of(cod_json_get(earlier, "metric"), "name"), metric) != 0)
        difference = "metric";
    *kept = 0;
    for (const cod_json_value *arm = cod_json_first(cod_json_get(earlier, "arms")); arm != NULL;
         arm = cod_json_next(arm)) {
        const size_t index = arm_called(c, text_of(arm, "name"));
        if (index < c->arm_count && !is_same_arm(&c->arms[index], arm))
            difference = "arms";
        for (const cod_json_value *run = cod_json_first(cod_json_get(arm, "runs")); run != NULL;
             run = cod_json_next(run)) {
            const char *own = text_of(run, "data_held_out");
            if (!is_kept(c, index, run))
                continue;
            ++*kept;
            if (own[0] != '\0' && judged_by[0] != '\0' && strcmp(own, judged_by) != 0)
                difference = "held-out data";
        }
    }
    return difference;
}

/** Gives compare.json the next free name compare-N.json. */
static cod_status put_aside(const cod_comparison *c, const char *folder, const char *path, const char *why)
{
    char aside[COD_COMPARE_PATH + 32];
    int number = 1;
    do
        snprintf(aside, sizeof aside, "%s/compare-%d.json", folder, number++);
    while (number < 1000000 && cod_file_exists(aside));
    if (rename(path, aside) != 0)
        return cod_fail(COD_ERR_IO, "cannot rename '%s' to '%s': %s", path, aside, strerror(errno));
    cod_compare_say(c, "what an earlier comparison found is kept as %s: %s", aside, why);
    return COD_OK;
}

cod_status cod_compare_read_earlier(const cod_comparison *c, const char *folder, cod_json_value **out)
{
    char path[COD_COMPARE_PATH + 16], why[128];
    void *data = NULL;
    size_t bytes = 0, kept = 0;
    *out = NULL;
    snprintf(path, sizeof path, "%s/compare.json", folder);
    if (!cod_file_exists(path))
        return COD_OK;
    COD_TRY(cod_file_read(path, COMPARISON_BYTES, &data, &bytes));
    const cod_status status = cod_json_parse(data, bytes, out);
    free(data);
    if (status != COD_OK || strcmp(text_of(*out, "format"), COD_COMPARE_FORMAT) != 0) {
        cod_json_free(*out);
        *out = NULL;
        return put_aside(c, folder, path, "it cannot be read");
    }
    const char *difference = find_difference(c, *out, &kept);
    if (kept > 0 && difference == NULL) {
        cod_compare_say(c, "%zu runs of an earlier comparison stay in %s", kept, path);
        return COD_OK;
    }
    cod_json_free(*out);
    *out = NULL;
    if (kept == 0)
        return COD_OK;
    snprintf(why, sizeof why, "its %s differ%s from this one's", difference,
             strcmp(difference, "arms") == 0 || strcmp(difference, "held-out data") == 0 ? "" : "s");
    return put_aside(c, folder, path, why);
}

void cod_compare_write_earlier_runs(const cod_comparison *c, size_t arm, const cod_json_value *earlier, cod_json *json)
{
    for (const cod_json_value *one = cod_json_first(cod_json_get(earlier, "arms")); one != NULL;
         one = cod_json_next(one)) {
        if (arm_called(c, text_of(one, "name")) != arm)
            continue;
        for (const cod_json_value *run = cod_json_first(cod_json_get(one, "runs")); run != NULL;
             run = cod_json_next(run))
            if (is_kept(c, arm, run))
                cod_json_copy(json, NULL, run);
    }
}

void cod_compare_write_earlier_arms(const cod_comparison *c, const cod_json_value *earlier, cod_json *json)
{
    for (const cod_json_value *arm = cod_json_first(cod_json_get(earlier, "arms")); arm != NULL;
         arm = cod_json_next(arm))
        if (arm_called(c, text_of(arm, "name")) == c->arm_count)
            cod_json_copy(json, NULL, arm);
}
