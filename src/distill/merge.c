#include "distill/merge.h"

#include <math.h>
#include <stdlib.h>

struct cod_merger {
    cod_weights *weights;
    float *host;        /**< [trainable + state] */
    cod_buffer *change; /**< the same on the device */
    cod_plan *add;
};

cod_status cod_merger_create(cod_weights *weights, cod_merger **out)
{
    cod_merger *merger = calloc(1, sizeof *merger);
    COD_REQUIRE_MEMORY(merger);
    const size_t count = cod_weights_count(weights);
    merger->weights = weights;
    cod_status status = cod_aligned_alloc((void **)&merger->host, count * sizeof(float));
    if (status == COD_OK)
        status = weights->backend->buffer_create(weights->device, count * sizeof(float), &merger->change);
    if (status == COD_OK) {
        const cod_shape shape = {1, 1, 1, (int64_t)count};
        const cod_op op = {.kind = COD_OP_ADD,
                           .accumulate = true,
                           .attr = {.alpha = 1},
                           .inputs = {cod_view_dense(merger->change, 0, COD_F32, shape)},
                           .outputs = {cod_view_dense(weights->values, 0, COD_F32, shape)},
                           .name = "merge"};
        status = weights->backend->plan_create(weights->device, &op, &merger->add);
    }
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
    if (merger->add != NULL)
        weights->backend->plan_destroy(merger->add);
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
    COD_TRY(weights->backend->plan_run(merger->add, NULL));
    weights->version++;
    return COD_OK;
}
