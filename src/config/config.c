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

/** Parses a file's text. @param[out] root  a mapping */
static cod_status read_root(cod_config *config, const char *name, const char *text, size_t bytes,
                            cod_config_node **root)
{
    config->reading = cod_arena_strdup(&config->arena, name);
    if (config->reading == NULL)
        return COD_ERR_MEMORY;
    COD_REQUIRE(bytes <= COD_CONFIG_BYTES_MAX, "%s: more than %d bytes are no configuration", name,
                COD_CONFIG_BYTES_MAX);
    COD_TRY(cod_config_parse(config, text, bytes, NULL, root));
    if (*root == NULL || ((*root)->kind == COD_CONFIG_SCALAR && (*root)->null))
        *root = cod_config_node_new(config, COD_CONFIG_MAPPING, NULL, 1, 1);
    if (*root == NULL)
        return COD_ERR_MEMORY;
    COD_REQUIRE((*root)->kind == COD_CONFIG_MAPPING, "%s:%zu:%zu: a configuration consists of lines 'key: value'", name,
                (*root)->line, (*root)->column);
    return COD_OK;
}

/** @param text  [COD_CONFIG_BYTES_MAX + 1] room */
static cod_status read_file_root(cod_config *config, const char *path, char *text, cod_config_node **root)
{
    size_t bytes = 0;
    cod_status status = read_file(path, text, &bytes);
    COD_THEN(status, read_root(config, path, text, bytes, root));
    return cod_explain_file(status, path, COD_FILE_EMPTY, "a configuration");
}

/** The file that `base` names, relative to the folder of the file that it stands in; NULL when memory is short. */
static const char *base_path(cod_config *config, const cod_config_node *base)
{
    const char *slash = strrchr(base->file, '/');
    if (slash == NULL || base->scalar[0] == '/')
        return base->scalar;
    const size_t folder = (size_t)(slash - base->file) + 1, name = strlen(base->scalar) + 1;
    char *path = cod_arena_alloc(&config->arena, folder + name);
    if (path == NULL)
        return NULL;
    memcpy(path, base->file, folder);
    memcpy(path + folder, base->scalar, name);
    return path;
}

/** Reads a file, the file that its `base` names, and so on, until one has none. @param text  as read_file_root() */
static cod_status read_files(cod_config *config, const char *path, char *text)
{
    COD_TRY(read_file_root(config, path, text, &config->root));
    const cod_config_node *base = cod_config_child(config->root, "base");
    for (int files = 1; base != NULL; files++) {
        char place[512];
        cod_config_node *below = NULL, *above = config->root;
        cod_config_place(config, base, place, sizeof place);
        COD_REQUIRE(base->kind == COD_CONFIG_SCALAR && !base->null,
                    "%s: base must be the path of one configuration, relative to the folder of this one", place);
        COD_REQUIRE(files < COD_CONFIG_FILES_MAX, "%s: a chain of more than %d files; is one of them its own base?",
                    place, COD_CONFIG_FILES_MAX);
        const char *file = base_path(config, base);
        COD_REQUIRE_MEMORY(file);
        const cod_status status = read_file_root(config, file, text, &below);
        if (status != COD_OK)
            return cod_fail_prefix(status, "%s: base", place);
        cod_config_node_remove(above, base);
        base = cod_config_child(below, "base");
        cod_config_node_merge(below, above);
        config->root = below;
    }
    return COD_OK;
}

/** @param path  NULL = `text` is the configuration */
static cod_status open_config(cod_config *config, const char *path, const char *name, const char *text, size_t bytes)
{
    config->name = config->reading = cod_arena_strdup(&config->arena, name);
    if (config->name == NULL)
        return COD_ERR_MEMORY;
    if (path == NULL)
        return read_root(config, name, text, bytes, &config->root);
    char *room = malloc(COD_CONFIG_BYTES_MAX + 1);
    COD_REQUIRE_MEMORY(room);
    const cod_status status = read_files(config, path, room);
    free(room);
    return status;
}

static cod_status open_with_overrides(const char *path, const char *name, const char *text, size_t bytes,
                                      const char *const *overrides, size_t count, cod_config **out)
{
    *out = NULL;
    cod_config *config = calloc(1, sizeof *config);
    COD_REQUIRE_MEMORY(config);
    cod_status status = open_config(config, path, name, text, bytes);
    for (size_t i = 0; i < count; i++)
        COD_THEN(status, cod_config_override(config, overrides[i]));
    if (status != COD_OK) {
        cod_config_destroy(config);
        return status;
    }
    *out = config;
    return COD_OK;
}

cod_status cod_config_open(const char *path, const char *const *overrides, size_t count, cod_config **config)
{
    return open_with_overrides(path, path != NULL ? path : "defaults", "", 0, overrides, count, config);
}

cod_status cod_config_open_text(const char *name, const char *text, size_t bytes, const char *const *overrides,
                                size_t count, cod_config **config)
{
    return open_with_overrides(NULL, name, text, bytes, overrides, count, config);
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
