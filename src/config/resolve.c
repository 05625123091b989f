#include "config_internal.h"

#include <stdlib.h>
#include <string.h>

typedef struct resolver {
    const cod_config *config;
    const cod_config_schema *schema;
    bool comments;
    int indent;
    cod_text text;
    cod_arena arena;
} resolver;

/** A text as YAML, quoted where needed: the format of a text option. */
static const char *scalar(const char *text, cod_arena *arena)
{
    const cod_option option = {.type = COD_OPTION_STRING};
    return cod_option_format(&option, &text, arena);
}

/** On one line, with brackets and braces. */
static cod_status write_flow(resolver *out, const cod_config_node *node)
{
    if (node->kind == COD_CONFIG_SCALAR) {
        const char *text = node->null ? "null" : scalar(node->scalar, &out->arena);
        if (text == NULL)
            return COD_ERR_MEMORY;
        cod_text_add(&out->text, "%s", text);
        return COD_OK;
    }
    const bool list = node->kind == COD_CONFIG_LIST;
    cod_text_add(&out->text, list ? "[" : "{");
    for (const cod_config_node *child = node->first; child != NULL; child = child->next) {
        const char *key = list ? "" : scalar(child->key, &out->arena);
        if (key == NULL)
            return COD_ERR_MEMORY;
        cod_text_add(&out->text, "%s%s%s", child != node->first ? ", " : "", key, list ? "" : ": ");
        COD_TRY(write_flow(out, child));
    }
    cod_text_add(&out->text, list ? "]" : "}");
    return COD_OK;
}

/** The list or mapping given for a raw key, or NULL. */
static const cod_config_node *raw_node(const resolver *out, const char *full)
{
    return out->config != NULL && cod_config_is_raw(out->schema, full) ? cod_config_find(out->config, full) : NULL;
}

static cod_status write_table(resolver *out, const char *path, const cod_option_table *table, const void *values)
{
    for (size_t i = 0; i < table->count; i++) {
        const cod_option *option = &table->options[i];
        const char *full = cod_config_join(&out->arena, path, option->key);
        const char *value = cod_option_format(option, values, &out->arena);
        if (full == NULL || value == NULL)
            return COD_ERR_MEMORY;
        const cod_config_node *raw = raw_node(out, full);
        cod_text_add(&out->text, "%*s%s: ", out->indent, "", option->key);
        if (raw != NULL && raw->kind != COD_CONFIG_SCALAR)
            COD_TRY(write_flow(out, raw));
        else
            cod_text_add(&out->text, "%s", value);
        if (out->comments && option->help != NULL && option->help[0] != '\0')
            cod_text_add(&out->text, "  # %s", option->help);
        cod_text_add(&out->text, "\n");
    }
    return COD_OK;
}

/** Raw keys of `path` that no table has as an option. */
static cod_status write_raw_only(resolver *out, const char *path)
{
    const cod_config_schema *schema = out->schema;
    for (const char *const *raw = schema->raw; raw != NULL && *raw != NULL; raw++) {
        const char *dot = strrchr(*raw, '.'), *key = dot != NULL ? dot + 1 : *raw;
        const size_t length = dot != NULL ? (size_t)(dot - *raw) : 0;
        bool option = length != strlen(path) || strncmp(*raw, path, length) != 0;
        for (size_t i = 0; i < schema->count; i++)
            option = option || (strcmp(schema->tables[i].table->section, path) == 0 &&
                                cod_option_find(schema->tables[i].table, key) != NULL);
        const cod_config_node *node = option ? NULL : raw_node(out, *raw);
        if (node == NULL)
            continue;
        cod_text_add(&out->text, "%*s%s: ", out->indent, "", key);
        COD_TRY(write_flow(out, node));
        cod_text_add(&out->text, "\n");
    }
    return COD_OK;
}

static cod_status write_section(void *context, const char *path)
{
    resolver *out = context;
    const cod_config_schema *schema = out->schema;
    if (path[0] != '\0') {
        const char *dot = strrchr(path, '.');
        cod_text_add(&out->text, "%*s%s:\n", out->indent, "", dot != NULL ? dot + 1 : path);
        out->indent += 2;
    }
    for (size_t i = 0; i < schema->count; i++)
        if (strcmp(schema->tables[i].table->section, path) == 0)
            COD_TRY(write_table(out, path, schema->tables[i].table, schema->tables[i].values));
    for (size_t i = 0; i < schema->selector_count; i++) {
        const cod_config_selector *selector = &schema->selectors[i];
        const char *name = strcmp(selector->section, path) == 0 ? cod_config_selected_name(schema, selector) : NULL;
        void *values = NULL;
        const cod_option_table *table = name != NULL ? selector->select(selector->context, name, &values) : NULL;
        if (table != NULL)
            COD_TRY(write_table(out, path, table, values));
    }
    COD_TRY(write_raw_only(out, path));
    COD_TRY(cod_config_each_subsection(schema, path, write_section, out));
    out->indent -= path[0] != '\0' ? 2 : 0;
    return COD_OK;
}

cod_status cod_config_resolved(const cod_config *config, const cod_config_schema *schema, bool comments, char **text)
{
    *text = NULL;
    resolver out = {.config = config, .schema = schema, .comments = comments};
    const cod_status status = write_section(&out, "");
    cod_arena_clear(&out.arena);
    if (status != COD_OK) {
        free(out.text.data);
        return status;
    }
    return cod_text_end(&out.text, text);
}
