/**
 * @file
 * Groups of ranks, and what ranks of one group do together: average, agree, reduce, broadcast, gather.
 *
 * The functions that end in _start return at once; end their request with cod_request_test() or cod_request_wait(). The
 * others wait for the ranks of the group (and move all messages meanwhile). Ranks of a group call all of these
 * functions in the same order. Only the functions that make groups wait for ranks outside the group.
 */
#ifndef COD_COMM_GROUP_H
#define COD_COMM_GROUP_H

#include "comm/comm.h"
#include "core/collective.h"
#include "core/staging.h"

/** The members of one group. */
typedef struct cod_group_members {
    int size;
    const int *world_ranks; /**< [size], by rank in the group */
} cod_group_members;

/**
 * Splits the world into groups of contiguous ranks. Collective on all ranks, with equal arguments.
 *
 * @param sizes  [count] ranks of each group; their sum must be the world's size
 * @param[out] out  new: this rank's group; end it with cod_group_destroy()
 */
COD_MUST_CHECK cod_status cod_group_create(cod_comm *comm, const int *sizes, size_t count, cod_group **out);

/**
 * Makes one group of several, where each other group is a separate job: all ranks of this job are group `index`. World
 * ranks are numbered as if one job had all groups; ranks of other groups are numbers only and cannot be reached by MPI.
 * Collective on all ranks of the job, with equal arguments.
 *
 * @param sizes  [count] ranks of each group; this job must have sizes[index]
 */
COD_MUST_CHECK cod_status cod_group_create_part(cod_comm *comm, const int *sizes, size_t count, size_t index,
                                                cod_group **out);

/** As cod_group_create(), with one group for each node. */
COD_MUST_CHECK cod_status cod_group_create_by_node(cod_comm *comm, cod_group **out);

/**
 * Makes a group of the ranks that have the same place in their groups as this rank: one rank of each group that is
 * large enough, in the order of the groups. Strategies whose groups wait for each other communicate through these.
 * Collective on all ranks of the job; no group may be a separate job.
 *
 * @param[out] out  new: group number cod_group_rank(group) of as many as the largest group has ranks;
 *   cod_group_destroy()
 */
COD_MUST_CHECK cod_status cod_group_create_across(const cod_group *group, cod_group **out);

/**
 * Splits every group into `stride` groups: ranks whose places are equal modulo `stride` form one. Collective on all
 * ranks of the job; no group may be a separate job. `stride` must divide the size of every group.
 *
 * @param[out] out  new: group number g·stride + place mod stride; cod_group_destroy()
 */
COD_MUST_CHECK cod_status cod_group_create_interleaved(const cod_group *group, int stride, cod_group **out);

/**
 * Collective on the group, which must have no request outstanding; waits until all have come here, or one has
 * shown no sign of life for teardown_timeout_s. NULL does nothing.
 */
void cod_group_destroy(cod_group *group);

int cod_group_index(const cod_group *group); /**< which of the groups this is */
int cod_group_count(const cod_group *group); /**< number of groups */
int cod_group_rank(const cod_group *group);  /**< this rank's place in the group */
int cod_group_size(const cod_group *group);
/** Who belongs to the index-th group (any of them, not only one's own). */
cod_group_members cod_group_members_of(const cod_group *group, int index);
/** World rank of a rank of a group. */
int cod_group_world_rank(const cod_group *group, int index, int rank);
/** The node (cod_comm_node_of()) of a rank of this group, also where other groups are jobs of their own. */
int cod_group_node_of(const cod_group *group, int rank);

/**
 * The averaging of f32 ranges over the group: core/collective.h over MPI. Lives as long as the group. While one of its
 * reductions is outstanding the progress thread polls without pause.
 */
cod_collective *cod_group_collective(cod_group *group);

/**
 * From now on the group's collective averages by node: the ranks of a node sum up in one of them, these ranks sum up
 * between the nodes, and the total goes back. If nodes have several ranks, fewer bytes cross the network: 2·S·(N-1)/N
 * each way for each of N nodes. The order of sums differs from that of the plain average. Collective on the group.
 *
 * @param node_of  [world size] the node that each rank counts to, equal on all; NULL = where it runs
 */
COD_MUST_CHECK cod_status cod_group_average_by_node(cod_group *group, const int *node_of);

/** Whether averaging by node saves traffic: the group is on several nodes, and several of its ranks share a node. */
bool cod_group_gains_by_node(const cod_group *group);

/**
 * From now on the group's averages take ranges of this device's memory too, also those of cod_coded_allreduce.
 *
 * They travel through pinned memory: average_start() queues the copy to the host, the progress thread sees when it is
 * done and starts the messages, wait() queues the copy back. Bits are those of the same average in host memory. If the
 * backends of all ranks keep their buffers in host memory (memory() is NULL), nothing changes. Collective on the group,
 * once, after cod_group_average_by_node(); ranks may have different backends.
 *
 * @param backend,device  borrowed until cod_group_leave_device() or cod_group_destroy()
 */
COD_MUST_CHECK cod_status cod_group_use_device(cod_group *group, const cod_backend *backend, cod_device *device);
/**
 * Makes another collective, whose messages begin and end in this device's memory, which MPI must take
 * (cod_comm_takes_devices()).
 *
 * A range is divided into one share for each rank. Each rank sends the others its values of their shares, adds up the
 * values of its own share in the order of the ranks, and sends the average to all. The device does the additions,
 * because not all MPI libraries that take its memory can add there in the background: average_start(), test() and
 * wait() queue them, and the progress thread does the rest. If node_of puts ranks on several nodes, and several on one,
 * this is done inside the nodes first, and then with the shares between ranks that have the same place in their nodes.
 * Each range keeps device memory of its own size, so ranges should be the same in each step. Bits depend on the ranks
 * and their nodes alone. Collective on the group, once.
 *
 * @param backend,device  borrowed until cod_group_leave_device(); equal backends on all ranks
 * @param node_of         [world size] the node that each rank counts to, equal on all; NULL = where it runs
 * @param[out] out        lives as long as the group; for buffers of the device alone, and not after cod_group_leave_device()
 * @return COD_ERR_UNSUPPORTED, on all ranks, if nodes have different numbers of ranks, or a backend has no
 *         buffer_address()
 */
COD_MUST_CHECK cod_status cod_group_average_direct(cod_group *group, const cod_backend *backend, cod_device *device,
                                                   const int *node_of, cod_collective **out);

/**
 * Ends the use of the device by both collectives, before the device is closed. Averages that a failed step left
 * outstanding are lost. NULL does nothing.
 */
void cod_group_leave_device(cod_group *group);

/**
 * Starts copying a range to the host, for collectives of the group that send messages of their own.
 *
 * @param[out] out  new, as by cod_staging_start(); NULL where the buffer lies in host memory
 * @return COD_ERR_UNSUPPORTED if the buffer is not in host memory and the group has no device
 */
COD_MUST_CHECK cod_status cod_group_stage(cod_group *group, cod_buffer *buffer, size_t offset, size_t bytes,
                                          cod_event *ready, cod_staged **out);

/**
 * Agrees on one status for all ranks. Call it after local work that may fail, before the next collective.
 *
 * Returns COD_OK when every rank passed COD_OK. Otherwise every rank fails: a rank that failed itself with its own
 * status and message, the others with COD_ERR_PEER and the message of the worst failure (the highest status, then the
 * lowest rank), with that rank and its host. For all but that rank the failure counts as cod_fail_said_elsewhere().
 *
 * @param[out] failed_rank  that rank within the group, or -1; may be NULL. Let it alone print.
 */
COD_MUST_CHECK cod_status cod_group_agree(cod_group *group, cod_status status, int *failed_rank);

typedef enum cod_reduce_kind { COD_REDUCE_SUM, COD_REDUCE_MIN, COD_REDUCE_MAX } cod_reduce_kind;

/**
 * Reduces `count` doubles over the group, in place; all ranks get the same bits. `values` is borrowed until it is done.
 */
COD_MUST_CHECK cod_status cod_group_reduce_start(cod_group *group, double *values, size_t count, cod_reduce_kind kind,
                                                 cod_request **request);
COD_MUST_CHECK cod_status cod_group_reduce(cod_group *group, double *values, size_t count, cod_reduce_kind kind);

/** Copies `bytes` of `root`'s data to all. `data` is borrowed until it is done. */
COD_MUST_CHECK cod_status cod_group_broadcast_start(cod_group *group, void *data, size_t bytes, int root,
                                                    cod_request **request);
COD_MUST_CHECK cod_status cod_group_broadcast(cod_group *group, void *data, size_t bytes, int root);

/** Part of a buffer that one rank holds. */
typedef struct cod_group_part {
    int root;
    size_t offset, bytes;
} cod_group_part;

/**
 * Completes a buffer of which each rank holds parts: after it every rank has all of them.
 *
 * @param[in,out] buffer  borrowed until it is done
 * @param parts           [count] equal on all ranks; copied
 */
COD_MUST_CHECK cod_status cod_group_share_start(cod_group *group, void *buffer, const cod_group_part *parts,
                                                size_t count, cod_request **request);

/** The part of `bytes` bytes that a rank holds where all have about equally many. It begins at a multiple of 64. */
cod_group_part cod_group_part_of(const cod_group *group, int rank, size_t bytes);
/** Completes a buffer of which each rank holds that part, and waits. @param[in,out] data  [bytes] */
COD_MUST_CHECK cod_status cod_group_complete(cod_group *group, void *data, size_t bytes);

/** A message to or from one rank of a group. */
typedef struct cod_group_message {
    void *data;
    size_t bytes; /**< 0 = nothing moves */
} cod_group_message;

/**
 * Each rank sends a message to every other rank and receives one from it. While a swap is outstanding, the progress
 * thread polls without pause, as for averages.
 *
 * Unlike with the other functions, ranks need the same order only among the calls of one lane.
 *
 * @param lane     0 … 32765
 * @param sent     [group size] by rank; this rank's own entry is ignored; data are borrowed until the request is done
 * @param received [group size] the same; each message has as many bytes as that rank sends
 */
COD_MUST_CHECK cod_status cod_group_swap_start(cod_group *group, int lane, const cod_group_message *sent,
                                               const cod_group_message *received, cod_request **request);

/** Every rank's `bytes` of `data`, by rank, on every rank. @param[out] out [group size][bytes] */
COD_MUST_CHECK cod_status cod_group_gather(cod_group *group, const void *data, size_t bytes, void *out);

COD_MUST_CHECK cod_status cod_group_barrier(cod_group *group);

#endif
