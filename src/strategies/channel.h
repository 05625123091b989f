/**
 * @file
 * Messages of equal size between two ranks, in order, several at a time; for the stages of a pipeline.
 *
 * A message is in pinned memory, which a device's default queue copies to and from. The host waits for a device only
 * before it sends a message, because MPI needs its bytes. The memory of a received message is reused only after the
 * copies from it are done.
 */
#ifndef COD_STRATEGIES_CHANNEL_H
#define COD_STRATEGIES_CHANNEL_H

#include "comm/message.h"
#include "core/queue.h"

enum { COD_CHANNEL_ROOM = 2 /**< messages in progress; more would not be consumed sooner */ };

/** One end, which sends or receives. Zeroed, or of no bytes: nothing passes, and all calls do nothing. */
typedef struct cod_channel {
    cod_comm *comm;             /**< borrowed */
    const cod_backend *backend; /**< borrowed, as device */
    cod_device *device;
    int rank, tag; /**< world rank of the other end */
    size_t bytes;
    cod_buffer *buffers[COD_CHANNEL_ROOM]; /**< pinned */
    cod_event *copied[COD_CHANNEL_ROOM];   /**< to them, or from them */
    cod_request *requests[COD_CHANNEL_ROOM];
    uint64_t started, ended; /**< messages */
    uint64_t expected;       /**< receiving: number of messages to come in all */
    double waited_s;
} cod_channel;

COD_MUST_CHECK cod_status cod_channel_init(cod_channel *channel, cod_comm *comm, const cod_backend *backend,
                                           cod_device *device, int world_rank, int tag, size_t bytes);
/** No message may be in progress; waits for copies in progress. */
void cod_channel_clear(cod_channel *channel);

/**
 * Waits until there is room for one more message, to be written to *message, [bytes], by copies of the default queue;
 * cod_channel_send() then waits for these and starts it.
 */
COD_MUST_CHECK cod_status cod_channel_room(cod_channel *channel, cod_buffer **message);
COD_MUST_CHECK cod_status cod_channel_send(cod_channel *channel);
/** Waits until all messages have left. */
COD_MUST_CHECK cod_status cod_channel_flush(cod_channel *channel);

/** Announces that `count` more messages will come, and begins to receive the first. */
COD_MUST_CHECK cod_status cod_channel_expect(cod_channel *channel, uint64_t count);
/**
 * Waits for the next message, which stays at *message until copies from it that are queued before cod_channel_release()
 * are done.
 */
COD_MUST_CHECK cod_status cod_channel_receive(cod_channel *channel, cod_buffer **message);
/** Begins to receive a further one as soon as there is room. */
COD_MUST_CHECK cod_status cod_channel_release(cod_channel *channel);

#endif
