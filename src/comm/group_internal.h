/**
 * @file
 * A group's communicator and tables.
 */
#ifndef COD_COMM_GROUP_INTERNAL_H
#define COD_COMM_GROUP_INTERNAL_H

#include "comm/comm_internal.h"
#include "comm/group.h"

enum {
    COD_TAG_NODES = 32766,      /**< of cod_group_share_by_node_start(): above all lanes */
    GROUP_PART_COUNT = 1 << 28, /**< elements of one MPI call: MPI counts in int */
};

struct cod_group {
    cod_collective collective; /**< first: the collective is the group */
    cod_comm *comm;
    MPI_Comm mpi;
    int index, count;
    int *first;           /**< [count + 1] first world rank of each group; contiguous groups */
    int *ranks;           /**< [all groups' sizes] identity, or ranks sorted by node */
    bool across;          /**< its ranks belong to different groups */
    int job;              /**< world rank of this job's rank 0; above 0 only if other groups are separate jobs */
    group_levels *levels; /**< NULL = averages know neither nodes nor devices */
    cod_staging *staging; /**< of the device whose memory is averaged; NULL = host memory only */
    group_direct *direct; /**< NULL = no message begins or ends in the device's memory */
};

/** Counts bytes that the group's ranks sent, unless the group is the world. To be called under the lock. */
void group_count_sent(cod_group *group, size_t bytes);
/** The same of `bytes` that all ranks have reduced. */
void group_count_reduced(cod_group *group, size_t bytes);

/** Of averages over the group; group_average.c. */
extern const cod_collective_ops group_average_ops;

/** Gives the group levels in which each rank is a node of its own. Collective on the group. */
COD_MUST_CHECK cod_status levels_create_flat(cod_group *group);
/** Starts an average, of request->count values at request->context, by node when they are there. Under the lock. */
COD_MUST_CHECK cod_status levels_start(cod_group *group, cod_request *request);
/** Abandons averages that have not ended. NULL does nothing. To be called under the lock. */
void levels_give_up(group_levels *levels);
/** @param all_are_here  communicators can be freed */
void levels_destroy(cod_group *group, bool all_are_here);

/** Abandons averages that have not ended and frees their memory on the device. NULL does nothing. */
void direct_leave(group_direct *direct);
/** Frees the rest, after direct_leave(). @param all_are_here communicators can be freed */
void direct_destroy(cod_group *group, bool all_are_here);

#endif
