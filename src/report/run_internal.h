/** The files in a training run's folder, for its page. */
#ifndef COD_REPORT_RUN_INTERNAL_H
#define COD_REPORT_RUN_INTERNAL_H

#include "core/memory.h"
#include "core/option.h"
#include "io/json.h"

enum { COD_RUN_MOST_GROUPS = 64 }; /**< groups that a page shows at most */

/** metrics.GROUP.jsonl. */
typedef struct cod_run_group {
    int group;
    const cod_json_value **rows; /**< [count], by step; each has the number "step" */
    size_t count;
} cod_run_group;

typedef struct cod_run_data {
    cod_arena arena;
    cod_run_group groups[COD_RUN_MOST_GROUPS];
    size_t group_count;
    cod_json_value *summary; /**< summary.json, or NULL while the run has not ended */
    cod_json_value *crops;   /**< crops.json, or NULL */
    const char *config;      /**< config.yaml; "" if it cannot be read */
    cod_string_list samples; /**< names of pictures in samples/ */
    cod_json_value **parsed; /**< values to which rows point */
    size_t parsed_count, parsed_room;
} cod_run_data;

/**
 * Reads a run's folder, also while the run goes on: an incomplete last line is ignored, and for steps that a resumed
 * run repeated, the later rows count.
 *
 * @param[out] data  end with cod_run_data_clear(), also on failure
 * @return COD_ERR_IO when there is no metrics file, or one cannot be read; COD_ERR_FORMAT when summary.json is no JSON
 */
COD_MUST_CHECK cod_status cod_run_data_read(const char *folder, cod_run_data *data);
void cod_run_data_clear(cod_run_data *data);

/** A figure of quality. */
typedef struct cod_run_figure {
    const char *key, *title, *y_label; /**< in metrics and summary.json; of its plot */
    const char *unit;                  /**< behind a value, with the blank before it */
    int digits;
    bool less_is_better;
    const char *baseline, *baseline_name; /**< key and name of the trivial baseline; NULL = it has none */
} cod_run_figure;
extern const cod_run_figure cod_run_figures[];
extern const size_t cod_run_figure_count;

/** A text of summary.json, or ""; a number, or NaN. */
const char *cod_run_text(const cod_run_data *run, const char *key);
double cod_run_number(const cod_run_data *run, const char *key);

/** run_facts.c: what was trained, how good it is and what it cost; nothing while the run goes on. */
struct cod_report;
void cod_report_run_facts(struct cod_report *report);

#endif
