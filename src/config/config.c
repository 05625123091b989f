#include "config_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
    *node = (cod_config_node){.kind = kind, .override = override, .line = line, .column = column};
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

/** Reads at most COD_CONFIG_BYTES_MAX bytes into `text`, which has room for one more. */
static cod_status read_file(const char *path, char *text, size_t *bytes)
{
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return cod_fail(COD_ERR_IO, "cannot open '%s': %s", path, strerror(errno));
    cod_status status = COD_OK;
    ssize_t got = 1;
    for (*bytes = 0; got > 0 && *bytes <= COD_CONFIG_BYTES_MAX; *bytes += (size_t)got) {
        do
            got = read(file, text + *bytes, COD_CONFIG_BYTES_MAX + 1 - *bytes);
        while (got < 0 && errno == EINTR);
        if (got < 0) {
            status = cod_fail(COD_ERR_IO, "cannot read '%s': %s", path, strerror(errno));
            break;
        }
    }
    close(file);
    return status;
}

cod_status cod_config_open(const char *path, const char *const *overrides, size_t count, cod_config **config)
{
    *config = NULL;
    if (path == NULL)
        return cod_config_open_text("defaults", "", 0, overrides, count, config);
    char *text = malloc(COD_CONFIG_BYTES_MAX + 1);
    COD_REQUIRE_MEMORY(text);
    size_t bytes = 0;
    cod_status status = read_file(path, text, &bytes);
    if (status == COD_OK)
        status = cod_config_open_text(path, text, bytes, overrides, count, config);
    free(text);
    return status;
}

static cod_status open_text(cod_config *config, const char *name, const char *text, size_t bytes,
                            const char *const *overrides, size_t count)
{
    config->name = cod_arena_strdup(&config->arena, name);
    if (config->name == NULL)
        return COD_ERR_MEMORY;
    COD_REQUIRE(bytes <= COD_CONFIG_BYTES_MAX, "%s: more than %d bytes are no configuration", name,
                COD_CONFIG_BYTES_MAX);
    COD_TRY(cod_config_parse(config, text, bytes, NULL, &config->root));
    if (config->root == NULL || (config->root->kind == COD_CONFIG_SCALAR && config->root->null))
        config->root = cod_config_node_new(config, COD_CONFIG_MAPPING, NULL, 1, 1);
    if (config->root == NULL)
        return COD_ERR_MEMORY;
    COD_REQUIRE(config->root->kind == COD_CONFIG_MAPPING, "%s:%zu:%zu: a configuration consists of lines 'key: value'",
                name, config->root->line, config->root->column);
    for (size_t i = 0; i < count; i++)
        COD_TRY(cod_config_override(config, overrides[i]));
    return COD_OK;
}

cod_status cod_config_open_text(const char *name, const char *text, size_t bytes, const char *const *overrides,
                                size_t count, cod_config **out)
{
    *out = NULL;
    cod_config *config = calloc(1, sizeof *config);
    COD_REQUIRE_MEMORY(config);
    const cod_status status = open_text(config, name, text, bytes, overrides, count);
    if (status != COD_OK) {
        cod_config_destroy(config);
        return status;
    }
    *out = config;
    return COD_OK;
}

cod_status cod_config_load(const char *path, const char *const *overrides, size_t count,
                           const cod_config_schema *schema, cod_config **out)
{
    *out = NULL;
    cod_config *config = NULL;
    COD_TRY(cod_config_open(path, overrides, count, &config));
    cod_status status = cod_config_apply(config, schema);
    if (status == COD_OK)
        status = cod_config_check(config);
    if (status != COD_OK) {
        cod_config_destroy(config);
        return status;
    }
    *out = config;
    return COD_OK;
}

void cod_config_destroy(cod_config *config)
{
    if (config == NULL)
        return;
    cod_arena_clear(&config->arena);
    free(config->complaints);
    free(config);
}

cod_arena *cod_config_arena(cod_config *config)
{
    return &config->arena;
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
