/**
 * @file
 * Messages of any size between two ranks, several under way at once: what servers and their workers send each other.
 */
#ifndef COD_STRATEGIES_TRANSFERS_H
#define COD_STRATEGIES_TRANSFERS_H

#include "comm/message.h"

/** Messages under way. Zeroed = none. */
typedef struct cod_transfers {
    cod_request **items;
    size_t count, capacity;
} cod_transfers;

/** Starts sending to a rank of the world; borrowed until cod_transfers_wait(). Large ones are cut, as the receiver cuts them. */
COD_MUST_CHECK cod_status cod_transfers_send(cod_transfers *list, cod_comm *comm, int world_rank, int tag,
                                             const void *data, size_t bytes);
/** Starts receiving exactly `bytes`. */
COD_MUST_CHECK cod_status cod_transfers_receive(cod_transfers *list, cod_comm *comm, int world_rank, int tag,
                                                void *data, size_t bytes);
/** Whether all are done; never blocks. */
COD_MUST_CHECK cod_status cod_transfers_test(cod_transfers *list, bool *done);
COD_MUST_CHECK cod_status cod_transfers_wait(cod_transfers *list);
/** Frees the list, of which nothing may be under way. */
void cod_transfers_clear(cod_transfers *list);

#endif
