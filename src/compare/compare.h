/**
 * @file
 * A comparison: one configuration trained in several ways, as its section `compare` says (docs/compare.md).
 *
 * An *arm* is one way to train the configuration: a strategy and overrides. Each arm is trained once for each seed and
 * link rate; one such training is a *run*, a process of `codistill train` with a folder of its own. Finished runs are
 * not repeated.
 */
#ifndef COD_COMPARE_COMPARE_H
#define COD_COMPARE_COMPARE_H

#include "core/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum { COD_COMPARE_PATH = 4096, COD_COMPARE_MESSAGE = 1024 };

/** What is compared. */
typedef struct cod_compare_arguments {
    const char *path;             /**< the configuration's file */
    const char *const *overrides; /**< [count] "key.path=value" */
    size_t count;
    const char *strategies; /**< in place of compare.arms: "single,allreduce"; "" = none */
    const char *seeds;      /**< in place of compare.seeds: "1,2,3"; "" = none */
} cod_compare_arguments;

/** What a comparison needs of the program that makes it: a library neither prints nor starts processes by itself. */
typedef struct cod_compare_host {
    void *context;       /**< first argument of the functions */
    const char *version; /**< of the program, for compare.json */
    /** Shows a line about the progress; it has no newline at its end. */
    void (*say)(void *context, const char *line);
    /** Whether the user has asked to stop. No further run is then started. */
    bool (*is_asked)(void *context);
    /**
     * Runs a program to its end.
     *
     * @param      args           ends with NULL; args[0] is the program's path
     * @param      in_laboratory  the program is tools/netlab.sh, on whose hosts the ranks run
     * @param[out] message        the reason that the program gave for a failure; "" = none
     * @return the status of waitpid(), or -1 if the program could not be started
     */
    int (*run)(void *context, const char *const *args, bool in_laboratory, char message[COD_COMPARE_MESSAGE]);
} cod_compare_host;

typedef struct cod_comparison cod_comparison;

/**
 * Reads the configuration and decides which runs to train.
 *
 * @param      arguments, host  borrowed until the end of the comparison
 * @param[out] out              new; cod_comparison_destroy()
 * @return COD_ERR_ARGUMENT with all problems of the section in one message
 */
COD_MUST_CHECK cod_status cod_comparison_create(const cod_compare_arguments *arguments, const cod_compare_host *host,
                                                cod_comparison **out);
void cod_comparison_destroy(cod_comparison *comparison);

/**
 * Writes which runs are finished and which would be trained, with their steps where they are known before anything is
 * measured, and how long the finished ones let expect. Trains nothing.
 *
 * @return COD_ERR_ARGUMENT if a run's folder has another configuration
 */
COD_MUST_CHECK cod_status cod_comparison_preview(cod_comparison *comparison, FILE *out);

/**
 * Tunes if the configuration asks for it, and trains every run that is not finished. If a run fails, the failure is
 * recorded and the next run starts.
 *
 * @return COD_ERR_INTERRUPTED if it was asked to stop; COD_ERR_ARGUMENT if a run's folder has another configuration
 */
COD_MUST_CHECK cod_status cod_comparison_train(cod_comparison *comparison);

/** Writes tables for people: the runs, the arms averaged over their runs, and the results of tuning. */
void cod_comparison_print(const cod_comparison *comparison, FILE *out);
/** Writes FOLDER/compare.json and pictures of the arms. @param[out] folder  of the comparison, which is made */
COD_MUST_CHECK cod_status cod_comparison_write(const cod_comparison *comparison, char folder[COD_COMPARE_PATH]);
/** Reports the runs that failed. @return COD_ERR_PEER if some failed; COD_OK if all are finished */
COD_MUST_CHECK cod_status cod_comparison_check(const cod_comparison *comparison);

#endif
