/**
 * @file
 * log.G.txt of a run's folder: what the first rank of group G says, its progress, how it began and how it ended, each
 * line with its local time.
 *
 * Nothing is written before the run's steps begin, or fail to: a command that is refused, and one of a run that has
 * finished before, leave the folder as it is.
 */
#ifndef COD_TOOLS_RUN_LOG_H
#define COD_TOOLS_RUN_LOG_H

#include "io/file.h"
#include "train/config.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>

/** Of a rank. Zeroed, it takes no lines. */
typedef struct cod_run_log {
    const char *folder; /**< NULL = no line goes there, or none any more */
    int group;
    bool leads;       /**< this rank writes */
    bool writing;     /**< a line is being written: what is logged meanwhile is about that */
    pthread_t thread; /**< whose lines are taken: one that waits for storage must hold up no other */
    FILE *waiting;    /**< lines from before the steps */
    char *waiting_text;
    size_t waiting_bytes;
    cod_file_log *file;
} cod_run_log;

/**
 * The run's folder is this job's: lines are taken from now on, of the calling thread.
 *
 * @param folder  borrowed
 * @param leads   whether this rank writes the group's log
 */
void cod_run_log_open(cod_run_log *log, const char *folder, int group, bool leads);
/** The steps begin: the lines so far, and all that follow, go to the file. */
void cod_run_log_begin(cod_run_log *log);
void cod_run_log_line(cod_run_log *log, const char *line);
/** Zeroes it; lines that are not in the file are dropped. */
void cod_run_log_close(cod_run_log *log);

/**
 * For a process that ends a job, on any thread: adds a line, and before it those that wait, to the logs of all groups
 * of the job. Waits two seconds at most, as the folder may hang, and reports no failure.
 *
 * @param log     of this rank; NULL: this process is no rank
 * @param groups  of the run; 0 = those that have a log
 */
void cod_run_log_end(cod_run_log *log, const cod_run_config *config, int groups, const char *line);

#endif
