/**
 * @file
 * Messages of any size between two ranks, several at a time, for servers and their workers.
 */
#ifndef COD_STRATEGIES_TRANSFERS_H
#define COD_STRATEGIES_TRANSFERS_H

#include "comm/message.h"

/** Messages in progress. Zeroed = none. */
typedef struct cod_transfers {
    cod_request **items;
    size_t count, capacity;
} cod_transfers;

/**
 * Starts sending to a rank of the world; borrowed until cod_transfers_wait(). Large messages are sent in pieces, which
 * the receiver expects.
 */
COD_MUST_CHECK cod_status cod_transfers_send(cod_transfers *list, cod_comm *comm, int world_rank, int tag,
                                             const void *data, size_t bytes);
/** Starts receiving exactly `bytes`. */
COD_MUST_CHECK cod_status cod_transfers_receive(cod_transfers *list, cod_comm *comm, int world_rank, int tag,
                                                void *data, size_t bytes);
/** Whether all are done; never blocks. */
COD_MUST_CHECK cod_status cod_transfers_test(cod_transfers *list, bool *done);
COD_MUST_CHECK cod_status cod_transfers_wait(cod_transfers *list);
/** Frees the list. No message may be in progress. */
void cod_transfers_clear(cod_transfers *list);

#endif
