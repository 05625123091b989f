/**
 * @file
 * The transport over MPI one-sided gets: one window over all ranks, laid out as slot.h says.
 */
#ifndef COD_EXCHANGE_RMA_H
#define COD_EXCHANGE_RMA_H

#include "comm/window.h"
#include "exchange/transport.h"

/**
 * Makes the window. Collective on all ranks, with equal layouts.
 *
 * @param rooms     rooms for this rank's pulls; borrowed, may be shared with other windows
 * @param sources   [source_count] world ranks that this rank reads; they may repeat
 * @param[out] out  new; ops->destroy()
 */
COD_MUST_CHECK cod_status cod_rma_create(cod_comm *comm, const cod_slot_identity *identity,
                                         const cod_slot_layout *layout, cod_rooms *rooms, const int *sources,
                                         size_t source_count, cod_transport **out);

#endif
