/**
 * @file
 * Standard error while training. On a terminal each group has one line at the bottom that changes in place, and all
 * other lines scroll by above; elsewhere there are plain lines only. Groups that do not fit on it are counted in a last
 * line.
 *
 * A rank that `codistill train` started itself does not see the terminal: its lines go through mpirun to the process
 * that does. There, lines that begin with COD_DISPLAY_MARK are no text but news for that process: "S<group> <text>" is
 * a group's new line, "X<code>" the first rank's exit code.
 */
#ifndef COD_TOOLS_DISPLAY_H
#define COD_TOOLS_DISPLAY_H

#include <stdbool.h>

#define COD_DISPLAY_MARK '\x1e'
/**
 * Environment of ranks whose standard error is read by `codistill`: "plain", or "terminal" where groups' lines are
 * wanted.
 */
#define COD_DISPLAY_VARIABLE "COD_DISPLAY"

/** Finds out what standard error is; before it, and without it, lines are plain. */
void cod_display_open(void);
/** Whether groups' lines are shown. */
bool cod_display_shows_groups(void);
/** Whether the process at the other end of standard error understands marked lines. */
bool cod_display_is_read(void);

/** Prints a line of text; `line` has no newline at its end. Any thread. */
void cod_display_line(const char *line);
/** Replaces a group's line. */
void cod_display_group(int group, const char *line);
/** The same from news of a rank, "S<group> <text>". */
void cod_display_news(const char *news);
/** Reads the lines of ranks, which come without their newlines, until the last writer is gone; closes `from`. */
void cod_display_read(int from, void (*on_line)(void *context, char *line), void *context);
/** Leaves the groups' lines as they are and goes below them. */
void cod_display_close(void);

#endif
