/**
 * @file
 * Configurations: a YAML file and `key.path=value` arguments fill the option tables of all modules. All mistakes are
 * reported in one message.
 *
 * A *schema* lists the tables. Checks of the caller's own (two options that must agree, a list of mappings) stand
 * before cod_config_check(), so that all problems come in the same message:
 *
 *     cod_config_table tables[] = {{&run_table, &run}, {&train_table, &train}, {&model_table, &model}};
 *     const cod_config_schema schema = {.tables = tables, .count = 3};
 *     COD_TRY(cod_config_open("sr.yaml", overrides, override_count, &config));
 *     cod_status status = cod_config_apply(config, &schema);
 *     COD_THEN(status, cod_config_check(config));
 *
 * In a file: a section is a mapping; `section:` with nothing below is an empty one; anchors, aliases and merge keys
 * (`<<`) work; bounds on size, depth and expansion keep hostile files harmless. An empty or `null` value is an error
 * except for a text. An override's value that starts with [ { " or ' is read as YAML; any other value is the text
 * itself. An override replaces the value at its path in the file and creates sections as needed. A number in the path
 * is an index into a list. If two overrides have the same key, the last one counts.
 *
 * `base: other.yaml` at the root takes another file's values, as far as this one does not set them: sections are
 * joined, lists and other values replaced. Its path is relative to the folder of the file that names it, and that file
 * may have a base of its own.
 */
#ifndef COD_CONFIG_CONFIG_H
#define COD_CONFIG_CONFIG_H

#include "core/option.h"

/** One section of a configuration and where its values go. Several tables may share a section. */
typedef struct cod_config_table {
    const cod_option_table *table; /**< table->section is a dotted path, "" = the root's own keys */
    void *values;                  /**< struct of table->struct_bytes */
} cod_config_table;

/**
 * In `section`, the value of option `key` (a text or choice of a table of that section) chooses one more table for the
 * same section: `model: {name: srresnet, blocks: 16}` takes `blocks` from the table of srresnet.
 */
typedef struct cod_config_selector {
    const char *section, *key;
    const char *const *names; /**< NULL-terminated: what `key` may be */
    /**
     * The table of `name`, or NULL if it has no options of its own. *values receives the struct for its values;
     * `values` is NULL if the caller needs only the table. Called with members of `names` only.
     */
    const cod_option_table *(*select)(void *context, const char *name, void **values);
    void *context;
} cod_config_selector;

/**
 * The names that a text option may have, if they are not in its table; for the documentation. The caller refuses other
 * names.
 */
typedef struct cod_config_names {
    const char *section, *key;
    const char *const *names; /**< NULL-terminated */
} cod_config_names;

/** What other programs call an option, its dotted key here, and what the message adds, or NULL. */
typedef struct cod_config_synonym {
    const char *word, *key, *note;
} cod_config_synonym;

typedef struct cod_config_schema {
    const cod_config_table *tables;
    size_t count;
    const cod_config_selector *selectors;
    size_t selector_count;
    /**
     * NULL-terminated dotted keys whose lists and mappings the caller reads himself (cod_config_find()); may be NULL.
     * Where a table has an option of that key too, a scalar goes to the option, and the option keeps its default
     * otherwise.
     */
    const char *const *raw;
    const cod_config_names *names;
    size_t name_count;
    const cod_config_synonym *synonyms; /**< [synonym_count]: named where such a word is an unknown key */
    size_t synonym_count;
} cod_config_schema;

typedef enum cod_config_kind { COD_CONFIG_SCALAR, COD_CONFIG_LIST, COD_CONFIG_MAPPING } cod_config_kind;

/** A value in the file or of an override; read-only, lives as long as its cod_config. */
typedef struct cod_config_node {
    cod_config_kind kind;
    const char *key;               /**< in its mapping; NULL in a list and at the root */
    const char *scalar;            /**< SCALAR: its text, "" for null; else NULL */
    bool null;                     /**< SCALAR: nothing, ~ or null, unquoted */
    size_t count;                  /**< LIST, MAPPING: number of children */
    struct cod_config_node *first; /**< LIST, MAPPING: first child */
    struct cod_config_node *last;  /**< LIST, MAPPING: last child */
    struct cod_config_node *next;  /**< next child of the same parent */
    size_t line, column;           /**< of the key in a mapping, else of the value; from 1 */
    const char *file;              /**< that the value came from */
    const char *override;          /**< the argument that the value came from; NULL = the file */
} cod_config_node;

typedef struct cod_config cod_config;

enum {
    COD_CONFIG_BYTES_MAX = 1 << 20, /**< of a file */
    COD_CONFIG_DEPTH_MAX = 32,      /**< of nesting */
    COD_CONFIG_FILES_MAX = 8,       /**< a file, its base, that one's base and so on */
    COD_CONFIG_NODES_MAX = 1 << 16, /**< of a configuration, aliases expanded */
    COD_CONFIG_PROBLEMS_SHOWN = 20, /**< in one message; further ones are counted */
};

/**
 * Reads and parses.
 *
 * @param[in]  path       of the YAML file; NULL = defaults and overrides only
 * @param[in]  overrides  [count] "key.path=value"; borrowed
 * @param[out] config     new; owns the texts and lists of the values; end it with cod_config_destroy()
 * @return COD_ERR_IO when the file cannot be read, COD_ERR_ARGUMENT if the text is not YAML
 */
COD_MUST_CHECK cod_status cod_config_open(const char *path, const char *const *overrides, size_t count,
                                          cod_config **config);

/** The same from `bytes` of text, which has no base; `name` stands for the path in messages. */
COD_MUST_CHECK cod_status cod_config_open_text(const char *name, const char *text, size_t bytes,
                                               const char *const *overrides, size_t count, cod_config **config);

/** NULL is fine. */
void cod_config_destroy(cod_config *config);

/**
 * Fills the values of `schema`, defaults first, from the whole configuration; problems are kept for cod_config_check().
 * @return failures that the configuration did not cause: memory, a wrong schema
 */
COD_MUST_CHECK cod_status cod_config_apply(cod_config *config, const cod_config_schema *schema);

/**
 * Fills values from one mapping, as if it were a whole configuration, and keeps the values that it does not mention.
 * Defaults are set only for the table of a selector whose key changes. For a list of mappings that vary a base.
 * @param[in] node  a mapping; anything else is kept as a problem
 */
COD_MUST_CHECK cod_status cod_config_apply_node(cod_config *config, const cod_config_node *node,
                                                const cod_config_schema *schema);

/** Keeps a problem found by the caller at `node` (NULL = the file as a whole). */
void cod_config_problem(cod_config *config, const cod_config_node *node, const char *fmt, ...) COD_PRINTF(3, 4);

/** Keeps a problem with the option at the dotted `key`, cited where it was set, or as a default. */
void cod_config_problem_key(cod_config *config, const char *key, const char *fmt, ...) COD_PRINTF(3, 4);

/** Whether the value at the dotted `key` was refused, so that its option still has its default. */
bool cod_config_has_problem(const cod_config *config, const char *key);

/** Problems kept so far. */
size_t cod_config_problem_count(const cod_config *config);

/** Fails with COD_ERR_ARGUMENT and all problems, one a line, in the order of the file, when there are any. */
COD_MUST_CHECK cod_status cod_config_check(const cod_config *config);

/** The node at a dotted key, such as "cluster.groups" or "cluster.groups.0.ranks"; NULL = not set. "" is the root. */
const cod_config_node *cod_config_find(const cod_config *config, const char *key);

/** The child of a mapping, or NULL. */
const cod_config_node *cod_config_child(const cod_config_node *mapping, const char *key);

/** Memory that lives as long as the configuration, for copies of its texts. */
cod_arena *cod_config_arena(cod_config *config);

/**
 * The values of `schema` as YAML that loads to equal values, with the lists and mappings of raw keys as they were
 * given.
 * @param[in]  config    for the raw keys; NULL = none
 * @param[in]  comments  also each option's help
 * @param[out] text      new; free()
 */
COD_MUST_CHECK cod_status cod_config_resolved(const cod_config *config, const cod_config_schema *schema, bool comments,
                                              char **text);

typedef enum cod_config_style {
    COD_CONFIG_MARKDOWN, /**< docs/config.md: a list of the sections, then a heading and a table for each */
    COD_CONFIG_PLAIN,    /**< `codistill config`: a line for each paragraph, to be wrapped by who prints it */
    COD_CONFIG_WORDS,    /**< for completion: a line for each option, "key, text or -, words that it takes, help" with
                              tabs between them; "text" where it takes others, too */
} cod_config_style;

/**
 * Lists every option of `schema`, including those of all selectable tables, with type, default, range and help. The
 * values are not read.
 * @param[out] text  new; free()
 */
COD_MUST_CHECK cod_status cod_config_document(const cod_config_schema *schema, cod_config_style style, char **text);

/** The library behind it and its version, such as "libyaml 0.2.5". */
void cod_config_library(char *text, size_t bytes);

#endif
