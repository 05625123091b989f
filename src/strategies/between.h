/**
 * @file
 * Averaging over groups that wait for each other, for strategies that synchronise groups from time to time.
 *
 * Rank j of each group averages the j-th part of the values with the ranks that have the same place in the other
 * groups; then each group combines the parts. So a group sends, and receives, 2·S·(G-1)/G bytes for S bytes and G
 * groups, however many ranks it has.
 */
#ifndef COD_STRATEGIES_BETWEEN_H
#define COD_STRATEGIES_BETWEEN_H

#include "comm/group.h"
#include "core/collective.h"

/** Zeroed = not made. */
typedef struct cod_between {
    cod_group *group;  /**< borrowed */
    cod_group *across; /**< NULL if there is one group */
    int parts;         /**< ranks of the smallest group */
    float weight;      /**< of this group's values: its share of the ranks, times the number of groups */
} cod_between;

/** Collective on all ranks. End with cod_between_clear(). @param group  of this rank; borrowed */
COD_MUST_CHECK cod_status cod_between_init(cod_between *between, cod_comm *comm, cod_group *group);
void cod_between_clear(cod_between *between);

/**
 * Averages over the groups, weighted by their numbers of ranks and thus of samples; all ranks get the same bits. Waits
 * for all groups. Collective on all ranks.
 *
 * @param[in,out] values  [count] equal on all ranks of a group
 */
COD_MUST_CHECK cod_status cod_between_average(cod_between *between, float *values, size_t count);

/**
 * cod_between_average() in two calls, between which the caller computes. Starting does not wait for other groups.
 *
 * @param[in,out] values  [count] not to be touched until cod_between_wait() has returned; then the average
 * @param[out] reduction  new; for cod_between_wait(), which must be called. NULL where this rank has no part
 */
COD_MUST_CHECK cod_status cod_between_start(cod_between *between, float *values, size_t count,
                                            cod_reduction **reduction);
/** Waits for all groups. Collective on the group. */
COD_MUST_CHECK cod_status cod_between_wait(cod_between *between, float *values, size_t count, cod_reduction *reduction);

/**
 * The part of `count` values that this rank averages. @return whether there is one; groups may have more ranks than the
 * smallest group
 */
bool cod_between_part(const cod_between *between, size_t count, size_t *first, size_t *part_count);

/** The part of the rank at `place`, below between->parts. */
void cod_between_part_of(const cod_between *between, size_t count, int place, size_t *first, size_t *part_count);

/** Combines the parts on all ranks of the group. Collective on the group. @param[in,out] values [count] */
COD_MUST_CHECK cod_status cod_between_share(cod_between *between, float *values, size_t count);

/** Bytes that a group sends, and receives, for an average of `count` values over `groups` groups. */
double cod_between_sent_bytes(size_t count, size_t groups);

#endif
