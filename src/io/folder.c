#include "io/file.h"

#include "core/folder_entry.h"
#include "core/log.h"
#include "io_internal.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

int cod_io_open_above(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *above = slash != NULL ? strndup(path, (size_t)(slash + 1 - path)) : strdup(".");
    if (above == NULL)
        return -1;
    int folder = open(above, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0 && errno == EACCES) /* files may be made in folders that may not be listed */
        folder = open(above, O_PATH | O_DIRECTORY | O_CLOEXEC);
    const int reason = errno;
    free(above);
    errno = reason;
    return folder;
}

/** Looks at the folder that holds `path`. @return whether that could be done */
static bool examine_above(const char *path, struct stat *above)
{
    const int folder = cod_io_open_above(path);
    const bool examined = folder >= 0 && fstat(folder, above) == 0;
    if (folder >= 0)
        close(folder);
    return examined;
}

cod_status cod_io_check_names(const char *path, const struct stat *info)
{
    struct stat above;
    if (info->st_nlink < 2 ||
        (examine_above(path, &above) && above.st_uid == geteuid() && (above.st_mode & (S_IWGRP | S_IWOTH)) == 0))
        return COD_OK;
    return cod_fail(COD_ERR_IO,
                    "cannot write '%s': a hard link gives the file another name, too, and others may write in its "
                    "folder, so it may be somebody's: copy it to a file of its own, or chmod go-w the folder",
                    path);
}

/** Whether a file that is to be written belongs to those who may decide what is in it. */
static cod_status check_own(int file, const char *path)
{
    struct stat info, above;
    if (fstat(file, &info) != 0)
        return cod_fail_system("examine", path);
    if (S_ISCHR(info.st_mode))
        return COD_OK;
    if (!S_ISREG(info.st_mode))
        return cod_fail(COD_ERR_IO, "cannot write '%s': it is no regular file", path);
    COD_TRY(cod_io_check_names(path, &info));
    if (info.st_uid == geteuid() || (examine_above(path, &above) && above.st_uid == info.st_uid))
        return COD_OK;
    return cod_fail(COD_ERR_IO, "cannot write '%s': it belongs to another user (number %lu)", path,
                    (unsigned long)info.st_uid);
}

cod_status cod_io_open_own(const char *path, int flags, int *file)
{
    /* Without O_NONBLOCK a FIFO would be waited for. */
    *file = open(path, flags | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
    if (*file < 0 && errno == ELOOP)
        return cod_fail(COD_ERR_IO, "cannot write '%s': it is a link, and none is followed here", path);
    if (*file < 0)
        return cod_fail_system("open", path);
    const cod_status status = check_own(*file, path);
    if (status != COD_OK) {
        close(*file);
        *file = -1;
    }
    return status;
}

cod_status cod_io_flush_folder(int folder, const char *path)
{
    COD_IO_CALL("flush the folder of", path);
    if (fsync(folder) != 0 && errno != EINVAL && errno != ENOTSUP && errno != EBADF)
        return cod_fail_system("flush the folder of", path);
    return COD_OK;
}

cod_status cod_io_flush_above(const char *path)
{
    const int folder = cod_io_open_above(path);
    if (folder < 0)
        return cod_fail_system("open the folder of", path);
    const cod_status status = cod_io_flush_folder(folder, path);
    close(folder);
    return status;
}

static cod_status create_one(const char *path)
{
    enum { TRIES = 10 };
    COD_IO_CALL("create folder", path);
    int reason = 0;
    /*
     * Others may remove the folder between the two calls; a symbolic link that leads nowhere looks the same, and stays.
     */
    for (int i = 0; i < TRIES; i++) {
        if (mkdir(path, 0777) == 0)
            return cod_io_flush_above(path);
        reason = errno;
        struct stat info;
        if (stat(path, &info) == 0) {
            if (S_ISDIR(info.st_mode))
                return COD_OK;
            reason = ENOTDIR;
            break;
        }
        if (reason != EEXIST)
            break;
    }
    errno = reason;
    return cod_fail_system("create folder", path);
}

cod_status cod_folder_create(const char *path)
{
    COD_REQUIRE(path[0] != '\0', "a folder without a name cannot be created");
    char *copy = strdup(path);
    COD_REQUIRE_MEMORY(copy);
    cod_status status = COD_OK;
    for (char *slash = strchr(copy + 1, '/'); slash != NULL && status == COD_OK; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        status = create_one(copy);
        *slash = '/';
    }
    COD_THEN(status, create_one(copy));
    free(copy);
    return status;
}

cod_status cod_folder_create_above(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (slash == NULL || slash == path)
        return COD_OK;
    char *above = strndup(path, (size_t)(slash - path));
    COD_REQUIRE_MEMORY(above);
    const cod_status status = cod_folder_create(above);
    free(above);
    return status;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static bool matches(const char *name, const char *prefix, const char *suffix)
{
    const size_t length = strlen(name), head = strlen(prefix), tail = strlen(suffix);
    return name[0] != '.' && length >= head + tail && strncmp(name, prefix, head) == 0 &&
           strcmp(name + length - tail, suffix) == 0;
}

/**
 * Names in the order of the folder, in `arena`.
 *
 * @param[out] found  an array of `count`; free() it, also after a failure
 */
static cod_status find_names(DIR *folder, const char *path, const char *prefix, const char *suffix, cod_arena *arena,
                             void **found, size_t *count)
{
    size_t capacity = 0;
    for (;;) {
        const struct dirent *entry;
        if (!cod_folder_next(folder, &entry))
            return cod_fail_system("list folder", path);
        if (entry == NULL)
            return COD_OK;
        if (!matches(entry->d_name, prefix, suffix))
            continue;
        COD_TRY(cod_io_reserve(found, &capacity, *count * sizeof(char *), sizeof(char *)));
        const char *name = cod_arena_strdup(arena, entry->d_name);
        if (name == NULL)
            return COD_ERR_MEMORY;
        ((const char **)*found)[(*count)++] = name;
    }
}

/** Sorts `found` and copies it to `arena`. */
static cod_status keep_sorted(void *found, size_t count, cod_arena *arena, cod_string_list *names)
{
    names->items = cod_arena_alloc(arena, count * sizeof(char *));
    if (names->items == NULL)
        return COD_ERR_MEMORY;
    names->count = count;
    if (count > 0) {
        qsort(found, count, sizeof(char *), by_name);
        memcpy(names->items, found, count * sizeof(char *));
    }
    return COD_OK;
}

cod_status cod_folder_list(const char *path, const char *prefix, const char *suffix, cod_arena *arena,
                           cod_string_list *names)
{
    *names = (cod_string_list){0};
    COD_IO_CALL("list folder", path);
    DIR *folder = opendir(path);
    if (folder == NULL)
        return cod_fail_system("list folder", path);
    void *found = NULL;
    size_t count = 0;
    cod_status status = find_names(folder, path, prefix ? prefix : "", suffix ? suffix : "", arena, &found, &count);
    COD_THEN(status, keep_sorted(found, count, arena, names));
    free(found);
    closedir(folder);
    return status;
}

bool cod_file_number(const char *name, const char *prefix, size_t digits, const char *suffix, uint64_t most,
                     uint64_t *number)
{
    const size_t head = strlen(prefix);
    if (strncmp(name, prefix, head) != 0)
        return false;
    const char *first = name + head;
    const size_t count = strspn(first, "0123456789");
    uint64_t value = 0;
    if (count < digits || (count > digits && first[0] == '0') || strcmp(first + count, suffix) != 0)
        return false;
    for (size_t i = 0; i < count; i++) {
        const uint64_t digit = (uint64_t)(first[i] - '0');
        if (digit > most || value > (most - digit) / 10)
            return false;
        value = 10 * value + digit;
    }
    *number = value;
    return true;
}

bool cod_file_is_temporary(const char *entry, const char *name)
{
    static const char suffix[] = ".tmp";
    const size_t length = strlen(entry), head = strlen(name);
    if (entry[0] != '.' || length < sizeof suffix || strcmp(entry + length - (sizeof suffix - 1), suffix) != 0)
        return false;
    /* "a" has another file beside it, "a.b". */
    return head == 0 || (strncmp(entry + 1, name, head) == 0 && entry[1 + head] == '.' &&
                         strspn(entry + 2 + head, "0123456789-") == length - (2 + head) - (sizeof suffix - 1));
}

static cod_status clean(const char *path, const char *name)
{
    COD_IO_CALL("list folder", path);
    DIR *folder = opendir(path);
    if (folder == NULL)
        return name[0] != '\0' && errno == ENOENT ? COD_OK : cod_fail_system("list folder", path);
    cod_status status = COD_OK;
    const struct dirent *entry = NULL;
    do {
        if (!cod_folder_next(folder, &entry))
            status = cod_fail_system("list folder", path);
        else if (entry == NULL || !cod_file_is_temporary(entry->d_name, name) ||
                 unlinkat(dirfd(folder), entry->d_name, 0) == 0 || errno == ENOENT)
            continue;
        else if (errno == EISDIR) /* no writer's */
            cod_log_warn("'%s/%s' is a folder in a temporary file's place, and stays", path, entry->d_name);
        else
            status = cod_fail_system("remove a temporary file in", path);
    } while (status == COD_OK && entry != NULL);
    closedir(folder);
    return status;
}

cod_status cod_folder_clean(const char *path)
{
    return clean(path, "");
}

cod_status cod_file_clean(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash != NULL ? strndup(path, (size_t)(slash - path + 1)) : strdup(".");
    COD_REQUIRE_MEMORY(folder);
    const cod_status status = clean(folder, slash != NULL ? slash + 1 : path);
    free(folder);
    return status;
}

bool cod_file_exists(const char *path)
{
    COD_IO_CALL("look for", path);
    return access(path, F_OK) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

int64_t cod_file_bytes(const char *path)
{
    COD_IO_CALL("look at", path);
    struct stat info;
    return stat(path, &info) == 0 ? (int64_t)info.st_size : 0;
}

cod_status cod_file_remove(const char *path)
{
    COD_IO_CALL("remove", path);
    return unlink(path) == 0 || errno == ENOENT ? COD_OK : cod_fail_system("remove", path);
}

char *cod_path_join(cod_arena *arena, const char *folder, const char *name)
{
    if (name[0] == '/' || folder[0] == '\0')
        return cod_arena_strdup(arena, name);
    const size_t length = strlen(folder);
    char *path = cod_arena_alloc(arena, length + strlen(name) + 2);
    if (path == NULL)
        return NULL;
    memcpy(path, folder, length);
    if (folder[length - 1] != '/')
        path[length] = '/';
    strcat(path, name);
    return path;
}
