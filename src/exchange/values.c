/*
 * The buffers of what an exchange holds: of the device where it codes, else of the host's memory, which the group's
 * ranks share where they can.
 */
#include "core/host_memory.h"
#include "core/memory.h"
#include "exchange/exchange_internal.h"

#include <stdlib.h>

/** What the i-th of exchange_publisher_held() is of. */
static cod_exchange_range own_range(const cod_exchange *e, int i)
{
    return cod_exchange_fragment_range(&e->setup.options, exchange_own_model(&e->setup), i % e->setup.fragments);
}

/** Values of the largest fragment of the own model. */
static uint64_t largest_fragment(const cod_exchange *e)
{
    uint64_t most = 0;
    for (int f = 0; f < e->setup.fragments; f++) {
        const uint64_t count = own_range(e, f).count;
        most = count > most ? count : most;
    }
    return most;
}

cod_status exchange_share_values(cod_exchange *e)
{
    size_t bytes = cod_align_up(largest_fragment(e) * sizeof(float));
    for (int i = 0; i < exchange_publisher_held_count(&e->publisher); i++)
        bytes += cod_align_up(own_range(e, i).count * sizeof(float));
    for (int i = 0; i < e->puller.peer_count; i++)
        bytes += 2 * cod_align_up(e->puller.peers[i].range.count * sizeof(float));
    if (e->setup.size > 1 && e->setup.publishes)
        COD_TRY(cod_group_memory_create(e->setup.group, bytes, &e->setup.shared));
    if (e->setup.shared != NULL)
        e->setup.holders = cod_group_holders_of(e->setup.group, e->setup.rank);
    return COD_OK;
}

/** The next part of what is held together: ranks make their buffers in one order. */
static cod_status share_floats(cod_exchange *e, size_t bytes, cod_buffer **out)
{
    cod_buffer *buffer = malloc(sizeof *buffer);
    COD_REQUIRE_MEMORY(buffer);
    *buffer = (cod_buffer){.host = (char *)cod_group_memory_data(e->setup.shared) + e->shared_used, .bytes = bytes};
    e->shared_used += cod_align_up(bytes);
    *out = buffer;
    return COD_OK;
}

static cod_status floats_create(cod_exchange *e, uint64_t count, cod_buffer **out)
{
    const size_t bytes = count * sizeof(float);
    if (e->setup.shared != NULL)
        return share_floats(e, bytes, out);
    return e->setup.codes_on_device ? e->setup.backend->buffer_create(e->setup.device, bytes, out)
                                    : cod_host_buffer_create(NULL, bytes, out);
}

static void floats_destroy(cod_exchange *e, cod_buffer **buffer)
{
    if (e->setup.shared != NULL)
        free(*buffer);
    else if (*buffer != NULL && e->setup.codes_on_device)
        e->setup.backend->buffer_destroy(e->setup.device, *buffer);
    else if (*buffer != NULL)
        cod_host_buffer_destroy(NULL, *buffer);
    *buffer = NULL;
}

/**
 * Pinned where a device copies to it and the host codes. Where it is shared, cod_exchange_snapshot() makes the buffer
 * this rank's part.
 */
static cod_status snapshot_create(cod_exchange *e)
{
    const uint64_t count = largest_fragment(e);
    if (e->setup.backend != NULL && !e->setup.codes_on_device)
        return e->setup.backend->host_buffer_create(e->setup.device, count * sizeof(float), &e->publisher.snapshot);
    COD_TRY(floats_create(e, count, &e->publisher.snapshot));
    e->publisher.snapshot_of_node = e->setup.shared != NULL ? exchange_floats(e->publisher.snapshot) : NULL;
    return COD_OK;
}

cod_status exchange_make_values(cod_exchange *e)
{
    if (!e->setup.publishes)
        return COD_OK;
    COD_TRY(snapshot_create(e));
    for (int i = 0; i < exchange_publisher_held_count(&e->publisher); i++)
        COD_TRY(floats_create(e, own_range(e, i).count, exchange_publisher_held(&e->publisher, i)));
    for (int i = 0; i < e->puller.peer_count; i++) {
        held_peer *peer = &e->puller.peers[i];
        COD_TRY(floats_create(e, peer->range.count, &peer->values));
        COD_TRY(floats_create(e, peer->range.count, &peer->incoming));
    }
    return COD_OK;
}

void exchange_free_values(cod_exchange *e)
{
    const cod_status ended = cod_event_wait(e->setup.backend, e->publisher.copied);
    (void)ended; /* a device that failed has said so to whoever used it */
    for (int i = 0; i < e->puller.peer_count; i++) {
        floats_destroy(e, &e->puller.peers[i].values);
        floats_destroy(e, &e->puller.peers[i].incoming);
    }
    for (int i = 0; e->publisher.chains != NULL && i < exchange_publisher_held_count(&e->publisher); i++)
        floats_destroy(e, exchange_publisher_held(&e->publisher, i));
    if (e->publisher.snapshot != NULL && e->setup.backend != NULL && !e->setup.codes_on_device)
        e->setup.backend->host_buffer_destroy(e->setup.device, e->publisher.snapshot);
    else
        floats_destroy(e, &e->publisher.snapshot);
    e->publisher.snapshot = NULL;
    cod_group_memory_destroy(e->setup.shared);
    e->setup.shared = NULL;
    e->shared_used = 0;
    e->setup.holders = (cod_group_holders){.first = e->setup.rank, .count = 1};
}
