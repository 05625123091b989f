/* Costs of training: the parts of a step's time, and the bytes sent inside and between groups. */
#include "report/report_internal.h"

#include <math.h>

enum { PARTS = 5, OTHER = 4 };

/**
 * Milliseconds of each part, mean over seeds; the last is what the total has beside them.
 *
 * @return the total, NaN = unknown
 */
static double split_step(const cod_report_arm *arm, size_t rate, double parts[PARTS])
{
    double sum = 0, total = NAN;
    for (int part = COD_STEP_TOTAL; part < COD_STEP_PARTS; part++) {
        const size_t offset = offsetof(cod_report_run, step_ms) + (size_t)part * sizeof(double);
        const double mean = cod_report_spread(arm, rate, cod_report_member, &offset).mean;
        if (part == COD_STEP_TOTAL) {
            total = mean;
        } else {
            parts[part - 1] = mean;
            sum += mean > 0 ? mean : 0;
        }
    }
    parts[OTHER] = total - sum > 0.01 * total ? total - sum : NAN;
    return isnan(total) && sum > 0 ? sum : total;
}

static cod_status add_step_plot(cod_report *report, size_t rate, size_t *plots)
{
    static const char *const names[PARTS] = {"compute", "teacher", "wait", "exchange", "not told apart"};
    const cod_report_data *data = report->data;
    cod_bar_row *rows = cod_arena_alloc(report->arena, (data->arm_count + 1) * sizeof *rows);
    double *values = cod_arena_alloc(report->arena, (data->arm_count + 1) * PARTS * sizeof *values);
    size_t used = 0;
    bool rest = false;
    COD_REQUIRE_MEMORY(rows);
    COD_REQUIRE_MEMORY(values);
    for (size_t i = 0; i < data->arm_count; i++) {
        double *own = values + used * PARTS;
        const double total = split_step(&data->arms[i], rate, own);
        if (!(total > 0))
            continue;
        rest = rest || own[OTHER] > 0;
        rows[used++] = (cod_bar_row){.name = data->arms[i].name,
                                     .text = cod_report_text(report, "%s ms", cod_figure_text(total).text),
                                     .values = own};
    }
    if (used == 0)
        return COD_OK;
    const cod_bar_plot plot = {.title =
                                   cod_report_text(report, "Time of a step%s", cod_report_rate_suffix(report, rate)),
                               .x_label = "ms a step",
                               .rows = rows,
                               .row_count = used,
                               .parts = names,
                               .part_count = rest ? PARTS : OTHER};
    (*plots)++;
    return cod_report_add_bar_plot(report, &plot, cod_report_file_name(report, "step-time", rate), "Mean over seeds.");
}

static cod_status add_bytes_plot(cod_report *report, size_t *plots)
{
    static const char *const names[] = {"inside groups", "between groups"};
    static const size_t offsets[] = {offsetof(cod_report_run, bytes_inside), offsetof(cod_report_run, bytes_between)};
    const cod_report_data *data = report->data;
    cod_mark_row *rows = cod_arena_alloc(report->arena, (data->arm_count + 1) * sizeof *rows);
    cod_range *marks = cod_arena_alloc(report->arena, (data->arm_count + 1) * 2 * sizeof *marks);
    double least = INFINITY, most = 0;
    size_t used = 0;
    COD_REQUIRE_MEMORY(rows);
    COD_REQUIRE_MEMORY(marks);
    for (size_t i = 0; i < data->arm_count; i++) {
        cod_range *own = marks + 2 * used;
        for (size_t k = 0; k < 2; k++) {
            const double mean = cod_report_spread(&data->arms[i], 0, cod_report_member, &offsets[k]).mean;
            own[k] = (cod_range){mean, NAN, NAN};
            most = fmax(most, isnan(mean) ? 0 : mean);
            least = mean > 0 ? fmin(least, mean) : least;
        }
        if (isnan(own[0].at) && isnan(own[1].at))
            continue;
        rows[used++] = (cod_mark_row){.name = data->arms[i].name, .style = i, .marks = own};
    }
    if (used == 0)
        return COD_OK;
    const bool logarithmic = most > 20 * least;
    const cod_scaling unit = cod_report_bytes_unit(logarithmic ? sqrt(most * least) : most);
    for (size_t k = 0; k < 2 * used; k++)
        marks[k].at *= unit.factor;
    const cod_mark_plot plot = {.title = cod_report_text(report, "Bytes sent%s", cod_report_rate_suffix(report, 0)),
                                .x_label = cod_report_text(report, "%s a run, all ranks together%s", unit.unit,
                                                           logarithmic ? "; logarithmic" : ""),
                                .rows = rows,
                                .row_count = used,
                                .series = names,
                                .series_count = 2,
                                .x_log = logarithmic,
                                .x_zero = true};
    (*plots)++;
    return cod_report_add_mark_plot(report, &plot, "bytes",
                                    logarithmic ? "Mean over seeds. A mark at the left edge: nothing was sent."
                                                : "Mean over seeds.");
}

cod_status cod_report_costs(cod_report *report)
{
    size_t step_plots = 0, bytes_plots = 0;
    fputs("<section id=\"costs\">\n<h2>What it costs</h2>\n<div class=\"figures\">\n", report->out);
    for (size_t rate = 0; rate < report->data->rate_count; rate++)
        COD_TRY(add_step_plot(report, rate, &step_plots));
    COD_TRY(add_bytes_plot(report, &bytes_plots));
    fputs("</div>\n", report->out);
    if (step_plots == 0)
        fputs("<p class=\"note\">No run recorded where its steps’ time goes.</p>\n", report->out);
    if (bytes_plots == 0)
        fputs("<p class=\"note\">No run recorded the bytes it sent.</p>\n", report->out);
    fputs("</section>\n", report->out);
    return COD_OK;
}
