/*
 * Preloaded into a run: storage that hangs, or is slow. It is what lies below $COD_HANG_FOLDER, an absolute path. While
 * the file $COD_HANG_WHILE is there, nothing below is opened, read, flushed or appended to (by writev), and the file
 * $COD_HANG_WHILE.held says that somebody waits; a read takes $COD_HANG_READ_MS longer than else, a flush
 * $COD_HANG_SYNC_MS.
 */
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { PATH_BYTES = 4096 };

static bool lies_below(const char *path)
{
    const char *folder = getenv("COD_HANG_FOLDER");
    const size_t length = folder != NULL ? strlen(folder) : 0;
    return length > 0 && strncmp(path, folder, length) == 0 && (path[length] == '\0' || path[length] == '/');
}

/** The path of an open file or folder; "" where that is not known. */
static void path_of(int file, char path[PATH_BYTES])
{
    char link[64];
    if (file == AT_FDCWD)
        snprintf(link, sizeof link, "/proc/self/cwd");
    else
        snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    const ssize_t length = readlink(link, path, PATH_BYTES - 1);
    path[length > 0 ? length : 0] = '\0';
}

static void tell_held(const char *file)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s.held", file);
    const long made = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT, 0666);
    if (made >= 0)
        close((int)made);
}

static void hold_up(const char *path, const char *milliseconds)
{
    const char *file = getenv("COD_HANG_WHILE"), *more = milliseconds != NULL ? getenv(milliseconds) : NULL;
    if (!lies_below(path))
        return;
    while (file != NULL && access(file, F_OK) == 0) {
        tell_held(file);
        usleep(1000);
    }
    if (more != NULL)
        usleep((useconds_t)(1000 * atoi(more)));
}

static void hold_up_open(int folder, const char *name)
{
    char path[2 * PATH_BYTES] = "";
    if (name[0] != '/') {
        path_of(folder, path);
        strcat(path, "/");
    }
    strncat(path, name, PATH_BYTES - 1);
    hold_up(path, NULL);
}

int openat(int folder, const char *name, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(more, mode_t) : 0;
    va_end(more);
    hold_up_open(folder, name);
    return (int)syscall(SYS_openat, folder, name, flags, mode);
}

int open(const char *name, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(more, mode_t) : 0;
    va_end(more);
    hold_up_open(AT_FDCWD, name);
    return (int)syscall(SYS_openat, AT_FDCWD, name, flags, mode);
}

ssize_t pread(int file, void *data, size_t bytes, off_t offset)
{
    char path[PATH_BYTES];
    path_of(file, path);
    hold_up(path, "COD_HANG_READ_MS");
    return syscall(SYS_pread64, file, data, bytes, offset);
}

ssize_t writev(int file, const struct iovec *parts, int count)
{
    char path[PATH_BYTES];
    path_of(file, path);
    hold_up(path, NULL);
    return syscall(SYS_writev, file, parts, count);
}

int fsync(int file)
{
    char path[PATH_BYTES];
    path_of(file, path);
    hold_up(path, "COD_HANG_SYNC_MS");
    return (int)syscall(SYS_fsync, file);
}
