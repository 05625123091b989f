#include "io/file.h"

#include "io_internal.h"

#include "core/log.h"
#include "core/regular_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

struct cod_file_lock {
    int file;
    char *path;
};

/** The lock is held elsewhere: says by whom, as the holder wrote it into the file. */
static cod_status report_holder(int file, const char *path, const char *way_out)
{
    char holder[256];
    const ssize_t got = cod_regular_read(file, holder, sizeof holder - 1, 0);
    holder[got > 0 ? got : 0] = '\0';
    holder[strcspn(holder, "\n")] = '\0';
    return cod_fail(COD_ERR_IO, "'%s' is in use by %s; %s", path, holder[0] != '\0' ? holder : "another process",
                    way_out);
}

static cod_status claim(int file, const char *path, const char *way_out, bool shared)
{
    if (flock(file, (shared ? LOCK_SH : LOCK_EX) | LOCK_NB) != 0) {
        if (errno == EWOULDBLOCK)
            return report_holder(file, path, way_out);
        if (errno != ENOLCK && errno != ENOSYS && errno != ENOTSUP)
            return cod_fail_system("lock", path);
        cod_log_warn("'%s': this file system has no locks; nothing stops a second run here", path);
    }
    char host[128] = "", holder[256];
    gethostname(host, sizeof host - 1);
    const int length = snprintf(holder, sizeof holder, "process %ld on %s%s\n", (long)getpid(), host,
                                shared ? ", which shares it, or another that does" : "");
    if (ftruncate(file, 0) != 0 || !cod_regular_write(file, holder, (size_t)length, 0))
        return cod_fail_system("write", path);
    return COD_OK;
}

/** What a lock does with its file, which is open. */
typedef cod_status begin_lock(int file, const char *path, const char *way_out);

static cod_status claim_alone(int file, const char *path, const char *way_out)
{
    return claim(file, path, way_out, false);
}

static cod_status claim_shared(int file, const char *path, const char *way_out)
{
    return claim(file, path, way_out, true);
}

static cod_status leave_alone(int file, const char *path, const char *way_out)
{
    (void)file;
    (void)path;
    (void)way_out;
    return COD_OK;
}

static cod_status begin(const char *path, int flags, const char *way_out, begin_lock *work, cod_file_lock **lock)
{
    *lock = NULL;
    COD_IO_CALL("lock", path);
    const int file = open(path, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
    if (file < 0 && errno == ELOOP)
        return cod_fail(COD_ERR_IO, "cannot lock '%s': it is a link, and none is followed here", path);
    if (file < 0)
        return cod_fail_system("open", path);
    cod_file_lock *taken = calloc(1, sizeof *taken);
    char *copy = strdup(path);
    struct stat info;
    cod_status status = taken != NULL && copy != NULL ? COD_OK : cod_fail(COD_ERR_MEMORY, "out of memory");
    if (status == COD_OK && fstat(file, &info) != 0)
        status = cod_fail_system("examine", path);
    if (status == COD_OK && !S_ISREG(info.st_mode))
        status = cod_fail(COD_ERR_IO, "cannot lock '%s': it is no regular file", path);
    COD_THEN(status, cod_io_check_names(path, &info));
    COD_THEN(status, work(file, path, way_out));
    if (status != COD_OK) {
        close(file);
        free(taken);
        free(copy);
        return status;
    }
    *taken = (cod_file_lock){.file = file, .path = copy};
    *lock = taken;
    return COD_OK;
}

cod_status cod_file_lock_acquire(const char *path, const char *way_out, cod_file_lock **lock)
{
    return begin(path, O_RDWR | O_CREAT, way_out, claim_alone, lock);
}

cod_status cod_file_lock_share(const char *path, const char *way_out, cod_file_lock **lock)
{
    return begin(path, O_RDWR | O_CREAT, way_out, claim_shared, lock);
}

cod_status cod_file_lock_observe(const char *path, cod_file_lock **lock)
{
    return begin(path, O_RDONLY, "", leave_alone, lock);
}

cod_status cod_file_lock_check(const cod_file_lock *lock)
{
    struct stat ours, there;
    if (lock == NULL)
        return COD_OK;
    COD_IO_CALL("look at", lock->path);
    /* The file is open, so no other one gets its number. */
    const bool gone = stat(lock->path, &there) != 0;
    if (gone && errno != ENOENT && errno != ENOTDIR)
        return cod_fail_system("look at", lock->path);
    if (!gone && fstat(lock->file, &ours) == 0 && ours.st_ino == there.st_ino && ours.st_dev == there.st_dev)
        return COD_OK;
    return cod_fail(COD_ERR_IO, "'%s' was %s while this job ran, so its folder may be another job's by now", lock->path,
                    gone ? "removed" : "replaced");
}

void cod_file_lock_release(cod_file_lock *lock)
{
    if (lock == NULL)
        return;
    close(lock->file);
    free(lock->path);
    free(lock);
}
