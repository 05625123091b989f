#include "config_internal.h"

#include <stdlib.h>
#include <string.h>

static bool is_index(const char *part, size_t count, size_t *index)
{
    char *end = NULL;
    *index = strtoul(part, &end, 10);
    return part[0] >= '0' && part[0] <= '9' && *end == '\0' && *index < count;
}

/** The child of a mapping or list that `part` names, NULL when a mapping has none; false when there can be none. */
static bool step(const cod_config_node *node, const char *part, cod_config_node **child)
{
    size_t index = 0;
    *child = NULL;
    if (node->kind == COD_CONFIG_LIST && is_index(part, node->count, &index)) {
        *child = node->first;
        while (index-- > 0)
            *child = (*child)->next;
        return true;
    }
    if (node->kind != COD_CONFIG_MAPPING)
        return false;
    for (*child = node->first; *child != NULL && strcmp((*child)->key, part) != 0;)
        *child = (*child)->next;
    return true;
}

/** Texts from the command line reach messages and files, so they must be what a YAML file could hold. */
static bool is_text(const char *text)
{
    for (const unsigned char *c = (const unsigned char *)text; *c != 0;) {
        const size_t more = *c < 0x80                 ? 0
                            : *c >= 0xC2 && *c < 0xE0 ? 1
                            : *c >= 0xE0 && *c < 0xF0 ? 2
                            : *c >= 0xF0 && *c < 0xF5 ? 3
                                                      : 9;
        if (more == 9 || (*c < 0x20 && *c != '\t' && *c != '\n') || *c == 0x7F)
            return false;
        for (size_t i = 1; i <= more; i++)
            if ((c[i] & 0xC0) != 0x80)
                return false;
        c += more + 1;
    }
    return true;
}

static cod_status parse_value(cod_config *config, const char *argument, const char *value, cod_config_node **node)
{
    *node = NULL;
    if (value[0] != '\0' && strchr("[{\"'", value[0]) != NULL)
        COD_TRY(cod_config_parse(config, value, strlen(value), argument, node));
    if (*node != NULL)
        return COD_OK;
    *node = cod_config_node_new(config, COD_CONFIG_SCALAR, argument, 0, 0);
    if (*node == NULL)
        return COD_ERR_MEMORY;
    (*node)->null = value[0] == '\0' || strcmp(value, "null") == 0 || strcmp(value, "~") == 0;
    (*node)->scalar = cod_arena_strdup(&config->arena, (*node)->null ? "" : value);
    return (*node)->scalar != NULL ? COD_OK : COD_ERR_MEMORY;
}

/** Walks `path`, creating sections as needed, and puts `value` at its end. */
static cod_status place_value(cod_config *config, const char *argument, char *path, cod_config_node *value)
{
    const cod_config_node here = {.override = argument};
    cod_config_node *parent = config->root;
    for (char *part = path;;) {
        char *dot = strchr(part, '.');
        if (dot != NULL)
            *dot = '\0';
        cod_config_node *child = NULL;
        if (part[0] == '\0' || !step(parent, part, &child)) {
            cod_config_problem(config, &here, part[0] == '\0' ? "an empty word in the key" : "there is no '%s' to set",
                               part);
            return COD_OK;
        }
        if (dot == NULL) {
            value->key = parent->kind == COD_CONFIG_MAPPING ? part : NULL;
            cod_config_node_replace(parent, child, value);
            return COD_OK;
        }
        if (child == NULL || (child->kind == COD_CONFIG_SCALAR && child->null)) {
            cod_config_node *section = cod_config_node_new(config, COD_CONFIG_MAPPING, argument, 0, 0);
            if (section == NULL)
                return COD_ERR_MEMORY;
            section->key = part;
            cod_config_node_replace(parent, child, section);
            child = section;
        }
        parent = child;
        part = dot + 1;
    }
}

cod_status cod_config_override(cod_config *config, const char *argument)
{
    const char *kept = cod_arena_strdup(&config->arena, argument);
    char *path = cod_arena_strdup(&config->arena, argument);
    if (kept == NULL || path == NULL)
        return COD_ERR_MEMORY;
    const cod_config_node here = {.override = kept};
    char *equals = strchr(path, '=');
    if (!is_text(argument) || equals == NULL || equals == path) {
        cod_config_problem(config, &here, "an override is written as key.path=value, in UTF-8");
        return COD_OK;
    }
    *equals = '\0';
    cod_config_node *value = NULL;
    const cod_status status = parse_value(config, kept, kept + (equals - path) + 1, &value);
    if (status == COD_ERR_ARGUMENT) {
        /* The message starts with the place already. */
        const char *message = strstr(cod_error_message(), kept);
        cod_config_problem(config, &here, "%s", message != NULL ? message + strlen(kept) + 2 : cod_error_message());
        return COD_OK;
    }
    COD_TRY(status);
    return place_value(config, kept, path, value);
}
