/*
 * The command short of memory, or on failing storage: linked with --wrap, it sees each allocation and each call for a
 * file of the program's own code. The allocation whose number is in COD_TEST_SHORT_AT, from 1, fails, or the call whose
 * number is in COD_TEST_CALL_AT; how many there were of each is appended to the file COD_TEST_SHORT_COUNT. The call
 * fails with the errno COD_TEST_CALL_HOW, or for a reason of its own; "part" lets one that moves bytes move the first.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
int __real_posix_memalign(void **out, size_t alignment, size_t bytes);
char *__real_strdup(const char *text);
char *__real_strndup(const char *text, size_t most);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);
int __wrap_posix_memalign(void **out, size_t alignment, size_t bytes);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t most);

static atomic_long allocations, calls;
static long failing, failing_call;

static bool fails(void)
{
    return atomic_fetch_add(&allocations, 1) + 1 == failing;
}

void *__wrap_malloc(size_t bytes)
{
    return fails() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    return fails() ? NULL : __real_calloc(count, bytes);
}

void *__wrap_realloc(void *old, size_t bytes)
{
    return fails() ? NULL : __real_realloc(old, bytes);
}

int __wrap_posix_memalign(void **out, size_t alignment, size_t bytes)
{
    return fails() ? ENOMEM : __real_posix_memalign(out, alignment, bytes);
}

char *__wrap_strdup(const char *text)
{
    return fails() ? NULL : __real_strdup(text);
}

char *__wrap_strndup(const char *text, size_t most)
{
    return fails() ? NULL : __real_strndup(text, most);
}

/** What happens to the call; those to which it cannot happen are not counted. */
enum { FAILS = 1, INTERRUPTED = 2, MOVES_A_PART = 4 };
static int how = FAILS, given_reason;

/** @return whether this call, which may do `kinds`, is the one; `errno` is its reason then */
static bool call_fails(int kinds, int reason)
{
    if ((kinds & how) == 0)
        return false;
    const bool fails_now = atomic_fetch_add(&calls, 1) + 1 == failing_call;
    if (fails_now)
        errno = given_reason != 0 ? given_reason : reason;
    return fails_now;
}

/** Of a call that fails with `reason` instead. */
#define WRAP(type, name, parameters, arguments, failed, reason)                                                        \
    type __real_##name parameters;                                                                                     \
    type __wrap_##name parameters;                                                                                     \
    type __wrap_##name parameters                                                                                      \
    {                                                                                                                  \
        return call_fails(FAILS, reason) ? failed : __real_##name arguments;                                           \
    }

/** Of one that a signal may interrupt, and that may move fewer bytes than asked for: `part` are its arguments then. */
#define WRAP_MOVING(name, parameters, arguments, part, reason)                                                         \
    ssize_t __real_##name parameters;                                                                                  \
    ssize_t __wrap_##name parameters;                                                                                  \
    ssize_t __wrap_##name parameters                                                                                   \
    {                                                                                                                  \
        if (!call_fails(FAILS | INTERRUPTED | MOVES_A_PART, reason))                                                   \
            return __real_##name arguments;                                                                            \
        return how == MOVES_A_PART ? __real_##name part : -1;                                                          \
    }

/** Of one that ends what it is given, whether it fails or not. */
#define WRAP_ENDING(name, type, failed, reason)                                                                        \
    int __real_##name(type it);                                                                                        \
    int __wrap_##name(type it);                                                                                        \
    int __wrap_##name(type it)                                                                                         \
    {                                                                                                                  \
        const bool fails_now = call_fails(FAILS, reason);                                                              \
        const int why = errno, result = __real_##name(it);                                                             \
        if (!fails_now)                                                                                                \
            return result;                                                                                             \
        errno = why;                                                                                                   \
        return failed;                                                                                                 \
    }

WRAP(FILE *, fopen, (const char *path, const char *mode), (path, mode), NULL, EMFILE)
WRAP(FILE *, fdopen, (int file, const char *mode), (file, mode), NULL, ENOMEM)
WRAP(FILE *, open_memstream, (char **text, size_t *bytes), (text, bytes), NULL, ENOMEM)
WRAP(int, fflush, (FILE * file), (file), EOF, ENOSPC)
WRAP_ENDING(fclose, FILE *, EOF, ENOSPC)
WRAP(DIR *, opendir, (const char *path), (path), NULL, EMFILE)
WRAP(DIR *, fdopendir, (int folder), (folder), NULL, ENOMEM)
WRAP(struct dirent *, readdir, (DIR * folder), (folder), NULL, EIO)
WRAP_MOVING(read, (int file, void *out, size_t bytes), (file, out, bytes), (file, out, (bytes + 1) / 2), EIO)
WRAP_MOVING(pread, (int file, void *out, size_t bytes, off_t at), (file, out, bytes, at),
            (file, out, (bytes + 1) / 2, at), EIO)
WRAP_MOVING(write, (int file, const void *data, size_t bytes), (file, data, bytes), (file, data, (bytes + 1) / 2),
            ENOSPC)
WRAP_MOVING(pwrite, (int file, const void *data, size_t bytes, off_t at), (file, data, bytes, at),
            (file, data, (bytes + 1) / 2, at), ENOSPC)
WRAP_MOVING(writev, (int file, const struct iovec *parts, int count), (file, parts, count), (file, parts, 1), ENOSPC)
WRAP_ENDING(close, int, -1, EIO)
WRAP(int, fsync, (int file), (file), -1, EIO)
WRAP(int, flock, (int file, int operation), (file, operation), -1, ENOLCK)
WRAP(int, ftruncate, (int file, off_t bytes), (file, bytes), -1, ENOSPC)
WRAP(off_t, lseek, (int file, off_t at, int from), (file, at, from), -1, EIO)
WRAP(int, rename, (const char *from, const char *to), (from, to), -1, EACCES)
WRAP(int, renameat, (int a, const char *from, int b, const char *to), (a, from, b, to), -1, EACCES)
WRAP(int, linkat, (int a, const char *from, int b, const char *to, int flags), (a, from, b, to, flags), -1, EACCES)
WRAP(int, unlink, (const char *path), (path), -1, EACCES)
WRAP(int, unlinkat, (int folder, const char *path, int flags), (folder, path, flags), -1, EACCES)
WRAP(int, rmdir, (const char *path), (path), -1, EACCES)
WRAP(int, mkdir, (const char *path, mode_t mode), (path, mode), -1, ENOSPC)
WRAP(int, mkdirat, (int folder, const char *path, mode_t mode), (folder, path, mode), -1, ENOSPC)
WRAP(int, stat, (const char *path, struct stat *info), (path, info), -1, EIO)
WRAP(int, lstat, (const char *path, struct stat *info), (path, info), -1, EIO)
WRAP(int, fstat, (int file, struct stat *info), (file, info), -1, EIO)
WRAP(int, fstatat, (int folder, const char *path, struct stat *info, int flags), (folder, path, info, flags), -1, EIO)
WRAP(int, statvfs, (const char *path, struct statvfs *info), (path, info), -1, EIO)
WRAP(int, access, (const char *path, int mode), (path, mode), -1, EIO)
WRAP(ssize_t, readlink, (const char *path, char *out, size_t bytes), (path, out, bytes), -1, EIO)
WRAP(char *, realpath, (const char *path, char *out), (path, out), NULL, EIO)

void *__real_mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset);
void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset);

void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset)
{
    return call_fails(FAILS, ENOMEM) ? MAP_FAILED : __real_mmap(at, bytes, protection, flags, file, offset);
}

int __real_posix_fallocate(int file, off_t at, off_t bytes);
int __wrap_posix_fallocate(int file, off_t at, off_t bytes);

int __wrap_posix_fallocate(int file, off_t at, off_t bytes)
{
    return call_fails(FAILS, ENOSPC) ? errno : __real_posix_fallocate(file, at, bytes);
}

size_t __real_fread(void *out, size_t size, size_t count, FILE *file);
size_t __wrap_fread(void *out, size_t size, size_t count, FILE *file);

size_t __wrap_fread(void *out, size_t size, size_t count, FILE *file)
{
    if (!call_fails(FAILS, EIO))
        return __real_fread(out, size, count, file);
    file->_flags |= _IO_ERR_SEEN;
    return 0;
}

char *__real_fgets(char *out, int bytes, FILE *file);
char *__wrap_fgets(char *out, int bytes, FILE *file);

char *__wrap_fgets(char *out, int bytes, FILE *file)
{
    if (!call_fails(FAILS, EIO))
        return __real_fgets(out, bytes, file);
    file->_flags |= _IO_ERR_SEEN;
    return NULL;
}

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);

int __wrap_open(const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    return call_fails(FAILS, EMFILE) ? -1 : __real_open(path, flags, mode);
}

int __real_openat(int folder, const char *path, int flags, ...);
int __wrap_openat(int folder, const char *path, int flags, ...);

int __wrap_openat(int folder, const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    return call_fails(FAILS, EMFILE) ? -1 : __real_openat(folder, path, flags, mode);
}

__attribute__((constructor)) static void read_numbers(void)
{
    const char *number = getenv("COD_TEST_SHORT_AT"), *call = getenv("COD_TEST_CALL_AT"),
               *what = getenv("COD_TEST_CALL_HOW");
    failing = number != NULL ? atol(number) : 0;
    failing_call = call != NULL ? atol(call) : 0;
    if (what != NULL && strcmp(what, "part") == 0)
        how = MOVES_A_PART;
    else if (what != NULL && (given_reason = atoi(what)) == EINTR)
        how = INTERRUPTED;
}

__attribute__((destructor)) static void tell_counts(void)
{
    const char *path = getenv("COD_TEST_SHORT_COUNT");
    FILE *file = path != NULL ? __real_fopen(path, "a") : NULL;
    if (file != NULL) {
        fprintf(file, "%ld %ld\n", atomic_load(&allocations), atomic_load(&calls));
        __real_fclose(file);
    }
}
