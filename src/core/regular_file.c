#include "core/regular_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

int cod_regular_open(const char *path, int flags)
{
    struct stat info;
    const int file = open(path, flags | O_CLOEXEC | O_NONBLOCK, 0666);
    if (file < 0) {
        if (errno == ENXIO) /* a pipe that nobody reads */
            errno = EINVAL;
        return -1;
    }
    if (fstat(file, &info) == 0 && S_ISREG(info.st_mode))
        return file;
    close(file);
    errno = EINVAL;
    return -1;
}

FILE *cod_regular_stream(const char *path)
{
    const int descriptor = cod_regular_open(path, O_RDONLY);
    FILE *file = descriptor >= 0 ? fdopen(descriptor, "r") : NULL;
    if (file == NULL && descriptor >= 0)
        close(descriptor);
    return file;
}

ssize_t cod_regular_read(int file, void *out, size_t bytes, off_t at)
{
    size_t used = 0;
    while (used < bytes) {
        const ssize_t got = pread(file, (char *)out + used, bytes - used, at + (off_t)used);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -1;
        if (got == 0)
            break;
        used += (size_t)got;
    }
    return (ssize_t)used;
}

bool cod_regular_write(int file, const void *data, size_t bytes, off_t at)
{
    for (const char *from = data; bytes > 0;) {
        const ssize_t put = pwrite(file, from, bytes, at);
        if (put == 0)
            errno = ENOSPC;
        if (put == 0 || (put < 0 && errno != EINTR))
            return false;
        if (put < 0)
            continue;
        from += put;
        at += put;
        bytes -= (size_t)put;
    }
    return true;
}
