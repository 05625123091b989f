/**
 * @file
 * Self-contained pages. For a comparison: FOLDER/report.html, made from FOLDER/compare.json, and each plot as a PNG
 * file. For a training run: a page made from the files in its folder.
 */
#ifndef COD_REPORT_REPORT_H
#define COD_REPORT_REPORT_H

#include "core/status.h"

#include <stdbool.h>
#include <stdio.h>

/**
 * Writes FOLDER/report.html and the plots' PNG files anew. The report omits what compare.json lacks. If the build has
 * no librsvg, no PNG files are written, and a log line says so.
 *
 * @return COD_ERR_IO when compare.json cannot be read or the report not written, COD_ERR_FORMAT when it is no JSON or
 *   of another format
 */
COD_MUST_CHECK cod_status cod_report_write(const char *folder);

/** Prints the report's verdict on FOLDER/compare.json as plain text. @return as cod_report_write() */
COD_MUST_CHECK cod_status cod_report_print_verdict(const char *folder, FILE *out);

/**
 * Writes FOLDER/report.html of a training run, also while the run goes on; incomplete lines are ignored.
 *
 * @param      refresh_s  seconds after which the browser reloads the page, until the run has finished; 0 = never
 * @param[out] finished   whether the run has finished; set also on failure
 * @return COD_ERR_IO when the folder has no metrics file (yet), or the page cannot be written; COD_ERR_FORMAT when
 *   summary.json is no JSON
 */
COD_MUST_CHECK cod_status cod_report_write_run(const char *folder, int refresh_s, bool *finished);

/** Name and version of the library that draws PNG plots, or a text that there is none. */
void cod_report_png_library(char *text, size_t bytes);

#endif
