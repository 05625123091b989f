#include "strategies/channel.h"

#include "core/trace.h"

#include <math.h>

cod_status cod_channel_init(cod_channel *channel, cod_comm *comm, const cod_backend *backend, cod_device *device,
                            int world_rank, int tag, size_t bytes)
{
    *channel = (cod_channel){
        .comm = comm, .backend = backend, .device = device, .rank = world_rank, .tag = tag, .bytes = bytes};
    for (int i = 0; i < COD_CHANNEL_ROOM && bytes > 0; i++) {
        COD_TRY(backend->host_buffer_create(device, bytes, &channel->buffers[i]));
        COD_TRY(cod_event_create(backend, device, &channel->copied[i]));
    }
    return COD_OK;
}

void cod_channel_clear(cod_channel *channel)
{
    for (int i = 0; i < COD_CHANNEL_ROOM; i++) {
        const cod_status ended = cod_event_wait(channel->backend, channel->copied[i]);
        (void)ended; /* a failed device has reported its failure to its user */
        cod_event_destroy(channel->backend, channel->copied[i]);
        if (channel->buffers[i] != NULL)
            channel->backend->host_buffer_destroy(channel->device, channel->buffers[i]);
    }
    *channel = (cod_channel){0};
}

/** Waits for the request of the n-th message. */
static cod_status wait_for(cod_channel *channel, uint64_t message)
{
    cod_request **request = &channel->requests[message % COD_CHANNEL_ROOM];
    bool done;
    COD_TRY(cod_request_test(request, &done));
    if (done)
        return COD_OK;
    const double begin = cod_clock_s(), trace = cod_trace_begin();
    COD_TRY(cod_request_wait(request, INFINITY));
    cod_trace_end(trace, "comm", "wait for a stage");
    channel->waited_s += cod_clock_s() - begin;
    return COD_OK;
}

cod_status cod_channel_room(cod_channel *channel, cod_buffer **message)
{
    *message = channel->buffers[channel->started % COD_CHANNEL_ROOM];
    return wait_for(channel, channel->started);
}

cod_status cod_channel_send(cod_channel *channel)
{
    const size_t slot = channel->started++ % COD_CHANNEL_ROOM;
    if (channel->bytes == 0)
        return COD_OK;
    COD_TRY(cod_event_record(channel->backend, channel->copied[slot], NULL));
    COD_TRY(cod_event_wait(channel->backend, channel->copied[slot]));
    return cod_message_send_start(channel->comm, channel->rank, channel->tag, channel->buffers[slot]->host,
                                  channel->bytes, &channel->requests[slot]);
}

cod_status cod_channel_flush(cod_channel *channel)
{
    for (int i = 0; i < COD_CHANNEL_ROOM; i++)
        COD_TRY(wait_for(channel, (uint64_t)i));
    return COD_OK;
}

/** Begins to receive as much as there is room for. */
static cod_status receive_ahead(cod_channel *channel)
{
    while (channel->bytes > 0 && channel->started < channel->expected &&
           channel->started < channel->ended + COD_CHANNEL_ROOM) {
        const size_t slot = channel->started % COD_CHANNEL_ROOM;
        bool copied;
        COD_TRY(cod_event_query(channel->backend, channel->copied[slot], &copied));
        if (!copied)
            return COD_OK;
        COD_TRY(cod_message_receive_start(channel->comm, channel->rank, channel->tag, channel->buffers[slot]->host,
                                          channel->bytes, &channel->requests[slot]));
        channel->started++;
    }
    return COD_OK;
}

cod_status cod_channel_expect(cod_channel *channel, uint64_t count)
{
    channel->expected += count;
    return receive_ahead(channel);
}

cod_status cod_channel_receive(cod_channel *channel, cod_buffer **message)
{
    const size_t slot = channel->ended % COD_CHANNEL_ROOM;
    *message = channel->buffers[slot];
    if (channel->started == channel->ended) /* not begun, for the copies from there */
        COD_TRY(cod_event_wait(channel->backend, channel->copied[slot]));
    COD_TRY(receive_ahead(channel));
    return wait_for(channel, channel->ended);
}

cod_status cod_channel_release(cod_channel *channel)
{
    COD_TRY(cod_event_record(channel->backend, channel->copied[channel->ended % COD_CHANNEL_ROOM], NULL));
    channel->ended++;
    return receive_ahead(channel);
}
