#include "train/group_average.h"

#include "core/trace.h"

cod_status cod_group_average_start(cod_group_average *average, cod_train_context *context, cod_bucket bucket,
                                   cod_event *ready)
{
    cod_collective *collective = context->collective;
    if (collective->size == 1)
        return COD_OK;
    COD_REQUIRE(average->count < COD_GROUP_AVERAGE_MAX, "more than %d gradient buckets; raise train.bucket_kb",
                COD_GROUP_AVERAGE_MAX);
    COD_TRY(collective->ops->average_start(collective, context->session->weights.grads, bucket.first * sizeof(float),
                                           bucket.count, ready, &average->reductions[average->count]));
    average->count++;
    return COD_OK;
}

cod_status cod_group_average_wait(cod_group_average *average, cod_train_context *context)
{
    const double begin = cod_clock_s();
    cod_status status = COD_OK;
    for (size_t i = 0; i < average->count; i++) {
        const cod_status ended = context->collective->ops->wait(average->reductions[i], NULL);
        status = status == COD_OK ? ended : status;
    }
    average->waited_s += average->count > 0 ? cod_clock_s() - begin : 0;
    average->count = 0;
    return status;
}
