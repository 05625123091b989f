#include "data/files.h"

#include "core/folder_entry.h"
#include "core/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

/** The folders being entered, so that a link back to one of them is not followed for ever. */
typedef struct folder {
    const struct folder *parent;
    dev_t device;
    ino_t inode;
} folder;

bool cod_file_is_called_image(const char *path)
{
    static const char *const endings[] = {".png",  ".jpg", ".jpeg", ".jfif", ".jpe", ".jif",
                                          ".webp", ".bmp", ".gif",  ".tif",  ".tiff"};
    const char *ending = strrchr(path, '.');
    for (size_t i = 0; ending != NULL && i < sizeof endings / sizeof endings[0]; i++)
        if (strcasecmp(ending, endings[i]) == 0)
            return true;
    return false;
}

static cod_status append(cod_file_list *files, const char *path, const char *name, size_t root, const struct stat *info)
{
    if (files->count == files->capacity) {
        const size_t capacity = files->capacity ? 2 * files->capacity : 256;
        cod_file *items = realloc(files->items, capacity * sizeof *items);
        COD_REQUIRE_MEMORY(items);
        files->items = items;
        files->capacity = capacity;
    }
    files->items[files->count++] =
        (cod_file){.path = path,
                   .name = name,
                   .root = root,
                   .bytes = info->st_size,
                   .modified_ns = (int64_t)info->st_mtim.tv_sec * 1000000000 + info->st_mtim.tv_nsec};
    return COD_OK;
}

static bool holds(const char *above, const char *name)
{
    char path[4096];
    struct stat info;
    return snprintf(path, sizeof path, "%s/%s", above, name) < (int)sizeof path && stat(path, &info) == 0;
}

bool cod_file_is_run(const char *path)
{
    return holds(path, "config.yaml") && holds(path, "checkpoints");
}

/** Why a folder below a root holds no pictures that are meant; NULL = it may. */
static const char *reason_to_pass(const cod_file_list *files, const char *path, const char *name,
                                  const struct stat *info)
{
    struct stat output;
    if (name[0] == '.')
        return "it is hidden";
    if (strcmp(name, "@eaDir") == 0)
        return "it holds a file server's thumbnails";
    if (files->output != NULL && stat(files->output, &output) == 0 && output.st_dev == info->st_dev &&
        output.st_ino == info->st_ino)
        return "results go there";
    return cod_file_is_run(path) ? "it is the folder of a training run" : NULL;
}

static cod_status enter(cod_file_list *files, const char *path, size_t prefix, size_t root, const folder *parent);

/** Takes an entry `name` of the folder `path`: a folder's pictures, or a picture. */
static cod_status take(cod_file_list *files, const char *path, const char *name, size_t prefix, size_t root,
                       const folder *here)
{
    struct stat info = {0};
    const size_t length = strlen(path);
    const bool is_picture = name[0] != '.' && cod_file_is_called_image(name);
    char *child = cod_arena_alloc(&files->arena, length + strlen(name) + 2);
    COD_REQUIRE_MEMORY(child);
    memcpy(child, path, length);
    child[length] = '/';
    strcpy(child + length + 1, name);
    const bool found = stat(child, &info) == 0, is_dangling = !found && (errno == ENOENT || errno == ELOOP);
    if (!found && !is_dangling && !is_picture && name[0] != '.') /* it may be a folder of pictures */
        return cod_fail(COD_ERR_IO, "%s: %s", child, strerror(errno));
    if (found && S_ISDIR(info.st_mode)) {
        const char *reason = reason_to_pass(files, child, name, &info);
        if (reason == NULL)
            return enter(files, child, prefix, root, here);
        if (!files->silent)
            cod_log_info("pictures below '%s' are left out: %s", child, reason);
    } else if (is_picture) { /* a dangling link too: reading it says what is wrong */
        return append(files, child, child + prefix, root, &info);
    }
    return COD_OK;
}

/** `prefix` is where relative names begin within the path. */
static cod_status enter(cod_file_list *files, const char *path, size_t prefix, size_t root, const folder *parent)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return cod_fail(COD_ERR_IO, "%s: %s", path, strerror(errno));
    const folder here = {.parent = parent, .device = info.st_dev, .inode = info.st_ino};
    for (const folder *above = parent; above != NULL; above = above->parent)
        if (above->device == here.device && above->inode == here.inode)
            return COD_OK;
    DIR *directory = opendir(path);
    if (directory == NULL)
        return cod_fail(COD_ERR_IO, "%s: cannot read the folder: %s", path, strerror(errno));
    cod_status status = COD_OK;
    const struct dirent *entry = NULL;
    do {
        if (!cod_folder_next(directory, &entry))
            status = cod_fail(COD_ERR_IO, "%s: cannot read the folder: %s", path, strerror(errno));
        else if (entry != NULL && strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            status = take(files, path, entry->d_name, prefix, root, &here);
    } while (status == COD_OK && entry != NULL);
    closedir(directory);
    return status;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const cod_file *)a)->name, ((const cod_file *)b)->name);
}

cod_status cod_files_find(cod_file_list *files, const char *root, size_t root_index)
{
    struct stat info;
    if (stat(root, &info) != 0)
        return cod_fail(COD_ERR_IO, "%s: %s", root, strerror(errno));
    char *path = cod_arena_strdup(&files->arena, root);
    COD_REQUIRE_MEMORY(path);
    if (!S_ISDIR(info.st_mode)) {
        const char *slash = strrchr(path, '/');
        return append(files, path, slash ? slash + 1 : path, root_index, &info);
    }
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        path[--length] = '\0';
    const size_t first = files->count;
    COD_TRY(enter(files, path, length + 1, root_index, NULL));
    if (files->count > first)
        qsort(files->items + first, files->count - first, sizeof *files->items, by_name);
    return COD_OK;
}

void cod_files_clear(cod_file_list *files)
{
    free(files->items);
    cod_arena_clear(&files->arena);
    *files = (cod_file_list){0};
}
