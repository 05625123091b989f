/**
 * @file
 * Memory that the ranks of a node share: each rank contributes a part, and may read and write all parts.
 *
 * The callers must agree on who writes and who reads when. Accesses before a cod_node_memory_barrier() on any rank of
 * the node come before accesses after it on all ranks.
 */
#ifndef COD_COMM_NODE_MEMORY_H
#define COD_COMM_NODE_MEMORY_H

#include "comm/comm.h"

typedef struct cod_node_memory cod_node_memory;

/**
 * Collective on all ranks of the job.
 *
 * @param bytes     size of this rank's part, which is zeroed
 * @param[out] out  new; end it with cod_node_memory_destroy()
 * @return COD_ERR_MPI if MPI has no shared memory, for example because its component is switched off
 */
COD_MUST_CHECK cod_status cod_node_memory_create(cod_comm *comm, size_t bytes, cod_node_memory **out);
/** Collective on the node's ranks: waits for them as cod_group_destroy() does. NULL does nothing. */
void cod_node_memory_destroy(cod_node_memory *memory);

/** The part of a rank of this node, by cod_comm_node_rank(), at a 64-byte boundary. */
void *cod_node_memory_part(const cod_node_memory *memory, int node_rank);

/** Waits for all ranks of the node. */
void cod_node_memory_barrier(cod_node_memory *memory);

#endif
