/* The top of a training run's page: what was trained, how good it is, and what it cost. */
#include "report/report_internal.h"
#include "report/run_internal.h"

#include <math.h>
#include <string.h>

const cod_run_figure cod_run_figures[] = {
    {"psnr_y", "PSNR of the Y channel", "dB", " dB", 2, false, "bicubic_psnr_y", "bicubic"},
    {"ssim_y", "SSIM of the Y channel", "1 is best", "", 4, false, "bicubic_ssim_y", "bicubic"},
    {"niqe", "NIQE", "lower is better", "", 2, true, "bicubic_niqe", "bicubic"},
    {"pi", "Perceptual index", "lower is better", "", 3, true, "bicubic_pi", "bicubic"},
    {"lpips", "LPIPS", "lower is better", "", 4, true, "bicubic_lpips", "bicubic"},
    {"accuracy", "Accuracy", "%", " %", 2, false, "majority_accuracy", "the most frequent class"},
    {"cross_entropy", "Cross-entropy", "nats", " nats", 4, true, NULL, NULL},
    {"calibration_error", "Calibration error", "each group's own, %", " %", 2, true, NULL, NULL},
};
const size_t cod_run_figure_count = sizeof cod_run_figures / sizeof cod_run_figures[0];

const char *cod_run_text(const cod_run_data *run, const char *key)
{
    return cod_json_get_string(cod_json_get(run->summary, key), "");
}

double cod_run_number(const cod_run_data *run, const char *key)
{
    const double value = cod_json_get_number(cod_json_get(run->summary, key), NAN);
    return fabs(value) < 1e18 ? value : NAN;
}

/** "26.31 dB (PSNR of the Y channel), 0.41 dB better than bicubic (25.90 dB)", of the final model. */
static void write_quality(cod_report *report)
{
    const cod_run_data *run = report->run;
    const char *key = cod_run_text(run, "figure");
    const double value = cod_run_number(run, key), baseline = cod_run_number(run, cod_run_text(run, "baseline"));
    size_t i = 0;
    while (i < cod_run_figure_count && strcmp(cod_run_figures[i].key, key) != 0)
        i++;
    if (i == cod_run_figure_count || isnan(value))
        return;
    const cod_run_figure *f = &cod_run_figures[i];
    const char *text = cod_report_text(report, "%s%s, %s", cod_number_text(value, f->digits).text, f->unit, f->title);
    if (!isnan(baseline) && f->baseline_name != NULL)
        text = cod_report_text(report, "%s; %s%s %s than %s, which has %s%s", text,
                               cod_number_text(fabs(value - baseline), f->digits).text,
                               strcmp(f->unit, " %") == 0 ? " points" : f->unit,
                               (value > baseline) != f->less_is_better ? "better" : "worse", f->baseline_name,
                               cod_number_text(baseline, f->digits).text, f->unit);
    cod_report_fact(report, "Final model, held-out data", text);
}

/** What crossed between groups, and what allreduce over all ranks would have sent in as many steps. */
static void write_traffic(cod_report *report)
{
    const cod_run_data *run = report->run;
    const double sent = cod_run_number(run, "intergroup_bytes"),
                 allreduce = cod_run_number(run, "allreduce_intergroup_bytes");
    if (!(cod_run_number(run, "groups") > 1) || isnan(sent))
        return;
    const char *text = sent > 0 ? cod_report_text(report, "%s", cod_bytes_text(sent).text) : "nothing";
    if (allreduce > 0)
        text = cod_report_text(report, "%s; allreduce would have sent %s in as many steps", text,
                               cod_bytes_text(allreduce).text);
    if (allreduce > 0 && sent > 0)
        text = cod_report_text(report, "%s: %s times as much", text, cod_figure_text(allreduce / sent).text);
    cod_report_fact(report, "Crossed between groups", text);
}

static const char *times(cod_report *report, double count, const char *what)
{
    return cod_report_text(report, "%.0f %s%s", count, what, count == 1 ? "" : "s");
}

void cod_report_run_facts(cod_report *report)
{
    const cod_run_data *run = report->run;
    const double groups = cod_run_number(run, "groups"), ranks = cod_run_number(run, "ranks_per_group"),
                 parameters = cod_run_number(run, "parameters"), seconds = cod_run_number(run, "wall_s"),
                 steps = cod_run_number(run, "steps");
    if (run->summary == NULL)
        return;
    fputs("<section id=\"facts\">\n<dl>\n", report->out);
    write_quality(report);
    if (!isnan(parameters))
        cod_report_fact(report, "Model",
                        cod_report_text(report, "%s, %s parameters", cod_run_text(run, "model"),
                                        cod_number_text(parameters, 0).text));
    if (groups >= 1 && ranks >= 1)
        cod_report_fact(report, "Strategy",
                        cod_report_text(report, "%s, %s of %s", cod_run_text(run, "strategy"),
                                        times(report, groups, "group"), times(report, ranks, "rank")));
    if (!isnan(steps))
        cod_report_fact(report, "Steps", cod_report_text(report, "%s", cod_number_text(steps, 0).text));
    write_traffic(report);
    if (!isnan(seconds))
        cod_report_fact(report, "Time", cod_report_text(report, "%s", cod_seconds_text(seconds).text));
    cod_report_fact(report, "Machine", cod_run_text(run, "machine"));
    cod_report_fact(report, "Device", cod_run_text(run, "device"));
    fputs("</dl>\n</section>\n", report->out);
}
