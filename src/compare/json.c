/* Writes compare.json: everything about the runs of a comparison. */
#include "compare/compare_internal.h"

#include "core/compare_format.h"
#include "core/processors.h"
#include "core/whole.h"
#include "io/file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { METRICS_BYTES = 1 << 30 };

static void write_metric(const cod_comparison *c, cod_json *json)
{
    const cod_task_figure *figure = &c->task->figures[0];
    char key[64], label[128];
    cod_compare_metric_key(c, key);
    cod_compare_describe_figure(c, strncmp(key, "test_", 5) == 0, label);
    cod_json_open(json, "metric", '{');
    cod_json_string(json, "name", key);
    cod_json_string(json, "label", label);
    cod_json_string(json, "unit", figure->unit);
    cod_json_bool(json, "higher_is_better", !figure->less_is_better);
    cod_json_integer(json, "digits", figure->digits);
    cod_json_close(json);
}

static void write_budget(const cod_comparison *c, cod_json *json)
{
    char text[2048];
    cod_compare_describe_budget(c, text, sizeof text);
    cod_json_open(json, "budget", '{');
    cod_json_string(json, "kind", cod_budget_names[c->config.compare.budget]);
    cod_json_number(json, "value", c->budget);
    cod_json_string(json, "text", text);
    cod_compare_write_asked(c, json);
    cod_json_close(json);
}

static void write_machine(cod_json *json)
{
    const cod_processors allowed = cod_processors_allowed();
    char text[256];
    cod_processors_describe(cod_processors_count(&allowed), text, sizeof text);
    cod_json_string(json, "machine", text);
}

static void write_now(cod_json *json)
{
    char text[32] = "";
    struct tm utc;
    const time_t now = time(NULL);
    if (gmtime_r(&now, &utc) != NULL)
        strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
    cod_json_string(json, "created", text);
}

/** A number where it is known. */
static void write_known(cod_json *json, const char *key, double value)
{
    if (!isnan(value))
        cod_json_number(json, key, value);
}

static void write_metrics(const cod_comparison *c, const cod_compare_run *run, cod_json *json)
{
    cod_json_open(json, "metrics", '{');
    for (int i = 0; i < 2 * c->task->figure_count; i++) {
        char key[80];
        snprintf(key, sizeof key, "%s%s", i < c->task->figure_count ? "test_" : "",
                 c->task->figures[i % c->task->figure_count].key);
        write_known(json, key, cod_compare_mean_of_groups(run, key));
    }
    cod_json_close(json);
}

/**
 * Parts of a step's time, as means over the groups. Time that is neither teaching, waiting nor exchange is computing.
 */
static void write_times(const cod_compare_run *run, cod_json *json)
{
    const double total = cod_compare_mean_of_groups(run, "step_ms_mean");
    const double teacher = cod_compare_mean_of_groups(run, "teacher_ms_mean");
    const double wait = cod_compare_mean_of_groups(run, "wait_ms_mean");
    const double exchange = cod_compare_mean_of_groups(run, "exchange_ms_mean");
    if (isnan(total))
        return;
    cod_json_open(json, "step_ms", '{');
    cod_json_number(json, "total", total);
    cod_json_number(json, "compute", fmax(0, total - teacher - wait - exchange));
    cod_json_number(json, "teacher", teacher);
    cod_json_number(json, "wait", wait);
    cod_json_number(json, "exchange", exchange);
    cod_json_close(json);
}

/** A line of a group's metrics with an evaluation. */
typedef struct point {
    int64_t step;
    double time_s, bytes, quality;
} point;

/** A group's points, and how many there is room for. */
typedef struct curve {
    point *points;
    size_t count, capacity;
} curve;

/** Adds the point of a line, if it has a quality. */
static cod_status add_point(const cod_comparison *c, const cod_compare_run *run, const cod_json_value *line, curve *to)
{
    const double quality = cod_json_get_number(cod_json_get(line, c->task->figures[0].key), NAN);
    const double step = cod_json_get_number(cod_json_get(line, "step"), NAN);
    if (isnan(quality) || !cod_is_whole(step, 0, COD_WHOLE_MOST))
        return COD_OK;
    if (to->count == to->capacity) {
        const size_t capacity = 2 * to->capacity + 32;
        point *moved = realloc(to->points, capacity * sizeof *moved);
        COD_REQUIRE_MEMORY(moved);
        to->points = moved;
        to->capacity = capacity;
    }
    to->points[to->count++] = (point){.step = (int64_t)step,
                                      .time_s = cod_json_get_number(cod_json_get(line, "trained_s"), NAN),
                                      .bytes = cod_json_get_number(cod_json_get(line, "intergroup_bytes"), NAN) +
                                               cod_compare_crossing(c, run) *
                                                   cod_json_get_number(cod_json_get(line, "intragroup_bytes"), NAN),
                                      .quality = quality};
    return COD_OK;
}

/** Reads a group's points. @param[out] out  points are new, also after a failure; free() */
static cod_status read_points(const cod_comparison *c, const cod_compare_run *run, int group, curve *out)
{
    char path[COD_COMPARE_PATH], file[40];
    void *data = NULL;
    size_t bytes = 0;
    cod_status status = COD_OK;
    *out = (curve){0};
    snprintf(file, sizeof file, "metrics.%d.jsonl", group);
    cod_compare_run_path(c, run, file, path);
    COD_TRY(cod_file_read(path, METRICS_BYTES, &data, &bytes));
    for (char *rest = NULL, *text = strtok_r(data, "\n", &rest); text != NULL && status == COD_OK;
         text = strtok_r(NULL, "\n", &rest)) {
        cod_json_value *line = NULL;
        status = cod_json_parse_line(text, strlen(text), &line);
        COD_THEN(status, add_point(c, run, line, out));
        cod_json_free(line);
    }
    free(data);
    return status;
}

/** Adds the points of one more group where it has a step too; the others go. */
static void join_points(curve *sum, const curve *more)
{
    size_t kept = 0;
    for (size_t i = 0; i < sum->count; i++)
        for (size_t k = 0; k < more->count; k++)
            if (more->points[k].step == sum->points[i].step) {
                sum->points[kept] = sum->points[i];
                sum->points[kept].time_s += more->points[k].time_s;
                sum->points[kept].bytes += more->points[k].bytes;
                sum->points[kept++].quality += more->points[k].quality;
                break;
            }
    sum->count = kept;
}

/** Quality on held-out data at each evaluation: means over the groups; bytes of all. */
static cod_status write_curve(const cod_comparison *c, const cod_compare_run *run, cod_json *json)
{
    const int groups = cod_compare_groups(run);
    curve sum;
    cod_status status = read_points(c, run, 0, &sum);
    for (int g = 1; g < groups && status == COD_OK; g++) {
        curve more;
        status = read_points(c, run, g, &more);
        join_points(&sum, &more);
        free(more.points);
    }
    cod_json_open(json, "curve", '[');
    for (size_t i = 0; i < sum.count && status == COD_OK; i++) {
        cod_json_open(json, NULL, '{');
        cod_json_integer(json, "step", sum.points[i].step);
        cod_json_number(json, "time_s", sum.points[i].time_s / groups);
        cod_json_number(json, "bytes_between", sum.points[i].bytes);
        cod_json_number(json, "quality", sum.points[i].quality / groups);
        cod_json_close(json);
    }
    cod_json_close(json);
    free(sum.points);
    return status;
}

static cod_status write_finished(const cod_comparison *c, const cod_compare_run *run, cod_json *json)
{
    char key[64];
    const int groups = cod_compare_groups(run);
    cod_compare_metric_key(c, key);
    cod_json_number(json, "steps", cod_compare_number(run, "steps"));
    cod_json_number(json, "samples", cod_compare_number(run, "samples_per_group") * groups);
    cod_json_number(json, "wall_s", cod_compare_number(run, "wall_s"));
    cod_json_number(json, "core_s", cod_compare_number(run, "core_s"));
    cod_json_number(json, "trained_s", cod_compare_mean_of_groups(run, "trained_s"));
    cod_json_number(json, "quality", cod_compare_mean_of_groups(run, key));
    write_known(json, "final_quality", cod_compare_number(run, key));
    cod_json_open(json, "group_quality", '[');
    for (int g = 0; g < groups; g++)
        cod_json_number(json, NULL, cod_compare_group_number(run, g, key));
    cod_json_close(json);
    write_metrics(c, run, json);
    write_times(run, json);
    cod_json_open(json, "bytes", '{');
    cod_json_number(json, "inside", cod_compare_inside_bytes(c, run));
    cod_json_number(json, "between", cod_compare_between_bytes(c, run));
    cod_json_close(json);
    COD_TRY(write_curve(c, run, json));
    COD_TRY(cod_compare_write_disagreement(c, run, json));
    return cod_compare_write_reliability(c, run, json);
}

/** Which data the run was trained on and judged by. */
static void write_data(const cod_compare_run *run, cod_json *json)
{
    static const char *const keys[] = {"data_files", "data_held_out"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const char *key = cod_json_get_string(cod_json_get(run->summary, keys[i]), NULL);
        if (key != NULL)
            cod_json_string(json, keys[i], key);
    }
}

static cod_status write_run(const cod_comparison *c, const cod_compare_run *run, cod_json *json)
{
    char folder[COD_COMPARE_PATH];
    cod_status status = COD_OK;
    cod_compare_run_path(c, run, "", folder);
    cod_json_open(json, NULL, '{');
    cod_json_integer(json, "seed", run->seed);
    cod_json_string(json, "rate", c->rates[run->rate]);
    cod_json_string(json, "folder", folder);
    cod_json_string(json, "state", cod_compare_state_names[run->state]);
    if (run->state == COD_COMPARE_FAILED)
        cod_json_string(json, "message", run->message);
    if (run->state == COD_COMPARE_FINISHED) {
        write_data(run, json);
        status = write_finished(c, run, json);
    }
    cod_json_close(json);
    return status;
}

static cod_status write_arm(const cod_comparison *c, size_t index, const cod_json_value *earlier, cod_json *json)
{
    const cod_compare_arm *arm = &c->arms[index];
    const cod_compare_run *known = cod_compare_finished_run(c, index);
    cod_status status = COD_OK;
    cod_json_open(json, NULL, '{');
    cod_json_string(json, "name", arm->name);
    cod_json_string(json, "strategy", arm->kind->name);
    cod_json_open(json, "set", '[');
    for (size_t i = 0; i < arm->set_count; i++)
        cod_json_string(json, NULL, arm->set[i]);
    cod_json_close(json);
    cod_compare_write_tuned(c, arm, json);
    cod_json_number(json, "groups", known != NULL ? cod_compare_number(known, "groups") : arm->groups);
    cod_json_number(json, "ranks", known != NULL ? cod_compare_number(known, "ranks") : arm->ranks);
    cod_json_open(json, "runs", '[');
    for (size_t i = 0; i < c->run_count && status == COD_OK; i++)
        if (c->runs[i].arm == index)
            status = write_run(c, &c->runs[i], json);
    cod_compare_write_earlier_runs(c, index, earlier, json);
    cod_json_close(json);
    cod_json_close(json);
    return status;
}

static cod_status write_all(const cod_comparison *c, const char *folder, const cod_json_value *earlier, cod_json *json)
{
    cod_status status = COD_OK;
    cod_json_open(json, NULL, '{');
    cod_json_string(json, "format", COD_COMPARE_FORMAT);
    cod_json_string(json, "title", c->config.root.name);
    cod_json_string(json, "config", c->arguments->path);
    cod_json_string(json, "config_text", c->config_text);
    write_now(json);
    cod_json_string(json, "version", c->host->version);
    write_machine(json);
    cod_json_string(json, "baseline", c->arms[c->baseline].name);
    write_metric(c, json);
    write_budget(c, json);
    cod_compare_write_tuning(c, json);
    cod_json_open(json, "rates", '[');
    for (size_t i = 0; i < c->rate_count; i++)
        cod_json_string(json, NULL, c->rates[i]);
    cod_json_close(json);
    cod_json_open(json, "arms", '[');
    for (size_t i = 0; i < c->arm_count && status == COD_OK; i++)
        status = write_arm(c, i, earlier, json);
    cod_compare_write_earlier_arms(c, earlier, json);
    cod_json_close(json);
    COD_THEN(status, cod_compare_write_churn(c, json));
    COD_THEN(status, cod_compare_write_crops(c, folder, json));
    cod_json_close(json);
    return status;
}

cod_status cod_compare_write_json(const cod_comparison *c, const char *folder)
{
    cod_json json = {.indent = 1};
    cod_json_value *earlier = NULL;
    char path[COD_COMPARE_PATH], *text = NULL;
    COD_TRY(cod_compare_read_earlier(c, folder, &earlier));
    cod_status status = write_all(c, folder, earlier, &json);
    cod_json_free(earlier);
    if (status != COD_OK) {
        cod_json_clear(&json);
        return status;
    }
    COD_TRY(cod_json_end(&json, &text));
    snprintf(path, sizeof path, "%s/compare.json", folder);
    status = cod_file_write(path, text, strlen(text));
    COD_THEN(status, cod_compare_write_csv(folder, text));
    free(text);
    return status;
}
