#include "config_internal.h"

#include "core/file_kind.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
    COD_THEN(status, cod_config_open_text(path, text, bytes, overrides, count, config));
    free(text);
    return cod_explain_file(status, path, COD_FILE_EMPTY, "a configuration");
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
