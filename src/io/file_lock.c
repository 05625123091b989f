#include "io/file.h"

#include "io_internal.h"

#include "core/log.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

struct cod_file_lock {
    int file;
};

/** The lock is held elsewhere: says by whom, as the holder wrote it into the file. */
static cod_status report_holder(int file, const char *path)
{
    char holder[256];
    const ssize_t got = pread(file, holder, sizeof holder - 1, 0);
    holder[got > 0 ? got : 0] = '\0';
    holder[strcspn(holder, "\n")] = '\0';
    return cod_fail(COD_ERR_IO, "'%s' is in use by %s", path, holder[0] != '\0' ? holder : "another process");
}

static cod_status claim(int file, const char *path, bool shared)
{
    if (flock(file, (shared ? LOCK_SH : LOCK_EX) | LOCK_NB) != 0) {
        if (errno == EWOULDBLOCK)
            return report_holder(file, path);
        if (errno != ENOLCK && errno != ENOSYS && errno != ENOTSUP)
            return cod_fail_system("lock", path);
        cod_log_warn("'%s': this file system has no locks; nothing stops a second run here", path);
    }
    char host[128] = "", holder[256];
    gethostname(host, sizeof host - 1);
    const int length = snprintf(holder, sizeof holder, "process %ld on %s%s\n", (long)getpid(), host,
                                shared ? ", which shares it, or another that does" : "");
    if (ftruncate(file, 0) != 0 || pwrite(file, holder, (size_t)length, 0) != length)
        return cod_fail_system("write", path);
    return COD_OK;
}

static cod_status acquire(const char *path, bool shared, cod_file_lock **lock)
{
    *lock = NULL;
    COD_IO_CALL("lock", path);
    const int file = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
    if (file < 0)
        return cod_fail_system("open", path);
    cod_status status = claim(file, path, shared);
    cod_file_lock *taken = status == COD_OK ? malloc(sizeof *taken) : NULL;
    if (status == COD_OK && taken == NULL)
        status = cod_fail(COD_ERR_MEMORY, "out of memory");
    if (status != COD_OK) {
        close(file);
        return status;
    }
    taken->file = file;
    *lock = taken;
    return COD_OK;
}

cod_status cod_file_lock_acquire(const char *path, cod_file_lock **lock)
{
    return acquire(path, false, lock);
}

cod_status cod_file_lock_share(const char *path, cod_file_lock **lock)
{
    return acquire(path, true, lock);
}

void cod_file_lock_release(cod_file_lock *lock)
{
    if (lock == NULL)
        return;
    close(lock->file);
    free(lock);
}
