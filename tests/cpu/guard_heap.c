#include "guard_heap.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* glibc's own, below the names that this file takes. */
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void *memory);

/* Less than malloc() promises, so that no gap is left behind an array of an odd number of words. */
enum { PAGE = 4096, WORD = 8 };
static const size_t arena_bytes = (size_t)1 << 30;
static char *arena;
static size_t used;
static bool is_on;

void guard_heap(bool on)
{
    if (arena == NULL) {
        arena = mmap(NULL, arena_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (arena == MAP_FAILED)
            abort();
    }
    is_on = on;
}

static bool is_guarded(const void *memory)
{
    return arena != NULL && (const char *)memory >= arena && (const char *)memory < arena + arena_bytes;
}

/** Pages of its own, with its size before it, then one that stays unreadable. No page is used twice. */
static void *take(size_t bytes, size_t alignment)
{
    const size_t room = (sizeof bytes + bytes + alignment + PAGE - 1) / PAGE * PAGE;
    if (alignment > PAGE || used + room + PAGE > arena_bytes ||
        mprotect(arena + used, room, PROT_READ | PROT_WRITE) != 0)
        return NULL;
    char *end = arena + used + room, *memory = end - bytes;
    used += room + PAGE;
    memory -= (uintptr_t)memory % alignment;
    memcpy(memory - sizeof bytes, &bytes, sizeof bytes);
    return memory;
}

void *malloc(size_t bytes)
{
    return is_on ? take(bytes, WORD) : __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    return is_on ? take(count * bytes, WORD) : __libc_calloc(count, bytes); /* fresh pages are zeros */
}

void *memalign(size_t alignment, size_t bytes)
{
    return is_on ? take(bytes, alignment) : __libc_memalign(alignment, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    return memalign(alignment, bytes);
}

int posix_memalign(void **memory, size_t alignment, size_t bytes)
{
    *memory = memalign(alignment, bytes);
    return *memory != NULL ? 0 : ENOMEM;
}

void free(void *memory)
{
    if (!is_guarded(memory))
        __libc_free(memory);
}

void *realloc(void *memory, size_t bytes)
{
    if (memory == NULL)
        return malloc(bytes);
    if (!is_guarded(memory))
        return __libc_realloc(memory, bytes);
    size_t old_bytes;
    memcpy(&old_bytes, (char *)memory - sizeof old_bytes, sizeof old_bytes);
    void *moved = malloc(bytes);
    if (moved != NULL)
        memcpy(moved, memory, old_bytes < bytes ? old_bytes : bytes);
    return moved;
}
