/** What the files of config share: the tree, its problems, a growing text. */
#ifndef COD_CONFIG_CONFIG_INTERNAL_H
#define COD_CONFIG_CONFIG_INTERNAL_H

#include "config/config.h"

#include <stdarg.h>

enum { COD_CONFIG_KEYS_MAX = 4096 /**< of one mapping; the search for duplicates is quadratic */ };

typedef struct cod_config_complaint {
    const cod_config_node *node; /**< NULL = the file as a whole */
    const char *text;
} cod_config_complaint;

struct cod_config {
    cod_arena arena;
    const char *name;    /**< of the file, in messages */
    const char *reading; /**< the file whose values are being read: this one or a base */
    cod_config_node *root;
    size_t nodes;
    cod_config_complaint *complaints;
    size_t complaint_count, complaint_capacity;
    bool incomplete; /**< a problem was lost because memory was short */
};

/** node.c: a new node in the tree; NULL when memory is short or the tree too large, with the reason recorded. */
cod_config_node *cod_config_node_new(cod_config *config, cod_config_kind kind, const char *override, size_t line,
                                     size_t column);

/** Appends `child` to the children of `parent`. */
void cod_config_node_append(cod_config_node *parent, cod_config_node *child);

/** Puts `node` in the place of `old` in `parent`, or after its children if `old` is NULL. */
void cod_config_node_replace(cod_config_node *parent, const cod_config_node *old, cod_config_node *node);

/** Takes a child out of a mapping. */
void cod_config_node_remove(cod_config_node *parent, const cod_config_node *child);

/** Moves the children of `over` into `base`: sections are joined, other values replaced. Both are mappings. */
void cod_config_node_merge(cod_config_node *base, cod_config_node *over);

/**
 * Parses `bytes` of YAML into *root, which is NULL for an empty document; `override` is the argument that the text is
 * from, or NULL.
 */
COD_MUST_CHECK cod_status cod_config_parse(cod_config *config, const char *text, size_t bytes, const char *override,
                                           cod_config_node **root);

/** Puts one `key.path=value` into the tree; a malformed one becomes a problem. */
COD_MUST_CHECK cod_status cod_config_override(cod_config *config, const char *argument);

/** "file:line:column", "command line: ARGUMENT" or "file". */
void cod_config_place(const cod_config *config, const cod_config_node *node, char *out, size_t bytes);

/** A growing text; zeroed = empty. A failure is kept. */
typedef struct cod_text {
    char *data;
    size_t length, capacity;
    cod_status status;
} cod_text;

void cod_text_add(cod_text *text, const char *fmt, ...) COD_PRINTF(2, 3);
/** Hands over the text. @param[out] out  new; free() */
COD_MUST_CHECK cod_status cod_text_end(cod_text *text, char **out);

/** True when `section` is `path` or lies below it; "" holds all. */
bool cod_config_below(const char *section, const char *path);

/**
 * Calls `visit` once for each subsection of `path` that tables or raw keys name, in their order, with its full dotted
 * path. Returns the first status that is not COD_OK.
 */
COD_MUST_CHECK cod_status cod_config_each_subsection(const cod_config_schema *schema, const char *path,
                                                     cod_status (*visit)(void *context, const char *subsection),
                                                     void *context);

/** The current value of the selector's option, or NULL if no table of the schema has that option. */
const char *cod_config_selected_name(const cod_config_schema *schema, const cod_config_selector *selector);

/** Is `key` one of the raw keys? */
bool cod_config_is_raw(const cod_config_schema *schema, const char *key);

/** "path.key", or "key" at the root; in `arena`; NULL when memory is short. */
char *cod_config_join(cod_arena *arena, const char *path, const char *key);

#endif
