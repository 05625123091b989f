/* How far models agree with each other and with their own confidence: churn, disagreement of peers, calibration. */
#include "report/report_internal.h"

#include <math.h>
#include <string.h>

enum { BINS = 15, FEW = 10 }; /* as `codistill compare` bins confidences; predictions that make a bin worth showing */

/** An arm's figure in a list of churn; NaN = it has none. */
static double churn_of(const cod_report_data *data, const char *list, const char *arm)
{
    const cod_json_value *items = cod_json_get(cod_json_get(data->document, "churn"), list);
    for (const cod_json_value *item = cod_json_first(items); item != NULL; item = cod_json_next(item))
        if (strcmp(cod_json_get_string(cod_json_get(item, "arm"), ""), arm) == 0) {
            const double percent = cod_json_get_number(cod_json_get(item, "percent"), NAN);
            return percent >= 0 && percent <= 100 ? percent : NAN;
        }
    return NAN;
}

static cod_status add_churn(cod_report *report)
{
    static const char *const names[] = {"between seeds", "between groups"};
    const cod_report_data *data = report->data;
    cod_mark_row *rows = cod_arena_alloc(report->arena, (data->arm_count + 1) * sizeof *rows);
    cod_range *marks = cod_arena_alloc(report->arena, (data->arm_count + 1) * 2 * sizeof *marks);
    size_t used = 0;
    COD_REQUIRE_MEMORY(rows);
    COD_REQUIRE_MEMORY(marks);
    for (size_t i = 0; i < data->arm_count; i++) {
        const double seeds = churn_of(data, "between_seeds", data->arms[i].name),
                     groups = churn_of(data, "between_groups", data->arms[i].name);
        cod_range *own = marks + 2 * used;
        own[0] = (cod_range){seeds, NAN, NAN};
        own[1] = (cod_range){groups, NAN, NAN};
        if (isnan(seeds) && isnan(groups))
            continue;
        rows[used++] =
            (cod_mark_row){.name = data->arms[i].name,
                           .text = cod_report_text(report, isnan(groups) ? "%s" : "%s / %s",
                                                   cod_number_text(seeds, 1).text, cod_number_text(groups, 1).text),
                           .style = i,
                           .marks = own};
    }
    if (used == 0)
        return COD_OK;
    const cod_mark_plot plot = {.title = "Churn",
                                .x_label = "test predictions that differ, %",
                                .rows = rows,
                                .row_count = used,
                                .series = names,
                                .series_count = 2,
                                .x_zero = true};
    return cod_report_add_mark_plot(report, &plot, "churn",
                                    "Share of test predictions on which two models differ: trained anew with another "
                                    "seed, or by two groups of one run. Lower is steadier.");
}

/** A line for each arm of which make_line() makes one that has points. */
static cod_status make_lines(const cod_report *report,
                             cod_status (*make_line)(const cod_report *report, size_t arm, cod_line *line),
                             cod_line **lines, size_t *count)
{
    *lines = cod_arena_alloc(report->arena, (report->data->arm_count + 1) * sizeof **lines);
    *count = 0;
    COD_REQUIRE_MEMORY(*lines);
    for (size_t i = 0; i < report->data->arm_count; i++) {
        COD_TRY(make_line(report, i, &(*lines)[*count]));
        *count += (*lines)[*count].count > 0 ? 1 : 0;
    }
    return COD_OK;
}

static cod_status make_disagreement(const cod_report *report, size_t arm, cod_line *line)
{
    return cod_report_curve(report, arm, 0, COD_CURVE_DISAGREEMENT, 1, line);
}

static cod_status add_disagreement(cod_report *report)
{
    cod_line *lines;
    size_t count;
    COD_TRY(make_lines(report, make_disagreement, &lines, &count));
    if (count == 0)
        return COD_OK;
    const cod_line_plot plot = {
        .title = cod_report_text(report, "Peers’ disagreement over time%s", cod_report_rate_suffix(report, 0)),
        .x_label = "steps",
        .y_label = "validation predictions on which groups differ, %",
        .lines = lines,
        .count = count,
        .few_marks = true,
        .x_low = 0,
        .y_low = NAN,
        .y_high = NAN};
    return cod_report_add_line_plot(report, &plot, "disagreement", "Mean over seeds, band: ± one standard deviation.");
}

/**
 * Expected calibration error of all groups' predictions of a run together, per cent: the bins' |accuracy - confidence|,
 * weighted by their counts (Guo et al., "On Calibration of Modern Neural Networks", 2017, equation 3).
 */
static double calibration_error(const cod_report_run *run, const void *context)
{
    double sum = 0, count = 0;
    (void)context;
    for (size_t i = 0; i < run->bin_count; i++) {
        sum += run->bins[i].count * fabs(run->bins[i].accuracy - run->bins[i].confidence);
        count += run->bins[i].count;
    }
    return count > 0 ? 100 * sum / count : NAN;
}

/** An arm's bins of all finished runs together, in per cent; those of few predictions are left out. */
static cod_status make_reliability(const cod_report *report, size_t arm, cod_line *line)
{
    const cod_report_arm *a = &report->data->arms[arm];
    double confidence[BINS] = {0}, accuracy[BINS] = {0}, counts[BINS] = {0};
    double *x = cod_arena_alloc(report->arena, 2 * BINS * sizeof *x), *y = x + BINS;
    size_t used = 0;
    COD_REQUIRE_MEMORY(x);
    for (size_t i = 0; i < a->run_count; i++)
        for (size_t k = 0; a->runs[i].finished && a->runs[i].rate == 0 && k < a->runs[i].bin_count; k++) {
            const cod_report_bin *bin = &a->runs[i].bins[k];
            const size_t place = (size_t)fmin(BINS - 1, floor(bin->confidence * BINS));
            confidence[place] += bin->count * bin->confidence;
            accuracy[place] += bin->count * bin->accuracy;
            counts[place] += bin->count;
        }
    for (size_t i = 0; i < BINS; i++)
        if (counts[i] >= FEW) {
            x[used] = 100 * confidence[i] / counts[i];
            y[used++] = 100 * accuracy[i] / counts[i];
        }
    *line = (cod_line){.name = a->name, .style = arm, .count = used, .x = x, .y = y};
    return COD_OK;
}

static cod_status add_reliability(cod_report *report)
{
    cod_line *lines;
    size_t count;
    COD_TRY(make_lines(report, make_reliability, &lines, &count));
    if (count == 0)
        return COD_OK;
    const cod_line_plot plot = {.title = cod_report_text(report, "Reliability%s", cod_report_rate_suffix(report, 0)),
                                .x_label = "confidence of the prediction, %",
                                .y_label = "test predictions of that confidence that are right, %",
                                .lines = lines,
                                .count = count,
                                .diagonal = true,
                                .x_low = NAN,
                                .y_low = NAN,
                                .y_high = NAN};
    return cod_report_add_line_plot(report, &plot, "reliability",
                                    "On the dashed line confidence is what it says; below it, too sure. All seeds "
                                    "together; bins of fewer than 10 predictions are left out.");
}

static cod_status add_calibration(cod_report *report)
{
    const cod_report_data *data = report->data;
    cod_mark_row *rows = cod_arena_alloc(report->arena, (data->arm_count + 1) * sizeof *rows);
    cod_range *marks = cod_arena_alloc(report->arena, (data->arm_count + 1) * sizeof *marks);
    size_t used = 0;
    COD_REQUIRE_MEMORY(rows);
    COD_REQUIRE_MEMORY(marks);
    for (size_t i = 0; i < data->arm_count; i++) {
        const cod_spread error = cod_report_spread(&data->arms[i], 0, calibration_error, NULL);
        if (error.count == 0)
            continue;
        marks[used] = (cod_range){error.mean, error.mean - error.deviation, error.mean + error.deviation};
        rows[used] = (cod_mark_row){.name = data->arms[i].name,
                                    .text = cod_report_text(report, "%s", cod_number_text(error.mean, 2).text),
                                    .style = i,
                                    .marks = &marks[used]};
        used++;
    }
    if (used == 0)
        return COD_OK;
    const cod_mark_plot plot = {
        .title = cod_report_text(report, "Calibration error, groups together%s", cod_report_rate_suffix(report, 0)),
        .x_label = "mean distance of confidence from accuracy, %",
        .rows = rows,
        .row_count = used,
        .series_count = 1,
        .x_zero = true};
    return cod_report_add_mark_plot(report, &plot, "calibration",
                                    "Expected calibration error of the predictions of all groups in the same bins, "
                                    "mean ± one standard deviation over seeds; lower is better. The table has the mean "
                                    "of each group’s own, which is another figure.");
}

/** Whether there is anything of this section; of images there is not. */
static bool is_present(const cod_report_data *data)
{
    bool present = cod_json_kind_of(cod_json_get(data->document, "churn")) == COD_JSON_OBJECT;
    for (size_t i = 0; i < data->arm_count; i++)
        for (size_t k = 0; k < data->arms[i].run_count; k++)
            present = present || data->arms[i].runs[k].disagreement_count > 0 || data->arms[i].runs[k].bin_count > 0;
    return present;
}

cod_status cod_report_agreement(cod_report *report)
{
    if (!is_present(report->data))
        return COD_OK;
    fputs("<section id=\"agreement\">\n<h2>Churn, disagreement and calibration</h2>\n<div class=\"figures\">\n",
          report->out);
    COD_TRY(add_churn(report));
    COD_TRY(add_disagreement(report));
    COD_TRY(add_reliability(report));
    COD_TRY(add_calibration(report));
    fputs("</div>\n</section>\n", report->out);
    return COD_OK;
}
