/**
 * @file
 * The subcommands of `codistill`. Each takes its own arguments (argv[0] is its name), prints results on stdout and
 * messages on stderr, and returns the exit code: 0 ok, 1 failed, 2 wrong usage, 75 saved and stopped before the end.
 */
#ifndef COD_TOOLS_CMD_H
#define COD_TOOLS_CMD_H

#include "core/log.h"
#include "core/status.h"

#include <sysexits.h>

enum {
    COD_EXIT_OK = 0,
    COD_EXIT_FAILED = 1,
    COD_EXIT_USAGE = 2,
    COD_EXIT_STOPPED = EX_TEMPFAIL, /**< saved and stopped before the end: the same command goes on */
};

int cod_cmd_train(int argc, char **argv);
int cod_cmd_compare(int argc, char **argv);
int cod_cmd_report(int argc, char **argv);
int cod_cmd_trace(int argc, char **argv);
int cod_cmd_plan(int argc, char **argv);
int cod_cmd_data(int argc, char **argv);
int cod_cmd_eval(int argc, char **argv);
int cod_cmd_upscale(int argc, char **argv);
int cod_cmd_gallery(int argc, char **argv);
int cod_cmd_export(int argc, char **argv);
int cod_cmd_import(int argc, char **argv);
int cod_cmd_interpolate(int argc, char **argv);
int cod_cmd_models(int argc, char **argv);
int cod_cmd_config(int argc, char **argv);
int cod_cmd_bench(int argc, char **argv);
int cod_cmd_completion(int argc, char **argv);
/** `codistill --version`, which takes no arguments. */
int cod_cmd_version(void);

/** `git describe` of the build. */
extern const char cod_version[];

/** The sink of every command: shows a line, marked by its level, on stderr. */
void cod_cmd_log(void *context, cod_log_level level, const char *line);
/** "", or such as "warning: ". */
const char *cod_cmd_log_mark(cod_log_level level);

/** Prints "codistill: MESSAGE" of the recorded failure on stderr; the exit code that fits `status`. */
int cod_cmd_failed(cod_status status);

/** The exit code of a command that ended so; says why where it failed. */
static inline int cod_cmd_end(cod_status status)
{
    return status == COD_OK ? COD_EXIT_OK : cod_cmd_failed(status);
}

/** Prints "codistill NAME: MESSAGE" and where to find help on stderr; COD_EXIT_USAGE. */
int cod_cmd_usage(const char *name, const char *fmt, ...) COD_PRINTF(2, 3);

#endif
