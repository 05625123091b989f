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

#endif
