/* The tree of values that a configuration is read into. */
#include "config_internal.h"

#include <stdlib.h>
#include <string.h>

cod_config_node *cod_config_node_new(cod_config *config, cod_config_kind kind, const char *override, size_t line,
                                     size_t column)
{
    if (config->nodes == COD_CONFIG_NODES_MAX) {
        (void)cod_fail(COD_ERR_ARGUMENT, "more than %d values, aliases expanded", COD_CONFIG_NODES_MAX);
        return NULL;
    }
    cod_config_node *node = cod_arena_alloc(&config->arena, sizeof *node);
    if (node == NULL)
        return NULL;
    config->nodes++;
    *node =
        (cod_config_node){.kind = kind, .file = config->reading, .override = override, .line = line, .column = column};
    return node;
}

void cod_config_node_append(cod_config_node *parent, cod_config_node *child)
{
    cod_config_node **link = parent->last != NULL ? &parent->last->next : &parent->first;
    *link = child;
    child->next = NULL;
    parent->last = child;
    parent->count++;
}

/** The pointer to a child, in its parent or in the child before it. */
static cod_config_node **link_to(cod_config_node *parent, const cod_config_node *child)
{
    cod_config_node **link = &parent->first;
    while (*link != child)
        link = &(*link)->next;
    return link;
}

void cod_config_node_replace(cod_config_node *parent, const cod_config_node *old, cod_config_node *node)
{
    if (old == NULL) {
        cod_config_node_append(parent, node);
        return;
    }
    node->next = old->next;
    *link_to(parent, old) = node;
    if (parent->last == old)
        parent->last = node;
}

void cod_config_node_remove(cod_config_node *parent, const cod_config_node *child)
{
    cod_config_node *before = NULL;
    for (cod_config_node *one = parent->first; one != child; one = one->next)
        before = one;
    *link_to(parent, child) = child->next;
    if (parent->last == child)
        parent->last = before;
    parent->count--;
}

void cod_config_node_merge(cod_config_node *base, cod_config_node *over)
{
    for (cod_config_node *child = over->first, *next; child != NULL; child = next) {
        next = child->next;
        cod_config_node *below = base->first;
        while (below != NULL && strcmp(below->key, child->key) != 0)
            below = below->next;
        const bool section = below != NULL && below->kind == COD_CONFIG_MAPPING;
        if (section && child->kind == COD_CONFIG_MAPPING)
            cod_config_node_merge(below, child);
        else if (!section || !child->null) /* `section:` with nothing below is an empty one */
            cod_config_node_replace(base, below, child);
    }
}

const cod_config_node *cod_config_child(const cod_config_node *mapping, const char *key)
{
    if (mapping == NULL || mapping->kind != COD_CONFIG_MAPPING)
        return NULL;
    for (const cod_config_node *child = mapping->first; child != NULL; child = child->next)
        if (strcmp(child->key, key) == 0)
            return child;
    return NULL;
}

const cod_config_node *cod_config_find(const cod_config *config, const char *key)
{
    const cod_config_node *node = config->root;
    while (key[0] != '\0' && node != NULL) {
        const size_t length = strcspn(key, ".");
        char *end = NULL;
        size_t index = strtoul(key, &end, 10);
        const bool list = node->kind == COD_CONFIG_LIST && key[0] >= '0' && key[0] <= '9' && end == key + length;
        const cod_config_node *child = list || node->kind == COD_CONFIG_MAPPING ? node->first : NULL;
        while (child != NULL &&
               (list ? index-- > 0 : strncmp(child->key, key, length) != 0 || child->key[length] != '\0'))
            child = child->next;
        node = child;
        key += length + (key[length] == '.');
    }
    return node;
}
