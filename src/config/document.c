#include "config_internal.h"

#include <stdlib.h>
#include <string.h>

/** A vertical bar would end a table's cell. */
static void add_cell(cod_text *text, const char *words)
{
    for (; *words != '\0'; words++)
        cod_text_add(text, *words == '|' ? "\\%c" : "%c", *words);
}

/** The names that an option may have by a selector or by the caller; NULL = its table says what it takes. */
static const char *const *find_names(const cod_config_schema *schema, const char *section, const char *key)
{
    for (size_t i = 0; i < schema->selector_count; i++)
        if (strcmp(schema->selectors[i].section, section) == 0 && strcmp(schema->selectors[i].key, key) == 0)
            return schema->selectors[i].names;
    for (size_t i = 0; i < schema->name_count; i++)
        if (strcmp(schema->names[i].section, section) == 0 && strcmp(schema->names[i].key, key) == 0)
            return schema->names[i].names;
    return NULL;
}

/** The values that an option takes, as text; in `arena`, or NULL when memory is short. */
static const char *describe_values(const cod_config_schema *schema, const char *section, const cod_option *option,
                                   cod_arena *arena)
{
    const char *const *names = find_names(schema, section, option->key);
    if (names == NULL)
        return cod_option_expectation(option, arena);
    const cod_option choice = {.type = COD_OPTION_CHOICE, .choices = names};
    return cod_option_expectation(&choice, arena);
}

/** A line of COD_CONFIG_WORDS. */
static void add_words(cod_text *text, const cod_config_schema *schema, const char *section, const cod_option *option)
{
    static const char *const truths[] = {"true", "false", NULL};
    const char *const *names = find_names(schema, section, option->key);
    const bool takes_text =
        names == NULL && (option->type == COD_OPTION_STRING || option->type == COD_OPTION_STRING_LIST);
    if (names == NULL)
        names = option->type == COD_OPTION_BOOL ? truths : option->choices;
    cod_text_add(text, "%s%s%s\t%s\t", section, section[0] ? "." : "", option->key, takes_text ? "text" : "-");
    for (size_t i = 0; names != NULL && names[i] != NULL; i++)
        cod_text_add(text, i > 0 ? " %s" : "%s", names[i]);
    cod_text_add(text, "\t%s\n", option->help ? option->help : "");
}

/** @param values  the defaults */
static cod_status add_options(cod_text *text, const cod_config_schema *schema, const char *section,
                              const cod_option_table *table, cod_config_style style, const void *values,
                              cod_arena *arena)
{
    if (style == COD_CONFIG_MARKDOWN && table->count > 0)
        cod_text_add(text, "| key | default | takes | meaning |\n| --- | --- | --- | --- |\n");
    for (size_t i = 0; i < table->count; i++) {
        const cod_option *option = &table->options[i];
        if (style == COD_CONFIG_WORDS) {
            add_words(text, schema, section, option);
            continue;
        }
        const char *value = cod_option_format(option, values, arena);
        const char *takes = describe_values(schema, section, option, arena);
        if (value == NULL || takes == NULL)
            return COD_ERR_MEMORY;
        if (style == COD_CONFIG_MARKDOWN) {
            cod_text_add(text, "| `%s` | `", option->key);
            add_cell(text, value);
            cod_text_add(text, "` | ");
            add_cell(text, takes);
            cod_text_add(text, " | ");
            add_cell(text, option->help ? option->help : "");
            cod_text_add(text, " |\n");
        } else {
            cod_text_add(text, "  %s%s%s: %s  (%s)\n", section, section[0] ? "." : "", option->key, value, takes);
            cod_text_add(text, "      %s\n", option->help ? option->help : "");
        }
    }
    cod_text_add(text, style == COD_CONFIG_WORDS ? "" : "\n");
    return COD_OK;
}

static cod_status document_options(cod_text *text, const cod_config_schema *schema, const char *section,
                                   const cod_option_table *table, cod_config_style style)
{
    cod_arena arena = {0};
    void *values = NULL;
    cod_status status = cod_aligned_alloc(&values, table->struct_bytes);
    COD_THEN(status, cod_options_set_defaults(table, values, &arena));
    COD_THEN(status, add_options(text, schema, section, table, style, values, &arena));
    cod_aligned_free(values);
    cod_arena_clear(&arena);
    return status;
}

/** `key` and `choice`: of the selector that adds the table, or NULL. */
static cod_status document_table(cod_text *text, const cod_config_schema *schema, const char *section, const char *key,
                                 const char *choice, const cod_option_table *table, cod_config_style style)
{
    const bool markdown = style == COD_CONFIG_MARKDOWN;
    if (style == COD_CONFIG_WORDS)
        return document_options(text, schema, section, table, style);
    const char *title = section[0] != '\0' ? section : "top level";
    if (choice != NULL)
        cod_text_add(text, markdown ? "### `%s` with `%s: %s`\n\n" : "%s with %s: %s", title, key, choice);
    else if (section[0] != '\0')
        cod_text_add(text, markdown ? "## `%s`\n\n" : "%s", title);
    else
        cod_text_add(text, markdown ? "## Top level\n\n" : "top level");
    if (table->help != NULL && table->help[0] != '\0')
        cod_text_add(text, markdown ? "%s\n\n" : ": %s\n", table->help);
    else if (!markdown)
        cod_text_add(text, "\n");
    return document_options(text, schema, section, table, style);
}

/** The tables that selectors can add to `section`, one for each choice that has its own options. */
static cod_status document_choices(const cod_config_schema *schema, const char *section, cod_config_style style,
                                   cod_text *text)
{
    for (size_t i = 0; i < schema->selector_count; i++) {
        const cod_config_selector *selector = &schema->selectors[i];
        for (const char *const *name = selector->names; *name != NULL && strcmp(selector->section, section) == 0;
             name++) {
            const cod_option_table *own = selector->select(selector->context, *name, NULL);
            if (own != NULL)
                COD_TRY(document_table(text, schema, section, selector->key, *name, own, style));
        }
    }
    return COD_OK;
}

/** The heading as its anchor has it: dots are left out. */
static void add_anchor(cod_text *text, const char *words)
{
    for (; *words != '\0'; words++)
        if (*words != '.')
            cod_text_add(text, "%c", *words);
}

/** Links to the tables that selectors can add to `section`. */
static void list_choices(const cod_config_schema *schema, const char *section, cod_text *text)
{
    for (size_t i = 0; i < schema->selector_count; i++) {
        const cod_config_selector *selector = &schema->selectors[i];
        const char *before = "  Also, by";
        for (const char *const *name = selector->names; *name != NULL && strcmp(selector->section, section) == 0;
             name++) {
            if (selector->select(selector->context, *name, NULL) == NULL)
                continue;
            cod_text_add(text, strcmp(before, ",") == 0 ? "," : "%s `%s`:", before, selector->key);
            cod_text_add(text, "\n  [%s](#", *name);
            add_anchor(text, section);
            cod_text_add(text, "-with-%s-%s)", selector->key, *name);
            before = ",";
        }
        if (strcmp(before, ",") == 0)
            cod_text_add(text, "\n");
    }
}

/** A list of the sections, each once, with links. */
static void list_sections(const cod_config_schema *schema, cod_text *text)
{
    for (size_t i = 0; i < schema->count; i++) {
        const cod_option_table *table = schema->tables[i].table;
        bool first = true;
        for (size_t j = 0; j < i; j++)
            first = first && strcmp(schema->tables[j].table->section, table->section) != 0;
        if (!first)
            continue;
        if (table->section[0] == '\0') {
            cod_text_add(text, "- [top level](#top-level)");
        } else {
            cod_text_add(text, "- [`%s`](#", table->section);
            add_anchor(text, table->section);
            cod_text_add(text, ")");
        }
        cod_text_add(text, table->help != NULL && table->help[0] != '\0' ? ": %s\n" : "\n", table->help);
        list_choices(schema, table->section, text);
    }
    cod_text_add(text, "\n");
}

static cod_status document(const cod_config_schema *schema, cod_config_style style, cod_text *text)
{
    if (style == COD_CONFIG_MARKDOWN)
        list_sections(schema, text);
    for (size_t i = 0; i < schema->count; i++) {
        const cod_option_table *table = schema->tables[i].table;
        COD_TRY(document_table(text, schema, table->section, NULL, NULL, table, style));
        bool last = true;
        for (size_t j = i + 1; j < schema->count; j++)
            last = last && strcmp(schema->tables[j].table->section, table->section) != 0;
        if (last)
            COD_TRY(document_choices(schema, table->section, style, text));
    }
    return COD_OK;
}

cod_status cod_config_document(const cod_config_schema *schema, cod_config_style style, char **out)
{
    *out = NULL;
    cod_text text = {0};
    const cod_status status = document(schema, style, &text);
    if (status != COD_OK) {
        free(text.data);
        return status;
    }
    return cod_text_end(&text, out);
}
