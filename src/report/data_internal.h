/**
 * @file
 * The content of compare.json in the form that the report uses. Texts are never NULL, numbers that are absent are NaN,
 * lists that are absent are empty.
 */
#ifndef COD_REPORT_DATA_INTERNAL_H
#define COD_REPORT_DATA_INTERNAL_H

#include "core/memory.h"
#include "io/json.h"

#include <stdbool.h>
#include <stddef.h>

typedef enum cod_step_part {
    COD_STEP_TOTAL,
    COD_STEP_COMPUTE,
    COD_STEP_TEACHER,
    COD_STEP_WAIT,
    COD_STEP_EXCHANGE,
    COD_STEP_PARTS
} cod_step_part;

/** One evaluation during a run. */
typedef struct cod_report_point {
    double step, time_s, bytes_between, quality;
} cod_report_point;

typedef struct cod_report_bin {
    double confidence, accuracy, count; /**< confidence and accuracy from 0 to 1 */
} cod_report_bin;

typedef struct cod_report_run {
    double seed;
    size_t rate;   /**< index into cod_report_data.rates */
    bool finished; /**< the run has finished and counts */
    const char *state, *message, *folder;
    double steps, samples, wall_s, trained_s, core_s, bytes_inside, bytes_between;
    double quality, final_quality; /**< the mean of the groups' own models, and the model that training gave */
    double step_ms[COD_STEP_PARTS];
    const cod_json_value *metrics; /**< object, or NULL */
    cod_report_point *curve;       /**< [curve_count], by step */
    size_t curve_count;
    cod_report_point *disagreement; /**< [disagreement_count], by step; `quality` is per cent */
    size_t disagreement_count;
    cod_report_bin *bins;
    size_t bin_count;
} cod_report_run;

typedef struct cod_report_arm {
    const char *name, *strategy, *settings; /**< settings: overrides, separated by blanks */
    double groups, ranks;
    const cod_json_value *tuned; /**< object; NULL = no tuning */
    cod_report_run *runs;
    size_t run_count;
} cod_report_arm;

typedef struct cod_report_rate {
    const char *name;
    double bits_per_second; /**< infinity = no limit; NaN = the name says no rate */
} cod_report_rate;

typedef struct cod_report_metric {
    const char *name, *label, *unit;
    bool higher_is_better;
    int digits;
} cod_report_metric;

typedef struct cod_report_data {
    cod_json_value *document;
    cod_arena arena;
    const char *title, *config, *config_text, *created, *version, *machine, *budget;
    cod_report_metric metric;
    cod_report_rate *rates; /**< [rate_count >= 1] */
    size_t rate_count;
    cod_report_arm *arms;
    size_t arm_count;
    size_t baseline; /**< index of an arm; arm_count = there is none */
} cod_report_data;

/** Reads FOLDER/compare.json. @param[out] data  new; cod_report_data_clear(), also after a failure */
COD_MUST_CHECK cod_status cod_report_data_read(const char *folder, cod_report_data *data);
void cod_report_data_clear(cod_report_data *data);

/** "20mbit" -> 20e6, "none" -> infinity, else NaN: rates as the network laboratory takes them. */
double cod_report_parse_rate(const char *name);

/** A figure of a run; NaN = it has none. */
typedef double (*cod_report_figure)(const cod_report_run *run, const void *context);

typedef struct cod_spread {
    size_t count;
    double mean, deviation; /**< over the seeds; NaN without values, and the deviation also with one value */
} cod_spread;

/**
 * Collects the values of an arm's finished runs at a rate. @param[out] values, seeds [arm->run_count]; seeds may be
 * NULL. @return how many
 */
size_t cod_report_collect(const cod_report_arm *arm, size_t rate, cod_report_figure figure, const void *context,
                          double *values, double *seeds);
cod_spread cod_report_spread(const cod_report_arm *arm, size_t rate, cod_report_figure figure, const void *context);

/** Figures for the two functions above. */
double cod_report_quality(const cod_report_run *run, const void *context);
/** @param context  the metric's name */
double cod_report_metric_of(const cod_report_run *run, const void *context);
/** @param context  size_t: offset of a double in cod_report_run */
double cod_report_member(const cod_report_run *run, const void *context);

/** Whether a is better than b. */
bool cod_report_better(const cod_report_metric *metric, double a, double b);
/** The unit of a difference; percentages differ by points. */
const char *cod_report_difference_unit(const cod_report_metric *metric);

#endif
