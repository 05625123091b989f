#include "train/group_average.h"

#include "core/trace.h"

#include <stdlib.h>

cod_status cod_group_average_start(cod_group_average *average, cod_train_context *context, cod_bucket bucket,
                                   cod_event *ready)
{
    cod_collective *collective = context->collective;
    if (collective->size == 1)
        return COD_OK;
    if (average->count == average->capacity) { /* in the first step alone */
        const size_t more = 2 * average->capacity + 16;
        cod_reduction **larger = realloc(average->reductions, more * sizeof(cod_reduction *));
        COD_REQUIRE_MEMORY(larger);
        average->reductions = larger;
        average->capacity = more;
    }
    COD_TRY(collective->ops->average_start(collective, context->session->weights.grads, bucket.first * sizeof(float),
                                           bucket.count, ready, &average->reductions[average->count]));
    average->count++;
    return COD_OK;
}

void cod_group_average_clear(cod_group_average *average)
{
    free(average->reductions);
    *average = (cod_group_average){0};
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
