/**
 * What the sections of the report share. Each section writes itself into the page, or nothing if its figures are
 * absent.
 */
#ifndef COD_REPORT_REPORT_INTERNAL_H
#define COD_REPORT_REPORT_INTERNAL_H

#include "report/data_internal.h"
#include "report/markup.h"
#include "report/plot_internal.h"
#include "report/significance.h"

typedef struct cod_report {
    const cod_report_data *data;
    const char *folder;
    FILE *out; /**< the page */
    cod_arena *arena;
    int drawings;  /**< number of drawings so far */
    double target; /**< the best quality that all runs reach during training; NaN = unknown */
    const struct cod_run_data
        *run;      /**< for the page of a training run, whose `data` is NULL and which has no PNG files */
    int refresh_s; /**< seconds after which the browser reloads the page; 0 = never */
} cod_report;

/**
 * Writes FOLDER/report.html around the sections, which end inside <main>, and removes PNG files that it no longer
 * names.
 */
COD_MUST_CHECK cod_status cod_report_write_page(cod_report *report, cod_status (*sections)(cod_report *report));
/** Writes everything from the doctype to the heading. */
void cod_report_head(cod_report *report, const char *title);
/** Writes an entry of a <dl>; nothing if `fact` is "". */
void cod_report_fact(cod_report *report, const char *name, const char *fact);
/**
 * Ends the section and the <dl> about the making of the page, with the command that writes it anew and the
 * configuration ("" = unknown).
 */
void cod_report_end_making(cod_report *report, const char *config);
/** Writes an <img> with a PNG's bytes, or why there is none. @param name below the folder */
void cod_report_embed(cod_report *report, const char *name, const char *label);

/** Draws a plot and writes it to the page and as FOLDER/`file`.png, with a caption (HTML). */
COD_MUST_CHECK cod_status cod_report_add_line_plot(cod_report *report, const cod_line_plot *plot, const char *file,
                                                   const char *caption);
COD_MUST_CHECK cod_status cod_report_add_mark_plot(cod_report *report, const cod_mark_plot *plot, const char *file,
                                                   const char *caption);
COD_MUST_CHECK cod_status cod_report_add_bar_plot(cod_report *report, const cod_bar_plot *plot, const char *file,
                                                  const char *caption);
/**
 * Removes the PNG files that an earlier page of this report names and the new one does not: nobody would write them
 * anew.
 */
COD_MUST_CHECK cod_status cod_report_remove_stale(const cod_report *report, const char *earlier, const char *page);
/** Suffix of a plot's title or a heading that names the rate: ", 20 Mbit/s"; "" if there is one rate; in the arena. */
const char *cod_report_rate_suffix(const cod_report *report, size_t rate);
/** "20 Mbit/s", "no limit", or the name itself if it is no rate. */
const char *cod_report_rate_label(const cod_report *report, size_t rate);
/** `base` for the first rate, else `base`-RATE, with characters that all file systems allow; in the arena. */
const char *cod_report_file_name(const cod_report *report, const char *base, size_t rate);
/** printf into the arena; "" when memory is short. */
const char *cod_report_text(const cod_report *report, const char *fmt, ...) COD_PRINTF(2, 3);

/** The best quality that every finished run reaches during training, rounded down a little; NaN = none. */
double cod_report_find_target(const cod_report_data *data);

typedef struct cod_report_goal {
    const cod_report_metric *metric;
    double target;
} cod_report_goal;

/**
 * Seconds until a run reaches the goal at `context`, interpolated linearly between two evaluations; NaN = it does not.
 */
double cod_report_time_to(const cod_report_run *run, const void *context);

/** Whether and by how much an arm differs from another. */
typedef struct cod_contest {
    cod_t_test test;
    double p; /**< adjusted for all comparisons with the same arm at the same rate; NaN = no test */
} cod_contest;

/** Compares all arms with `base` at a rate. @param[out] contests  [arm_count] */
COD_MUST_CHECK cod_status cod_report_compare(const cod_report *report, size_t rate, size_t base, cod_contest *contests);

COD_MUST_CHECK cod_status cod_report_verdict(cod_report *report);
/**
 * Writes items of a list: which arm reaches the target sooner than the baseline at which link rates. Writes nothing if
 * there is one rate.
 */
COD_MUST_CHECK cod_status cod_report_speed_words(cod_report *report);
COD_MUST_CHECK cod_status cod_report_arms(cod_report *report);
COD_MUST_CHECK cod_status cod_report_tuning(cod_report *report);
COD_MUST_CHECK cod_status cod_report_curves(cod_report *report);
COD_MUST_CHECK cod_status cod_report_rates(cod_report *report);
COD_MUST_CHECK cod_status cod_report_costs(cod_report *report);
COD_MUST_CHECK cod_status cod_report_agreement(cod_report *report);
COD_MUST_CHECK cod_status cod_report_crops(cod_report *report);
COD_MUST_CHECK cod_status cod_report_failures(cod_report *report);
/**
 * Writes a section with the pictures of "crops" (infer/closeup.h), or nothing if there are none. @param heading, note
 * HTML
 */
void cod_report_write_crops(cod_report *report, const cod_json_value *crops, const char *id, const char *heading,
                            const char *note);
/** Writes a section with the photographs of FOLDER/photographs.json (tools/photographs.h), or nothing. */
COD_MUST_CHECK cod_status cod_report_photographs(cod_report *report);

/** A factor that makes numbers handy, and the resulting unit. */
typedef struct cod_scaling {
    double factor;
    const char *unit;
} cod_scaling;

/** For byte counts of this size. */
cod_scaling cod_report_bytes_unit(double bytes);

/** The x axis of an arm's line over its evaluations (mean and deviation over seeds); see curves.c. */
typedef enum cod_curve_axis { COD_CURVE_STEP, COD_CURVE_TIME, COD_CURVE_BYTES, COD_CURVE_DISAGREEMENT } cod_curve_axis;
/** @param[out] line  in the arena; count 0 = the arm has nothing to show */
COD_MUST_CHECK cod_status cod_report_curve(const cod_report *report, size_t arm, size_t rate, cod_curve_axis axis,
                                           double scale, cod_line *line);

/** Whether this build draws PNG files. */
bool cod_report_png_available(void);
/** Draws an SVG as a PNG file, twice as large. @return COD_ERR_UNSUPPORTED in a build that cannot */
COD_MUST_CHECK cod_status cod_report_png_write(const char *svg, size_t bytes, const char *path);

#endif
