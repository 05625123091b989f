/* The candidates of each arm, and the chosen one. */
#include "report/report_internal.h"

#include <math.h>
#include <string.h>

static const cod_json_value *candidates_of(const cod_report_arm *arm)
{
    return cod_json_get(arm->tuned, "candidates");
}

/** "train.rate=1e-3 train.warmup=10" */
static void write_settings(cod_report *report, const cod_json_value *candidate)
{
    const cod_json_value *set = cod_json_get(candidate, "set");
    if (cod_json_count(set) == 0) {
        fputs("no change", report->out);
        return;
    }
    fputs("<code>", report->out);
    for (const cod_json_value *item = cod_json_first(set); item != NULL; item = cod_json_next(item)) {
        fputs(item == cod_json_first(set) ? "" : " ", report->out);
        cod_markup(report->out, cod_json_get_string(item, ""));
    }
    fputs("</code>", report->out);
}

/** With its unit; "–" where it is not known. */
static void write_quality(cod_report *report, const cod_json_value *candidate)
{
    const cod_report_metric *metric = &report->data->metric;
    const double quality = cod_json_get_number(cod_json_get(candidate, "quality"), NAN);
    fputs(cod_number_text(quality, metric->digits).text, report->out);
    if (!isnan(quality) && metric->unit[0] != '\0') {
        fputs(" ", report->out);
        cod_markup(report->out, metric->unit);
    }
}

/** The sentence that an arm's tuning has under `key`, such as that the choice lies at the edge. */
static void write_note(cod_report *report, const cod_report_arm *arm, const char *key, const char *class)
{
    const char *note = cod_json_get_string(cod_json_get(arm->tuned, key), "");
    if (note[0] == '\0')
        return;
    fprintf(report->out, " <small%s>", class);
    cod_markup(report->out, note);
    fputs(".</small>", report->out);
}

/** "single: train.rate=1e-3, the best of 3 candidates (90.48 %)." */
static void write_words(cod_report *report, const cod_report_arm *arm)
{
    const cod_json_value *best = NULL;
    for (const cod_json_value *one = cod_json_first(candidates_of(arm)); one != NULL; one = cod_json_next(one))
        if (cod_json_get_bool(cod_json_get(one, "chosen"), false))
            best = one;
    const size_t count = cod_json_count(candidates_of(arm));
    fputs("<li><b>", report->out);
    cod_markup(report->out, arm->name);
    fputs("</b>: ", report->out);
    if (best == NULL) {
        fprintf(report->out, "none of %zu candidate%s was chosen.", count, count == 1 ? "" : "s");
    } else if (count == 1) {
        write_settings(report, best);
        fputs(", the only candidate.", report->out);
    } else {
        write_settings(report, best);
        fprintf(report->out, ", the best of %zu candidates (", count);
        write_quality(report, best);
        fputs(").", report->out);
    }
    write_note(report, arm, "own", "");
    write_note(report, arm, "edge", " class=\"warning\"");
    fputs("</li>\n", report->out);
}

static void write_candidate(cod_report *report, const cod_json_value *candidate)
{
    const bool chosen = cod_json_get_bool(cod_json_get(candidate, "chosen"), false);
    const char *message = cod_json_get_string(cod_json_get(candidate, "message"), "");
    fputs("<tr><th scope=\"row\">", report->out);
    write_settings(report, candidate);
    fputs("</th><td>", report->out);
    write_quality(report, candidate);
    fprintf(report->out, "</td><td class=\"words\">%s%s", chosen ? "<strong>chosen</strong>" : "",
            message[0] != '\0' ? "failed: " : "");
    cod_markup(report->out, message);
    fputs("</td></tr>\n", report->out);
}

static void write_table(cod_report *report, const char *label)
{
    const cod_report_data *data = report->data;
    fputs("<details><summary>Every candidate in every arm</summary>\n<div class=\"scroll\" tabindex=\"0\" "
          "role=\"region\" aria-label=\"Candidates\"><table><thead><tr><th "
          "scope=\"col\">candidate</th><th scope=\"col\">",
          report->out);
    cod_markup(report->out, label);
    fputs("</th><th scope=\"col\" class=\"words\">chosen</th></tr></thead>\n", report->out);
    for (size_t i = 0; i < data->arm_count; i++) {
        const cod_json_value *candidates = candidates_of(&data->arms[i]);
        if (cod_json_count(candidates) == 0)
            continue;
        fputs("<tbody>\n<tr class=\"group\"><th scope=\"rowgroup\" colspan=\"3\"><span>", report->out);
        cod_markup(report->out, data->arms[i].name);
        fputs("</span></th></tr>\n", report->out);
        for (const cod_json_value *one = cod_json_first(candidates); one != NULL; one = cod_json_next(one))
            write_candidate(report, one);
        fputs("</tbody>\n", report->out);
    }
    fputs("</table></div></details>\n", report->out);
}

cod_status cod_report_tuning(cod_report *report)
{
    const cod_report_data *data = report->data;
    const cod_json_value *tuning = cod_json_get(data->document, "tuning");
    const char *label = cod_json_get_string(cod_json_get(tuning, "label"), "quality on held-out data");
    bool any = false;
    for (size_t i = 0; i < data->arm_count; i++)
        any = any || cod_json_count(candidates_of(&data->arms[i])) > 0;
    if (!any)
        return COD_OK;
    fprintf(
        report->out,
        "<section id=\"tuning\">\n<h2>Tuning</h2>\n<p>Before they were compared, all arms were tuned alike: each was "
        "trained with each candidate, with seed %s, and keeps what was best by this: ",
        cod_number_text(cod_json_get_number(cod_json_get(tuning, "seed"), NAN), 0).text);
    cod_markup(report->out, label);
    fputs(strcmp(label, data->metric.label) != 0
              ? ", mean over the groups at the end. Test data had no part in it.</p>\n<ul>\n"
              : ", mean over the groups at the end. There are no test data: the results are measured on the data that "
                "were chosen by, with other seeds.</p>\n<ul>\n",
          report->out);
    for (size_t i = 0; i < data->arm_count; i++)
        if (cod_json_count(candidates_of(&data->arms[i])) > 0)
            write_words(report, &data->arms[i]);
    fputs("</ul>\n", report->out);
    write_table(report, label);
    fputs("</section>\n", report->out);
    return COD_OK;
}
