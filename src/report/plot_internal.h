/**
 * @file
 * The kinds of plots of the report: lines, rows of marks, and stacked bars. Each opens and closes a drawing.
 */
#ifndef COD_REPORT_PLOT_INTERNAL_H
#define COD_REPORT_PLOT_INTERNAL_H

#include "report/drawing_internal.h"

#include <stdbool.h>

typedef struct cod_line {
    const char *name;
    size_t style, count;
    const double *x, *y;
    const double *spread; /**< half the height of the band around y, NaN = none; or NULL */
} cod_line;

/** A tick with its own text. */
typedef struct cod_named_tick {
    double at;
    const char *text;
} cod_named_tick;

typedef struct cod_line_plot {
    const char *title, *x_label, *y_label;
    const cod_line *lines;
    size_t count;
    bool x_log, y_log;
    bool whiskers;        /**< spread as bars at each point instead of a band */
    bool diagonal;        /**< both axes go from 0 to 100, with a guide where y = x */
    bool few_marks;       /**< marks on some of the points, where there are many */
    double x_low;         /**< beginning of the axis; NaN = the data's */
    double y_low, y_high; /**< range to show; lines are cut at its ends; NaN = the data's */
    const cod_named_tick *x_ticks;
    size_t x_tick_count; /**< 0 = round numbers */
} cod_line_plot;

/** @param[out] drawing  new, closed; cod_drawing_clear() */
COD_MUST_CHECK cod_status cod_line_plot_draw(const cod_line_plot *plot, int number, cod_drawing *drawing);

/** A mark with its range; NaN = none. */
typedef struct cod_range {
    double at, low, high;
} cod_range;

typedef struct cod_mark_row {
    const char *name, *text; /**< text: at the right end, or NULL */
    size_t style;            /**< of the row's marks when there is one series */
    const cod_range *marks;  /**< [series_count] */
    const double *dots;      /**< [dot_count] small marks beside the first */
    size_t dot_count;
} cod_mark_row;

typedef struct cod_mark_plot {
    const char *title, *x_label;
    const cod_mark_row *rows;
    size_t row_count;
    const char *const *series; /**< [series_count] names for the legend, or NULL for none */
    size_t series_count;
    bool x_log;  /**< logarithmic; a value of 0 is drawn at the left edge */
    bool x_zero; /**< the axis begins at 0 */
} cod_mark_plot;

COD_MUST_CHECK cod_status cod_mark_plot_draw(const cod_mark_plot *plot, int number, cod_drawing *drawing);

typedef struct cod_bar_row {
    const char *name, *text; /**< text: after the bar */
    const double *values;    /**< [part_count], NaN = nothing */
} cod_bar_row;

typedef struct cod_bar_plot {
    const char *title, *x_label;
    const cod_bar_row *rows;
    size_t row_count;
    const char *const *parts; /**< [part_count] */
    size_t part_count;
} cod_bar_plot;

COD_MUST_CHECK cod_status cod_bar_plot_draw(const cod_bar_plot *plot, int number, cod_drawing *drawing);

#endif
