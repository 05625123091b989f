/**
 * @file
 * Option tables: each module describes its settings once, and from that one table come parsing, defaults, range checks,
 * `--help`, error messages and docs/config.md.
 */
#ifndef COD_CORE_OPTION_H
#define COD_CORE_OPTION_H

#include "core/memory.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum cod_option_type {
    COD_OPTION_BOOL,        /**< bool */
    COD_OPTION_INT,         /**< int64_t within min … max */
    COD_OPTION_FLOAT,       /**< double within min … max; NaN = "auto", where `choices` has that */
    COD_OPTION_STRING,      /**< const char *, never NULL */
    COD_OPTION_CHOICE,      /**< int: index into `choices`; see cod_choice_argument() for those that take a number */
    COD_OPTION_INT_LIST,    /**< cod_int_list; a lone value is a list of one */
    COD_OPTION_FLOAT_LIST,  /**< cod_float_list; a lone value is a list of one */
    COD_OPTION_STRING_LIST, /**< cod_string_list; a lone value is a list of one */
} cod_option_type;

typedef struct cod_int_list {
    size_t count;
    int64_t *items;
} cod_int_list;

typedef struct cod_float_list {
    size_t count;
    double *items;
} cod_float_list;

typedef struct cod_string_list {
    size_t count;
    const char **items;
} cod_string_list;

typedef struct cod_option {
    const char *key;
    cod_option_type type;
    size_t offset;              /**< of the field in the table's struct */
    const char *default_text;   /**< as a user would write it; lists comma-separated, "" = empty */
    double min, max;            /**< INT, FLOAT, items of their lists, a CHOICE's argument; both 0 = any */
    const char *const *choices; /**< CHOICE: NULL-terminated, "name(k)" takes a whole number; FLOAT: cod_option_auto;
                                     STRING: words with a meaning of their own, or NULL */
    const char *help;           /**< sentences, with the unit and what 0 or empty means */
} cod_option;

typedef struct cod_option_table {
    const char *section; /**< dotted path of the section in a config, such as "train" or "model" */
    const char *help;    /**< one sentence about the section */
    const cod_option *options;
    size_t count;
    size_t struct_bytes;
} cod_option_table;

static inline bool cod_option_is_list(const cod_option *option)
{
    return option->type == COD_OPTION_INT_LIST || option->type == COD_OPTION_FLOAT_LIST ||
           option->type == COD_OPTION_STRING_LIST;
}

/** Choices of a FLOAT that follows from other settings unless it is given. */
extern const char *const cod_option_auto[];

/** The index of a choice, and the number that it was given: a choice's value is index + 256·number. */
static inline int cod_choice_index(int value)
{
    return value & 0xFF;
}
static inline int cod_choice_argument(int value)
{
    return value >> 8;
}

/** Fills `values` (a struct of table->struct_bytes) with the defaults. Strings and lists live in `arena`. */
COD_MUST_CHECK cod_status cod_options_set_defaults(const cod_option_table *table, void *values, cod_arena *arena);

/** The option called `key`, or NULL. */
const cod_option *cod_option_find(const cod_option_table *table, const char *key);

/**
 * Sets one option from text; `items` are the list's items, or one scalar.
 * On failure the message says what is wrong with the value and what would be right, without place or key.
 */
COD_MUST_CHECK cod_status cod_option_set(const cod_option *option, void *values, const char *const *items, size_t count,
                                         cod_arena *arena);

/** The same from what a command line has: a list's items with commas between them, in brackets or not. */
COD_MUST_CHECK cod_status cod_option_set_text(const cod_option *option, void *values, const char *text,
                                              cod_arena *arena);

/** The option's value as YAML text (quoted where YAML needs it), as cod_option_set() would read it back; in `arena`. */
const char *cod_option_format(const cod_option *option, const void *values, cod_arena *arena);

/** "a number from 1 to 64", "one of: all, ring": what would be right; in `arena`. */
const char *cod_option_expectation(const cod_option *option, cod_arena *arena);

/** The candidate nearest to `text` by Damerau-Levenshtein distance, or NULL when none is near enough to suggest. */
const char *cod_suggest(const char *text, const char *const *candidates, size_t count);

/** Adds a name to a list for a message: "all, ring". What does not fit into text[bytes] is cut. */
void cod_names_add(char *text, size_t bytes, const char *name);

#endif
