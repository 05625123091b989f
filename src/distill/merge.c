#include "distill/merge.h"

#include "core/queue.h"

#include <math.h>
#include <stdlib.h>

struct cod_merger {
    cod_weights *weights;
    cod_sets sets;
    cod_layout layout;                      /**< of these sets */
    cod_buffer *host;                       /**< [trainable + state] of them, pinned */
    cod_event *copied;                      /**< it may be written again */
    cod_buffer *change;                     /**< the same on the device */
    cod_plan *adds[2 * COD_GRAPH_MAX_SETS]; /**< to values and states of each set */
    size_t add_count;
};

/** Adds `count` values of the change, from *first on, which moves on, to `target` from byte `offset` on. */
static cod_status plan_add(cod_merger *merger, size_t *first, size_t count, cod_buffer *target, size_t offset)
{
    const cod_weights *weights = merger->weights;
    const cod_shape shape = {1, 1, 1, (int64_t)count};
    const cod_op op = {.kind = COD_OP_ADD,
                       .accumulate = true,
                       .attr = {.alpha = 1},
                       .inputs = {cod_view_dense(merger->change, *first * sizeof(float), COD_F32, shape)},
                       .outputs = {cod_view_dense(target, offset, COD_F32, shape)},
                       .name = "merge"};
    if (count == 0)
        return COD_OK;
    *first += count;
    COD_TRY(weights->backend->plan_create(weights->device, &op, &merger->adds[merger->add_count]));
    merger->add_count++;
    return COD_OK;
}

static cod_status make(cod_merger *merger)
{
    const cod_weights *weights = merger->weights;
    const size_t bytes = (merger->layout.trainable + merger->layout.state) * sizeof(float);
    size_t first = 0, offset;
    COD_TRY(weights->backend->host_buffer_create(weights->device, bytes, &merger->host));
    COD_TRY(cod_event_create(weights->backend, weights->device, &merger->copied));
    COD_TRY(weights->backend->buffer_create(weights->device, bytes, &merger->change));
    for (int state = 0; state < 2; state++) {
        for (int s = 0; s < (int)cod_graph_set_count(weights->graph); s++) {
            const cod_set_range *range = &weights->sets[s].range;
            cod_buffer *states = cod_weights_states(weights, s, &offset);
            if ((merger->sets & cod_set_of(s)) != 0)
                COD_TRY(state ? plan_add(merger, &first, range->state_count, states, offset)
                              : plan_add(merger, &first, range->count, weights->values, range->first * sizeof(float)));
        }
    }
    return COD_OK;
}

cod_status cod_merger_create(cod_weights *weights, cod_sets sets, cod_merger **out)
{
    cod_merger *merger = calloc(1, sizeof *merger);
    COD_REQUIRE_MEMORY(merger);
    merger->weights = weights;
    merger->sets = sets;
    merger->layout = cod_weights_layout_of(weights, sets);
    const cod_status status = make(merger);
    if (status != COD_OK) {
        cod_merger_destroy(merger);
        return status;
    }
    *out = merger;
    return COD_OK;
}

void cod_merger_destroy(cod_merger *merger)
{
    if (merger == NULL)
        return;
    const cod_weights *weights = merger->weights;
    for (size_t i = 0; i < merger->add_count; i++)
        weights->backend->plan_destroy(merger->adds[i]);
    if (merger->change != NULL)
        weights->backend->buffer_destroy(weights->device, merger->change);
    cod_event_destroy(weights->backend, merger->copied);
    if (merger->host != NULL)
        weights->backend->host_buffer_destroy(weights->device, merger->host);
    free(merger);
}

double cod_merge_alpha(int64_t delay)
{
    return sin(3.14159265358979323846 / (4.0 * (double)delay + 2.0));
}

cod_status cod_merger_apply(cod_merger *merger, const float *peer, const float *own, double alpha, double share)
{
    cod_weights *weights = merger->weights;
    const cod_backend *backend = weights->backend;
    const size_t trainable = merger->layout.trainable, count = trainable + merger->layout.state;
    const float factor = (float)(alpha * share);
    float *const host = merger->host->host;
    COD_TRY(cod_event_wait(backend, merger->copied));
    COD_TRY(own == NULL ? cod_weights_download_sets(weights, merger->sets, host)
                        : cod_weights_download_states(weights, merger->sets, host + trainable));
    for (size_t i = 0; i < trainable; i++)
        host[i] = factor * (peer[i] - (own != NULL ? own[i] : host[i]));
    for (size_t i = trainable; i < count; i++)
        host[i] = (float)share * (peer[i] - host[i]);
    COD_TRY(backend->copy(weights->device, NULL, merger->change, 0, merger->host, 0, count * sizeof(float)));
    COD_TRY(cod_event_record(backend, merger->copied, NULL));
    for (size_t i = 0; i < merger->add_count; i++)
        COD_TRY(backend->plan_run(merger->adds[i], NULL));
    cod_weights_changed(weights, merger->sets);
    cod_weights_states_changed(weights, merger->sets);
    return COD_OK;
}
