/* Opening and closing handles, and what a training loop calls in each step. */
#include "library/calls_internal.h"

#include "core/hash.h"
#include "core/trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/** A forked process has no threads whose calls it could wait for; one of its parent may have held the lock. */
static bool is_own(const codistill *handle)
{
    return handle->process == getpid();
}

void handle_enter(codistill *handle)
{
    if (is_own(handle))
        pthread_mutex_lock(&handle->calls);
}

codistill_status handle_leave(codistill *handle, cod_status status)
{
    if (status != COD_OK)
        snprintf(handle->error, sizeof handle->error, "%s", cod_error_message());
    if (is_own(handle))
        pthread_mutex_unlock(&handle->calls);
    if (status == COD_OK)
        return CODISTILL_OK;
    return status <= COD_ERR_UNSUPPORTED ? (codistill_status)status : CODISTILL_ERR_OTHER;
}

const char *codistill_error(const codistill *handle)
{
    return handle != NULL ? handle->error : "out of memory for a handle";
}

const char *codistill_version(void)
{
    return COD_VERSION;
}

cod_status handle_check(const codistill *handle)
{
    COD_REQUIRE(is_own(handle),
                "this handle belongs to process %ld, of which this one is a fork: open one of its own, under another "
                "group number",
                (long)handle->process);
    COD_REQUIRE(handle->works, "this handle was not opened");
    return COD_OK;
}

/* Opening. */

/** Ranks of the groups. */
static cod_status make_ones(size_t groups, int **out)
{
    *out = malloc(groups * sizeof **out);
    COD_REQUIRE_MEMORY(*out);
    for (size_t g = 0; g < groups; g++)
        (*out)[g] = 1;
    return COD_OK;
}

static cod_status make_group(codistill *handle, const int *sizes)
{
    const library_settings *settings = &handle->settings;
    COD_TRY(cod_comm_init(NULL, &handle->comm));
    return cod_group_create_part(handle->comm, sizes, (size_t)settings->groups, (size_t)settings->group,
                                 &handle->group);
}

/** Versions count spacings, so that runs with other ones are other runs. */
static uint64_t run_of(const library_settings *settings)
{
    return cod_hash(settings->name, strlen(settings->name), (uint64_t)cod_exchange_spacing(&settings->exchange));
}

/** Groups of one rank each, which train one model. */
static cod_status make_exchange(codistill *handle)
{
    const size_t groups = (size_t)handle->settings.groups;
    const library_tensors *tensors = &handle->tensors;
    const cod_exchange_options *options = &handle->settings.exchange;
    cod_exchange_model *models = malloc(groups * sizeof *models);
    COD_REQUIRE_MEMORY(models);
    for (size_t g = 0; g < groups; g++)
        models[g] =
            (cod_exchange_model){.count = tensors->weights, .state_count = tensors->states, .hash = tensors->hash};
    int *ones = NULL;
    cod_status status = make_ones(groups, &ones);
    COD_THEN(status, make_group(handle, ones));
    COD_THEN(status, cod_exchange_create(handle->comm, handle->group, options, models, run_of(&handle->settings),
                                         &handle->exchange));
    if (status == COD_OK)
        handle->memory_bytes =
            cod_exchange_plan(options, models, ones, (int)groups, (int)handle->settings.group, 1).memory_bytes;
    free(ones);
    free(models);
    return status;
}

static cod_status make_peers(codistill *handle)
{
    const size_t fragments = (size_t)cod_exchange_fragments(&handle->settings.exchange);
    handle->peer_count = cod_exchange_peer_count(handle->exchange);
    handle->share = 1.0 / (handle->peer_count + 1);
    handle->peers = calloc((size_t)handle->peer_count + 1, sizeof *handle->peers);
    COD_REQUIRE_MEMORY(handle->peers);
    for (int p = 0; p < handle->peer_count; p++) {
        handle->peers[p].group = cod_exchange_peer_group(handle->exchange, p);
        handle->peers[p].fragments = calloc(fragments, sizeof *handle->peers[p].fragments);
        COD_REQUIRE_MEMORY(handle->peers[p].fragments);
    }
    return COD_OK;
}

static cod_status open_handle(codistill *handle, const char *const *settings, size_t setting_count,
                              const codistill_tensor *tensors, size_t count)
{
    COD_TRY(library_settings_init(&handle->settings, settings, setting_count));
    COD_TRY(library_tensors_init(&handle->tensors, tensors, count));
    COD_TRY(make_exchange(handle));
    COD_TRY(make_peers(handle));
    return worker_start(handle);
}

codistill_status codistill_open(const char *const *settings, size_t setting_count, const codistill_tensor *tensors,
                                size_t count, codistill **out)
{
    codistill *handle = calloc(1, sizeof *handle);
    *out = handle;
    if (handle == NULL)
        return CODISTILL_ERR_MEMORY;
    handle->process = getpid();
    pthread_mutex_init(&handle->calls, NULL);
    pthread_mutex_init(&handle->lock, NULL);
    pthread_cond_init(&handle->told, NULL);
    pthread_cond_init(&handle->rests, NULL);
    handle_enter(handle);
    return handle_leave(handle, open_handle(handle, settings, setting_count, tensors, count));
}

/** Of a process that was forked nothing but memory belongs to the handle: no thread, and no file that it may touch. */
static cod_status end_exchange(codistill *handle)
{
    if (!is_own(handle))
        return COD_OK;
    worker_end(handle);
    const cod_status status = cod_exchange_destroy(handle->exchange);
    cod_group_destroy(handle->group);
    const cod_status ended = cod_comm_finalize(handle->comm);
    return status == COD_OK ? ended : status;
}

codistill_status codistill_close(codistill *handle)
{
    if (handle == NULL)
        return CODISTILL_OK;
    handle_enter(handle);
    const codistill_status status = handle_leave(handle, end_exchange(handle));
    for (int p = 0; handle->peers != NULL && p < handle->peer_count; p++)
        free(handle->peers[p].fragments);
    free(handle->peers);
    library_tensors_clear(&handle->tensors);
    library_settings_clear(&handle->settings);
    pthread_mutex_destroy(&handle->calls);
    pthread_mutex_destroy(&handle->lock);
    pthread_cond_destroy(&handle->told);
    pthread_cond_destroy(&handle->rests);
    free(handle);
    return status;
}

codistill_status codistill_set_data(codistill *handle, size_t index, void *data)
{
    handle_enter(handle);
    cod_status status = handle_check(handle);
    if (status == COD_OK && index >= handle->tensors.count)
        status = cod_fail(COD_ERR_ARGUMENT, "tensor %zu: there are %zu", index, handle->tensors.count);
    else if (status == COD_OK && data == NULL)
        status = cod_fail(COD_ERR_ARGUMENT, "tensor '%s' has no data", handle->tensors.items[index].name);
    if (status == COD_OK)
        handle->tensors.items[index].data = data;
    return handle_leave(handle, status);
}

/* A step. */

/** Fills the snapshot where the step ends a period. It is the caller's meanwhile, so that no lock is held. */
static void publish(codistill *handle, int64_t step)
{
    pthread_mutex_lock(&handle->lock);
    const bool due = step % cod_exchange_spacing(&handle->settings.exchange) == 0,
               free_now = handle->owner == SNAPSHOT_OF_CALLER && handle->snapshot_step == step;
    const cod_exchange_part part = handle->part;
    handle->left_out += due && !free_now;
    pthread_mutex_unlock(&handle->lock);
    if (!due || !free_now)
        return;
    library_tensors_read(&handle->tensors, part.first, part.count, part.values->host);
    pthread_mutex_lock(&handle->lock);
    handle->owner = SNAPSHOT_FILLED;
    pthread_mutex_unlock(&handle->lock);
}

/** Versions that have come since the last call; with the lock. */
static int count_arrivals(codistill *handle)
{
    int arrived = 0;
    for (int p = 0; p < handle->peer_count; p++)
        for (int f = 0; f < cod_exchange_fragments(&handle->settings.exchange); f++) {
            peer_fragment *fragment = &handle->peers[p].fragments[f];
            arrived += fragment->seen != fragment->held.version;
            fragment->seen = fragment->held.version;
        }
    return arrived;
}

static cod_status do_step(codistill *handle, int64_t step, int *arrived)
{
    COD_TRY(handle_check(handle));
    COD_REQUIRE(step > handle->step, "step %lld does not come after step %lld, which was told last", (long long)step,
                (long long)handle->step);
    COD_TRY(worker_failure(handle));
    handle->step = step;
    publish(handle, step);
    pthread_mutex_lock(&handle->lock);
    handle->newest = step;
    const int count = count_arrivals(handle);
    pthread_cond_signal(&handle->told);
    pthread_mutex_unlock(&handle->lock);
    if (arrived != NULL)
        *arrived = count;
    return COD_OK;
}

codistill_status codistill_step(codistill *handle, int64_t step, int *arrived)
{
    const double begin = cod_clock_s();
    handle_enter(handle);
    const cod_status status = do_step(handle, step, arrived);
    handle->caller_s += cod_clock_s() - begin;
    return handle_leave(handle, status);
}

/* Merging. */

static void merge(const codistill *handle, const cod_exchange_range *range, const cod_merge *turn)
{
    const library_merge merge = {.first = range->first,
                                 .count = range->count,
                                 .peer = turn->peer->host,
                                 .own = turn->own != NULL ? turn->own->host : NULL,
                                 .alpha = turn->alpha,
                                 .share = handle->share};
    library_tensors_merge(&handle->tensors, &merge);
}

/** Merges all that has come, or only counts it. The worker neither writes nor frees it meanwhile. */
static int each_due(codistill *handle, bool merges)
{
    int count = 0;
    pthread_mutex_lock(&handle->lock);
    for (int p = 0; p < handle->peer_count; p++)
        for (int f = 0; f < cod_exchange_fragments(&handle->settings.exchange); f++) {
            peer_fragment *fragment = &handle->peers[p].fragments[f];
            cod_merge_turn turn = fragment->turn;
            cod_merge due;
            if (!cod_merge_is_due(&handle->settings.exchange, &fragment->held, handle->step, &turn, &due))
                continue;
            count++;
            if (!merges)
                continue;
            merge(handle, &fragment->held.range, &due);
            fragment->turn = turn;
            handle->peers[p].merges++;
        }
    pthread_mutex_unlock(&handle->lock);
    return count;
}

int codistill_mergeable(codistill *handle)
{
    int count = 0;
    handle_enter(handle);
    cod_status status = handle_check(handle);
    if (status == COD_OK)
        count = each_due(handle, false);
    return handle_leave(handle, status) == CODISTILL_OK ? count : 0;
}

static cod_status merge_all(codistill *handle, int *merged)
{
    COD_TRY(handle_check(handle));
    const int count = each_due(handle, true);
    if (merged != NULL)
        *merged = count;
    return COD_OK;
}

codistill_status codistill_merge(codistill *handle, int *merged)
{
    const double begin = cod_clock_s();
    handle_enter(handle);
    const cod_status status = merge_all(handle, merged);
    handle->caller_s += cod_clock_s() - begin;
    return handle_leave(handle, status);
}
