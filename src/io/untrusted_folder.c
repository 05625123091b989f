#include "io/untrusted_folder.h"

#include "core/folder_entry.h"
#include "io_internal.h"

#include "io/file.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

struct cod_untrusted_folder {
    int folder;
    char path[]; /**< for messages */
};

enum { PATH_BYTES = 4096, ONLY_OURS = 0700 };

/** Makes a folder in an open one, unless it is there, to last through a power cut. @return -1 with errno set */
static int make_below(int above, const char *name)
{
    if (mkdirat(above, name, ONLY_OURS) != 0)
        return errno == EEXIST ? 0 : -1;
    return (above == AT_FDCWD ? cod_io_flush_above(name) : cod_io_flush_folder(above, name)) == COD_OK ? 0 : -1;
}

/** Opens one folder of an open one; takes `above` (AT_FDCWD stays). @return -1 with errno set */
static int open_below(int above, const char *name, int flags, cod_untrusted_absence absence)
{
    int folder = absence == COD_UNTRUSTED_CREATE ? make_below(above, name) : 0;
    if (folder == 0)
        folder = openat(above, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | flags);
    const int reason = errno;
    if (above != AT_FDCWD)
        close(above);
    errno = reason;
    return folder;
}

cod_status cod_untrusted_folder_open(const char *root, const char *below, cod_untrusted_absence absence,
                                     cod_untrusted_folder **out)
{
    char path[PATH_BYTES];
    *out = NULL;
    COD_REQUIRE((size_t)snprintf(path, sizeof path, "%s/%s", root, below) < sizeof path, "'%s/%s' is too long", root,
                below);
    if (absence == COD_UNTRUSTED_CREATE)
        COD_TRY(cod_folder_create_above(root)); /* as the user's other folders are made */
    int folder = open_below(AT_FDCWD, root, 0, absence);
    for (char *name = path + strlen(root) + 1, *slash; folder >= 0 && *name != '\0'; name = slash) {
        slash = name + strcspn(name, "/");
        const char after = *slash;
        *slash = '\0';
        folder = open_below(folder, name, O_NOFOLLOW, absence);
        *slash = after;
        slash += after != '\0';
    }
    if (folder < 0 && errno == ENOENT && absence == COD_UNTRUSTED_NONE)
        return COD_OK;
    if (folder < 0)
        return cod_fail_system("open folder", path);
    cod_untrusted_folder *made = malloc(sizeof *made + strlen(path) + 1);
    if (made == NULL) {
        close(folder);
        return cod_fail(COD_ERR_MEMORY, "out of memory");
    }
    made->folder = folder;
    strcpy(made->path, path);
    *out = made;
    return COD_OK;
}

void cod_untrusted_folder_close(cod_untrusted_folder *folder)
{
    if (folder == NULL)
        return;
    close(folder->folder);
    free(folder);
}

cod_status cod_untrusted_file_open(const cod_untrusted_folder *folder, const char *name, int *file, size_t *bytes)
{
    struct stat info;
    *bytes = 0;
    /* Without O_NONBLOCK a FIFO would be waited for. */
    *file = openat(folder->folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (*file < 0 && (errno == ENOENT || errno == ESTALE))
        return COD_OK;
    if (*file < 0 && (errno == ELOOP || errno == ENXIO))
        return cod_fail(COD_ERR_FORMAT, "'%s/%s' is a link or no regular file, and is not read", folder->path, name);
    if (*file < 0)
        return cod_fail(COD_ERR_IO, "cannot open '%s/%s': %s", folder->path, name, strerror(errno));
    if (fstat(*file, &info) == 0 && S_ISREG(info.st_mode)) {
        *bytes = (size_t)info.st_size;
        return COD_OK;
    }
    close(*file);
    *file = -1;
    return cod_fail(COD_ERR_FORMAT, "'%s/%s' is a link or no regular file, and is not read", folder->path, name);
}

cod_status cod_untrusted_file_read(const cod_untrusted_folder *folder, const char *name, size_t limit_bytes,
                                   void **data, size_t *bytes)
{
    char path[PATH_BYTES];
    int file;
    *data = NULL;
    COD_TRY(cod_untrusted_file_open(folder, name, &file, bytes));
    if (file < 0)
        return COD_OK;
    snprintf(path, sizeof path, "%s/%s", folder->path, name);
    *bytes = 0;
    const cod_status status = cod_io_read_open(file, path, limit_bytes, data, bytes);
    close(file);
    return status;
}

cod_status cod_untrusted_file_write(const cod_untrusted_folder *folder, const char *name, const void *data,
                                    size_t bytes, const void *more, size_t more_bytes)
{
    char path[PATH_BYTES];
    cod_file_writer *writer = NULL;
    snprintf(path, sizeof path, "%s/%s", folder->path, name);
    const int own = fcntl(folder->folder, F_DUPFD_CLOEXEC, 0);
    if (own < 0)
        return cod_fail_system("write", path);
    COD_TRY(cod_io_writer_create(own, path, name, AT_SYMLINK_NOFOLLOW, &writer));
    cod_status status = cod_file_writer_write(writer, data, bytes);
    COD_THEN(status, cod_file_writer_write(writer, more, more_bytes));
    if (status == COD_OK)
        return cod_file_writer_commit(writer);
    cod_file_writer_abort(writer);
    return status;
}

cod_status cod_untrusted_file_remove(const cod_untrusted_folder *folder, const char *name)
{
    if (unlinkat(folder->folder, name, 0) == 0 || errno == ENOENT)
        return COD_OK;
    return cod_fail(COD_ERR_IO, "cannot remove '%s/%s': %s", folder->path, name, strerror(errno));
}

bool cod_untrusted_file_has(const cod_untrusted_folder *folder, const char *name, uint64_t bytes)
{
    struct stat info;
    return fstatat(folder->folder, name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(info.st_mode) &&
           (uint64_t)info.st_size == bytes;
}

cod_status cod_untrusted_folder_visit(const cod_untrusted_folder *folder, cod_untrusted_visit visit, void *context,
                                      bool *more)
{
    const int own = openat(folder->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *entries = own >= 0 ? fdopendir(own) : NULL;
    cod_status status = COD_OK;
    *more = false;
    if (entries == NULL) {
        status = cod_fail_system("list folder", folder->path);
        if (own >= 0)
            close(own);
        return status;
    }
    const struct dirent *entry = NULL;
    int visited = 0;
    do {
        if (!cod_folder_next(entries, &entry))
            status = cod_fail_system("list folder", folder->path);
        else if (entry != NULL && visited++ == COD_UNTRUSTED_ENTRIES_MOST)
            *more = true;
        else if (entry != NULL)
            status = visit(context, folder, entry->d_name);
    } while (status == COD_OK && !*more && entry != NULL);
    closedir(entries);
    return status;
}
