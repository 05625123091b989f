/**
 * @file
 * What commands print on standard output and standard error, with what comes from outside: names of files, of classes,
 * of tensors. A terminal obeys control characters, so these become "\xNN" (core/shown.h); the lint keeps commands from
 * printing a "%s" in another way.
 */
#ifndef COD_TOOLS_PRINT_H
#define COD_TOOLS_PRINT_H

#include "core/status.h"

#include <stdbool.h>
#include <stdio.h>

/**
 * fprintf() that escapes the text it makes. Newlines may stand at the beginning and the end of `fmt` only: one in
 * between would become "\x0A", as one in a name does.
 */
void cod_print(FILE *out, const char *fmt, ...) COD_PRINTF(2, 3);

/** Prints a text of several lines, whose names have been made by cod_show(). */
void cod_print_text(FILE *out, const char *text);

/** Whether there was no memory for a text that was meant for standard output. */
bool cod_print_has_lost(void);

/** Columns of the terminal behind `out`, as it says or as COLUMNS does; 0 where neither is known, or none is there. */
size_t cod_print_columns(FILE *out);

/**
 * Replaces what stands on a terminal's current line by "NAME: ...". A line that wraps could not be replaced again, so
 * that of a name that is too long only the end is shown.
 */
void cod_print_progress(FILE *out, const char *name, const char *fmt, ...) COD_PRINTF(3, 4);

#endif
