/**
 * @file
 * Scratch memory for calls that several threads make at once: each call takes a room for itself and gives it back, and
 * the pool keeps it for the next call.
 */
#ifndef COD_DATA_SCRATCH_POOL_INTERNAL_H
#define COD_DATA_SCRATCH_POOL_INTERNAL_H

#include <pthread.h>
#include <stddef.h>

/** What a room begins with; behind it comes what the calls need. */
typedef struct cod_scratch {
    struct cod_scratch *next;
} cod_scratch;

typedef struct cod_scratch_pool {
    size_t bytes;              /**< of a room */
    void (*clear)(void *room); /**< frees what a room holds, but not the room itself */
    pthread_mutex_t mutex;
    cod_scratch *idle; /**< guarded */
} cod_scratch_pool;

void cod_scratch_pool_init(cod_scratch_pool *pool, size_t bytes, void (*clear)(void *room));
/** All rooms must have been given back. */
void cod_scratch_pool_clear(cod_scratch_pool *pool);

/** @return a room that was given back, or a new one, zeroed; NULL = out of memory. cod_scratch_pool_give_back() */
void *cod_scratch_pool_take(cod_scratch_pool *pool);
void cod_scratch_pool_give_back(cod_scratch_pool *pool, void *room);

/** Frees the rooms that no call has. */
void cod_scratch_pool_trim(cod_scratch_pool *pool);
/** Sum over the rooms that no call has. @param bytes_of  what a room holds */
size_t cod_scratch_pool_idle_bytes(cod_scratch_pool *pool, size_t (*bytes_of)(const void *room));

#endif
