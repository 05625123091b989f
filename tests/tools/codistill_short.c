/*
 * The command short of memory: linked with --wrap, it sees each allocation of the program's own code. The one whose
 * number is in COD_TEST_SHORT_AT, from 1, fails; how many there were is appended to the file COD_TEST_SHORT_COUNT.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

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

static atomic_long allocations;
static long failing;

__attribute__((constructor)) static void read_number(void)
{
    const char *number = getenv("COD_TEST_SHORT_AT");
    failing = number != NULL ? atol(number) : 0;
}

__attribute__((destructor)) static void tell_count(void)
{
    const char *path = getenv("COD_TEST_SHORT_COUNT");
    FILE *file = path != NULL ? fopen(path, "a") : NULL;
    if (file != NULL) {
        fprintf(file, "%ld\n", atomic_load(&allocations));
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
