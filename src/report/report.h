/**
 * @file
 * The report of a comparison: from FOLDER/compare.json one FOLDER/report.html that needs nothing else, and each plot as a PNG beside it.
 */
#ifndef COD_REPORT_REPORT_H
#define COD_REPORT_REPORT_H

#include "core/status.h"

/**
 * Writes FOLDER/report.html and the plots' PNG files anew. What compare.json lacks, the report leaves out. Without librsvg in the
 * build the PNG files are left out, and a log line says so.
 *
 * @return COD_ERR_IO when compare.json cannot be read or the report not written, COD_ERR_FORMAT when it is no JSON or of another format
 */
COD_MUST_CHECK cod_status cod_report_write(const char *folder);

/** The library that draws PNG plots and its version, or that there is none. */
void cod_report_png_library(char *text, size_t bytes);

#endif
