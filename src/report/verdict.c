/* The verdict in plain words: which arm is best, and whether each differs from the baseline by more than chance. */
#include "report/report_internal.h"

#include <math.h>
#include <stdlib.h>

#define LEVEL 0.05

/**
 * Paired where at least half of the larger arm's seeds are shared, for equal seeds mean equal data order and start;
 * Welch's where few are.
 */
static cod_status test_arms(const cod_report_arm *a, const cod_report_arm *b, size_t rate, cod_t_test *test)
{
    const size_t room = a->run_count + b->run_count + 1;
    double *values = calloc(6 * room, sizeof *values);
    COD_REQUIRE_MEMORY(values);
    double *of_a = values, *of_b = values + room, *seeds_a = values + 2 * room, *seeds_b = values + 3 * room,
           *pairs_a = values + 4 * room, *pairs_b = values + 5 * room;
    const size_t count_a = cod_report_collect(a, rate, cod_report_quality, NULL, of_a, seeds_a),
                 count_b = cod_report_collect(b, rate, cod_report_quality, NULL, of_b, seeds_b),
                 larger = count_a > count_b ? count_a : count_b;
    size_t pairs = 0;
    for (size_t i = 0; i < count_a; i++)
        for (size_t k = 0; k < count_b; k++)
            if (seeds_a[i] == seeds_b[k]) {
                pairs_a[pairs] = of_a[i];
                pairs_b[pairs++] = of_b[k];
                seeds_b[k] = NAN; /* no seed is paired twice */
                break;
            }
    *test = cod_t_test_paired(pairs_a, pairs_b, pairs);
    if (pairs < 2 || 2 * pairs < larger) {
        const cod_t_test welch = cod_t_test_welch(of_a, count_a, of_b, count_b);
        if (welch.kind != COD_T_TEST_NONE || pairs == 0)
            *test = welch;
    }
    free(values);
    return COD_OK;
}

cod_status cod_report_compare(const cod_report *report, size_t rate, size_t base, cod_contest *contests)
{
    const cod_report_data *data = report->data;
    double *p = cod_arena_alloc(report->arena, (data->arm_count + 1) * sizeof *p);
    COD_REQUIRE_MEMORY(p);
    for (size_t i = 0; i < data->arm_count; i++) {
        COD_TRY(test_arms(&data->arms[i], &data->arms[base], rate, &contests[i].test));
        p[i] = i == base ? NAN : contests[i].test.p;
    }
    cod_holm_adjust(p, data->arm_count);
    for (size_t i = 0; i < data->arm_count; i++)
        contests[i].p = p[i];
    return COD_OK;
}

static const char *plural(size_t count)
{
    return count == 1 ? "" : "s";
}

static cod_short quality_text(const cod_report_metric *metric, double value)
{
    return cod_number_text(value, metric->digits);
}

/** "+4.23 points"; without its sign where words tell it. */
static void write_difference(cod_report *report, double difference, bool sign)
{
    const cod_report_metric *metric = &report->data->metric;
    fprintf(
        report->out, "%s ",
        (sign ? cod_signed_text(difference, metric->digits) : cod_number_text(fabs(difference), metric->digits)).text);
    cod_markup(report->out, cod_report_difference_unit(metric));
}

static void write_name(cod_report *report, size_t arm)
{
    fputs("<b>", report->out);
    cod_markup(report->out, report->data->arms[arm].name);
    fputs("</b>", report->out);
}

/** "(95 % CI +3.9 to +4.5, p = 0.004, paired over 3 seeds)". */
static void write_test(cod_report *report, const cod_contest *contest)
{
    const int digits = report->data->metric.digits;
    const cod_t_test *test = &contest->test;
    fprintf(report->out, " (95 %% CI %s to %s, %s, ", cod_signed_text(test->low, digits).text,
            cod_signed_text(test->high, digits).text, cod_p_text(contest->p).text);
    if (test->kind == COD_T_TEST_PAIRED)
        fprintf(report->out, "paired over %zu seeds)", test->count_a);
    else
        fprintf(report->out, "Welch, %zu and %zu seeds)", test->count_a, test->count_b);
}

/** One arm against the baseline, an item of a list. */
static void write_contest(cod_report *report, size_t arm, size_t base, const cod_contest *contest)
{
    const cod_t_test *test = &contest->test;
    const bool tested = !isnan(contest->p), better = cod_report_better(&report->data->metric, test->difference, 0);
    const char *const kind = !tested ? "open" : contest->p >= LEVEL ? "same" : better ? "better" : "worse";
    static const char *const marks[][2] = {{"open", "?"}, {"same", "~"}, {"better", "▲"}, {"worse", "▼"}};
    size_t mark = 0;
    while (marks[mark][0][0] != kind[0])
        mark++;
    fprintf(report->out, "<li class=\"%s\"><span class=\"sign\" aria-hidden=\"true\">%s</span>", kind, marks[mark][1]);
    write_name(report, arm);
    if (isnan(test->difference)) {
        fputs(": <strong>no statement</strong>, it or the baseline has no finished run with a result.", report->out);
    } else if (test->kind == COD_T_TEST_NONE) {
        fputs(": <strong>no statement</strong>. One seed does not tell a difference from chance; measured: ",
              report->out);
        write_difference(report, test->difference, true);
        fputs(" against ", report->out);
        write_name(report, base);
        fputs(".", report->out);
    } else if (!tested && test->difference == 0) {
        fputs(": <strong>no difference</strong>, the same result as ", report->out);
        write_name(report, base);
        fprintf(report->out, " with each of %zu seeds; where results take few values, that says little.",
                test->count_a);
    } else if (!tested) {
        fputs(": <strong>no statement</strong>. It differs from ", report->out);
        write_name(report, base);
        fputs(" by ", report->out);
        write_difference(report, test->difference, true);
        fprintf(report->out, " in each of %zu seeds; without any spread there is nothing to test.", test->count_a);
    } else if (contest->p < LEVEL) {
        fprintf(report->out, " is <strong>%s</strong> than ", kind);
        write_name(report, base);
        fputs(" by ", report->out);
        write_difference(report, test->difference, false);
        write_test(report, contest);
        fputs(test->count_a <= 2 ? "; so few seeds make a weak case." : ".", report->out);
    } else {
        fputs(": <strong>no difference</strong> from ", report->out);
        write_name(report, base);
        fputs(" <strong>shown</strong>. Measured: ", report->out);
        write_difference(report, test->difference, true);
        write_test(report, contest);
        fputs(test->count_a <= 2 ? "; with so few seeds only a very large difference could show." : ".", report->out);
    }
    fputs("</li>\n", report->out);
}

/** The arm with the best mean, other than `except`; arm_count = none has any. */
static size_t find_best(const cod_report *report, size_t rate, size_t except)
{
    const cod_report_data *data = report->data;
    size_t best = data->arm_count;
    double of_best = NAN;
    for (size_t i = 0; i < data->arm_count; i++) {
        const double mean = cod_report_spread(&data->arms[i], rate, cod_report_quality, NULL).mean;
        if (i != except && !isnan(mean) &&
            (best == data->arm_count || cod_report_better(&data->metric, mean, of_best))) {
            best = i;
            of_best = mean;
        }
    }
    return best;
}

static void write_mean(cod_report *report, size_t arm, size_t rate)
{
    const cod_report_metric *metric = &report->data->metric;
    const cod_spread spread = cod_report_spread(&report->data->arms[arm], rate, cod_report_quality, NULL);
    fputs(quality_text(metric, spread.mean).text, report->out);
    if (!isnan(spread.deviation))
        fprintf(report->out, "&nbsp;±&nbsp;%s", quality_text(metric, spread.deviation).text);
    fputs(metric->unit[0] != '\0' ? "&nbsp;" : "", report->out);
    cod_markup(report->out, metric->unit);
}

/** The best arm by its mean, and whether its lead over the next is more than chance. */
static cod_status write_best(cod_report *report, size_t rate, size_t best)
{
    const size_t second = find_best(report, rate, best), count = report->data->arm_count;
    cod_contest *contests = cod_arena_alloc(report->arena, (count + 1) * sizeof *contests);
    COD_REQUIRE_MEMORY(contests);
    const cod_spread spread = cod_report_spread(&report->data->arms[best], rate, cod_report_quality, NULL);
    fputs("<p class=\"best\">", report->out);
    write_name(report, best);
    fputs(spread.count > 1 ? " has the best mean: " : " has the best result: ", report->out);
    write_mean(report, best, rate);
    fprintf(report->out, spread.count > 1 ? " (± standard deviation, %zu seeds)." : " (%zu seed).", spread.count);
    if (second < count) {
        COD_TRY(cod_report_compare(report, rate, best, contests));
        fputs(" Next is ", report->out);
        write_name(report, second);
        fputs(" with ", report->out);
        write_mean(report, second, rate);
        if (contests[second].test.difference == 0)
            fputs(", the same.", report->out);
        else if (isnan(contests[second].p))
            fputs("; whether that is more than chance cannot be told.", report->out);
        else
            fprintf(report->out, "; the lead is %s (%s).",
                    contests[second].p < LEVEL ? "more than chance" : "not shown to be more than chance",
                    cod_p_text(contests[second].p).text);
    }
    fputs("</p>\n", report->out);
    return COD_OK;
}

static cod_status write_rate(cod_report *report, size_t rate)
{
    const cod_report_data *data = report->data;
    const size_t best = find_best(report, rate, data->arm_count);
    cod_contest *contests = cod_arena_alloc(report->arena, (data->arm_count + 1) * sizeof *contests);
    COD_REQUIRE_MEMORY(contests);
    if (best == data->arm_count) {
        fputs("<p>No run has finished with a result, so there is no verdict.</p>\n", report->out);
        return COD_OK;
    }
    COD_TRY(write_best(report, rate, best));
    if (data->baseline == data->arm_count) {
        fputs("<p>The comparison names no baseline among its arms, so none is judged against one.</p>\n", report->out);
        return COD_OK;
    }
    COD_TRY(cod_report_compare(report, rate, data->baseline, contests));
    fputs("<ul class=\"verdicts\">\n", report->out);
    for (size_t i = 0; i < data->arm_count; i++)
        if (i != data->baseline)
            write_contest(report, i, data->baseline, &contests[i]);
    fputs("</ul>\n", report->out);
    return COD_OK;
}

/** How many runs the verdict does without. */
static void write_missing(cod_report *report)
{
    size_t runs = 0, missing = 0;
    for (size_t i = 0; i < report->data->arm_count; i++)
        for (size_t k = 0; k < report->data->arms[i].run_count; k++) {
            runs++;
            missing += report->data->arms[i].runs[k].finished ? 0 : 1;
        }
    if (missing > 0)
        fprintf(report->out,
                "<p class=\"warning\">%zu of %zu run%s did not finish and %s left out; they are listed below.</p>\n",
                missing, runs, plural(runs), missing == 1 ? "is" : "are");
}

static void write_method(cod_report *report)
{
    const cod_report_data *data = report->data;
    fputs("<p class=\"note\">Judged by ", report->out);
    cod_markup(report->out, data->metric.label);
    fprintf(report->out, " (%s is better), the mean over the groups’ own final models",
            data->metric.higher_is_better ? "higher" : "lower");
    if (data->budget[0] != '\0') {
        fputs(", at equal budget: ", report->out);
        cod_markup(report->out, data->budget);
    }
    fprintf(report->out,
            ". A difference counts as shown when p &lt; %g in a two-sided t-test over seeds (paired where arms share "
            "their seeds, else Welch’s), after Holm’s correction for all comparisons with the same arm. CI: "
            "confidence interval of the difference, not corrected.</p>\n",
            LEVEL);
}

cod_status cod_report_verdict(cod_report *report)
{
    const cod_report_data *data = report->data;
    fputs("<section id=\"verdict\">\n<h2>Verdict</h2>\n", report->out);
    write_missing(report);
    if (data->arm_count == 0) {
        fputs("<p>The comparison has no arms.</p>\n</section>\n", report->out);
        return COD_OK;
    }
    for (size_t rate = 0; rate < data->rate_count; rate++) {
        const bool folded = rate > 0;
        if (data->rate_count > 1) {
            fputs(folded ? "<details><summary>Quality, links: " : "<h3>Quality, links: ", report->out);
            cod_markup(report->out, cod_report_rate_label(report, rate));
            fputs(folded ? "</summary>\n" : "</h3>\n", report->out);
        }
        COD_TRY(write_rate(report, rate));
        fputs(folded ? "</details>\n" : "", report->out);
    }
    COD_TRY(cod_report_speed_words(report));
    write_method(report);
    fputs("</section>\n", report->out);
    return COD_OK;
}
