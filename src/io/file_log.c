#include "io/file.h"

#include "core/log.h"
#include "core/regular_file.h"
#include "io_internal.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

struct cod_file_log {
    int file;
    char *path;
};

/** Cuts off what follows the last newline of a regular file. */
static cod_status cut_torn_line(const cod_file_log *log)
{
    struct stat info;
    if (fstat(log->file, &info) != 0)
        return cod_fail_system("examine", log->path);
    if (!S_ISREG(info.st_mode))
        return COD_OK;
    off_t end = info.st_size;
    while (end > 0) {
        char chunk[4096];
        const off_t start = end > (off_t)sizeof chunk ? end - (off_t)sizeof chunk : 0;
        const ssize_t got = cod_regular_read(log->file, chunk, (size_t)(end - start), start);
        if (got != end - start)
            return cod_fail_system("read", log->path);
        const char *newline = memrchr(chunk, '\n', (size_t)got);
        if (newline != NULL) {
            end = start + (newline - chunk) + 1;
            break;
        }
        end = start;
    }
    if (end != info.st_size && ftruncate(log->file, end) != 0)
        return cod_fail_system("repair", log->path);
    return COD_OK;
}

cod_status cod_file_log_open(const char *path, cod_file_log **out)
{
    *out = NULL;
    COD_IO_CALL("open", path);
    cod_file_log *log = malloc(sizeof *log);
    COD_REQUIRE_MEMORY(log);
    *log = (cod_file_log){.file = -1, .path = strdup(path)};
    cod_status status = log->path != NULL ? COD_OK : cod_fail(COD_ERR_MEMORY, "out of memory");
    COD_THEN(status, cod_io_open_own(path, O_RDWR | O_APPEND, &log->file));
    COD_THEN(status, cut_torn_line(log));
    if (status != COD_OK) {
        cod_file_log_close(log);
        return status;
    }
    *out = log;
    return COD_OK;
}

cod_status cod_file_log_line(cod_file_log *log, const char *line)
{
    COD_IO_CALL("append to", log->path);
    struct stat before;
    if (fstat(log->file, &before) != 0)
        return cod_fail_system("examine", log->path);
    const size_t length = strlen(line);
    size_t put = 0;
    ssize_t more = 0;
    do { /* a disk or a limit that is reached says so when the rest is written */
        const size_t of_line = put < length ? put : length;
        struct iovec parts[2] = {{.iov_base = (char *)(uintptr_t)line + of_line, .iov_len = length - of_line},
                                 {.iov_base = "\n", .iov_len = 1}};
        more = writev(log->file, parts, 2);
        put += more > 0 ? (size_t)more : 0;
    } while (put <= length && (more > 0 || (more < 0 && errno == EINTR)));
    if (put > length)
        return COD_OK;
    if (more == 0)
        errno = ENOSPC;
    const int reason = errno;
    /* Take back what was written, so that every line stays whole. */
    const bool cut = put == 0 || !S_ISREG(before.st_mode) || ftruncate(log->file, before.st_size) == 0;
    if (!cut)
        cod_log_warn("'%s' now ends in half a line", log->path);
    errno = reason;
    return cod_fail_system("append to", log->path);
}

void cod_file_log_close(cod_file_log *log)
{
    if (log == NULL)
        return;
    COD_IO_CALL("close", log->path != NULL ? log->path : "");
    if (log->file >= 0)
        close(log->file);
    free(log->path);
    free(log);
}
