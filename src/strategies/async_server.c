#include "strategies/async_internal.h"

#include "core/trace.h"

#include <math.h>
#include <string.h>

void async_part(size_t trainable, int servers, int index, size_t *first, size_t *count)
{
    const size_t n = (size_t)servers, s = (size_t)index;
    *first = trainable / n * s + trainable % n * s / n;
    *count = trainable / n * (s + 1) + trainable % n * (s + 1) / n - *first;
}

static uint64_t slowest(const async_strategy *a)
{
    uint64_t least = UINT64_MAX;
    for (size_t w = 0; w < a->link_count; w++)
        least = a->links[w].updates < least ? a->links[w].updates : least;
    return least;
}

/** The link of the worker whose statistics the first server has. */
static bool brings_statistics(const async_strategy *a, const async_link *link)
{
    return link == &a->links[0] && a->server == 0;
}

/**
 * Starts receiving a push that has come: nothing is asked for that might never come. It arrives while this rank
 * evaluates or writes a checkpoint, so nothing of it goes into the weights before it is applied.
 */
static cod_status look(async_strategy *a, async_link *link)
{
    const cod_train_context *context = a->context;
    bool found;
    COD_TRY(cod_message_probe(context->comm, link->world_rank, ASYNC_TAG_PUSH, &found, NULL));
    if (!found)
        return COD_OK;
    link->state = ASYNC_RECEIVING;
    COD_TRY(cod_transfers_receive(&link->moving, context->comm, link->world_rank, ASYNC_TAG_PUSH, &link->header,
                                  sizeof link->header));
    COD_TRY(cod_transfers_receive(&link->moving, context->comm, link->world_rank, ASYNC_TAG_GRADIENT, link->message,
                                  (size_t)a->push.bytes));
    if (!brings_statistics(a, link))
        return COD_OK;
    return cod_transfers_receive(&link->moving, context->comm, link->world_rank, ASYNC_TAG_STATISTICS, a->statistics,
                                 context->session->weights.layout.state * sizeof(float));
}

static cod_status take_statistics(async_strategy *a)
{
    cod_weights *weights = &a->context->session->weights;
    memcpy(a->values.host + weights->layout.trainable, a->statistics, weights->layout.state * sizeof(float));
    cod_weights_states_changed(weights, COD_ALL_SETS);
    return cod_mirror_return(&a->values, weights->layout.trainable, weights->layout.state);
}

/** One update, by the gradient that has come. */
static cod_status apply(async_strategy *a, async_link *link)
{
    cod_train_context *context = a->context;
    const async_header *header = &link->header;
    float *gradients = a->gradients.host + a->first;
    if (header->updates != link->updates + 1 || header->version > a->version || !isfinite(header->rate))
        return cod_fail(COD_ERR_FORMAT,
                        "rank %d pushed its update %llu of version %llu after update %llu, version %llu",
                        link->world_rank, (unsigned long long)header->updates, (unsigned long long)header->version,
                        (unsigned long long)link->updates, (unsigned long long)a->version);
    COD_TRY(cod_gradient_codec_decode(&a->push, link->message, header->updates, gradients));
    COD_TRY(cod_mirror_return(&a->gradients, a->first, a->count));
    if (brings_statistics(a, link))
        COD_TRY(take_statistics(a));
    const uint64_t staleness = a->version - header->version;
    const double divisor = a->options.staleness_aware && staleness > 1 ? (double)staleness : 1;
    COD_TRY(cod_optimiser_step(context->session->optimisers[0], header->rate / divisor, (int64_t)++a->version));
    COD_TRY(cod_mirror_fetch(&a->values, a->first, a->count)); /* a device is then done with the gradients, too */
    a->staleness += staleness;
    a->staleness_max = staleness > a->staleness_max ? staleness : a->staleness_max;
    link->updates++;
    link->state = ASYNC_HELD;
    return COD_OK;
}

/**
 * Codes the weights, or their change since this worker's last pull, into the message; both sides then have the same
 * values.
 */
static cod_status code(async_strategy *a, async_link *link)
{
    const float *values = a->values.host + a->first;
    float *decoded = a->gradients.host + a->first;
    if (link->known == NULL)
        return cod_gradient_codec_encode(&a->pull, values, a->version, link->message, NULL);
    for (size_t i = 0; i < a->count; i++)
        a->change[i] = values[i] - link->known[i];
    COD_TRY(cod_gradient_codec_encode(&a->pull, a->change, a->version, link->message, decoded));
    for (size_t i = 0; i < a->count; i++)
        link->known[i] += decoded[i];
    return COD_OK;
}

static cod_status reply(async_strategy *a, async_link *link)
{
    cod_comm *comm = a->context->comm;
    const cod_status status = code(a, link);
    if (status != COD_OK)
        return cod_fail_prefix(status, "the weights became NaN or infinite at step %lld; try a lower train.rate",
                               (long long)a->context->step);
    link->version = a->version;
    link->header = (async_header){.updates = link->updates, .version = a->version};
    link->state = ASYNC_SENDING;
    COD_TRY(
        cod_transfers_send(&link->moving, comm, link->world_rank, ASYNC_TAG_PULL, &link->header, sizeof link->header));
    return cod_transfers_send(&link->moving, comm, link->world_rank, ASYNC_TAG_WEIGHTS, link->message,
                              (size_t)a->pull.bytes);
}

/** A worker that is too far ahead of the slowest gets its weights later. */
static cod_status reply_to_all(async_strategy *a)
{
    const uint64_t least = slowest(a);
    for (size_t w = 0; w < a->link_count; w++)
        if (a->links[w].state == ASYNC_HELD && a->links[w].updates - least <= (uint64_t)a->options.max_delay)
            COD_TRY(reply(a, &a->links[w]));
    return COD_OK;
}

/** Does what can be done for a worker without waiting. */
static cod_status advance(async_strategy *a, size_t w, bool *moved)
{
    async_link *link = &a->links[w];
    const async_state before = link->state;
    bool done = false;
    if (link->state == ASYNC_IDLE)
        COD_TRY(look(a, link));
    if (link->state == ASYNC_RECEIVING || link->state == ASYNC_SENDING) {
        COD_TRY(cod_transfers_test(&link->moving, &done));
        link->state = !done ? link->state : link->state == ASYNC_SENDING ? ASYNC_IDLE : ASYNC_RECEIVED;
    }
    if (link->state == ASYNC_RECEIVED && (!a->context->config->train.deterministic || a->turn == (int)w)) {
        COD_TRY(apply(a, link));
        a->turn = (int)((w + 1) % a->link_count);
        COD_TRY(reply_to_all(a));
    }
    *moved = *moved || link->state != before;
    return COD_OK;
}

cod_status async_serve(async_strategy *a)
{
    const uint64_t wanted = (uint64_t)a->context->step + 1;
    unsigned looks = 0;
    if (!a->begun)
        for (size_t w = 0; w < a->link_count; w++)
            a->links[w].updates = wanted - 1;
    a->begun = true;
    while (slowest(a) < wanted) {
        bool moved = false;
        for (size_t w = 0; w < a->link_count; w++)
            COD_TRY(advance(a, w, &moved));
        if (moved)
            looks = 0;
        else
            cod_comm_pause(&looks);
    }
    return COD_OK;
}

static cod_status move_part(async_strategy *a, cod_transfers *list, int server, cod_mirror *mirror)
{
    const cod_train_context *context = a->context;
    const int rank = cod_group_world_rank(context->group, cod_group_index(context->group), server);
    size_t first, count;
    if (server == 0) {
        COD_TRY(cod_mirror_fetch(mirror, a->first, a->count));
        return cod_transfers_send(list, context->comm, rank, ASYNC_TAG_PART, mirror->host + a->first,
                                  a->count * sizeof(float));
    }
    async_part(context->session->weights.layout.trainable, a->servers, server, &first, &count);
    COD_TRY(cod_mirror_wait(mirror));
    return cod_transfers_receive(list, context->comm, rank, ASYNC_TAG_PART, mirror->host + first,
                                 count * sizeof(float));
}

/** The other servers' parts, which have come, to the first one's device. */
static cod_status return_parts(async_strategy *a, cod_mirror *mirror)
{
    const size_t end = a->first + a->count;
    return cod_mirror_return(mirror, end, a->context->session->weights.layout.trainable - end);
}

cod_status async_gather(async_strategy *a)
{
    cod_train_context *context = a->context;
    cod_mirror *const mirrors[] = {&a->values, &a->average};
    const bool first = a->server == 0;
    cod_transfers list = {0};
    cod_status status = COD_OK;
    const double trace = cod_trace_begin();
    for (int s = first ? 1 : 0; s < (first ? a->servers : 1) && status == COD_OK; s++)
        for (size_t b = 0; b < 2 && status == COD_OK; b++)
            if (mirrors[b]->host != NULL)
                status = move_part(a, &list, s, mirrors[b]);
    COD_THEN(status, cod_transfers_wait(&list));
    for (size_t b = 0; b < 2 && status == COD_OK && first; b++)
        if (mirrors[b]->host != NULL)
            status = return_parts(a, mirrors[b]);
    cod_transfers_clear(&list);
    cod_weights_changed(&context->session->weights, COD_ALL_SETS);
    cod_trace_end(trace, "exchange", "gather");
    return status;
}

cod_status async_flush(async_strategy *a)
{
    for (size_t w = 0; w < a->link_count; w++)
        COD_TRY(cod_transfers_wait(&a->links[w].moving));
    return COD_OK;
}
