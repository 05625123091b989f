/* Lines in a frame with two axes. */
#include "report/markup.h"
#include "report/plot_internal.h"
#include "report/ticks_internal.h"

#include <math.h>
#include <stdlib.h>

enum { PANEL_HEIGHT = 230, RIGHT = 14, MOST_MARKS = 7 };

typedef struct panel {
    const cod_line_plot *plot;
    cod_drawing *drawing;
    cod_axis x, y;
    cod_ticks x_ticks, y_ticks;
} panel;

static bool shown(const cod_line_plot *plot, double x, double y)
{
    return isfinite(x) && isfinite(y) && (!plot->x_log || x > 0) && (!plot->y_log || y > 0);
}

static void include(double value, double *low, double *high)
{
    *low = fmin(*low, value);
    *high = fmax(*high, value);
}

/** Adds a margin to a range, in its own scale. */
static void widen(cod_axis *axis, double below, double above)
{
    if (axis->logarithmic) {
        const double factor = fmax(axis->high / axis->low, 1.5);
        axis->low /= pow(factor, below);
        axis->high *= pow(factor, above);
        return;
    }
    double size = axis->high - axis->low;
    if (!(size > 1e-9 * fmax(fabs(axis->high), fabs(axis->low)))) /* one value only */
        size = fmax(fabs(axis->high) * 0.1, 1e-9);
    axis->low -= size * below;
    axis->high += size * above;
}

static double spread_at(const cod_line *line, size_t k)
{
    return line->spread != NULL && isfinite(line->spread[k]) ? line->spread[k] : 0;
}

static void find_ranges(panel *p)
{
    const cod_line_plot *plot = p->plot;
    const bool y_given = isfinite(plot->y_low) && isfinite(plot->y_high) && plot->y_high > plot->y_low;
    p->x = (cod_axis){.low = INFINITY, .high = -INFINITY, .logarithmic = plot->x_log};
    p->y = (cod_axis){.low = INFINITY, .high = -INFINITY, .logarithmic = plot->y_log};
    double least = INFINITY;
    for (size_t i = 0; i < plot->count; i++)
        for (size_t k = 0; k < plot->lines[i].count; k++) {
            const cod_line *line = &plot->lines[i];
            if (!shown(plot, line->x[k], line->y[k]))
                continue;
            /* Points that are cut off above or below do not widen the range of x. */
            if (!y_given || (line->y[k] >= plot->y_low && line->y[k] <= plot->y_high))
                include(line->x[k], &p->x.low, &p->x.high);
            if (line->y[k] - spread_at(line, k) > 0 || !plot->y_log)
                include(line->y[k] - spread_at(line, k), &p->y.low, &p->y.high);
            include(line->y[k] + spread_at(line, k), &p->y.low, &p->y.high);
            least = fmin(least, line->y[k]);
        }
    if (!(p->x.high >= p->x.low)) { /* nothing to show: an empty frame is drawn all the same */
        p->x.low = p->y.low = 1;
        p->x.high = p->y.high = 10;
    }
    if (least >= 0) /* what is never below 0 has no band there */
        p->y.low = fmax(p->y.low, 0);
    if (y_given) {
        p->y.low = plot->y_low;
        p->y.high = plot->y_high;
    }
    if (plot->diagonal) {
        p->x.low = p->y.low = 0;
        p->x.high = p->y.high = 100;
        return;
    }
    if (isfinite(plot->x_low) && plot->x_low < p->x.high)
        p->x.low = plot->x_low;
    widen(&p->x, isfinite(plot->x_low) ? 0 : 0.04, 0.03);
    widen(&p->y, 0.06, 0.06);
}

static cod_short tick_text(const cod_ticks *ticks, size_t i)
{
    return cod_number_text(ticks->at[i], ticks->digits[i]);
}

static double widest_tick(const cod_ticks *ticks)
{
    double widest = 0;
    for (size_t i = 0; i < ticks->count; i++)
        widest = fmax(widest, cod_drawing_text_width(cod_markup_length(tick_text(ticks, i).text)));
    return widest;
}

static void lay_out(panel *p)
{
    p->y_ticks = p->y.logarithmic ? cod_ticks_log(p->y.low, p->y.high, 7) : cod_ticks_linear(p->y.low, p->y.high, 7);
    p->x.begin = fmax(20, 12 + widest_tick(&p->y_ticks));
    p->x.end = COD_DRAWING_WIDTH - RIGHT;
    p->y.begin = cod_drawing_top(p->plot->y_label) + PANEL_HEIGHT;
    p->y.end = cod_drawing_top(p->plot->y_label);
    for (size_t most = 7; most >= 2; most--) { /* as many as stand apart */
        p->x_ticks =
            p->x.logarithmic ? cod_ticks_log(p->x.low, p->x.high, most) : cod_ticks_linear(p->x.low, p->x.high, most);
        if ((widest_tick(&p->x_ticks) + 14) * (double)p->x_ticks.count < p->x.end - p->x.begin)
            break;
    }
}

static void draw_axes(const panel *p)
{
    cod_drawing *d = p->drawing;
    for (size_t i = 0; i < p->y_ticks.count; i++) {
        const double y = cod_axis_place(&p->y, p->y_ticks.at[i]);
        cod_drawing_line(d, p->x.begin, y, p->x.end, y, "grid");
        cod_drawing_text(d, p->x.begin - 7, y + 4.5, "tick", "end", COD_MARKUP_ALL, tick_text(&p->y_ticks, i).text);
    }
    double free_from = -1;
    for (size_t i = 0; i < p->plot->x_tick_count; i++) {
        const double x = cod_axis_place(&p->x, p->plot->x_ticks[i].at),
                     half = cod_drawing_text_width(cod_markup_length(p->plot->x_ticks[i].text)) / 2,
                     middle = fmin(x, COD_DRAWING_WIDTH - half);
        cod_drawing_line(d, x, p->y.begin, x, p->y.end, "grid");
        if (middle - half < free_from) /* no room for its name */
            continue;
        cod_drawing_text(d, middle, p->y.begin + 18, "tick", "middle", COD_MARKUP_ALL, p->plot->x_ticks[i].text);
        free_from = middle + half + 6;
    }
    for (size_t i = 0; i < p->x_ticks.count && p->plot->x_tick_count == 0; i++) {
        const double x = cod_axis_place(&p->x, p->x_ticks.at[i]);
        cod_drawing_line(d, x, p->y.begin, x, p->y.begin + 4, "frame");
        cod_drawing_text(d, x, p->y.begin + 18, "tick", "middle", COD_MARKUP_ALL, tick_text(&p->x_ticks, i).text);
    }
    cod_drawing_line(d, p->x.begin, p->y.begin, p->x.end, p->y.begin, "frame");
    cod_drawing_text(d, (p->x.begin + p->x.end) / 2, p->y.begin + 37, "label", "middle", 60, p->plot->x_label);
}

/** The outline of y ± spread, there and back. */
static void draw_band(const panel *p, const cod_line *line)
{
    bool begun = false;
    for (int side = 0; side < 2; side++)
        for (size_t i = 0; i < line->count; i++) {
            const size_t k = side == 0 ? i : line->count - 1 - i;
            const double spread = spread_at(line, k);
            double y = line->y[k] + (side == 0 ? spread : -spread);
            if (!shown(p->plot, line->x[k], line->y[k]))
                continue;
            if (p->y.logarithmic && y <= 0)
                y = p->y.low;
            fprintf(p->drawing->out, "%s%.1f %.1f", begun ? "L" : "<path d=\"M", cod_axis_place(&p->x, line->x[k]),
                    cod_axis_place(&p->y, y));
            begun = true;
        }
    if (begun)
        fprintf(p->drawing->out, "Z\" class=\"b%zu\"/>\n", line->style % 8);
}

static void draw_whiskers(const panel *p, const cod_line *line)
{
    for (size_t k = 0; k < line->count; k++) {
        const double spread = spread_at(line, k), low = line->y[k] - spread;
        if (!shown(p->plot, line->x[k], line->y[k]) || !(spread > 0))
            continue;
        const double x = cod_axis_place(&p->x, line->x[k]), top = cod_axis_place(&p->y, line->y[k] + spread),
                     bottom = p->y.logarithmic && low <= 0 ? p->y.begin : cod_axis_place(&p->y, low);
        fprintf(p->drawing->out, "<path d=\"M%.1f %.1fh8m-4 0V%.1fm-4 0h8\" class=\"s%zu\"/>\n", x - 4, top, bottom,
                line->style % 8);
    }
}

static void draw_line(const panel *p, const cod_line *line)
{
    bool begun = false;
    for (size_t k = 0; k < line->count; k++)
        if (shown(p->plot, line->x[k], line->y[k])) {
            fprintf(p->drawing->out, "%s%.1f %.1f", begun ? "L" : "<path d=\"M", cod_axis_place(&p->x, line->x[k]),
                    cod_axis_place(&p->y, line->y[k]));
            begun = true;
        }
    if (!begun)
        return;
    fputs("\" ", p->drawing->out);
    cod_drawing_stroke(p->drawing, line->style);
    fputs("/>\n", p->drawing->out);
}

/** Lines that run together keep apart by marks at different points; the last has one in any case. */
static void draw_marks(const panel *p, const cod_line *line, size_t index)
{
    const size_t stride = p->plot->few_marks ? line->count / MOST_MARKS + 1 : 1;
    for (size_t k = 0; k < line->count; k++) {
        const double y = shown(p->plot, line->x[k], line->y[k]) ? cod_axis_place(&p->y, line->y[k]) : NAN;
        if (y >= p->y.end - 1 && y <= p->y.begin + 1 && (k % stride == index % stride || k + 1 == line->count))
            cod_drawing_mark(p->drawing, cod_axis_place(&p->x, line->x[k]), y, 4.2, line->style);
    }
}

/**
 * All lines, in an <svg> of their own with the same coordinates that cuts what leaves the panel; marks at its edge stay
 * whole.
 */
static void draw_lines(const panel *p)
{
    const double margin = 6, x = p->x.begin - margin, y = p->y.end - margin, width = p->x.end - x + margin,
                 height = p->y.begin - y;
    fprintf(p->drawing->out,
            "<svg x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" viewBox=\"%.1f %.1f %.1f %.1f\" "
            "overflow=\"hidden\">\n",
            x, y, width, height, x, y, width, height);
    if (p->plot->diagonal)
        cod_drawing_line(p->drawing, p->x.begin, p->y.begin, p->x.end, p->y.end, "guide");
    for (size_t i = 0; i < p->plot->count; i++)
        if (p->plot->whiskers)
            draw_whiskers(p, &p->plot->lines[i]);
        else if (p->plot->lines[i].spread != NULL && p->plot->lines[i].count > 1)
            draw_band(p, &p->plot->lines[i]);
    for (size_t i = 0; i < p->plot->count; i++)
        draw_line(p, &p->plot->lines[i]);
    fputs("</svg>\n", p->drawing->out);
    for (size_t i = 0; i < p->plot->count; i++)
        draw_marks(p, &p->plot->lines[i], i);
}

cod_status cod_line_plot_draw(const cod_line_plot *plot, int number, cod_drawing *drawing)
{
    panel p = {.plot = plot, .drawing = drawing};
    *drawing = (cod_drawing){0};
    cod_legend_entry *entries = calloc(plot->count + 1, sizeof *entries);
    COD_REQUIRE_MEMORY(entries);
    cod_status status = cod_drawing_open(drawing, number, plot->title, plot->y_label);
    if (status == COD_OK) {
        find_ranges(&p);
        lay_out(&p);
        draw_axes(&p);
        draw_lines(&p);
        for (size_t i = 0; i < plot->count; i++)
            entries[i] = (cod_legend_entry){plot->lines[i].name, plot->lines[i].style};
        status =
            cod_drawing_close(drawing, cod_drawing_legend(drawing, p.y.begin + 48, entries, plot->count, false) + 4);
    }
    free(entries);
    return status;
}
