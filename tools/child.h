/**
 * @file
 * A program that runs as a child, joined to this one by a pipe. What it says on standard error is kept for messages.
 */
#ifndef COD_TOOLS_CHILD_H
#define COD_TOOLS_CHILD_H

#include "core/status.h"

#include <stdbool.h>
#include <sys/types.h>

enum { COD_CHILD_WORDS = 512 };

/** Zeroed = none. */
typedef struct cod_child {
    const char *name; /**< borrowed */
    pid_t pid;
    int pipe; /**< our end, or -1 once it is closed */
    int said; /**< a file in memory: its standard error */
} cod_child;

/**
 * Starts the program args[0] of PATH, away from the terminal's Ctrl-C, and killed when this process ends.
 *
 * @param args    [] ends with NULL; borrowed while the call lasts, but args[0] while the child lives
 * @param writes  whether child->pipe is its standard output, to be read here; else its standard input
 * @return COD_ERR_IO when there are no pipes or processes left; that there is no such program is told by
 *   cod_child_end()
 */
COD_MUST_CHECK cod_status cod_child_start(cod_child *child, const char *const args[], bool writes);

/**
 * Closes the pipe and waits for the child's end.
 *
 * @param[out] words  the last that it said, on one line; "" = nothing
 * @return COD_ERR_UNSUPPORTED when the program could not be started, COD_ERR_IO when it failed or was killed, with its
 *   words
 */
COD_MUST_CHECK cod_status cod_child_end(cod_child *child, char words[COD_CHILD_WORDS]);

/** Ends a child that is not wanted any more; one that has ended, or never was, is fine. */
void cod_child_kill(cod_child *child);

/** Kills all children that run; for signal handlers. */
void cod_child_kill_all(void);

#endif
