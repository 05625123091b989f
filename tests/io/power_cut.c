#include "power_cut.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MOST = 32 };

static _Thread_local char unsafe[MOST][PATH_MAX]; /* the folder that is to be flushed for each */
static _Thread_local int made, unsafe_count, early;

void cod_test_power_begin(void)
{
    made = unsafe_count = early = 0;
}

int cod_test_power_made(void)
{
    return made;
}

int cod_test_power_unsafe(void)
{
    return unsafe_count;
}

int cod_test_power_early(void)
{
    return early;
}

/** Path of an open folder, without links. */
static void path_of(int folder, char path[PATH_MAX])
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
    const ssize_t length = readlink(link, path, PATH_MAX - 1);
    path[length > 0 ? length : 0] = '\0';
}

int mkdirat(int above, const char *name, mode_t mode)
{
    const int result = (int)syscall(SYS_mkdirat, above, name, mode);
    const int folder = result == 0 && unsafe_count < MOST ? openat(above, name, O_PATH) : -1;
    if (folder >= 0) {
        char *path = unsafe[unsafe_count++];
        path_of(folder, path);
        *strrchr(path, '/') = '\0';
        close(folder);
        made++;
    }
    return result;
}

int mkdir(const char *path, mode_t mode)
{
    return mkdirat(AT_FDCWD, path, mode);
}

int fsync(int file)
{
    char path[PATH_MAX];
    const int result = (int)syscall(SYS_fsync, file);
    path_of(file, path);
    for (int i = unsafe_count; result == 0 && i-- > 0;)
        if (strcmp(unsafe[i], path) == 0 && i < --unsafe_count)
            memcpy(unsafe[i], unsafe[unsafe_count], sizeof unsafe[i]);
    return result;
}

int unlink(const char *path)
{
    early += unsafe_count > 0;
    return (int)syscall(SYS_unlink, path);
}
