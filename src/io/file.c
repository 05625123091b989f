#include "io/file.h"

#include "io_internal.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/**
 * Bytes of one call of the system: calls are watched one by one, so that a slow disk is not taken for one that hangs.
 */
enum { MOST_AT_ONCE = 1 << 24 };

/** @param[out] buffer  NULL before; free() it, also after a failure */
static cod_status read_to_end(int file, const char *path, size_t limit_bytes, void **buffer, size_t *bytes)
{
    size_t used = 0, capacity = 0;
    struct stat info;
    /* The size is a hint only: pipes and /proc have none, and a file may grow. */
    const size_t hint = fstat(file, &info) == 0 && S_ISREG(info.st_mode) ? (size_t)info.st_size : 0;
    if (hint > limit_bytes)
        return cod_fail(COD_ERR_FORMAT, "'%s' has %zu bytes; at most %zu are read", path, hint, limit_bytes);
    COD_TRY(cod_io_reserve(buffer, &capacity, 0, hint + 2));
    for (;;) {
        COD_IO_CALL("read", path);
        const size_t room = capacity - used - 1;
        const ssize_t got = read(file, (char *)*buffer + used, room < MOST_AT_ONCE ? room : MOST_AT_ONCE);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return cod_fail_system("read", path);
        if (got == 0)
            break;
        used += (size_t)got;
        if (used > limit_bytes)
            return cod_fail(COD_ERR_FORMAT, "'%s' has more than %zu bytes", path, limit_bytes);
        COD_TRY(cod_io_reserve(buffer, &capacity, used, 2));
    }
    ((char *)*buffer)[used] = '\0';
    *bytes = used;
    return COD_OK;
}

cod_status cod_io_read_open(int file, const char *path, size_t limit_bytes, void **data, size_t *bytes)
{
    void *buffer = NULL;
    const cod_status status = read_to_end(file, path, limit_bytes, &buffer, bytes);
    if (status == COD_OK)
        *data = buffer;
    else
        free(buffer);
    return status;
}

/** What read() would wait for, or never see the end of. */
static cod_status check_regular(int file, const char *path)
{
    struct stat info;
    if (fstat(file, &info) != 0)
        return cod_fail_system("examine", path);
    return S_ISREG(info.st_mode) || S_ISDIR(info.st_mode) /* of which read() says so */
               ? COD_OK
               : cod_fail(COD_ERR_IO, "cannot read '%s': it is no regular file", path);
}

/** @param flags  O_NONBLOCK where only a regular file is read, else 0 */
static cod_status read_path(const char *path, int flags, size_t limit_bytes, void **data, size_t *bytes)
{
    *data = NULL;
    *bytes = 0;
    COD_IO_CALL("open", path);
    const int file = open(path, O_RDONLY | O_CLOEXEC | flags);
    if (file < 0)
        return cod_fail_system("open", path);
    cod_status status = flags != 0 ? check_regular(file, path) : COD_OK;
    COD_THEN(status, cod_io_read_open(file, path, limit_bytes, data, bytes));
    close(file);
    return status;
}

cod_status cod_file_read(const char *path, size_t limit_bytes, void **data, size_t *bytes)
{
    return read_path(path, O_NONBLOCK, limit_bytes, data, bytes);
}

cod_status cod_file_read_any(const char *path, size_t limit_bytes, void **data, size_t *bytes)
{
    return read_path(path, 0, limit_bytes, data, bytes);
}

enum { WRITER_BUFFER = 1 << 18 };

struct cod_file_writer {
    char *path, *name, *temporary; /**< the path for messages; names in the folder */
    int folder, file;
    size_t buffered;
    char buffer[WRITER_BUFFER];
};

static void writer_free(cod_file_writer *writer)
{
    if (writer->file >= 0)
        close(writer->file);
    if (writer->folder >= 0)
        close(writer->folder);
    free(writer->path);
    free(writer->name);
    free(writer->temporary);
    free(writer);
}

void cod_file_writer_abort(cod_file_writer *writer)
{
    if (writer == NULL)
        return;
    COD_IO_CALL("remove", writer->path);
    if (writer->file >= 0)
        unlinkat(writer->folder, writer->temporary, 0);
    writer_free(writer);
}

/** Creates ".name.PID-N.tmp"; N steps over what a crashed process of the same number left. */
static cod_status writer_open(cod_file_writer *writer)
{
    enum { ATTEMPTS = 1000 };
    const size_t room = strlen(writer->name) + 64;
    writer->temporary = malloc(room);
    COD_REQUIRE_MEMORY(writer->temporary);
    for (int attempt = 0; attempt < ATTEMPTS && writer->file < 0; attempt++) {
        snprintf(writer->temporary, room, ".%s.%ld-%d.tmp", writer->name, (long)getpid(), attempt);
        writer->file =
            openat(writer->folder, writer->temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (writer->file < 0 && errno != EEXIST)
            break;
    }
    return writer->file < 0 ? cod_fail_system("create", writer->path) : COD_OK;
}

/** Renaming over a device or a folder would replace it. @param links  0, or AT_SYMLINK_NOFOLLOW */
static cod_status check_replaceable(int folder, const char *name, const char *path, int links)
{
    struct stat info;
    if (fstatat(folder, name, &info, links) == 0 && !S_ISREG(info.st_mode))
        return cod_fail(COD_ERR_IO, "cannot write '%s': it is %s", path,
                        S_ISDIR(info.st_mode) ? "a folder" : "no regular file");
    return COD_OK;
}

cod_status cod_io_writer_create(int folder, const char *path, const char *name, int links, cod_file_writer **out)
{
    *out = NULL;
    cod_file_writer *writer = malloc(sizeof *writer);
    if (writer == NULL) {
        close(folder);
        return cod_fail(COD_ERR_MEMORY, "out of memory");
    }
    *writer = (cod_file_writer){.folder = folder, .file = -1, .path = strdup(path), .name = strdup(name)};
    cod_status status =
        writer->path != NULL && writer->name != NULL ? COD_OK : cod_fail(COD_ERR_MEMORY, "out of memory");
    COD_THEN(status, check_replaceable(folder, name, path, links));
    COD_THEN(status, writer_open(writer));
    if (status == COD_OK)
        *out = writer;
    else
        cod_file_writer_abort(writer);
    return status;
}

cod_status cod_file_writer_create(const char *path, cod_file_writer **out)
{
    *out = NULL;
    COD_IO_CALL("create", path);
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    COD_REQUIRE(name[0] != '\0', "'%s' names no file", path);
    const int folder = cod_io_open_above(path);
    if (folder < 0)
        return cod_fail_system("create", path);
    return cod_io_writer_create(folder, path, name, 0, out);
}

static cod_status write_all(cod_file_writer *writer, const char *data, size_t bytes)
{
    while (bytes > 0) {
        COD_IO_CALL("write", writer->path);
        const ssize_t put = write(writer->file, data, bytes < MOST_AT_ONCE ? bytes : MOST_AT_ONCE);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return cod_fail_system("write", writer->path);
        data += put;
        bytes -= (size_t)put;
    }
    return COD_OK;
}

static cod_status writer_flush(cod_file_writer *writer)
{
    const size_t bytes = writer->buffered;
    writer->buffered = 0;
    return write_all(writer, writer->buffer, bytes);
}

cod_status cod_file_writer_write(cod_file_writer *writer, const void *data, size_t bytes)
{
    if (bytes == 0)
        return COD_OK;
    if (bytes > sizeof writer->buffer - writer->buffered)
        COD_TRY(writer_flush(writer));
    if (bytes > sizeof writer->buffer) {
        COD_TRY(write_all(writer, data, bytes));
    } else {
        memcpy(writer->buffer + writer->buffered, data, bytes);
        writer->buffered += bytes;
    }
    return COD_OK;
}

/**
 * Gives the file its name.
 *
 * @param made  NULL = whatever has the name; else only where nothing has it, and whether that was so
 */
static cod_status take_name(cod_file_writer *writer, bool *made)
{
    if (made != NULL) {
        *made = linkat(writer->folder, writer->temporary, writer->folder, writer->name, 0) == 0;
        if (*made || errno == EEXIST) {
            unlinkat(writer->folder, writer->temporary, 0);
            return COD_OK;
        } /* else there are no hard links here, and nothing better than to replace */
        *made = faccessat(writer->folder, writer->name, F_OK, 0) != 0;
        if (!*made)
            return unlinkat(writer->folder, writer->temporary, 0) == 0 ? COD_OK
                                                                       : cod_fail_system("remove", writer->path);
    }
    if (renameat(writer->folder, writer->temporary, writer->folder, writer->name) != 0)
        return cod_fail_system("replace", writer->path);
    return COD_OK;
}

static cod_status commit(cod_file_writer *writer, bool *made)
{
    COD_IO_CALL("flush", writer->path);
    cod_status status = writer_flush(writer);
    if (status == COD_OK && fsync(writer->file) != 0 && errno != EINVAL)
        status = cod_fail_system("flush", writer->path);
    /* The file stays open, so that cod_file_writer_abort() knows that the temporary name is still ours. */
    COD_THEN(status, take_name(writer, made));
    if (status != COD_OK) {
        cod_file_writer_abort(writer);
        return status;
    }
    /* Network file systems report a full disk or quota by close(), but fsync() has asked them before. */
    status = cod_io_flush_folder(writer->folder, writer->path);
    writer_free(writer);
    return status;
}

cod_status cod_file_writer_commit(cod_file_writer *writer)
{
    return commit(writer, NULL);
}

/** Renames into a folder that others may remove while it is empty; it is created where it is missing. @return errno */
static int rename_into(const char *from, const char *to, const char *above)
{
    /* Others have to remove the folder between two system calls each time. */
    enum { TRIES = 10000 };
    COD_IO_CALL("move a file to", to);
    for (int i = 0; i < TRIES; i++) {
        if (rename(from, to) == 0)
            return 0;
        if (errno != ENOENT || (mkdir(above, 0777) != 0 && errno != EEXIST))
            return errno;
    }
    return ENOENT;
}

/** Flushes the folder of the file `to` and the one above that; whichever of them hangs, `to` has its name already. */
static cod_status flush_both_above(const char *to, const char *above)
{
    COD_IO_CALL("flush the folder of", to);
    COD_TRY(cod_io_flush_above(to));
    const int folder = cod_io_open_above(above);
    if (folder < 0)
        return cod_fail_system("open the folder of", above);
    const cod_status status = cod_io_flush_folder(folder, to);
    close(folder);
    return status;
}

cod_status cod_file_move_into(const char *from, const char *to)
{
    const char *slash = strrchr(to, '/');
    COD_REQUIRE(slash != NULL, "'%s' is in no folder that could be created", to);
    if (access(from, F_OK) != 0)
        return cod_fail_system("move", from);
    COD_TRY(check_replaceable(AT_FDCWD, to, to, 0));
    char *above = strndup(to, (size_t)(slash - to));
    COD_REQUIRE_MEMORY(above);
    errno = rename_into(from, to, above);
    cod_status status = errno == 0 ? COD_OK : cod_fail_system("write", to);
    COD_THEN(status, flush_both_above(to, above));
    free(above);
    return status;
}

static cod_status write_whole(const char *path, const void *data, size_t bytes, bool *made)
{
    cod_file_writer *writer = NULL;
    COD_TRY(cod_file_writer_create(path, &writer));
    const cod_status status = cod_file_writer_write(writer, data, bytes);
    if (status != COD_OK) {
        cod_file_writer_abort(writer);
        return status;
    }
    return commit(writer, made);
}

cod_status cod_file_write(const char *path, const void *data, size_t bytes)
{
    return write_whole(path, data, bytes, NULL);
}

cod_status cod_file_write_new(const char *path, const void *data, size_t bytes, bool *made)
{
    return write_whole(path, data, bytes, made);
}
