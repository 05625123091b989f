/**
 * @file
 * Pages that need nothing else. Of a comparison: from FOLDER/compare.json one FOLDER/report.html, and each plot as a PNG beside it. Of a
 * training run: from what it wrote to its folder.
 */
#ifndef COD_REPORT_REPORT_H
#define COD_REPORT_REPORT_H

#include "core/status.h"

#include <stdbool.h>

/**
 * Writes FOLDER/report.html and the plots' PNG files anew. What compare.json lacks, the report leaves out. Without librsvg in the
 * build the PNG files are left out, and a log line says so.
 *
 * @return COD_ERR_IO when compare.json cannot be read or the report not written, COD_ERR_FORMAT when it is no JSON or of another format
 */
COD_MUST_CHECK cod_status cod_report_write(const char *folder);

/**
 * Writes FOLDER/report.html of a training run, also while it goes on; what a writer has not completed is left out.
 *
 * @param      refresh_s  the browser loads the page anew after so many seconds until the run has finished; 0 = it does not
 * @param[out] finished   whether the run has, also on failure
 * @return COD_ERR_IO when the folder has no metrics file (yet), or the page cannot be written; COD_ERR_FORMAT when summary.json is no JSON
 */
COD_MUST_CHECK cod_status cod_report_write_run(const char *folder, int refresh_s, bool *finished);

/** The library that draws PNG plots and its version, or that there is none. */
void cod_report_png_library(char *text, size_t bytes);

#endif
