#include "distill/control.h"

#include "core/statistics.h"
#include "core/whole.h"
#include "io/file.h"
#include "io/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BEHIND = 3, FEWEST_FOR_NOISE = 5 };

static cod_status read_line(const char *line, size_t bytes, const char *key, cod_control *control)
{
    cod_json_value *document = NULL;
    COD_TRY(cod_json_parse(line, bytes, &document));
    const double step = cod_json_get_number(cod_json_get(document, "step"), NAN);
    const double figure = cod_json_get_number(cod_json_get(document, key), NAN);
    cod_json_free(document);
    if (!cod_is_whole(step, 0, COD_WHOLE_MOST))
        return cod_fail(COD_ERR_FORMAT, "step is missing, too large or no whole number");
    if (isfinite(figure))
        control->points[control->count++] = (cod_control_point){.step = (int64_t)step, .figure = figure};
    return COD_OK;
}

/** A last line without its end is one that is being written. */
static cod_status read_lines(const char *text, const char *key, cod_control *control)
{
    int64_t number = 1;
    for (const char *end; (end = strchr(text, '\n')) != NULL; text = end + 1, number++) {
        const cod_status status = read_line(text, (size_t)(end - text), key, control);
        if (status != COD_OK)
            return cod_fail_prefix(status, "line %lld", (long long)number);
    }
    return COD_OK;
}

/**
 * From how far each lies from its neighbours' mean, whose variance is 1.5 times a point's; the median, so that a
 * curve's bends count little.
 */
static double noise_of(const cod_control *control)
{
    const double normal_median = 0.6745; /* of the absolute value of a standard normal number */
    double *off = calloc(control->count + 1, sizeof *off);
    size_t count = 0;
    if (off == NULL || control->count < FEWEST_FOR_NOISE) {
        free(off);
        return 0;
    }
    for (size_t i = 1; i + 1 < control->count; i++) {
        const cod_control_point *p = &control->points[i];
        off[count++] = fabs(p->figure - 0.5 * (p[-1].figure + p[1].figure));
    }
    const double noise = cod_median(off, count) / normal_median / sqrt(1.5);
    free(off);
    return noise;
}

cod_status cod_control_read(const char *folder, const char *key, bool less_is_better, cod_control *out)
{
    char path[4096];
    void *text = NULL;
    size_t bytes, lines = 1;
    *out = (cod_control){.less_is_better = less_is_better};
    snprintf(path, sizeof path, "%s/metrics.0.jsonl", folder);
    COD_TRY(cod_file_read(path, SIZE_MAX / 2, &text, &bytes));
    for (size_t i = 0; i < bytes; i++)
        lines += ((const char *)text)[i] == '\n';
    out->points = calloc(lines, sizeof *out->points);
    cod_status status = out->points != NULL ? read_lines(text, key, out)
                                            : cod_fail(COD_ERR_MEMORY, "out of memory for %zu evaluations", lines);
    free(text);
    if (status == COD_OK && out->count == 0)
        status = cod_fail(COD_ERR_FORMAT,
                          "it has no '%s': a control is a run on the same task, with eval.every above 0", key);
    if (status != COD_OK) {
        cod_control_clear(out);
        return cod_fail_prefix(status, "%s", path);
    }
    out->noise = noise_of(out);
    return COD_OK;
}

void cod_control_clear(cod_control *control)
{
    free(control->points);
    *control = (cod_control){0};
}

double cod_control_at(const cod_control *control, int64_t step)
{
    for (size_t i = 0; i < control->count; i++) {
        const cod_control_point *p = &control->points[i];
        if (p->step == step)
            return p->figure;
        if (p->step > step && i == 0)
            break;
        if (p->step > step)
            return p[-1].figure +
                   (p->figure - p[-1].figure) * (double)(step - p[-1].step) / (double)(p->step - p[-1].step);
    }
    return NAN;
}

bool cod_control_note(cod_control *control, int64_t step, double figure)
{
    const double there = cod_control_at(control, step);
    const double behind = control->less_is_better ? figure - there : there - figure;
    if (isnan(behind))
        return false;
    control->behind = behind > control->noise ? control->behind + 1 : 0;
    return control->behind == BEHIND;
}
