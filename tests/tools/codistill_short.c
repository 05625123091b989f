/*
 * The command short of memory, or on failing storage: linked with --wrap, it sees each allocation and each call for a
 * file of the program's own code. The allocation whose number is in COD_TEST_SHORT_AT, from 1, fails, or the call whose
 * number is in COD_TEST_CALL_AT; how many there were of each is appended to the file COD_TEST_SHORT_COUNT.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
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

__attribute__((constructor)) static void read_number(void)
{
    const char *number = getenv("COD_TEST_SHORT_AT"), *call = getenv("COD_TEST_CALL_AT");
    failing = number != NULL ? atol(number) : 0;
    failing_call = call != NULL ? atol(call) : 0;
}

__attribute__((destructor)) static void tell_count(void)
{
    const char *path = getenv("COD_TEST_SHORT_COUNT");
    failing_call = 0;
    FILE *file = path != NULL ? fopen(path, "a") : NULL;
    if (file != NULL) {
        fprintf(file, "%ld %ld\n", atomic_load(&allocations), atomic_load(&calls) - 1);
        fclose(file);
    }
}

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

/** @return whether this call fails; it has its reason then */
static bool call_fails(int reason)
{
    const bool fails_now = atomic_fetch_add(&calls, 1) + 1 == failing_call;
    if (fails_now)
        errno = reason;
    return fails_now;
}

#define WRAP(type, name, parameters, arguments, failed, reason)                                                        \
    type __real_##name parameters;                                                                                     \
    type __wrap_##name parameters;                                                                                     \
    type __wrap_##name parameters                                                                                      \
    {                                                                                                                  \
        return call_fails(reason) ? failed : __real_##name arguments;                                                  \
    }

WRAP(FILE *, fopen, (const char *path, const char *mode), (path, mode), NULL, EMFILE)
WRAP(DIR *, opendir, (const char *path), (path), NULL, EMFILE)
WRAP(ssize_t, read, (int file, void *out, size_t bytes), (file, out, bytes), -1, EIO)
WRAP(ssize_t, pread, (int file, void *out, size_t bytes, off_t at), (file, out, bytes, at), -1, EIO)
WRAP(ssize_t, write, (int file, const void *data, size_t bytes), (file, data, bytes), -1, ENOSPC)
WRAP(int, fflush, (FILE * file), (file), EOF, ENOSPC)
WRAP(int, fsync, (int file), (file), -1, EIO)
WRAP(int, ftruncate, (int file, off_t bytes), (file, bytes), -1, ENOSPC)
WRAP(int, rename, (const char *from, const char *to), (from, to), -1, EACCES)
WRAP(int, mkdir, (const char *path, mode_t mode), (path, mode), -1, ENOSPC)
WRAP(int, stat, (const char *path, struct stat *info), (path, info), -1, EIO)
WRAP(int, fstat, (int file, struct stat *info), (file, info), -1, EIO)
WRAP(char *, realpath, (const char *path, char *out), (path, out), NULL, EIO)

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);

int __wrap_open(const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    return call_fails(EMFILE) ? -1 : __real_open(path, flags, mode);
}

int __real_openat(int folder, const char *path, int flags, ...);
int __wrap_openat(int folder, const char *path, int flags, ...);

int __wrap_openat(int folder, const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    return call_fails(EMFILE) ? -1 : __real_openat(folder, path, flags, mode);
}
