/**
 * @file
 * Arguments of commands, of two sorts: those that work with a model take options by getopt's rules (the command's own,
 * a session's where it has one); those that work with a configuration take its file, overrides and options of their
 * own. Both take --help; --list-options, which lists them for tools/manual.py, the writer of manual pages; and
 * COD_COMPLETE_WORD (tools/complete.h).
 */
#ifndef COD_TOOLS_ARGUMENTS_H
#define COD_TOOLS_ARGUMENTS_H

#include "infer/session.h"
#include "tools/complete.h"

#include <stdbool.h>

/** An option of a command; either `text` or `flag` is set. */
typedef struct cod_argument {
    const char *name;  /**< "output": --output */
    char letter;       /**< 'o': -o; 0 = none */
    const char **text; /**< receives its value, borrowed from argv */
    bool *flag;        /**< becomes true */

    int words;                  /**< what its value may be, of COD_WORDS_FILES and so on (tools/complete.h) */
    const char *const *choices; /**< words that its value may be, NULL-terminated; or NULL */
} cod_argument;

/**
 * Reads options until operands are left, from argv[optind] on.
 *
 * @param session  filled with defaults and with --device, --threads and the like; NULL = the command has none of them
 * @param arena    keeps the session's texts
 * @return -1 to go on, else the exit code: --help was printed, or what is wrong
 */
int cod_arguments_parse(int argc, char **argv, const char *help, const cod_argument *own, size_t count,
                        cod_session_options *session, cod_arena *arena);

/**
 * Reads the whole number that an option was given; NULL leaves *out as it is.
 *
 * @param command  argv[0], for the message
 * @return -1 to go on, else the exit code
 */
int cod_argument_number(const char *command, const char *option, const char *text, long least, long most, long *out);

/** Whether a name ends as those of models do, with .safetensors. */
bool cod_is_model_name(const char *path);

/** Refuses a name for a model that does not end with .safetensors. @return as cod_argument_number() */
int cod_argument_model_name(const char *command, const char *path);

/** Refuses an output that is the model file it would be made of. */
COD_MUST_CHECK cod_status cod_check_output(const char *model, const char *output);

/** A configuration and what overrides it; zeroed = none. */
typedef struct cod_config_arguments {
    const char *path;
    const char **overrides; /**< [count] "key.path=value", with room for one more an argument; borrowed texts */
    size_t count;
} cod_config_arguments;

/**
 * Reads CONFIG.yaml, key.path=value and the command's own options, in any order; an option's value follows it, or its
 * `=`. argv stays as it is.
 *
 * @param[out] out  new; cod_config_arguments_clear(), whatever is returned
 * @return as cod_arguments_parse()
 */
int cod_config_arguments_parse(int argc, char **argv, const char *help, const cod_argument *own, size_t count,
                               cod_config_arguments *out);
void cod_config_arguments_clear(cod_config_arguments *arguments);

#endif
