/* Plots with a row for each arm: marks on an axis, and stacked bars. */
#include "report/markup.h"
#include "report/plot_internal.h"
#include "report/ticks_internal.h"

#include <math.h>

enum { ROW_HEIGHT = 28, LONGEST_NAME = 20, RIGHT = 14 };

typedef struct frame {
    cod_drawing *drawing;
    cod_axis x;
    double top, bottom;
} frame;

static double row_middle(const frame *f, size_t row)
{
    return f->top + ROW_HEIGHT * ((double)row + 0.5);
}

/** Room for names on the left and, on the right, for the widest text. */
static void set_edges(frame *f, double name_width, double text_width, size_t rows)
{
    f->x.begin = 4 + name_width + 12;
    f->x.end = COD_DRAWING_WIDTH - RIGHT - (text_width > 0 ? text_width + 10 : 0);
    f->top = cod_drawing_top(NULL);
    f->bottom = f->top + ROW_HEIGHT * (double)rows + 4;
}

static double name_width(const char *name)
{
    const size_t length = cod_markup_length(name);
    return cod_drawing_text_width(length < LONGEST_NAME ? length : LONGEST_NAME);
}

static double text_width(const char *text)
{
    return text != NULL ? cod_drawing_text_width(cod_markup_length(text)) : 0;
}

static void draw_axis(const frame *f, const char *label)
{
    cod_ticks ticks = {0};
    for (size_t most = 7; most >= 2; most--) {
        double widest = 0;
        ticks =
            f->x.logarithmic ? cod_ticks_log(f->x.low, f->x.high, most) : cod_ticks_linear(f->x.low, f->x.high, most);
        for (size_t i = 0; i < ticks.count; i++)
            widest = fmax(widest, text_width(cod_number_text(ticks.at[i], ticks.digits[i]).text));
        if ((widest + 12) * (double)ticks.count < f->x.end - f->x.begin)
            break;
    }
    for (size_t i = 0; i < ticks.count; i++) {
        const double x = cod_axis_place(&f->x, ticks.at[i]);
        cod_drawing_line(f->drawing, x, f->top, x, f->bottom, "grid");
        cod_drawing_text(f->drawing, x, f->bottom + 18, "tick", "middle", COD_MARKUP_ALL,
                         cod_number_text(ticks.at[i], ticks.digits[i]).text);
    }
    cod_drawing_line(f->drawing, f->x.begin, f->bottom, f->x.end, f->bottom, "frame");
    cod_drawing_text(f->drawing, (f->x.begin + f->x.end) / 2, f->bottom + 37, "label", "middle", 60, label);
}

static void include(cod_axis *axis, double value)
{
    if (isfinite(value) && (!axis->logarithmic || value > 0)) {
        axis->low = fmin(axis->low, value);
        axis->high = fmax(axis->high, value);
    }
}

/** From all marks, ranges and dots. */
static cod_axis find_range(const cod_mark_plot *plot)
{
    cod_axis axis = {.low = INFINITY, .high = -INFINITY, .logarithmic = plot->x_log};
    for (size_t i = 0; i < plot->row_count; i++) {
        for (size_t k = 0; k < plot->series_count; k++) {
            include(&axis, plot->rows[i].marks[k].at);
            include(&axis, plot->rows[i].marks[k].low);
            include(&axis, plot->rows[i].marks[k].high);
        }
        for (size_t k = 0; k < plot->rows[i].dot_count; k++)
            include(&axis, plot->rows[i].dots[k]);
    }
    if (!(axis.high >= axis.low))
        axis.low = axis.high = 1;
    if (axis.logarithmic) {
        const double room = pow(fmax(axis.high / axis.low, 3), 0.06);
        axis.low /= room * (plot->x_zero ? room : 1);
        axis.high *= room;
    } else {
        if (plot->x_zero)
            axis.low = fmin(0, axis.low);
        double room = 0.05 * (axis.high - axis.low);
        if (!(room > 1e-9 * fabs(axis.high)))
            room = fmax(0.05 * fabs(axis.high), 1e-9);
        axis.low -= plot->x_zero && axis.low == 0 ? 0 : room;
        axis.high += room;
    }
    return axis;
}

static void draw_row(const cod_mark_plot *plot, const frame *f, size_t row)
{
    const cod_mark_row *r = &plot->rows[row];
    const double y = row_middle(f, row);
    cod_drawing_text(f->drawing, f->x.begin - 10, y + 4.5, "name", "end", LONGEST_NAME, r->name);
    if (r->text != NULL)
        cod_drawing_text(f->drawing, COD_DRAWING_WIDTH - 4, y + 4.5, "name", "end", COD_MARKUP_ALL, r->text);
    for (size_t k = 0; k < r->dot_count; k++)
        if (isfinite(r->dots[k]))
            fprintf(f->drawing->out,
                    "<circle class=\"m%zu\" fill-opacity=\".45\" cx=\"%.1f\" cy=\"%.1f\" r=\"2.6\"/>\n", r->style % 8,
                    cod_axis_place(&f->x, r->dots[k]), y + 8);
    for (size_t k = 0; k < plot->series_count; k++) {
        const cod_range mark = r->marks[k];
        const size_t style = plot->series_count == 1 ? r->style : k;
        if (!isfinite(mark.at))
            continue;
        if (isfinite(mark.low) && isfinite(mark.high) && mark.high > mark.low && (!plot->x_log || mark.low > 0))
            fprintf(f->drawing->out, "<path class=\"s%zu\" d=\"M%.1f %.1fv8m0 -4H%.1fm0 -4v8\"/>\n", style % 8,
                    cod_axis_place(&f->x, mark.low), y - 4, cod_axis_place(&f->x, mark.high));
        const double x = plot->x_log && mark.at <= 0 ? f->x.begin : cod_axis_place(&f->x, mark.at),
                     beside =
                         8 * ((double)k - (double)(plot->series_count - 1) / 2); /* marks of one value stay apart */
        cod_drawing_mark(f->drawing, x, y + beside, 5, style);
    }
}

cod_status cod_mark_plot_draw(const cod_mark_plot *plot, int number, cod_drawing *drawing)
{
    frame f = {.drawing = drawing, .x = find_range(plot)};
    cod_legend_entry entries[8];
    double names = 0, texts = 0;
    COD_TRY(cod_drawing_open(drawing, number, plot->title, NULL));
    for (size_t i = 0; i < plot->row_count; i++) {
        names = fmax(names, name_width(plot->rows[i].name));
        texts = fmax(texts, text_width(plot->rows[i].text));
    }
    set_edges(&f, names, texts, plot->row_count);
    draw_axis(&f, plot->x_label);
    for (size_t i = 0; i < plot->row_count; i++)
        draw_row(plot, &f, i);
    size_t count = 0;
    for (; plot->series != NULL && count < plot->series_count && count < 8; count++)
        entries[count] = (cod_legend_entry){plot->series[count], count};
    return cod_drawing_close(drawing, cod_drawing_legend(drawing, f.bottom + 46, entries, count, false) + 4);
}

static double bar_total(const cod_bar_plot *plot, size_t row)
{
    double total = 0;
    for (size_t k = 0; k < plot->part_count; k++)
        total += plot->rows[row].values[k] > 0 ? plot->rows[row].values[k] : 0;
    return total;
}

static void draw_bar(const cod_bar_plot *plot, const frame *f, size_t row)
{
    const cod_bar_row *r = &plot->rows[row];
    const double y = row_middle(f, row);
    double from = 0;
    cod_drawing_text(f->drawing, f->x.begin - 10, y + 4.5, "name", "end", LONGEST_NAME, r->name);
    for (size_t k = 0; k < plot->part_count; k++) {
        if (!(r->values[k] > 0))
            continue;
        const double left = cod_axis_place(&f->x, from), right = cod_axis_place(&f->x, from + r->values[k]);
        fprintf(f->drawing->out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"18\" ", left, y - 9,
                fmax(right - left, 0.5));
        cod_drawing_fill(f->drawing, k);
        fputs("><title>", f->drawing->out);
        cod_markup(f->drawing->out, plot->parts[k]);
        fprintf(f->drawing->out, ": %s</title></rect>\n", cod_figure_text(r->values[k]).text);
        from += r->values[k];
    }
    if (r->text != NULL)
        cod_drawing_text(f->drawing, cod_axis_place(&f->x, from) + 7, y + 4.5, "name", "start", COD_MARKUP_ALL,
                         r->text);
}

cod_status cod_bar_plot_draw(const cod_bar_plot *plot, int number, cod_drawing *drawing)
{
    frame f = {.drawing = drawing};
    cod_legend_entry entries[8];
    double names = 0, texts = 0, highest = 0;
    COD_TRY(cod_drawing_open(drawing, number, plot->title, NULL));
    for (size_t i = 0; i < plot->row_count; i++) {
        names = fmax(names, name_width(plot->rows[i].name));
        texts = fmax(texts, text_width(plot->rows[i].text));
        highest = fmax(highest, bar_total(plot, i));
    }
    set_edges(&f, names, texts, plot->row_count);
    f.x.high = highest > 0 ? highest : 1;
    draw_axis(&f, plot->x_label);
    for (size_t i = 0; i < plot->row_count; i++)
        draw_bar(plot, &f, i);
    size_t count = 0;
    for (; count < plot->part_count && count < 8; count++)
        entries[count] = (cod_legend_entry){plot->parts[count], count};
    return cod_drawing_close(drawing, cod_drawing_legend(drawing, f.bottom + 46, entries, count, true) + 4);
}
