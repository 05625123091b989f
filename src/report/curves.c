/*
 * Quality against steps, time and bytes: a line for each arm, which is the mean over its seeds, with a band of one
 * standard deviation.
 */
#include "report/report_internal.h"

#include <math.h>
#include <stdlib.h>

enum { MOST_POINTS = 240 }; /* of a line; more would only make the page large */

typedef struct source {
    const cod_report_point *points;
    size_t count;
} source;

static double x_of(const cod_report_point *point, cod_curve_axis axis)
{
    return axis == COD_CURVE_TIME ? point->time_s : axis == COD_CURVE_BYTES ? point->bytes_between : point->step;
}

static int by_step(const void *a, const void *b)
{
    const double x = ((const cod_report_point *)a)->step, y = ((const cod_report_point *)b)->step;
    return (x > y) - (x < y);
}

/** The curves of an arm's finished runs at a rate. */
static size_t find_sources(const cod_report_arm *arm, size_t rate, cod_curve_axis axis, source *sources)
{
    size_t count = 0;
    for (size_t i = 0; i < arm->run_count; i++) {
        const cod_report_run *run = &arm->runs[i];
        const bool apart = axis == COD_CURVE_DISAGREEMENT;
        const source s = {apart ? run->disagreement : run->curve, apart ? run->disagreement_count : run->curve_count};
        if (run->finished && run->rate == rate && s.count > 0)
            sources[count++] = s;
    }
    return count;
}

/** The point of every source that belongs to the first's k-th: of the same step. False where one has none. */
static bool find_points(const source *sources, size_t count, size_t k, const cod_report_point **points)
{
    for (size_t i = 0; i < count; i++) {
        points[i] =
            bsearch(&sources[0].points[k], sources[i].points, sources[i].count, sizeof *sources[i].points, by_step);
        if (points[i] == NULL)
            return false;
    }
    return true;
}

/** Mean and deviation of a point over the sources; false where x is unknown. */
static bool sum_up(const cod_report_point *const *points, size_t count, cod_curve_axis axis, double *values, double *xs,
                   double out[3])
{
    for (size_t i = 0; i < count; i++) {
        values[i] = points[i]->quality;
        xs[i] = x_of(points[i], axis);
    }
    out[0] = cod_mean(xs, count);
    out[1] = cod_mean(values, count);
    out[2] = cod_deviation(values, count);
    return !isnan(out[0]);
}

cod_status cod_report_curve(const cod_report *report, size_t arm, size_t rate, cod_curve_axis axis, double scale,
                            cod_line *line)
{
    const cod_report_arm *a = &report->data->arms[arm];
    const size_t room = a->run_count + 1;
    source *sources = cod_arena_alloc(report->arena, room * sizeof *sources);
    const cod_report_point **points = cod_arena_alloc(report->arena, room * sizeof *points);
    double *scratch = cod_arena_alloc(report->arena, 2 * room * sizeof *scratch);
    COD_REQUIRE_MEMORY(sources);
    COD_REQUIRE_MEMORY(points);
    COD_REQUIRE_MEMORY(scratch);
    const size_t runs = find_sources(a, rate, axis, sources), length = runs > 0 ? sources[0].count : 0,
                 stride = length / MOST_POINTS + 1;
    double *x = cod_arena_alloc(report->arena, (3 * length + 1) * sizeof *x), *y = x + length, *spread = y + length;
    COD_REQUIRE_MEMORY(x);
    size_t count = 0;
    for (size_t k = 0; k < length; k++) {
        double point[3];
        if ((k % stride != stride - 1 && k + 1 < length) || !find_points(sources, runs, k, points) ||
            !sum_up(points, runs, axis, scratch, scratch + room, point))
            continue;
        x[count] = point[0] * scale;
        y[count] = point[1];
        spread[count++] = point[2];
    }
    *line = (cod_line){.name = a->name, .style = arm, .count = count, .x = x, .y = y, .spread = spread};
    return COD_OK;
}

/**
 * The range of qualities to show: a run's first fifth, where it has learned little, would else flatten the differences
 * at the end.
 */
static void find_focus(const cod_report_metric *metric, const cod_line *lines, size_t count, double *low, double *high)
{
    double all_low = INFINITY, all_high = -INFINITY;
    *low = INFINITY;
    *high = -INFINITY;
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < lines[i].count; k++) {
            const double spread = isnan(lines[i].spread[k]) ? 0 : lines[i].spread[k], y = lines[i].y[k];
            all_low = fmin(all_low, y - spread);
            all_high = fmax(all_high, y + spread);
            if (5 * (k + 1) <= lines[i].count)
                continue;
            *low = fmin(*low, y - spread);
            *high = fmax(*high, y + spread);
        }
    /* The good end is shown whole. */
    if (metric->higher_is_better)
        *high = all_high;
    else
        *low = all_low;
    if (all_high - all_low < 2 * (*high - *low)) { /* little is gained */
        *low = all_low;
        *high = all_high;
    }
}

cod_scaling cod_report_bytes_unit(double bytes)
{
    static const cod_scaling sizes[] = {{1e-9, "GB"}, {1e-6, "MB"}, {1e-3, "kB"}, {1, "bytes"}};
    return bytes >= 1e9 ? sizes[0] : bytes >= 1e6 ? sizes[1] : bytes >= 1e3 ? sizes[2] : sizes[3];
}

/** A unit for the x axis in which its largest number is handy. */
static cod_scaling choose_scale(cod_curve_axis axis, double highest, bool logarithmic)
{
    static const cod_scaling times[] = {{1.0 / 3600, "hours"}, {1.0 / 60, "minutes"}, {1, "s"}, {1e3, "ms"}};
    if (axis == COD_CURVE_BYTES)
        return cod_report_bytes_unit(highest);
    if (axis != COD_CURVE_TIME)
        return (cod_scaling){1, "steps"};
    if (logarithmic || (highest >= 0.1 && highest < 300))
        return times[2];
    return highest >= 2 * 3600 ? times[0] : highest >= 300 ? times[1] : times[3];
}

/** Lines of the arms that have one, in `lines`; what they span. Of bytes only those above none count. */
static cod_status gather(const cod_report *report, size_t rate, cod_curve_axis axis, double scale, cod_line *lines,
                         size_t *count, double *least_end, double *highest)
{
    *count = 0;
    *least_end = INFINITY;
    *highest = 0;
    for (size_t i = 0; i < report->data->arm_count; i++) {
        cod_line line;
        COD_TRY(cod_report_curve(report, i, rate, axis, scale, &line));
        const double end = line.count > 0 ? line.x[line.count - 1] : NAN;
        if (line.count == 0 || (axis == COD_CURVE_BYTES && !(end > 0)))
            continue;
        *least_end = fmin(*least_end, end);
        *highest = fmax(*highest, end);
        lines[(*count)++] = line;
    }
    return COD_OK;
}

static const char *describe(const cod_report *report, cod_curve_axis axis)
{
    bool silent = false;
    if (axis == COD_CURVE_STEP)
        return "Mean over seeds, band: ± one standard deviation.";
    if (axis == COD_CURVE_TIME)
        return "Time spent in steps, without evaluations and checkpoints. Each point is one evaluation: mean time, "
               "mean quality.";
    for (size_t i = 0; i < report->data->arm_count; i++) {
        cod_line line;
        silent = silent || (cod_report_curve(report, i, 0, COD_CURVE_BYTES, 1, &line) == COD_OK && line.count > 0 &&
                            !(line.x[line.count - 1] > 0));
    }
    return silent ? "All bytes that crossed between groups so far; arms that sent none are not shown."
                  : "All bytes that crossed between groups so far.";
}

static cod_status add_plot(cod_report *report, size_t rate, cod_curve_axis axis, const char *title, const char *file)
{
    const cod_report_metric *metric = &report->data->metric;
    cod_line *lines = cod_arena_alloc(report->arena, (report->data->arm_count + 1) * sizeof *lines);
    size_t count;
    double least_end, highest, low, high;
    COD_REQUIRE_MEMORY(lines);
    COD_TRY(gather(report, rate, axis, 1, lines, &count, &least_end, &highest));
    if (count == 0)
        return COD_OK;
    const bool logarithmic = axis != COD_CURVE_STEP && highest > 8 * least_end;
    const cod_scaling unit = choose_scale(axis, highest, logarithmic);
    COD_TRY(gather(report, rate, axis, unit.factor, lines, &count, &least_end, &highest));
    find_focus(metric, lines, count, &low, &high);
    const char *what = axis == COD_CURVE_TIME ? "time in steps, " : axis == COD_CURVE_BYTES ? "between groups, " : "";
    const cod_line_plot plot = {.title = cod_report_text(report, "%s%s", title, cod_report_rate_suffix(report, rate)),
                                .x_label = cod_report_text(report, "%s%s", what, unit.unit),
                                .y_label =
                                    metric->unit[0] != '\0'
                                        ? cod_report_text(report, "validation data, mean of groups, %s", metric->unit)
                                        : "validation data, mean of groups",
                                .lines = lines,
                                .count = count,
                                .x_log = logarithmic,
                                .few_marks = true,
                                .x_low = logarithmic ? NAN : 0,
                                .y_low = low,
                                .y_high = high};
    return cod_report_add_line_plot(report, &plot, cod_report_file_name(report, file, rate), describe(report, axis));
}

/** Whether any run that counts has been evaluated on its way. */
static bool has_curves(const cod_report_data *data)
{
    for (size_t i = 0; i < data->arm_count; i++)
        for (size_t k = 0; k < data->arms[i].run_count; k++)
            if (data->arms[i].runs[k].finished && data->arms[i].runs[k].curve_count > 0)
                return true;
    return false;
}

cod_status cod_report_curves(cod_report *report)
{
    fputs("<section id=\"curves\">\n<h2>Quality while training</h2>\n", report->out);
    if (has_curves(report->data)) {
        fputs("<div class=\"figures\">\n", report->out);
        COD_TRY(add_plot(report, 0, COD_CURVE_STEP, "Quality against steps", "quality-steps"));
        for (size_t rate = 0; rate < report->data->rate_count; rate++)
            COD_TRY(add_plot(report, rate, COD_CURVE_TIME, "Quality against time", "quality-time"));
        COD_TRY(add_plot(report, 0, COD_CURVE_BYTES, "Quality against bytes between groups", "quality-bytes"));
        fputs("</div>\n", report->out);
    } else {
        fputs("<p class=\"note\">No run recorded evaluations on its way, so there are no curves.</p>\n", report->out);
    }
    fputs("</section>\n", report->out);
    return COD_OK;
}
