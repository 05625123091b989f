/**
 * @file
 * The pictures of a batch as one stack of lines, which tiles.c and phased.c copy and multiply a chunk at a time.
 *
 * Each picture begins `period` lines below the one before. Lines between them belong to no picture and are copied as
 * zeros.
 */
#ifndef COD_CPU_STACK_INTERNAL_H
#define COD_CPU_STACK_INTERNAL_H

#include "cpu/cpu_internal.h"

enum { CPU_STACK_CHUNK_BYTES = 768 * 1024 }; /**< of copies; they stay in the second-level cache */

typedef struct cpu_stack {
    int64_t images;
    int64_t height; /**< lines of an image; 0 counts as one line of zeros */
    int64_t period;
    int64_t chunk_images, chunk_lines; /**< of a chunk, at most: lines of one image, or those of some whole ones */
} cpu_stack;

/** Zeroed: before the first one. */
typedef struct cpu_stack_chunk {
    int64_t image, images;
    int64_t first, lines; /**< from the first image's first line on */
} cpu_stack_chunk;

/** Lines from the first of some images to the last. */
static inline int64_t cpu_stack_lines(const cpu_stack *stack, int64_t images)
{
    return (images - 1) * stack->period + cpu_greatest(stack->height, 1);
}

/** Chooses how much a chunk takes. @param bytes  of all its copies; @param line_bytes  of those of a line */
static inline void cpu_stack_cut(cpu_stack *stack, int64_t bytes, int64_t line_bytes, int64_t least_lines)
{
    const int64_t lines = cpu_greatest(bytes / line_bytes, least_lines), more = lines - stack->height;
    stack->chunk_images = more < 0 ? 1 : cpu_least(1 + more / stack->period, stack->images);
    stack->chunk_lines = cpu_least(lines, cpu_stack_lines(stack, stack->chunk_images));
}

/** Goes on to the next chunk; false: there is none. */
static inline bool cpu_stack_next(const cpu_stack *stack, cpu_stack_chunk *chunk)
{
    chunk->first += chunk->lines;
    if (chunk->images == 0 || chunk->first == cpu_stack_lines(stack, chunk->images)) {
        chunk->image += chunk->images;
        chunk->images = cpu_least(stack->images - chunk->image, stack->chunk_images);
        chunk->first = 0;
    }
    chunk->lines = cpu_least(cpu_stack_lines(stack, chunk->images) - chunk->first, stack->chunk_lines);
    return chunk->images > 0;
}

#endif
