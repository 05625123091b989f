#include "config_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** One application of a schema to a tree. */
typedef struct application {
    cod_config *config;
    const cod_config_schema *schema;
    cod_config_table *selected; /**< [selector_count]; table is NULL where none is */
    bool *unknown;              /**< [selector_count]: the selector's key is wrong, so other keys cannot be judged */
    bool keep_values;
} application;

/** The option `key` of `path`, in the tables of the schema and the selected ones. */
static const cod_option *find_option(const application *apply, const char *path, const char *key, void **values)
{
    const cod_config_schema *schema = apply->schema;
    for (size_t i = 0; i < schema->count + schema->selector_count; i++) {
        const bool fixed = i < schema->count;
        const cod_config_table *entry = fixed ? &schema->tables[i] : &apply->selected[i - schema->count];
        if (entry->table == NULL)
            continue;
        const char *section = fixed ? entry->table->section : schema->selectors[i - schema->count].section;
        const cod_option *option = strcmp(section, path) == 0 ? cod_option_find(entry->table, key) : NULL;
        if (option != NULL) {
            *values = entry->values;
            return option;
        }
    }
    return NULL;
}

static cod_status set_option(application *apply, const char *full, const cod_config_node *node,
                             const cod_option *option, void *values)
{
    cod_config *config = apply->config;
    const bool list = cod_option_is_list(option);
    const char *expected = cod_option_expectation(option, &config->arena);
    if (expected == NULL)
        return COD_ERR_MEMORY;
    if (node->kind == COD_CONFIG_MAPPING || (node->kind == COD_CONFIG_LIST && !list)) {
        cod_config_problem(config, node, "%s: a %s is not %s", full, node->kind == COD_CONFIG_LIST ? "list" : "mapping",
                           expected);
        return COD_OK;
    }
    if (node->kind == COD_CONFIG_SCALAR && node->null && option->type != COD_OPTION_STRING) {
        cod_config_problem(config, node, "%s has no value; it takes %s", full, expected);
        return COD_OK;
    }
    const size_t count = node->kind == COD_CONFIG_LIST ? node->count : 1;
    const char **items = cod_arena_alloc(&config->arena, count * sizeof *items);
    if (items == NULL)
        return COD_ERR_MEMORY;
    size_t at = 0;
    for (const cod_config_node *item = node->kind == COD_CONFIG_LIST ? node->first : node; at < count;
         item = item->next) {
        if (node->kind == COD_CONFIG_LIST && (item->kind != COD_CONFIG_SCALAR || item->null)) {
            cod_config_problem(config, item, "item %zu of %s is no single value; it takes %s", at + 1, full, expected);
            return COD_OK;
        }
        items[at++] = item->scalar;
    }
    const cod_status status = cod_option_set(option, values, items, count, &config->arena);
    if (status != COD_ERR_ARGUMENT)
        return status;
    cod_config_problem(config, node, "%s: %s", full, cod_error_message());
    return COD_OK;
}

/** Words to suggest. */
typedef struct word_list {
    cod_arena *arena;
    const char **items;
    size_t count, capacity;
} word_list;

static cod_status add_word(void *context, const char *path)
{
    word_list *words = context;
    const char *dot = strrchr(path, '.');
    if (words->count == words->capacity) {
        const size_t capacity = 2 * words->capacity + 32;
        const char **moved = realloc(words->items, capacity * sizeof *moved);
        COD_REQUIRE_MEMORY(moved);
        words->items = moved;
        words->capacity = capacity;
    }
    const char *copy = cod_arena_strdup(words->arena, dot != NULL ? dot + 1 : path);
    if (copy == NULL)
        return COD_ERR_MEMORY;
    words->items[words->count++] = copy;
    return COD_OK;
}

/** All keys that could stand in `path`: options and sections. */
static cod_status collect_words(const application *apply, const char *path, word_list *words)
{
    const cod_config_schema *schema = apply->schema;
    for (size_t i = 0; i < schema->count + schema->selector_count; i++) {
        const bool fixed = i < schema->count;
        const cod_option_table *table = fixed ? schema->tables[i].table : apply->selected[i - schema->count].table;
        const char *section = fixed ? table->section : schema->selectors[i - schema->count].section;
        for (size_t j = 0; table != NULL && strcmp(section, path) == 0 && j < table->count; j++)
            COD_TRY(add_word(words, table->options[j].key));
    }
    for (const char *const *raw = schema->raw; raw != NULL && *raw != NULL; raw++) {
        const char *dot = strrchr(*raw, '.');
        const size_t length = dot != NULL ? (size_t)(dot - *raw) : 0;
        if (length == strlen(path) && strncmp(*raw, path, length) == 0)
            COD_TRY(add_word(words, *raw));
    }
    return cod_config_each_subsection(schema, path, add_word, words);
}

/** An option that belongs to other choices of a selector of this section: says to which. */
static bool report_unselected(application *apply, const char *path, const cod_config_node *node)
{
    for (size_t i = 0; i < apply->schema->selector_count; i++) {
        const cod_config_selector *selector = &apply->schema->selectors[i];
        char owners[256] = "";
        size_t used = 0;
        for (const char *const *name = selector->names; *name != NULL && strcmp(selector->section, path) == 0; name++) {
            const cod_option_table *table = selector->select(selector->context, *name, NULL);
            if (table != NULL && cod_option_find(table, node->key) != NULL && used < sizeof owners)
                used += (size_t)snprintf(owners + used, sizeof owners - used, "%s'%s'", used ? ", " : "", *name);
        }
        if (used == 0)
            continue;
        if (apply->unknown[i])
            return true;
        const char *chosen = cod_config_selected_name(apply->schema, selector);
        cod_config_problem(apply->config, node, "'%s' is no option of %s '%s'; it belongs to %s", node->key, path,
                           chosen != NULL ? chosen : "?", owners);
        return true;
    }
    return false;
}

/** NULL = no other program's word for an option. */
static const cod_config_synonym *find_synonym(const cod_config_schema *schema, const char *word)
{
    for (size_t i = 0; i < schema->synonym_count; i++)
        if (strcmp(schema->synonyms[i].word, word) == 0)
            return &schema->synonyms[i];
    return NULL;
}

static cod_status report_unknown(application *apply, const char *path, const cod_config_node *node)
{
    if (report_unselected(apply, path, node))
        return COD_OK;
    const char *what = node->kind == COD_CONFIG_MAPPING ? "section" : "key";
    char where[256] = "";
    if (path[0] != '\0')
        snprintf(where, sizeof where, " in '%s'", path);
    cod_arena arena = {0};
    word_list words = {.arena = &arena};
    const cod_status status = collect_words(apply, path, &words);
    const char *near = status == COD_OK ? cod_suggest(node->key, words.items, words.count) : NULL;
    const char *home = NULL;
    const cod_config_synonym *called = find_synonym(apply->schema, node->key);
    for (size_t i = 0; i < apply->schema->count && home == NULL; i++)
        if (cod_option_find(apply->schema->tables[i].table, node->key) != NULL)
            home = apply->schema->tables[i].table->section;
    if (called != NULL) {
        cod_config_problem(apply->config, node, "unknown %s '%s'%s; here it is called '%s'%s", what, node->key, where,
                           called->key, called->note != NULL ? called->note : "");
    } else if (near != NULL) {
        cod_config_problem(apply->config, node, "unknown %s '%s'%s; did you mean '%s'?", what, node->key, where, near);
    } else if (home != NULL) {
        cod_config_problem(apply->config, node, "unknown %s '%s'%s; it belongs %s%s%s", what, node->key, where,
                           home[0] ? "in '" : "to the top level", home, home[0] ? "'" : "");
    } else {
        char known[512] = "";
        for (size_t i = 0; i < words.count; i++)
            cod_names_add(known, sizeof known, words.items[i]);
        cod_config_problem(apply->config, node, "unknown %s '%s'%s; known here: %s", what, node->key, where, known);
    }
    free(words.items);
    cod_arena_clear(&arena);
    return status;
}

static cod_status find_subsection(void *context, const char *subsection)
{
    /* "Found" travels as a status that is not COD_OK. */
    return strcmp(context, subsection) == 0 ? COD_ERR_INTERRUPTED : COD_OK;
}

static cod_status walk(application *apply, const cod_config_node *mapping, const char *path)
{
    for (const cod_config_node *node = mapping->first; node != NULL; node = node->next) {
        char *full = cod_config_join(&apply->config->arena, path, node->key);
        if (full == NULL)
            return COD_ERR_MEMORY;
        const bool raw = cod_config_is_raw(apply->schema, full);
        if (raw && node->kind != COD_CONFIG_SCALAR)
            continue;
        const cod_status found = cod_config_each_subsection(apply->schema, path, find_subsection, full);
        if (found != COD_OK && found != COD_ERR_INTERRUPTED)
            return found;
        const bool section = found == COD_ERR_INTERRUPTED;
        void *values = NULL;
        const cod_option *option = find_option(apply, path, node->key, &values);
        if (option != NULL && !(section && node->kind == COD_CONFIG_MAPPING))
            COD_TRY(set_option(apply, full, node, option, values));
        else if (section && node->kind == COD_CONFIG_MAPPING)
            COD_TRY(walk(apply, node, full));
        else if (section && !(node->kind == COD_CONFIG_SCALAR && node->null))
            cod_config_problem(apply->config, node, "'%s' is a section: its keys stand below it, as 'key: value'",
                               full);
        else if (!section && !raw)
            COD_TRY(report_unknown(apply, path, node));
    }
    return COD_OK;
}

/** The node at a dotted path below `top`, or NULL. */
static const cod_config_node *find_below(const cod_config_node *top, const char *path, const char *key)
{
    char part[128];
    while (path[0] != '\0' && top != NULL) {
        const size_t length = strcspn(path, ".");
        snprintf(part, sizeof part, "%.*s", (int)length, path);
        top = cod_config_child(top, part);
        path += length + (path[length] == '.');
    }
    return cod_config_child(top, key);
}

/** Sets the selector's own option first, so that it is known which table the other keys belong to. */
static cod_status choose(application *apply, const cod_config_node *top, size_t index)
{
    const cod_config_selector *selector = &apply->schema->selectors[index];
    const char *before = cod_config_selected_name(apply->schema, selector);
    COD_REQUIRE(before != NULL, "no table of section '%s' has the text or choice '%s'", selector->section,
                selector->key);
    const cod_config_node *node = find_below(top, selector->section, selector->key);
    void *values = NULL;
    const cod_option *option = find_option(apply, selector->section, selector->key, &values);
    size_t count = 0;
    while (selector->names[count] != NULL)
        count++;
    const char *name = before;
    if (node != NULL && node->kind == COD_CONFIG_SCALAR)
        name = node->scalar; /* of no value, too: walk() sets that, and no table belongs to it */
    for (size_t i = 0; i < count; i++) {
        if (strcmp(selector->names[i], name) != 0)
            continue;
        /* The tree's text is set for good; walk() reports what is wrong with it. */
        if (cod_option_set(option, values, &name, 1, &apply->config->arena) != COD_OK)
            return COD_OK;
        cod_config_table *selected = &apply->selected[index];
        selected->table = selector->select(selector->context, name, &selected->values);
        if (selected->table == NULL || (apply->keep_values && strcmp(before, name) == 0))
            return COD_OK;
        return cod_options_set_defaults(selected->table, selected->values, &apply->config->arena);
    }
    apply->unknown[index] = true;
    if (option->type == COD_OPTION_STRING) {
        const char *near = cod_suggest(name, selector->names, count);
        char known[512] = "";
        for (size_t i = 0; i < count; i++)
            cod_names_add(known, sizeof known, selector->names[i]);
        cod_config_problem(apply->config, node,
                           near ? "%s%s%s: '%s' is unknown; did you mean '%s'?" : "%s%s%s: '%s' is not one of: %s",
                           selector->section, selector->section[0] != '\0' ? "." : "", selector->key, name,
                           near ? near : known);
    }
    return COD_OK;
}

static cod_status apply_tree(cod_config *config, const cod_config_node *top, const cod_config_schema *schema,
                             bool keep_values)
{
    application apply = {.config = config, .schema = schema, .keep_values = keep_values};
    apply.selected = cod_arena_alloc(&config->arena, schema->selector_count * sizeof *apply.selected);
    apply.unknown = cod_arena_alloc(&config->arena, schema->selector_count);
    if (apply.selected == NULL || apply.unknown == NULL)
        return COD_ERR_MEMORY;
    for (size_t i = 0; i < schema->count && !keep_values; i++)
        COD_TRY(cod_options_set_defaults(schema->tables[i].table, schema->tables[i].values, &config->arena));
    for (size_t i = 0; i < schema->selector_count; i++)
        COD_TRY(choose(&apply, top, i));
    return walk(&apply, top, "");
}

cod_status cod_config_apply(cod_config *config, const cod_config_schema *schema)
{
    return apply_tree(config, config->root, schema, false);
}

cod_status cod_config_apply_node(cod_config *config, const cod_config_node *node, const cod_config_schema *schema)
{
    if (node->kind != COD_CONFIG_MAPPING) {
        cod_config_problem(config, node, "a mapping such as {key: value} is needed here");
        return COD_OK;
    }
    return apply_tree(config, node, schema, true);
}
