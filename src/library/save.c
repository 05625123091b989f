/*
 * The state of a handle as a safetensors file: the arrays of the exchange by their names, and what was merged of each
 * peer.
 */
#include "library/calls_internal.h"

#include "io/safetensors.h"

#include <stdlib.h>
#include <string.h>

#define STEP_KEY   "step"
#define MERGED_KEY "merged"

typedef struct saved {
    cod_st_tensor *tensors; /**< [count] */
    size_t count;
    int64_t *merged; /**< [peers][fragments][2]: version merged last, and the own one beside it */
    size_t merged_count;
} saved;

static peer_fragment *fragment_at(const codistill *handle, size_t i)
{
    const size_t fragments = (size_t)cod_exchange_fragments(&handle->settings.exchange);
    return &handle->peers[i / fragments].fragments[i % fragments];
}

static cod_st_tensor tensor_of(const char *name, cod_st_dtype dtype, const void *data, size_t count)
{
    return (cod_st_tensor){.name = name, .dtype = dtype, .rank = 1, .shape = {(int64_t)count}, .data = data};
}

static cod_status gather(codistill *handle, saved *all)
{
    const cod_exchange_array *arrays;
    size_t count;
    COD_TRY(cod_exchange_state(handle->exchange, &arrays, &count));
    all->merged_count = (size_t)handle->peer_count * (size_t)cod_exchange_fragments(&handle->settings.exchange);
    all->merged = calloc(2 * all->merged_count + 1, sizeof *all->merged);
    all->tensors = calloc(count + 2, sizeof *all->tensors);
    COD_REQUIRE_MEMORY(all->merged);
    COD_REQUIRE_MEMORY(all->tensors);
    for (size_t i = 0; i < all->merged_count; i++) {
        all->merged[2 * i] = (int64_t)fragment_at(handle, i)->turn.version;
        all->merged[2 * i + 1] = (int64_t)fragment_at(handle, i)->turn.own_version;
    }
    all->tensors[all->count++] = tensor_of(MERGED_KEY, COD_ST_I64, all->merged, 2 * all->merged_count);
    all->tensors[all->count++] = tensor_of(STEP_KEY, COD_ST_I64, &handle->step, 1);
    for (size_t i = 0; i < count; i++)
        all->tensors[all->count++] = tensor_of(arrays[i].name, COD_ST_U8, arrays[i].data, arrays[i].bytes);
    return COD_OK;
}

static cod_status save(codistill *handle, const char *path)
{
    saved all = {0};
    COD_TRY(handle_check(handle));
    COD_TRY(worker_wait(handle));
    cod_status status = gather(handle, &all);
    COD_THEN(status, cod_st_write(path, all.tensors, all.count, NULL, 0));
    free(all.tensors);
    free(all.merged);
    return status;
}

codistill_status codistill_save(codistill *handle, const char *path)
{
    handle_enter(handle);
    return handle_leave(handle, save(handle, path));
}

/** Copies an array of the file. */
static cod_status take(const cod_st_file *file, const char *name, void *out, size_t bytes)
{
    const cod_st_tensor *tensor = cod_st_tensor_find(file, name);
    if (tensor == NULL || tensor->bytes != bytes)
        return cod_fail(COD_ERR_FORMAT, "the state has %s of '%s': it is of other tensors, groups or settings",
                        tensor == NULL ? "no values" : "another number of values", name);
    memcpy(out, tensor->data, bytes);
    return COD_OK;
}

static cod_status restore_merged(codistill *handle, const cod_st_file *file)
{
    const size_t count = (size_t)handle->peer_count * (size_t)cod_exchange_fragments(&handle->settings.exchange);
    int64_t *merged = malloc((2 * count + 1) * sizeof *merged);
    COD_REQUIRE_MEMORY(merged);
    const cod_status status = take(file, MERGED_KEY, merged, 2 * count * sizeof *merged);
    for (size_t i = 0; status == COD_OK && i < count; i++) {
        fragment_at(handle, i)->turn.version = (uint64_t)merged[2 * i];
        fragment_at(handle, i)->turn.own_version = (uint64_t)merged[2 * i + 1];
    }
    free(merged);
    return status;
}

static cod_status restore(codistill *handle, const cod_st_file *file)
{
    const cod_exchange_array *arrays;
    size_t count;
    int64_t step = 0;
    COD_TRY(take(file, STEP_KEY, &step, sizeof step));
    COD_REQUIRE(step >= 0, "the state is of step %lld", (long long)step);
    COD_TRY(cod_exchange_state(handle->exchange, &arrays, &count));
    for (size_t i = 0; i < count; i++)
        if (strcmp(arrays[i].name, COD_EXCHANGE_SLOTS) != 0)
            COD_TRY(take(file, arrays[i].name, arrays[i].data, arrays[i].bytes));
    const cod_st_tensor *slots = cod_st_tensor_find(file, COD_EXCHANGE_SLOTS);
    if (slots == NULL)
        return cod_fail(COD_ERR_FORMAT, "the state has nothing that was published");
    COD_TRY(cod_exchange_restored(handle->exchange, slots->data, slots->bytes));
    COD_TRY(restore_merged(handle, file));
    worker_restored(handle, step);
    return COD_OK;
}

static cod_status load(codistill *handle, const char *path)
{
    cod_st_file *file = NULL;
    COD_TRY(handle_check(handle));
    COD_REQUIRE(handle->step == 0, "a state is loaded before the first step; step %lld was told",
                (long long)handle->step);
    COD_TRY(worker_wait(handle));
    cod_status status = cod_st_open(path, &file);
    COD_THEN(status, restore(handle, file));
    cod_st_close(file);
    return status;
}

codistill_status codistill_load(codistill *handle, const char *path)
{
    handle_enter(handle);
    return handle_leave(handle, load(handle, path));
}
