#include "data/scratch_pool_internal.h"

#include <stdlib.h>

void cod_scratch_pool_init(cod_scratch_pool *pool, size_t bytes, void (*clear)(void *room))
{
    *pool = (cod_scratch_pool){.bytes = bytes, .clear = clear};
    pthread_mutex_init(&pool->mutex, NULL);
}

void cod_scratch_pool_clear(cod_scratch_pool *pool)
{
    cod_scratch_pool_trim(pool);
    pthread_mutex_destroy(&pool->mutex);
}

void *cod_scratch_pool_take(cod_scratch_pool *pool)
{
    pthread_mutex_lock(&pool->mutex);
    cod_scratch *room = pool->idle;
    if (room != NULL)
        pool->idle = room->next;
    pthread_mutex_unlock(&pool->mutex);
    return room != NULL ? room : calloc(1, pool->bytes);
}

void cod_scratch_pool_give_back(cod_scratch_pool *pool, void *room)
{
    cod_scratch *idle = room;
    pthread_mutex_lock(&pool->mutex);
    idle->next = pool->idle;
    pool->idle = idle;
    pthread_mutex_unlock(&pool->mutex);
}

void cod_scratch_pool_trim(cod_scratch_pool *pool)
{
    pthread_mutex_lock(&pool->mutex);
    cod_scratch *idle = pool->idle;
    pool->idle = NULL;
    pthread_mutex_unlock(&pool->mutex);
    while (idle != NULL) {
        cod_scratch *next = idle->next;
        pool->clear(idle);
        free(idle);
        idle = next;
    }
}

size_t cod_scratch_pool_idle_bytes(cod_scratch_pool *pool, size_t (*bytes_of)(const void *room))
{
    size_t bytes = 0;
    pthread_mutex_lock(&pool->mutex);
    for (const cod_scratch *room = pool->idle; room != NULL; room = room->next)
        bytes += bytes_of(room);
    pthread_mutex_unlock(&pool->mutex);
    return bytes;
}
