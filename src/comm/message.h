/**
 * @file
 * Small messages between any two ranks, non-blocking: acknowledgements of the deterministic exchange, servers' replies.
 */
#ifndef COD_COMM_MESSAGE_H
#define COD_COMM_MESSAGE_H

#include "comm/comm.h"

enum {
    COD_MESSAGE_TAG_MAX = 32765 /**< tags from 0 up to here: MPI promises two more, which are comm's own */
};

/** Starts sending; `data` is borrowed until the request is done, which may be before the receiver has the message. */
COD_MUST_CHECK cod_status cod_message_send_start(cod_comm *comm, int world_rank, int tag, const void *data,
                                                 size_t bytes, cod_request **request);

/** Starts receiving a message of exactly `bytes`; those of one sender and tag arrive in the order sent. */
COD_MUST_CHECK cod_status cod_message_receive_start(cod_comm *comm, int world_rank, int tag, void *data, size_t bytes,
                                                    cod_request **request);

/** Whether a message of this sender and tag waits to be received, and its size (may be NULL); never blocks. */
COD_MUST_CHECK cod_status cod_message_probe(cod_comm *comm, int world_rank, int tag, bool *found, size_t *bytes);

#endif
