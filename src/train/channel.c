#include "train/channel.h"

#include "core/memory.h"
#include "core/trace.h"

#include <math.h>

cod_status cod_channel_init(cod_channel *channel, cod_comm *comm, int world_rank, int tag, size_t bytes)
{
    *channel = (cod_channel){.comm = comm, .rank = world_rank, .tag = tag, .bytes = bytes};
    for (int i = 0; i < COD_CHANNEL_ROOM && bytes > 0; i++)
        COD_TRY(cod_aligned_alloc(&channel->buffers[i], bytes));
    return COD_OK;
}

void cod_channel_clear(cod_channel *channel)
{
    for (int i = 0; i < COD_CHANNEL_ROOM; i++)
        cod_aligned_free(channel->buffers[i]);
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

cod_status cod_channel_room(cod_channel *channel, void **data)
{
    *data = channel->buffers[channel->started % COD_CHANNEL_ROOM];
    return wait_for(channel, channel->started);
}

cod_status cod_channel_send(cod_channel *channel)
{
    const size_t slot = channel->started++ % COD_CHANNEL_ROOM;
    return channel->bytes > 0 ? cod_message_send_start(channel->comm, channel->rank, channel->tag,
                                                       channel->buffers[slot], channel->bytes, &channel->requests[slot])
                              : COD_OK;
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
        COD_TRY(cod_message_receive_start(channel->comm, channel->rank, channel->tag, channel->buffers[slot],
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

cod_status cod_channel_receive(cod_channel *channel, const void **data)
{
    *data = channel->buffers[channel->ended % COD_CHANNEL_ROOM];
    return wait_for(channel, channel->ended);
}

cod_status cod_channel_release(cod_channel *channel)
{
    channel->ended++;
    return receive_ahead(channel);
}
