/**
 * @file
 * Host memory aligned for vectors and cache lines.
 */
#ifndef COD_CORE_MEMORY_H
#define COD_CORE_MEMORY_H

#include "core/status.h"

#define COD_ALIGNMENT ((size_t)64)

/** Rounds `bytes` up to a multiple of COD_ALIGNMENT. */
static inline size_t cod_align_up(size_t bytes)
{
    return (bytes + COD_ALIGNMENT - 1) & ~(COD_ALIGNMENT - 1);
}

/**
 * Allocates zeroed bytes at a 64-byte boundary; *out is new, free it with cod_aligned_free(). Zero bytes give a valid
 * pointer. The pages of large allocations are zeroed by the thread that first writes them. Until then they share one of
 * zeros, so write before you measure how fast they are read.
 */
COD_MUST_CHECK cod_status cod_aligned_alloc(void **out, size_t bytes);
void cod_aligned_free(void *memory);
/**
 * How many times this thread has called cod_aligned_alloc(). Tests compare the count before and after code that must
 * not allocate.
 */
size_t cod_aligned_alloc_count(void);

/**
 * A growing store of small objects that live and die together; pointers stay valid until cod_arena_clear().
 * A zeroed struct is an empty arena.
 */
typedef struct cod_arena {
    struct cod_arena_block *blocks;
} cod_arena;

/** Returns `bytes` of zeroed memory at a 64-byte boundary, or NULL when memory is short (the reason is recorded). */
void *cod_arena_alloc(cod_arena *arena, size_t bytes);
/** Copies a string into the arena; NULL when memory is short. */
char *cod_arena_strdup(cod_arena *arena, const char *text);
void cod_arena_clear(cod_arena *arena);

#endif
