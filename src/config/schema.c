#include "config_internal.h"

#include <string.h>

bool cod_config_below(const char *section, const char *path)
{
    const size_t length = strlen(path);
    return length == 0 || (strncmp(section, path, length) == 0 && (section[length] == '\0' || section[length] == '.'));
}

char *cod_config_join(cod_arena *arena, const char *path, const char *key)
{
    if (path[0] == '\0')
        return cod_arena_strdup(arena, key);
    const size_t length = strlen(path);
    char *joined = cod_arena_alloc(arena, length + strlen(key) + 2);
    if (joined == NULL)
        return NULL;
    memcpy(joined, path, length);
    joined[length] = '.';
    strcpy(joined + length + 1, key);
    return joined;
}

bool cod_config_is_raw(const cod_config_schema *schema, const char *key)
{
    for (const char *const *raw = schema->raw; raw != NULL && *raw != NULL; raw++)
        if (strcmp(*raw, key) == 0)
            return true;
    return false;
}

const char *cod_config_selected_name(const cod_config_schema *schema, const cod_config_selector *selector)
{
    for (size_t i = 0; i < schema->count; i++) {
        const cod_config_table *entry = &schema->tables[i];
        if (strcmp(entry->table->section, selector->section) != 0)
            continue;
        const cod_option *option = cod_option_find(entry->table, selector->key);
        const void *field = option != NULL ? (const char *)entry->values + option->offset : NULL;
        if (option != NULL && option->type == COD_OPTION_CHOICE)
            return option->choices[cod_choice_index(*(const int *)field)];
        if (option != NULL && option->type == COD_OPTION_STRING)
            return *(const char *const *)field;
    }
    return NULL;
}

/** The `index`-th dotted path that the schema knows: sections of tables, then the sections that raw keys stand in. */
static bool known_section(const cod_config_schema *schema, size_t index, const char **text, size_t *length)
{
    if (index < schema->count) {
        *text = schema->tables[index].table->section;
        *length = strlen(*text);
        return true;
    }
    index -= schema->count;
    for (const char *const *raw = schema->raw; raw != NULL && *raw != NULL; raw++) {
        if (index-- == 0) {
            const char *dot = strrchr(*raw, '.');
            *text = *raw;
            *length = dot != NULL ? (size_t)(dot - *raw) : 0;
            return true;
        }
    }
    return false;
}

cod_status cod_config_each_subsection(const cod_config_schema *schema, const char *path,
                                      cod_status (*visit)(void *context, const char *subsection), void *context)
{
    cod_arena arena = {0};
    cod_status status = COD_OK;
    const size_t skip = path[0] != '\0' ? strlen(path) + 1 : 0;
    struct seen {
        struct seen *next;
        const char *path;
    } *seen = NULL;
    const char *text = NULL;
    size_t length = 0;
    for (size_t i = 0; known_section(schema, i, &text, &length) && status == COD_OK; i++) {
        if (!cod_config_below(text, path) || length <= skip)
            continue;
        const size_t end = skip + strcspn(text + skip, ".");
        char *subsection = cod_arena_strdup(&arena, text);
        struct seen *entry = cod_arena_alloc(&arena, sizeof *entry);
        if (subsection == NULL || entry == NULL) {
            status = COD_ERR_MEMORY;
            break;
        }
        subsection[end < length ? end : length] = '\0';
        bool again = false;
        for (const struct seen *other = seen; other != NULL; other = other->next)
            again = again || strcmp(other->path, subsection) == 0;
        *entry = (struct seen){.next = seen, .path = subsection};
        seen = entry;
        if (!again)
            status = visit(context, subsection);
    }
    cod_arena_clear(&arena);
    return status;
}
