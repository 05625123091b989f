#include "io/file_watch.h"

#include "core/trace.h"
#include "io_internal.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/** Largest depth of nested calls that are noted. */
enum { DEPTH = 4 };

struct cod_file_watch {
    pthread_mutex_t mutex;
    int depth; /**< calls under way, also where they are more than DEPTH */
    cod_file_wait calls[DEPTH];
    uint64_t begun;
};

static _Thread_local cod_file_watch *own_watch;

const char *cod_io_call_begin(const char *verb, const char *path)
{
    cod_file_watch *watch = own_watch;
    if (watch == NULL)
        return verb;
    pthread_mutex_lock(&watch->mutex);
    if (watch->depth < DEPTH) {
        cod_file_wait *call = &watch->calls[watch->depth];
        call->number = ++watch->begun;
        call->since_s = cod_clock_s();
        snprintf(call->verb, sizeof call->verb, "%s", verb);
        snprintf(call->path, sizeof call->path, "%s", path);
    }
    watch->depth++;
    pthread_mutex_unlock(&watch->mutex);
    return verb;
}

void cod_io_call_end(const char *const *verb)
{
    cod_file_watch *watch = own_watch;
    (void)verb;
    if (watch == NULL)
        return;
    pthread_mutex_lock(&watch->mutex);
    watch->depth--;
    if (watch->depth > 0 && watch->depth <= DEPTH) { /* the enclosing call continues from here */
        watch->calls[watch->depth - 1].number = ++watch->begun;
        watch->calls[watch->depth - 1].since_s = cod_clock_s();
    }
    pthread_mutex_unlock(&watch->mutex);
}

cod_status cod_file_watch_begin(cod_file_watch **out)
{
    *out = NULL;
    COD_REQUIRE(own_watch == NULL, "this thread's file operations are watched already");
    cod_file_watch *watch = calloc(1, sizeof *watch);
    COD_REQUIRE_MEMORY(watch);
    pthread_mutex_init(&watch->mutex, NULL);
    *out = own_watch = watch;
    return COD_OK;
}

void cod_file_watch_end(cod_file_watch *watch)
{
    if (watch == NULL)
        return;
    own_watch = NULL;
    pthread_mutex_destroy(&watch->mutex);
    free(watch);
}

bool cod_file_watch_read(cod_file_watch *watch, cod_file_wait *wait)
{
    pthread_mutex_lock(&watch->mutex);
    const bool waits = watch->depth > 0;
    if (waits)
        *wait = watch->calls[watch->depth < DEPTH ? watch->depth - 1 : DEPTH - 1];
    pthread_mutex_unlock(&watch->mutex);
    return waits;
}
