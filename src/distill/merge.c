#include "distill/merge.h"

#include <math.h>
#include <stdlib.h>

struct cod_merger {
    cod_weights *weights;
    float *host;        /**< [trainable + state] */
    cod_buffer *change; /**< the same on the device */
    cod_plan *add[2];   /**< to trainable values, to states; NULL = there are none */
};

/** Adds `count` values of the change, from `first` on, to `target` from byte `offset` on. */
static cod_status plan_add(cod_merger *merger, size_t first, size_t count, cod_buffer *target, size_t offset,
                           cod_plan **plan)
{
    const cod_weights *weights = merger->weights;
    const cod_shape shape = {1, 1, 1, (int64_t)count};
    const cod_op op = {.kind = COD_OP_ADD,
                       .accumulate = true,
                       .attr = {.alpha = 1},
                       .inputs = {cod_view_dense(merger->change, first * sizeof(float), COD_F32, shape)},
                       .outputs = {cod_view_dense(target, offset, COD_F32, shape)},
                       .name = "merge"};
    return count > 0 ? weights->backend->plan_create(weights->device, &op, plan) : COD_OK;
}

static cod_status make(cod_merger *merger)
{
    const cod_weights *weights = merger->weights;
    const cod_layout *layout = &weights->layout;
    const size_t bytes = cod_weights_count(weights) * sizeof(float);
    size_t offset;
    cod_buffer *states = cod_weights_states(weights, 0, &offset);
    COD_TRY(cod_aligned_alloc((void **)&merger->host, bytes));
    COD_TRY(weights->backend->buffer_create(weights->device, bytes, &merger->change));
    COD_TRY(plan_add(merger, 0, layout->trainable, weights->values, 0, &merger->add[0]));
    return plan_add(merger, layout->trainable, layout->state, states, offset, &merger->add[1]);
}

cod_status cod_merger_create(cod_weights *weights, cod_merger **out)
{
    cod_merger *merger = calloc(1, sizeof *merger);
    COD_REQUIRE_MEMORY(merger);
    merger->weights = weights;
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
    for (int i = 0; i < 2; i++)
        if (merger->add[i] != NULL)
            weights->backend->plan_destroy(merger->add[i]);
    if (merger->change != NULL)
        weights->backend->buffer_destroy(weights->device, merger->change);
    cod_aligned_free(merger->host);
    free(merger);
}

double cod_merge_alpha(int64_t delay)
{
    return sin(3.14159265358979323846 / (4.0 * (double)delay + 2.0));
}

cod_status cod_merger_apply(cod_merger *merger, const float *peer, const float *own, double alpha, double share)
{
    cod_weights *weights = merger->weights;
    const size_t trainable = weights->layout.trainable, count = cod_weights_count(weights);
    const float factor = (float)(alpha * share);
    if (weights->layout.state > 0 || own == NULL)
        COD_TRY(cod_weights_download(weights, merger->host));
    for (size_t i = 0; i < trainable; i++)
        merger->host[i] = factor * (peer[i] - (own != NULL ? own[i] : merger->host[i]));
    for (size_t i = trainable; i < count; i++)
        merger->host[i] = (float)share * (peer[i] - merger->host[i]);
    COD_TRY(weights->backend->upload(weights->device, NULL, merger->change, 0, merger->host, count * sizeof(float)));
    for (int i = 0; i < 2; i++)
        if (merger->add[i] != NULL)
            COD_TRY(weights->backend->plan_run(merger->add[i], NULL));
    cod_weights_changed(weights, COD_ALL_SETS);
    cod_weights_states_changed(weights, COD_ALL_SETS);
    return COD_OK;
}
