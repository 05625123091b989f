#include "core/staging.h"

#include "core/queue.h"

#include <stdlib.h>

struct cod_staged {
    cod_staging *staging;
    cod_staged *next; /**< of all that the staging has */
    bool under_way;
    cod_buffer *pinned, *buffer;
    size_t offset;
    cod_event *fetched, *returned; /**< behind the last copy to the pinned memory, and behind the last copy from it */
};

struct cod_staging {
    const cod_backend *backend;
    cod_device *device;
    cod_queue *fetching, *returning;
    cod_staged *all;
};

cod_status cod_staging_create(const cod_backend *backend, cod_device *device, cod_staging **out)
{
    cod_staging *staging = calloc(1, sizeof *staging);
    COD_REQUIRE_MEMORY(staging);
    staging->backend = backend;
    staging->device = device;
    cod_status status = cod_queue_create(backend, device, &staging->fetching);
    COD_THEN(status, cod_queue_create(backend, device, &staging->returning));
    if (status != COD_OK) {
        cod_staging_destroy(staging);
        return status;
    }
    *out = staging;
    return COD_OK;
}

static void staged_free(cod_staged *staged)
{
    const cod_staging *staging = staged->staging;
    cod_event_destroy(staging->backend, staged->fetched);
    cod_event_destroy(staging->backend, staged->returned);
    if (staged->pinned != NULL)
        staging->backend->host_buffer_destroy(staging->device, staged->pinned);
    free(staged);
}

void cod_staging_destroy(cod_staging *staging)
{
    if (staging == NULL)
        return;
    cod_queue_destroy(staging->backend, staging->fetching);
    cod_queue_destroy(staging->backend, staging->returning);
    while (staging->all != NULL) {
        cod_staged *staged = staging->all;
        staging->all = staged->next;
        staged_free(staged);
    }
    free(staging);
}

static cod_status staged_create(cod_staging *staging, size_t bytes, cod_staged **out)
{
    const cod_backend *backend = staging->backend;
    cod_staged *staged = calloc(1, sizeof *staged);
    COD_REQUIRE_MEMORY(staged);
    staged->staging = staging;
    cod_status status = backend->host_buffer_create(staging->device, bytes, &staged->pinned);
    COD_THEN(status, cod_event_create(backend, staging->device, &staged->fetched));
    COD_THEN(status, cod_event_create(backend, staging->device, &staged->returned));
    if (status != COD_OK) {
        staged_free(staged);
        return status;
    }
    staged->next = staging->all;
    staging->all = staged;
    *out = staged;
    return COD_OK;
}

cod_status cod_staging_start(cod_staging *staging, cod_buffer *buffer, size_t offset, size_t bytes, cod_event *ready,
                             cod_staged **out)
{
    const cod_backend *backend = staging->backend;
    cod_staged *staged = staging->all;
    while (staged != NULL && (staged->under_way || staged->pinned->bytes != bytes))
        staged = staged->next;
    if (staged == NULL)
        COD_TRY(staged_create(staging, bytes, &staged));
    staged->buffer = buffer;
    staged->offset = offset;
    COD_TRY(cod_queue_wait(backend, staging->fetching, ready));
    /* The pinned memory may still be read by the copy back of the range that had it before. */
    COD_TRY(cod_queue_wait(backend, staging->fetching, staged->returned));
    COD_TRY(backend->copy(staging->device, staging->fetching, staged->pinned, 0, buffer, offset, bytes));
    COD_TRY(cod_event_record(backend, staged->fetched, staging->fetching));
    staged->under_way = true;
    *out = staged;
    return COD_OK;
}

cod_status cod_staged_test(const cod_staged *staged, bool *there)
{
    *there = true;
    return staged != NULL ? cod_event_query(staged->staging->backend, staged->fetched, there) : COD_OK;
}

cod_status cod_staged_wait(const cod_staged *staged)
{
    return staged != NULL ? cod_event_wait(staged->staging->backend, staged->fetched) : COD_OK;
}

void *cod_staged_host(const cod_staged *staged)
{
    return staged->pinned->host;
}

cod_status cod_staged_return(cod_staged *staged, cod_queue *queue)
{
    const cod_staging *staging = staged->staging;
    const cod_backend *backend = staging->backend;
    staged->under_way = false;
    COD_TRY(backend->copy(staging->device, staging->returning, staged->buffer, staged->offset, staged->pinned, 0,
                          staged->pinned->bytes));
    COD_TRY(cod_event_record(backend, staged->returned, staging->returning));
    return cod_queue_wait(backend, queue, staged->returned);
}

void cod_staged_drop(cod_staged *staged)
{
    if (staged != NULL)
        staged->under_way = false;
}
