/**
 * @file
 * Messages of one size between two ranks, in order and several under way: what stages of a pipeline tell each other.
 */
#ifndef COD_TRAIN_CHANNEL_H
#define COD_TRAIN_CHANNEL_H

#include "comm/message.h"

enum { COD_CHANNEL_ROOM = 2 /**< messages under way; one more would not be consumed sooner */ };

/** One end, which sends or receives. Zeroed, or of no bytes: nothing passes, and all calls do nothing. */
typedef struct cod_channel {
    cod_comm *comm; /**< borrowed */
    int rank, tag;  /**< world rank of the other end */
    size_t bytes;
    void *buffers[COD_CHANNEL_ROOM];
    cod_request *requests[COD_CHANNEL_ROOM];
    uint64_t started, ended; /**< messages */
    uint64_t expected;       /**< receiving: how many are to come in all */
    double waited_s;
} cod_channel;

COD_MUST_CHECK cod_status cod_channel_init(cod_channel *channel, cod_comm *comm, int world_rank, int tag, size_t bytes);
/** None of its messages may be under way. */
void cod_channel_clear(cod_channel *channel);

/** Waits until there is room for one more message, to be written to *data, [bytes]; cod_channel_send() then starts it. */
COD_MUST_CHECK cod_status cod_channel_room(cod_channel *channel, void **data);
COD_MUST_CHECK cod_status cod_channel_send(cod_channel *channel);
/** Waits until all messages have left. */
COD_MUST_CHECK cod_status cod_channel_flush(cod_channel *channel);

/** Says that `count` more messages will come, and begins to receive the first. */
COD_MUST_CHECK cod_status cod_channel_expect(cod_channel *channel, uint64_t count);
/** Waits for the next message, which stays at *data until cod_channel_release(); that begins to receive a further one. */
COD_MUST_CHECK cod_status cod_channel_receive(cod_channel *channel, const void **data);
COD_MUST_CHECK cod_status cod_channel_release(cod_channel *channel);

#endif
