/**
 * @file
 * Memory that the ranks of a group share on each node: each node has one copy.
 *
 * The callers must agree on who writes and who reads when. What one rank wrote before a reduction of the group, another
 * may read after it.
 */
#ifndef COD_COMM_GROUP_MEMORY_H
#define COD_COMM_GROUP_MEMORY_H

#include "comm/group.h"

typedef struct cod_group_memory cod_group_memory;

/** The ranks of a group that run on one node: the first of them, how many they are, and the place of one among them. */
typedef struct cod_group_holders {
    int first, count, place;
} cod_group_holders;

/** Those on the node of a rank of the group, and its place. */
cod_group_holders cod_group_holders_of(const cod_group *group, int rank);

/**
 * Collective on `group`, with equal arguments.
 *
 * @param bytes     of all; zeroed, and taken from the system as pages are first written
 * @param[out] out  new; end it with cod_group_memory_destroy(). NULL, on all ranks alike, if the group has several
 *                  ranks and each is alone on its node, or if the system does not let one rank open another's memory
 *                  (as in separate containers)
 */
COD_MUST_CHECK cod_status cod_group_memory_create(cod_group *group, size_t bytes, cod_group_memory **out);
/** Local: the memory lives until its last rank has destroyed it. NULL does nothing. */
void cod_group_memory_destroy(cod_group_memory *memory);
/** Local: another user of the memory on this rank, which ends with a cod_group_memory_destroy() of its own. */
cod_group_memory *cod_group_memory_keep(cod_group_memory *memory);

/** [bytes] at a page's start. */
void *cod_group_memory_data(const cod_group_memory *memory);

/**
 * As cod_group_share_start(), of a buffer in this memory: each part goes to every other node once, to one of the
 * group's ranks there. A rank may read all of the buffer when the request has ended on all ranks of its node. All ranks
 * must start overlapping calls in the same order.
 */
COD_MUST_CHECK cod_status cod_group_share_by_node_start(cod_group *group, void *buffer, const cod_group_part *parts,
                                                        size_t count, cod_request **request);

#endif
