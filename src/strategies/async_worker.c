#include "strategies/async_internal.h"

/**
 * Leaves in the message what is pushed of the link's part, and in the residual what that loses; gradients are scratch
 * then.
 */
static cod_status code(async_strategy *a, async_link *link, float *gradients)
{
    float *residual = a->residual + link->first;
    for (size_t i = 0; i < link->count; i++)
        residual[i] += gradients[i];
    const cod_status status = cod_gradient_codec_encode(&link->push, residual, link->updates, link->message, gradients);
    if (status != COD_OK)
        return cod_fail_prefix(status, "the gradients became NaN or infinite at step %lld; try a lower train.rate",
                               (long long)a->context->step);
    for (size_t i = 0; i < link->count; i++)
        residual[i] -= gradients[i];
    return COD_OK;
}

static bool brings_statistics(const async_strategy *a)
{
    return cod_group_rank(a->context->group) == a->servers;
}

cod_status async_fetch(async_strategy *a)
{
    const cod_layout *layout = &a->context->session->weights.layout;
    if (brings_statistics(a))
        COD_TRY(cod_mirror_fetch(&a->values, layout->trainable, layout->state));
    return cod_mirror_fetch(&a->gradients, 0, layout->trainable);
}

cod_status async_push(async_strategy *a)
{
    const cod_train_context *context = a->context;
    const cod_layout *layout = &context->session->weights.layout;
    float *statistics = a->values.host + layout->trainable;
    for (size_t s = 0; s < a->link_count; s++) {
        async_link *link = &a->links[s];
        float *gradients = a->gradients.host + link->first;
        link->updates = (uint64_t)context->step + 1;
        link->header = (async_header){.updates = link->updates,
                                      .version = link->version,
                                      .rate = cod_train_session_rate(context->session, 0, context->step)};
        if (a->residual != NULL)
            COD_TRY(code(a, link, gradients));
        const void *payload = a->residual != NULL ? (const void *)link->message : gradients;
        COD_TRY(cod_transfers_send(&link->moving, context->comm, link->world_rank, ASYNC_TAG_PUSH, &link->header,
                                   sizeof link->header));
        COD_TRY(cod_transfers_send(&link->moving, context->comm, link->world_rank, ASYNC_TAG_GRADIENT, payload,
                                   (size_t)link->push.bytes));
        if (brings_statistics(a) && s == 0)
            COD_TRY(cod_transfers_send(&link->moving, context->comm, link->world_rank, ASYNC_TAG_STATISTICS, statistics,
                                       layout->state * sizeof(float)));
    }
    for (size_t s = 0; s < a->link_count; s++)
        COD_TRY(cod_transfers_wait(&a->links[s].moving));
    return COD_OK;
}

/** The weights move by what the server says that they moved by. */
static cod_status take_over(async_strategy *a, async_link *link)
{
    float *values = a->values.host + link->first;
    float *change = a->gradients.host + link->first;
    link->version = link->header.version;
    if (a->options.pull_codec == COD_GRADIENT_NONE)
        return COD_OK;
    COD_TRY(cod_gradient_codec_decode(&link->pull, link->message, link->version, change));
    for (size_t i = 0; i < link->count; i++)
        values[i] += change[i];
    return COD_OK;
}

cod_status async_pull(async_strategy *a)
{
    cod_train_context *context = a->context;
    cod_weights *weights = &context->session->weights;
    COD_TRY(cod_mirror_wait(&a->values));
    for (size_t s = 0; s < a->link_count; s++) {
        async_link *link = &a->links[s];
        const bool exact = a->options.pull_codec == COD_GRADIENT_NONE;
        void *target = exact ? (void *)(a->values.host + link->first) : link->message;
        COD_TRY(cod_transfers_receive(&link->moving, context->comm, link->world_rank, ASYNC_TAG_PULL, &link->header,
                                      sizeof link->header));
        COD_TRY(cod_transfers_receive(&link->moving, context->comm, link->world_rank, ASYNC_TAG_WEIGHTS, target,
                                      (size_t)link->pull.bytes));
    }
    for (size_t s = 0; s < a->link_count; s++) {
        COD_TRY(cod_transfers_wait(&a->links[s].moving));
        COD_TRY(take_over(a, &a->links[s]));
    }
    cod_weights_changed(weights, COD_ALL_SETS);
    return cod_mirror_return(&a->values, 0, weights->layout.trainable);
}
