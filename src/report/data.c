#include "report/data_internal.h"

#include "core/compare_format.h"
#include "io/file.h"
#include "report/significance.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define get_text(object, key) cod_json_get_string(cod_json_get((object), (key)), "")

enum { MAX_FILE_BYTES = 1 << 28, MAX_DIGITS = 6 };

/** A number that arithmetic can be done with; absurd ones count as absent. */
static double get_number(const cod_json_value *object, const char *key)
{
    const double value = cod_json_get_number(cod_json_get(object, key), NAN);
    return fabs(value) < 1e18 ? value : NAN;
}

/** Zeroed room in the arena, at least one item. */
static cod_status make_room(cod_report_data *data, size_t count, size_t bytes, void *out)
{
    void *room = cod_arena_alloc(&data->arena, (count > 0 ? count : 1) * bytes);
    COD_REQUIRE_MEMORY(room);
    memcpy(out, &room, sizeof room);
    return COD_OK;
}

double cod_report_parse_rate(const char *name)
{
    static const struct {
        const char *unit;
        double factor;
    } units[] = {{"bit", 1}, {"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}, {"tbit", 1e12}};
    char *end;
    if (strcmp(name, "none") == 0)
        return INFINITY;
    const double number = strtod(name, &end);
    for (size_t i = 0; i < sizeof units / sizeof units[0] && end != name; i++)
        if (strcmp(end, units[i].unit) == 0 && number > 0 && number < 1e9)
            return number * units[i].factor;
    return NAN;
}

static size_t find_rate(const cod_report_data *data, const char *name)
{
    size_t i = 0;
    while (i < data->rate_count && strcmp(data->rates[i].name, name) != 0)
        i++;
    return i;
}

static void add_rate(cod_report_data *data, const cod_json_value *value)
{
    const char *name = cod_json_get_string(value, "none");
    if (find_rate(data, name) == data->rate_count)
        data->rates[data->rate_count++] =
            (cod_report_rate){.name = name, .bits_per_second = cod_report_parse_rate(name)};
}

/** Reads the rates that the comparison names, and those that only runs name. */
static cod_status read_rates(cod_report_data *data)
{
    const cod_json_value *rates = cod_json_get(data->document, "rates"), *arms = cod_json_get(data->document, "arms");
    size_t most = cod_json_count(rates) + 1;
    for (const cod_json_value *arm = cod_json_first(arms); arm != NULL; arm = cod_json_next(arm))
        most += cod_json_count(cod_json_get(arm, "runs"));
    COD_TRY(make_room(data, most, sizeof *data->rates, &data->rates));
    for (const cod_json_value *rate = cod_json_first(rates); rate != NULL; rate = cod_json_next(rate))
        add_rate(data, rate);
    for (const cod_json_value *arm = cod_json_first(arms); arm != NULL; arm = cod_json_next(arm))
        for (const cod_json_value *run = cod_json_first(cod_json_get(arm, "runs")); run != NULL;
             run = cod_json_next(run))
            add_rate(data, cod_json_get(run, "rate"));
    if (data->rate_count == 0)
        add_rate(data, NULL);
    return COD_OK;
}

/** Points that have a step and the value of `key`, sorted; of one step (a resumed run) the later. */
static cod_status read_points(cod_report_data *data, const cod_json_value *list, const char *key,
                              cod_report_point **points, size_t *count)
{
    size_t kept = 0;
    COD_TRY(make_room(data, cod_json_count(list), sizeof **points, points));
    for (const cod_json_value *item = cod_json_first(list); item != NULL; item = cod_json_next(item)) {
        const cod_report_point point = {.step = get_number(item, "step"),
                                        .time_s = get_number(item, "time_s"),
                                        .bytes_between = get_number(item, "bytes_between"),
                                        .quality = get_number(item, key)};
        if (isnan(point.step) || isnan(point.quality))
            continue;
        size_t place = kept; /* most come in order */
        while (place > 0 && (*points)[place - 1].step > point.step)
            place--;
        if (place > 0 && (*points)[place - 1].step == point.step) {
            (*points)[place - 1] = point;
            continue;
        }
        memmove(*points + place + 1, *points + place, (kept - place) * sizeof **points);
        (*points)[place] = point;
        kept++;
    }
    *count = kept;
    return COD_OK;
}

static cod_status read_bins(cod_report_data *data, const cod_json_value *list, cod_report_run *run)
{
    COD_TRY(make_room(data, cod_json_count(list), sizeof *run->bins, &run->bins));
    for (const cod_json_value *item = cod_json_first(list); item != NULL; item = cod_json_next(item)) {
        const cod_report_bin bin = {get_number(item, "confidence"), get_number(item, "accuracy"),
                                    get_number(item, "count")};
        if (bin.confidence >= 0 && bin.confidence <= 1 && bin.accuracy >= 0 && bin.accuracy <= 1 && bin.count > 0)
            run->bins[run->bin_count++] = bin;
    }
    return COD_OK;
}

static cod_status read_run(cod_report_data *data, const cod_json_value *value, cod_report_run *run)
{
    static const char *const parts[COD_STEP_PARTS] = {"total", "compute", "teacher", "wait", "exchange"};
    const cod_json_value *bytes = cod_json_get(value, "bytes"), *metrics = cod_json_get(value, "metrics");
    *run = (cod_report_run){.seed = get_number(value, "seed"),
                            .rate = find_rate(data, cod_json_get_string(cod_json_get(value, "rate"), "none")),
                            .state = get_text(value, "state"),
                            .message = get_text(value, "message"),
                            .folder = get_text(value, "folder"),
                            .steps = get_number(value, "steps"),
                            .samples = get_number(value, "samples"),
                            .wall_s = get_number(value, "wall_s"),
                            .trained_s = get_number(value, "trained_s"),
                            .core_s = get_number(value, "core_s"),
                            .quality = get_number(value, "quality"),
                            .final_quality = get_number(value, "final_quality"),
                            .bytes_inside = get_number(bytes, "inside"),
                            .bytes_between = get_number(bytes, "between"),
                            .metrics = cod_json_kind_of(metrics) == COD_JSON_OBJECT ? metrics : NULL};
    run->finished = strcmp(run->state, "finished") == 0 || (run->state[0] == '\0' && !isnan(run->quality));
    for (size_t i = 0; i < COD_STEP_PARTS; i++)
        run->step_ms[i] = get_number(cod_json_get(value, "step_ms"), parts[i]);
    COD_TRY(read_points(data, cod_json_get(value, "curve"), "quality", &run->curve, &run->curve_count));
    COD_TRY(read_points(data, cod_json_get(value, "disagreement"), "percent", &run->disagreement,
                        &run->disagreement_count));
    return read_bins(data, cod_json_get(value, "reliability"), run);
}

/** The texts of a list, with blanks between. */
static cod_status join(cod_report_data *data, const cod_json_value *list, const char **out)
{
    size_t bytes = 1;
    char *text = NULL;
    for (const cod_json_value *item = cod_json_first(list); item != NULL; item = cod_json_next(item))
        bytes += strlen(cod_json_get_string(item, "")) + 1;
    COD_TRY(make_room(data, bytes, 1, &text));
    size_t length = 0;
    for (const cod_json_value *item = cod_json_first(list); item != NULL; item = cod_json_next(item))
        length += (size_t)snprintf(text + length, bytes - length, "%s%s", length > 0 ? " " : "",
                                   cod_json_get_string(item, ""));
    *out = text;
    return COD_OK;
}

static cod_status read_arm(cod_report_data *data, const cod_json_value *value, cod_report_arm *arm)
{
    const cod_json_value *runs = cod_json_get(value, "runs"), *tuned = cod_json_get(value, "tuned");
    *arm = (cod_report_arm){.name = cod_json_get_string(cod_json_get(value, "name"), "(no name)"),
                            .strategy = get_text(value, "strategy"),
                            .groups = get_number(value, "groups"),
                            .ranks = get_number(value, "ranks"),
                            .tuned = cod_json_kind_of(tuned) == COD_JSON_OBJECT ? tuned : NULL};
    COD_TRY(join(data, cod_json_get(value, "set"), &arm->settings));
    COD_TRY(make_room(data, cod_json_count(runs), sizeof *arm->runs, &arm->runs));
    for (const cod_json_value *run = cod_json_first(runs); run != NULL; run = cod_json_next(run))
        COD_TRY(read_run(data, run, &arm->runs[arm->run_count++]));
    return COD_OK;
}

static cod_status read_arms(cod_report_data *data)
{
    const cod_json_value *arms = cod_json_get(data->document, "arms");
    const char *baseline = cod_json_get_string(cod_json_get(data->document, "baseline"), NULL);
    COD_TRY(make_room(data, cod_json_count(arms), sizeof *data->arms, &data->arms));
    for (const cod_json_value *arm = cod_json_first(arms); arm != NULL; arm = cod_json_next(arm))
        COD_TRY(read_arm(data, arm, &data->arms[data->arm_count++]));
    data->baseline = data->arm_count;
    for (size_t i = data->arm_count; baseline != NULL && i-- > 0;)
        if (strcmp(data->arms[i].name, baseline) == 0)
            data->baseline = i;
    return COD_OK;
}

static cod_report_metric read_metric(const cod_json_value *value)
{
    const double digits = get_number(value, "digits");
    const char *name = get_text(value, "name");
    return (cod_report_metric){
        .name = name,
        .label = cod_json_get_string(cod_json_get(value, "label"), name[0] != '\0' ? name : "quality"),
        .unit = get_text(value, "unit"),
        .higher_is_better = cod_json_get_bool(cod_json_get(value, "higher_is_better"), true),
        .digits = digits >= 0 && digits <= MAX_DIGITS ? (int)digits : 2};
}

static cod_status read_document(cod_report_data *data)
{
    const cod_json_value *root = data->document;
    const char *format = cod_json_get_string(cod_json_get(root, "format"), NULL);
    if (cod_json_kind_of(root) != COD_JSON_OBJECT || format == NULL)
        return cod_fail(COD_ERR_FORMAT,
                        "no comparison: it has no \"format\"; `codistill compare` writes one of \"" COD_COMPARE_FORMAT
                        "\"");
    if (strcmp(format, COD_COMPARE_FORMAT) != 0)
        return cod_fail(COD_ERR_FORMAT, "its format is \"%.60s\"; this version reads \"" COD_COMPARE_FORMAT "\"",
                        format);
    data->title = cod_json_get_string(cod_json_get(root, "title"), "Comparison");
    data->config = get_text(root, "config");
    data->config_text = get_text(root, "config_text");
    data->created = get_text(root, "created");
    data->version = get_text(root, "version");
    data->machine = get_text(root, "machine");
    data->budget = get_text(cod_json_get(root, "budget"), "text");
    data->metric = read_metric(cod_json_get(root, "metric"));
    COD_TRY(read_rates(data));
    return read_arms(data);
}

cod_status cod_report_data_read(const char *folder, cod_report_data *data)
{
    void *text = NULL;
    size_t bytes = 0;
    *data = (cod_report_data){0};
    const char *path = cod_path_join(&data->arena, folder, "compare.json");
    COD_REQUIRE_MEMORY(path);
    COD_TRY(cod_file_read(path, MAX_FILE_BYTES, &text, &bytes));
    cod_status status = cod_json_parse(text, bytes, &data->document);
    free(text);
    COD_THEN(status, read_document(data));
    return status == COD_OK ? COD_OK : cod_fail_prefix(status, "%s", path);
}

void cod_report_data_clear(cod_report_data *data)
{
    cod_json_free(data->document);
    cod_arena_clear(&data->arena);
    *data = (cod_report_data){0};
}

size_t cod_report_collect(const cod_report_arm *arm, size_t rate, cod_report_figure figure, const void *context,
                          double *values, double *seeds)
{
    size_t count = 0;
    for (size_t i = 0; i < arm->run_count; i++) {
        const cod_report_run *run = &arm->runs[i];
        const double value = run->finished && run->rate == rate ? figure(run, context) : NAN;
        if (isnan(value))
            continue;
        if (seeds != NULL)
            seeds[count] = run->seed;
        values[count++] = value;
    }
    return count;
}

cod_spread cod_report_spread(const cod_report_arm *arm, size_t rate, cod_report_figure figure, const void *context)
{
    double *values = calloc(arm->run_count + 1, sizeof *values);
    if (values == NULL)
        return (cod_spread){.mean = NAN, .deviation = NAN};
    const size_t count = cod_report_collect(arm, rate, figure, context, values, NULL);
    const cod_spread spread = {count, cod_mean(values, count), cod_deviation(values, count)};
    free(values);
    return spread;
}

double cod_report_quality(const cod_report_run *run, const void *context)
{
    (void)context;
    return run->quality;
}

double cod_report_metric_of(const cod_report_run *run, const void *context)
{
    return get_number(run->metrics, context);
}

double cod_report_member(const cod_report_run *run, const void *context)
{
    double value;
    memcpy(&value, (const char *)run + *(const size_t *)context, sizeof value);
    return value;
}

bool cod_report_better(const cod_report_metric *metric, double a, double b)
{
    return metric->higher_is_better ? a > b : a < b;
}

const char *cod_report_difference_unit(const cod_report_metric *metric)
{
    return strcmp(metric->unit, "%") == 0 ? "points" : metric->unit;
}
