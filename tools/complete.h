/**
 * @file
 * Words that may stand at the end of a command line, for completion in shells (tools/cmd_completion.c). A line for each
 * on standard output: the word, and after a tab what it means. A word that ends with `=` takes a value, so that no
 * space follows. A line ":files" says that names of files may stand there, too, behind the word's `=` where it has one.
 */
#ifndef COD_TOOLS_COMPLETE_H
#define COD_TOOLS_COMPLETE_H

#include "core/option.h"

struct cod_argument;

/** The first argument of a command that is to print its words; the words before the last follow, and then the last. */
#define COD_COMPLETE_WORD "--complete"

/** The exit code of a command whose options have been asked for where an operand stands. */
enum { COD_EXIT_OPERAND = 100 };

/** What an operand, or the value of an option, may be: a sum of these; 0 = nothing that could be offered. */
enum {
    COD_WORDS_FILES = 1,   /**< files and folders */
    COD_WORDS_MODELS = 2,  /**< models that come with the program, files, and folders of runs */
    COD_WORDS_BICUBIC = 4, /**< "bicubic" */
    COD_WORDS_CONFIG = 8,  /**< a configuration's file, or key=value */
    COD_WORDS_BACKENDS = 16,
    COD_WORDS_KINDS = 32, /**< architectures of models */
    COD_WORDS_RECIPES = 64,
    COD_WORDS_STRATEGIES = 128,
};

/** Prints what stands for the last of `words`, where that is an option or its value. @return COD_EXIT_OPERAND if not */
int cod_complete_option(int count, char **words, const char *help, const struct cod_argument *own, size_t own_count,
                        const cod_option_table *table);

/** Prints operands of these kinds. */
cod_status cod_complete_operand(const char *word, int kinds);

/** Prints a word and its meaning, which ends with its first sentence; NULL = none. */
void cod_complete_word(const char *word, const char *meaning);

/** Asks a command for the words behind its name; prints operands where it has no answer. @return an exit code */
int cod_complete_command(int (*run)(int argc, char **argv), const char *name, int operands, int count, char **words);

#endif
