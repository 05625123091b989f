/**
 * @file
 * Standard error while training. On a terminal each group has one line at the bottom that changes in place, and all
 * other lines scroll by above; elsewhere there are plain lines only. Groups that do not fit on it are counted in a last
 * line.
 *
 * A rank that `codistill train` started itself does not see the terminal: its lines go through mpirun to the process
 * that does, and groups' lines as news (tools/news.h).
 */
#ifndef COD_TOOLS_DISPLAY_H
#define COD_TOOLS_DISPLAY_H

#include <stdbool.h>

/**
 * Environment of ranks whose standard error is read by `codistill`: "plain", or "terminal" where groups' lines are
 * wanted.
 */
#define COD_DISPLAY_VARIABLE "COD_DISPLAY"

/** Finds out what standard error is; before it, and without it, lines are plain. */
void cod_display_open(void);
/** Whether groups' lines are shown. */
bool cod_display_shows_groups(void);

/**
 * Prints a line of text, control characters but newlines as "\xNN" (core/shown.h); `text` has no newline at its end.
 * Any thread.
 */
void cod_display_line(const char *text);
/** Replaces a group's line. */
void cod_display_group(int group, const char *line);
/** Leaves the groups' lines as they are and goes below them. */
void cod_display_close(void);

#endif
