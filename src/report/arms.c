/* Tables of the arms: their settings and their figures. */
#include "report/report_internal.h"

#include <math.h>
#include <string.h>

/** How a cell is written: three significant figures, the judging metric's digits, or with its own unit. */
typedef enum column_kind { FIGURE, QUALITY, BYTES } column_kind;

typedef struct column {
    const char *head, *unit; /**< unit: "" = none, or in the cells */
    column_kind kind;
    cod_report_figure figure;
    const void *context;
} column;

enum { MAX_COLUMNS = 40 };

/** Examples a second, of all groups together. */
static double speed(const cod_report_run *run, const void *context)
{
    (void)context;
    return run->wall_s > 0 ? run->samples / run->wall_s : NAN;
}

static bool is_known(const column *columns, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (columns[i].figure == cod_report_metric_of && strcmp(columns[i].context, name) == 0)
            return true;
    return false;
}

static bool is_of_test(const char *name)
{
    return strncmp(name, "test_", 5) == 0;
}

/**
 * "test_cross_entropy" -> "test cross entropy"; where test data judge, "cross_entropy" -> "held-out cross entropy". The
 * calibration error is told apart from that of all groups' predictions together (agreement.c).
 */
static const char *plain_name(const cod_report *report, const char *name)
{
    static const char calibration[] = "calibration_error";
    const bool held_out = is_of_test(report->data->metric.name) && !is_of_test(name);
    const bool by_groups = strcmp(name + (is_of_test(name) ? 5 : 0), calibration) == 0;
    char *text = cod_arena_strdup(report->arena, cod_report_text(report, "%s%s%s", held_out ? "held-out " : "", name,
                                                                 by_groups ? ", each group's own, mean" : ""));
    for (char *c = text; c != NULL && *c != '\0'; c++)
        if (*c == '_')
            *c = ' ';
    return text != NULL ? text : name;
}

/** Columns of metrics: the judging metric first, then each other metric that a run has. */
static size_t add_metrics(const cod_report *report, column *columns, size_t count)
{
    const cod_report_data *data = report->data;
    for (size_t i = 0; i < data->arm_count; i++)
        for (size_t k = 0; k < data->arms[i].run_count; k++)
            for (const cod_json_value *value = cod_json_first(data->arms[i].runs[k].metrics); value != NULL;
                 value = cod_json_next(value)) {
                const char *name = cod_json_key(value);
                if (count < MAX_COLUMNS && strcmp(name, data->metric.name) != 0 && !is_known(columns, count, name) &&
                    cod_json_kind_of(value) == COD_JSON_NUMBER)
                    columns[count++] = (column){plain_name(report, name), "", FIGURE, cod_report_metric_of, name};
            }
    return count;
}

static bool is_empty(const cod_report_data *data, const column *c)
{
    for (size_t i = 0; i < data->arm_count; i++)
        for (size_t rate = 0; rate < data->rate_count; rate++)
            if (cod_report_spread(&data->arms[i], rate, c->figure, c->context).count > 0)
                return false;
    return true;
}

/**
 * The columns that any run fills. What arms are judged by, what it cost the link, and the time come first: these are
 * seen without scrolling.
 */
static size_t choose_columns(const cod_report *report, const cod_report_goal *goal, column *columns)
{
    static const size_t final = offsetof(cod_report_run, final_quality), steps = offsetof(cod_report_run, steps),
                        samples = offsetof(cod_report_run, samples), wall = offsetof(cod_report_run, wall_s),
                        trained = offsetof(cod_report_run, trained_s), core = offsetof(cod_report_run, core_s),
                        step = offsetof(cod_report_run, step_ms[COD_STEP_TOTAL]),
                        inside = offsetof(cod_report_run, bytes_inside),
                        between = offsetof(cod_report_run, bytes_between);
    const cod_report_metric *metric = &report->data->metric;
    size_t count = 0, kept = 0;
    columns[count++] = (column){cod_report_text(report, "%s, mean of groups", metric->label), metric->unit, QUALITY,
                                cod_report_quality, NULL};
    columns[count++] = (column){"sent between groups", "", BYTES, cod_report_member, &between};
    columns[count++] = (column){cod_report_text(report, "%s, final model", metric->label), metric->unit, QUALITY,
                                cod_report_member, &final};
    if (!isnan(goal->target))
        columns[count++] = (column){cod_report_text(report, "time to %s%s%s (validation)",
                                                    cod_number_text(goal->target, metric->digits).text,
                                                    metric->unit[0] != '\0' ? " " : "", metric->unit),
                                    "s", FIGURE, cod_report_time_to, goal};
    const column rest[] = {{"wall time", "s", FIGURE, cod_report_member, &wall},
                           {"steps", "", FIGURE, cod_report_member, &steps},
                           {"samples, all groups", "", FIGURE, cod_report_member, &samples},
                           {"time in steps", "s", FIGURE, cod_report_member, &trained},
                           {"processor time", "core-s", FIGURE, cod_report_member, &core},
                           {"step time", "ms", FIGURE, cod_report_member, &step},
                           {"speed", "samples/s", FIGURE, speed, NULL},
                           {"sent inside groups", "", BYTES, cod_report_member, &inside}};
    for (size_t i = 0; i < sizeof rest / sizeof rest[0]; i++)
        columns[count++] = rest[i];
    count = add_metrics(report, columns, count);
    for (size_t i = 0; i < count; i++)
        if (!is_empty(report->data, &columns[i]))
            columns[kept++] = columns[i];
    return kept;
}

/** Digits that show three figures of `value`. */
static int digits_of(double value)
{
    return value == 0 || !isfinite(value) ? 0 : (int)fmax(0, fmin(6, 2 - floor(log10(fabs(value)) + 1e-12)));
}

static void write_cell(cod_report *report, const column *c, cod_spread spread)
{
    const int digits = c->kind == QUALITY ? report->data->metric.digits : digits_of(spread.mean);
    fputs("<td>", report->out);
    if (spread.count == 0)
        fputs("–", report->out);
    else if (c->kind == BYTES)
        fputs(cod_bytes_text(spread.mean).text, report->out);
    else
        fputs(cod_number_text(spread.mean, digits).text, report->out);
    if (c->kind != BYTES && spread.deviation > 1e-9 * fabs(spread.mean))
        fprintf(report->out, "<small> ± %s</small>", cod_number_text(spread.deviation, digits).text);
    fputs("</td>", report->out);
}

/** The arm's line sample of the plots, and its name. */
static void write_arm_name(cod_report *report, size_t arm)
{
    cod_drawing sample = {.out = report->out};
    fputs("<th scope=\"row\" class=\"arm\"><svg class=\"sample\" viewBox=\"0 0 26 14\" aria-hidden=\"true\"><path "
          "d=\"M0 7h26\" ",
          report->out);
    cod_drawing_stroke(&sample, arm);
    fputs("/>", report->out);
    cod_drawing_mark(&sample, 13, 7, 4.5, arm);
    fputs("</svg>", report->out);
    cod_markup(report->out, report->data->arms[arm].name);
    if (arm == report->data->baseline)
        fputs(" <small>(baseline)</small>", report->out);
    fputs("</th>", report->out);
}

/** How many of the arm's runs at this rate count. */
static void write_seeds(cod_report *report, const cod_report_arm *arm, size_t rate)
{
    size_t runs = 0, finished = 0;
    for (size_t i = 0; i < arm->run_count; i++) {
        runs += arm->runs[i].rate == rate ? 1 : 0;
        finished += arm->runs[i].rate == rate && arm->runs[i].finished ? 1 : 0;
    }
    fprintf(report->out, finished == runs ? "<td>%zu</td>" : "<td>%zu of %zu</td>", finished, runs);
}

static void write_rows(cod_report *report, const column *columns, size_t count, size_t rate)
{
    const cod_report_data *data = report->data;
    fputs("<tbody>\n", report->out);
    if (data->rate_count > 1) {
        fprintf(report->out, "<tr class=\"group\"><th scope=\"rowgroup\" colspan=\"%zu\"><span>", count + 2);
        cod_markup(report->out, cod_report_rate_label(report, rate));
        fputs("</span></th></tr>\n", report->out);
    }
    for (size_t i = 0; i < data->arm_count; i++) {
        fputs("<tr>", report->out);
        write_arm_name(report, i);
        write_seeds(report, &data->arms[i], rate);
        for (size_t k = 0; k < count; k++)
            write_cell(report, &columns[k],
                       cod_report_spread(&data->arms[i], rate, columns[k].figure, columns[k].context));
        fputs("</tr>\n", report->out);
    }
    fputs("</tbody>\n", report->out);
}

static void write_results(cod_report *report, const column *columns, size_t count)
{
    fputs(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Results\">\n<table class=\"figures-table\">"
        "<thead><tr><th scope=\"col\">arm</th><th scope=\"col\">seeds</th>",
        report->out);
    for (size_t i = 0; i < count; i++) {
        fputs("<th scope=\"col\">", report->out);
        cod_markup(report->out, columns[i].head);
        fputs(columns[i].unit[0] != '\0' ? ", " : "", report->out);
        cod_markup(report->out, columns[i].unit);
        fputs("</th>", report->out);
    }
    fputs("</tr></thead>\n", report->out);
    for (size_t rate = 0; rate < report->data->rate_count; rate++)
        write_rows(report, columns, count, rate);
    fputs("</table></div>\n<p class=\"note\">Mean ± standard deviation over seeds. Figures of quality are means of the "
          "groups’ own models, but for those of the final model, which is the best group’s or the mean of all. Bytes "
          "are those of all ranks together.</p>\n",
          report->out);
}

/** A whole number; "–" when absent. */
static void write_count(cod_report *report, double value)
{
    fprintf(report->out, "<td>%s</td>", cod_number_text(value, 0).text);
}

static void write_settings(cod_report *report)
{
    fputs("<details><summary>What each arm is</summary>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" "
          "aria-label=\"Arms\"><table><thead><tr>"
          "<th scope=\"col\">arm</th><th scope=\"col\">strategy</th><th scope=\"col\">groups</th>"
          "<th scope=\"col\">ranks</th><th scope=\"col\" class=\"words\">set for it alone</th></tr></thead><tbody>\n",
          report->out);
    for (size_t i = 0; i < report->data->arm_count; i++) {
        const cod_report_arm *arm = &report->data->arms[i];
        fputs("<tr>", report->out);
        write_arm_name(report, i);
        fputs("<td>", report->out);
        cod_markup(report->out, arm->strategy);
        fputs("</td>", report->out);
        write_count(report, arm->groups);
        write_count(report, arm->ranks);
        fputs("<td class=\"words\"><code>", report->out);
        cod_markup(report->out, arm->settings);
        fputs("</code></td></tr>\n", report->out);
    }
    fputs("</tbody></table></div></details>\n", report->out);
}

/** Each seed's final quality, and mean and deviation. */
static cod_status add_plot(cod_report *report, size_t rate)
{
    const cod_report_data *data = report->data;
    cod_mark_row *rows = cod_arena_alloc(report->arena, (data->arm_count + 1) * sizeof *rows);
    cod_range *marks = cod_arena_alloc(report->arena, (data->arm_count + 1) * sizeof *marks);
    size_t used = 0;
    COD_REQUIRE_MEMORY(rows);
    COD_REQUIRE_MEMORY(marks);
    for (size_t i = 0; i < data->arm_count; i++) {
        const cod_report_arm *arm = &data->arms[i];
        double *dots = cod_arena_alloc(report->arena, (arm->run_count + 1) * sizeof *dots);
        COD_REQUIRE_MEMORY(dots);
        const size_t count = cod_report_collect(arm, rate, cod_report_quality, NULL, dots, NULL);
        const double mean = cod_mean(dots, count), half = cod_deviation(dots, count);
        if (count == 0)
            continue;
        marks[used] = (cod_range){mean, mean - half, mean + half};
        rows[used] =
            (cod_mark_row){.name = arm->name,
                           .text = cod_report_text(report, "%s", cod_number_text(mean, data->metric.digits).text),
                           .style = i,
                           .marks = &marks[used],
                           .dots = dots,
                           .dot_count = count > 1 ? count : 0};
        used++;
    }
    if (used == 0)
        return COD_OK;
    const cod_mark_plot plot = {.title =
                                    cod_report_text(report, "Final quality%s", cod_report_rate_suffix(report, rate)),
                                .x_label = cod_report_text(report, "%s%s%s", data->metric.label,
                                                           data->metric.unit[0] != '\0' ? ", " : "", data->metric.unit),
                                .rows = rows,
                                .row_count = used,
                                .series_count = 1};
    return cod_report_add_mark_plot(
        report, &plot, cod_report_file_name(report, "quality", rate),
        "Mean of the groups’ own models ± one standard deviation over seeds; small dots: the "
        "seeds.");
}

cod_status cod_report_arms(cod_report *report)
{
    column columns[MAX_COLUMNS];
    const cod_report_goal goal = {&report->data->metric, report->target};
    if (report->data->arm_count == 0)
        return COD_OK;
    fputs("<section id=\"arms\">\n<h2>Results</h2>\n", report->out);
    const size_t count = choose_columns(report, &goal, columns);
    write_results(report, columns, count);
    write_settings(report);
    fputs("<div class=\"figures\">\n", report->out);
    for (size_t rate = 0; rate < report->data->rate_count && rate < 2; rate++)
        COD_TRY(add_plot(report, rate));
    fputs("</div>\n</section>\n", report->out);
    return COD_OK;
}
