/* Time to a quality against the link's rate: from which bandwidth on an arm is sooner than the baseline. */
#include "report/report_internal.h"

#include <math.h>

#define NO_LIMIT_FACTOR 4 /* a link without a limit is drawn so much to the right of the fastest with one */

static bool reaches(const cod_report_metric *metric, double quality, double target)
{
    return !cod_report_better(metric, target, quality);
}

double cod_report_find_target(const cod_report_data *data)
{
    double target = NAN;
    for (size_t i = 0; i < data->arm_count; i++)
        for (size_t k = 0; k < data->arms[i].run_count; k++) {
            const cod_report_run *run = &data->arms[i].runs[k];
            double best = NAN;
            for (size_t p = 0; run->finished && p < run->curve_count; p++)
                if (!isnan(run->curve[p].time_s) &&
                    (isnan(best) || cod_report_better(&data->metric, run->curve[p].quality, best)))
                    best = run->curve[p].quality;
            if (!isnan(best) && (isnan(target) || cod_report_better(&data->metric, target, best)))
                target = best;
        }
    /* Shown digits are the target's own, cut toward what is easier. */
    const double unit = pow(10, -data->metric.digits);
    return data->metric.higher_is_better ? floor(target / unit + 1e-6) * unit : ceil(target / unit - 1e-6) * unit;
}

double cod_report_time_to(const cod_report_run *run, const void *context)
{
    const cod_report_goal *g = context;
    const cod_report_point *before = NULL;
    for (size_t k = 0; k < run->curve_count; k++) {
        const cod_report_point *point = &run->curve[k];
        if (isnan(point->time_s))
            continue;
        if (reaches(g->metric, point->quality, g->target)) {
            const double gain = before != NULL ? point->quality - before->quality : 0;
            return gain != 0 ? before->time_s + (point->time_s - before->time_s) * (g->target - before->quality) / gain
                             : point->time_s;
        }
        before = point;
    }
    return NAN;
}

/** Rates with known bandwidth, the slowest first. @return how many */
static size_t sort_rates(const cod_report_data *data, size_t *order)
{
    size_t count = 0;
    for (size_t i = 0; i < data->rate_count; i++) {
        if (isnan(data->rates[i].bits_per_second))
            continue;
        size_t place = count++;
        for (; place > 0 && data->rates[order[place - 1]].bits_per_second > data->rates[i].bits_per_second; place--)
            order[place] = order[place - 1];
        order[place] = i;
    }
    return count;
}

static cod_spread time_of(const cod_report *report, size_t arm, size_t rate)
{
    const cod_report_goal goal = {&report->data->metric, report->target};
    return cod_report_spread(&report->data->arms[arm], rate, cod_report_time_to, &goal);
}

/** Rates at which an arm and the baseline were both measured, slowest first, and how much sooner the arm is there. */
typedef struct race {
    size_t *rates, count;
    double *advantage; /**< log(baseline's time / arm's time) */
    size_t changes;    /**< how often its sign changes from one rate to the next */
    size_t change;     /**< index before the last of them */
    bool one_seed;
} race;

static cod_status run_race(const cod_report *report, size_t arm, race *out)
{
    const cod_report_data *data = report->data;
    *out = (race){.rates = cod_arena_alloc(report->arena, data->rate_count * sizeof *out->rates),
                  .advantage = cod_arena_alloc(report->arena, data->rate_count * sizeof *out->advantage)};
    COD_REQUIRE_MEMORY(out->rates);
    COD_REQUIRE_MEMORY(out->advantage);
    const size_t rates = sort_rates(data, out->rates);
    for (size_t i = 0; i < rates; i++) {
        const cod_spread own = time_of(report, arm, out->rates[i]),
                         base = time_of(report, data->baseline, out->rates[i]);
        if (!(own.mean > 0 && base.mean > 0))
            continue;
        out->one_seed = out->one_seed || own.count < 2 || base.count < 2;
        out->rates[out->count] = out->rates[i];
        out->advantage[out->count] = log(base.mean / own.mean);
        if (out->count > 0 && (out->advantage[out->count] > 0) != (out->advantage[out->count - 1] > 0)) {
            out->changes++;
            out->change = out->count - 1;
        }
        out->count++;
    }
    return COD_OK;
}

static double bits_of(const cod_report *report, const race *r, size_t i)
{
    return report->data->rates[r->rates[i]].bits_per_second;
}

/** "1.3 to 12 times" or "3 times": how much sooner, or later, over the rates. */
static void write_factors(const cod_report *report, const race *r)
{
    double low = INFINITY, high = 0;
    for (size_t i = 0; i < r->count; i++) {
        low = fmin(low, exp(fabs(r->advantage[i])));
        high = fmax(high, exp(fabs(r->advantage[i])));
    }
    fprintf(report->out, "%.2g", low);
    if (high > 1.1 * low)
        fprintf(report->out, " to %.2g", high);
    fputs(" times", report->out);
}

/**
 * The rate at which the order changes, interpolated linearly between two rates in the logarithms of the rate and of the
 * ratio of times.
 */
static void write_crossing(const cod_report *report, const race *r)
{
    const size_t i = r->change;
    const bool wins_slow = r->advantage[i] > 0;
    const double below = bits_of(report, r, i), above = bits_of(report, r, i + 1),
                 share = r->advantage[i] / (r->advantage[i] - r->advantage[i + 1]);
    fprintf(report->out, "is sooner on links %s than ", wins_slow ? "slower" : "faster");
    if (isinf(above)) {
        fprintf(report->out, "a rate somewhere above %s", cod_rate_text(below).text);
    } else {
        const double crossing = exp(log(below) + share * (log(above) - log(below)));
        fprintf(report->out, "<strong>about %s</strong> (between the measured %s and ", cod_rate_text(crossing).text,
                cod_rate_text(below).text);
        fprintf(report->out, "%s)", cod_rate_text(above).text);
    }
    const size_t end = wins_slow ? 0 : r->count - 1;
    fprintf(report->out, "; at %s by a factor of %.2g", cod_rate_text(bits_of(report, r, end)).text,
            exp(r->advantage[end]));
}

static void write_race(const cod_report *report, const race *r)
{
    if (r->count == 0) {
        fputs("was measured at no rate together with the baseline", report->out);
    } else if (r->changes == 1) {
        write_crossing(report, r);
    } else if (r->changes > 1) {
        fputs("and the baseline change places more than once: it is sooner at", report->out);
        const char *comma = " ";
        for (size_t i = 0; i < r->count; i++)
            if (r->advantage[i] > 0) {
                fprintf(report->out, "%s%s", comma, cod_rate_text(bits_of(report, r, i)).text);
                comma = ", ";
            }
    } else {
        const bool wins = r->advantage[0] > 0;
        fprintf(report->out, "is %s at every rate measured (%s", wins ? "sooner" : "not sooner",
                cod_rate_text(bits_of(report, r, 0)).text);
        if (r->count > 1)
            fprintf(report->out, " to %s", cod_rate_text(bits_of(report, r, r->count - 1)).text);
        fputs("), by ", report->out);
        write_factors(report, r);
    }
    fputs(r->one_seed && r->count > 0 ? "; from one seed, so take it as a hint.</li>\n" : ".</li>\n", report->out);
}

static void write_target(const cod_report *report)
{
    const cod_report_metric *metric = &report->data->metric;
    fputs(cod_number_text(report->target, metric->digits).text, report->out);
    fputs(metric->unit[0] != '\0' ? "&nbsp;" : "", report->out);
    cod_markup(report->out, metric->unit);
}

/** Whether there is something to tell: two known rates, a target, a baseline. */
static bool can_race(const cod_report *report)
{
    size_t known = 0;
    for (size_t i = 0; i < report->data->rate_count; i++)
        known += isnan(report->data->rates[i].bits_per_second) ? 0 : 1;
    return known > 1 && !isnan(report->target);
}

cod_status cod_report_speed_words(cod_report *report)
{
    const cod_report_data *data = report->data;
    if (!can_race(report) || data->baseline == data->arm_count)
        return COD_OK;
    fputs("<h3>Speed: time to ", report->out);
    write_target(report);
    fputs(" on validation data, against ", report->out);
    cod_markup(report->out, data->arms[data->baseline].name);
    fputs("</h3>\n<ul>\n", report->out);
    for (size_t i = 0; i < data->arm_count; i++) {
        race r;
        if (i == data->baseline)
            continue;
        COD_TRY(run_race(report, i, &r));
        fputs("<li><b>", report->out);
        cod_markup(report->out, data->arms[i].name);
        fputs("</b> ", report->out);
        write_race(report, &r);
    }
    fputs("</ul>\n", report->out);
    return COD_OK;
}

/** An arm's times at the rates that have one. `place`: where each rate stands on the axis. */
static cod_status make_line(const cod_report *report, size_t arm, const size_t *order, const double *place,
                            size_t rates, cod_line *line)
{
    double *x = cod_arena_alloc(report->arena, (3 * rates + 1) * sizeof *x), *y = x + rates, *spread = y + rates;
    size_t count = 0;
    COD_REQUIRE_MEMORY(x);
    for (size_t i = 0; i < rates; i++) {
        const cod_spread time = time_of(report, arm, order[i]);
        if (!(time.mean > 0))
            continue;
        x[count] = place[i];
        y[count] = time.mean;
        spread[count++] = time.deviation;
    }
    *line = (cod_line){
        .name = report->data->arms[arm].name, .style = arm, .count = count, .x = x, .y = y, .spread = spread};
    return COD_OK;
}

static cod_status draw(cod_report *report)
{
    const cod_report_data *data = report->data;
    size_t *order = cod_arena_alloc(report->arena, data->rate_count * sizeof *order), lines_used = 0;
    double *place = cod_arena_alloc(report->arena, data->rate_count * sizeof *place), fastest = 0;
    cod_named_tick *ticks = cod_arena_alloc(report->arena, data->rate_count * sizeof *ticks);
    cod_line *lines = cod_arena_alloc(report->arena, (data->arm_count + 1) * sizeof *lines);
    COD_REQUIRE_MEMORY(order);
    COD_REQUIRE_MEMORY(place);
    COD_REQUIRE_MEMORY(ticks);
    COD_REQUIRE_MEMORY(lines);
    const size_t rates = sort_rates(data, order);
    for (size_t i = 0; i < rates; i++) {
        const double bits = data->rates[order[i]].bits_per_second;
        if (!isinf(bits))
            fastest = bits;
        place[i] = isinf(bits) ? NO_LIMIT_FACTOR * fastest : bits;
        ticks[i] = (cod_named_tick){place[i], cod_report_rate_label(report, order[i])};
    }
    for (size_t i = 0; i < data->arm_count; i++) {
        COD_TRY(make_line(report, i, order, place, rates, &lines[lines_used]));
        lines_used += lines[lines_used].count > 0 ? 1 : 0;
    }
    const char *target = cod_report_text(report, "%s%s%s", cod_number_text(report->target, data->metric.digits).text,
                                         data->metric.unit[0] != '\0' ? " " : "", data->metric.unit);
    const cod_line_plot plot = {.title = "Time to a quality against the link’s rate",
                                .x_label = "rate of the links between groups",
                                .y_label = cod_report_text(report, "time to %s on validation data, s", target),
                                .lines = lines,
                                .count = lines_used,
                                .x_log = true,
                                .y_log = true,
                                .whiskers = true,
                                .x_low = NAN,
                                .y_low = NAN,
                                .y_high = NAN,
                                .x_ticks = ticks,
                                .x_tick_count = rates};
    return cod_report_add_line_plot(report, &plot, "time-rate",
                                    "Mean over seeds, bars: ± one standard deviation. Lower is sooner.");
}

cod_status cod_report_rates(cod_report *report)
{
    const cod_report_data *data = report->data;
    if (data->rate_count < 2)
        return COD_OK;
    fputs("<section id=\"rates\">\n<h2>Time to a quality at several link rates</h2>\n", report->out);
    if (!can_race(report)) {
        fputs("<p class=\"note\">Left out: it takes evaluations with times at two rates or more.</p>\n</section>\n",
              report->out);
        return COD_OK;
    }
    fputs("<p>The target is the best quality that every run reaches while it trains: ", report->out);
    write_target(report);
    fputs(" on validation data. The time is that between two evaluations by a straight line.</p>\n"
          "<div class=\"figures\">\n",
          report->out);
    COD_TRY(draw(report));
    fputs("</div>\n</section>\n", report->out);
    return COD_OK;
}
