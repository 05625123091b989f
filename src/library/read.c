/* What a handle knows of its peers and of itself. */
#include "library/calls_internal.h"

#include <math.h>

int codistill_peer_count(const codistill *handle)
{
    return handle->peer_count;
}

static cod_status check_peer(const codistill *handle, int peer)
{
    COD_TRY(handle_check(handle));
    COD_REQUIRE(peer >= 0 && peer < handle->peer_count, "peer %d: there are %d, counted from 0", peer,
                handle->peer_count);
    return COD_OK;
}

/** Step of the oldest fragment that has come; 0 = not all have. With the lock. */
static int64_t step_of(const codistill *handle, int peer, double *age_s)
{
    int64_t oldest = INT64_MAX;
    *age_s = NAN;
    for (int f = 0; f < cod_exchange_fragments(&handle->settings.exchange); f++) {
        const cod_exchange_checkpoint *held = &handle->peers[peer].fragments[f].held;
        if (held->version == 0)
            return 0;
        oldest = held->step < oldest ? held->step : oldest;
        *age_s = fmax(*age_s, held->age_s);
    }
    return oldest;
}

static cod_status read_peer(codistill *handle, int peer, codistill_peer *out)
{
    COD_TRY(check_peer(handle, peer));
    pthread_mutex_lock(&handle->lock);
    const handle_peer *known = &handle->peers[peer];
    *out = (codistill_peer){.group = known->group,
                            .pulled = known->counters.pulled,
                            .rejected = known->counters.rejected,
                            .lost = known->counters.lost,
                            .bytes = known->counters.bytes,
                            .merged = known->merges};
    out->step = step_of(handle, peer, &out->age_s);
    pthread_mutex_unlock(&handle->lock);
    return COD_OK;
}

codistill_status codistill_read_peer(codistill *handle, int peer, codistill_peer *out)
{
    handle_enter(handle);
    return handle_leave(handle, read_peer(handle, peer, out));
}

static cod_status peer_weights(codistill *handle, int peer, void *const *targets, int64_t *step)
{
    double age_s;
    COD_TRY(check_peer(handle, peer));
    pthread_mutex_lock(&handle->lock);
    *step = step_of(handle, peer, &age_s);
    for (int f = 0; *step > 0 && f < cod_exchange_fragments(&handle->settings.exchange); f++) {
        const cod_exchange_checkpoint *held = &handle->peers[peer].fragments[f].held;
        library_tensors_write(&handle->tensors, held->range.first, held->range.count, held->values->host, targets);
    }
    pthread_mutex_unlock(&handle->lock);
    return COD_OK;
}

codistill_status codistill_peer_weights(codistill *handle, int peer, void *const *targets, int64_t *step)
{
    handle_enter(handle);
    return handle_leave(handle, peer_weights(handle, peer, targets, step));
}

static cod_status read_figures(codistill *handle, codistill_figures *out)
{
    COD_TRY(handle_check(handle));
    pthread_mutex_lock(&handle->lock);
    *out = (codistill_figures){.published = handle->counters.published,
                               .published_bytes = handle->counters.published_bytes,
                               .skipped = handle->left_out + handle->counters.skipped - handle->counted,
                               .pulled = handle->counters.pulled,
                               .pulled_bytes = handle->counters.pulled_bytes,
                               .memory_bytes = handle->memory_bytes,
                               .caller_s = handle->caller_s};
    pthread_mutex_unlock(&handle->lock);
    return COD_OK;
}

codistill_status codistill_read_figures(codistill *handle, codistill_figures *out)
{
    handle_enter(handle);
    return handle_leave(handle, read_figures(handle, out));
}
