#include "data/shared_file_internal.h"

#include "core/folder_entry.h"
#include "core/regular_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define FOLDER "/dev/shm"

static const char magic[8] = "CODPIX1";

/** Before the user's bytes; written when all of them are there. */
typedef struct file_header {
    char magic[8];
    uint64_t bytes; /**< of the whole file */
    char padding[48];
} file_header;

/** flock() that a signal does not end; false when another process holds the lock. */
static bool lock(int file, int operation)
{
    int result;
    do
        result = flock(file, operation);
    while (result != 0 && errno == EINTR);
    return result == 0;
}

/** Whether the path still leads to the open file. */
static bool in_place(const cod_shared_file *shared)
{
    struct stat ours, theirs;
    return fstat(shared->file, &ours) == 0 && lstat(shared->path, &theirs) == 0 && ours.st_dev == theirs.st_dev &&
           ours.st_ino == theirs.st_ino;
}

/** Removes our files that no process uses, other than `keep`; their processes were killed. */
static void sweep(const char *prefix, const char *keep)
{
    DIR *folder = opendir(FOLDER);
    const struct dirent *entry;
    while (folder != NULL && cod_folder_next(folder, &entry) && entry != NULL) {
        if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0 || strcmp(entry->d_name, keep) == 0)
            continue;
        cod_shared_file stale = {.file = -1};
        const int length = snprintf(stale.path, sizeof stale.path, FOLDER "/%s", entry->d_name);
        if (length < (int)sizeof stale.path)
            stale.file = open(stale.path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        if (stale.file < 0)
            continue;
        if (lock(stale.file, LOCK_EX | LOCK_NB) && in_place(&stale))
            unlink(stale.path);
        close(stale.file);
    }
    if (folder != NULL)
        closedir(folder);
}

static cod_status map(cod_shared_file *shared, size_t whole, int protection)
{
    void *mapping = mmap(NULL, whole, protection, MAP_SHARED, shared->file, 0);
    if (mapping == MAP_FAILED)
        return cod_fail(COD_ERR_IO, "%s: cannot map %zu bytes: %s", shared->path, whole, strerror(errno));
    shared->base = (unsigned char *)mapping + sizeof(file_header);
    shared->bytes = whole - sizeof(file_header);
    return COD_OK;
}

/** Size of the file when it is complete, else 0. */
static size_t complete_bytes(int file)
{
    file_header header;
    struct stat info;
    if (fstat(file, &info) != 0 || cod_regular_read(file, &header, sizeof header, 0) != sizeof header ||
        memcmp(header.magic, magic, sizeof magic) != 0 || header.bytes != (uint64_t)info.st_size)
        return 0;
    return (size_t)header.bytes;
}

/** One attempt; *settled is false when another process came in between. */
static cod_status attempt(cod_shared_file *shared, bool *settled)
{
    shared->file = open(shared->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (shared->file < 0)
        return cod_fail(COD_ERR_IO, "%s: %s", shared->path, strerror(errno));
    struct stat info;
    if (fstat(shared->file, &info) != 0 || !S_ISREG(info.st_mode) || info.st_uid != geteuid())
        return cod_fail(COD_ERR_IO, "%s: belongs to somebody else", shared->path);
    /* Never wait for an exclusive lock: users hold theirs as long as they run. */
    const bool alone = lock(shared->file, LOCK_EX | LOCK_NB);
    if (!alone && !lock(shared->file, LOCK_SH))
        return cod_fail(COD_ERR_IO, "%s: cannot lock: %s", shared->path, strerror(errno));
    const size_t bytes = complete_bytes(shared->file);
    if (bytes != 0 && alone && !lock(shared->file, LOCK_SH))
        return cod_fail(COD_ERR_IO, "%s: cannot lock: %s", shared->path, strerror(errno));
    *settled = in_place(shared) && (bytes != 0 || alone);
    return *settled && bytes != 0 ? map(shared, bytes, PROT_READ) : COD_OK;
}

cod_status cod_shared_file_open(cod_shared_file *shared, uint64_t key)
{
    enum { ATTEMPTS = 1000, PAUSE_NS = 1000000 };
    *shared = (cod_shared_file){.file = -1};
    char prefix[40], name[64];
    snprintf(prefix, sizeof prefix, "codistill-%lu-", (unsigned long)geteuid());
    snprintf(name, sizeof name, "%s%016llx", prefix, (unsigned long long)key);
    snprintf(shared->path, sizeof shared->path, FOLDER "/%s", name);
    sweep(prefix, name);
    for (int i = 0; i < ATTEMPTS; i++) {
        bool settled = false;
        const cod_status status = attempt(shared, &settled);
        if (status == COD_OK && settled)
            return COD_OK;
        if (shared->file >= 0)
            close(shared->file);
        shared->file = -1;
        COD_TRY(status);
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
    }
    return cod_fail(COD_ERR_IO, "%s: cannot be filled; other processes fail to", shared->path);
}

cod_status cod_shared_file_reserve(cod_shared_file *shared, size_t bytes)
{
    const size_t whole = bytes + sizeof(file_header);
    if (ftruncate(shared->file, 0) != 0)
        return cod_fail(COD_ERR_IO, "%s: %s", shared->path, strerror(errno));
    /* Takes the space now: a full /dev/shm met when writing would be SIGBUS. */
    int error;
    do
        error = posix_fallocate(shared->file, 0, (off_t)whole);
    while (error == EINTR);
    if (error != 0)
        return cod_fail(COD_ERR_IO, "%s: %s", shared->path, strerror(error));
    return map(shared, whole, PROT_READ | PROT_WRITE);
}

cod_status cod_shared_file_complete(cod_shared_file *shared)
{
    const size_t whole = shared->bytes + sizeof(file_header);
    file_header header = {.bytes = whole};
    memcpy(header.magic, magic, sizeof magic);
    /* From here on the pixels only serve reading: a stray write faults instead of spoiling every process's pictures. */
    if (mprotect(shared->base - sizeof header, whole, PROT_READ) != 0 ||
        !cod_regular_write(shared->file, &header, sizeof header, 0) || !lock(shared->file, LOCK_SH))
        return cod_fail(COD_ERR_IO, "%s: %s", shared->path, strerror(errno));
    return COD_OK;
}

void cod_shared_file_close(cod_shared_file *shared)
{
    if (shared->file < 0)
        return;
    if (shared->base != NULL)
        munmap(shared->base - sizeof(file_header), shared->bytes + sizeof(file_header));
    if (lock(shared->file, LOCK_EX | LOCK_NB) && in_place(shared))
        unlink(shared->path);
    close(shared->file);
    *shared = (cod_shared_file){.file = -1};
}
