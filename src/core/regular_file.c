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
