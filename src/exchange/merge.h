/**
 * @file
 * Merging a peer's weights, corrected for delay: which versions are merged and how strongly, and the arithmetic.
 */
#ifndef COD_EXCHANGE_MERGE_H
#define COD_EXCHANGE_MERGE_H

#include "exchange/exchange.h"

typedef struct cod_merger cod_merger;

/** Values that lie together: f32 in a buffer. */
typedef struct cod_merge_values {
    cod_buffer *buffer;
    size_t offset; /**< of the first, in bytes */
    size_t count;
} cod_merge_values;

/** What is merged into; the order of its values is that of a publication. */
typedef struct cod_merge_target {
    const cod_backend *backend;
    cod_device *device;
    const cod_merge_values *values; /**< [count] trainable ones, then statistics */
    size_t count, trainable;        /**< number of items, and of those that are trainable */
} cod_merge_target;

/**
 * Makes a merger.
 *
 * @param target  buffers, backend and device are borrowed; the list is copied
 * @param ends    [count] end of each range of values that is merged separately, in order; NULL = one range
 */
COD_MUST_CHECK cod_status cod_merger_create(const cod_merge_target *target, const size_t *ends, size_t count,
                                            cod_merger **out);
void cod_merger_destroy(cod_merger *merger);

/**
 * sin(π/(4d+2)): half of 2·sin(π/(4d+2)), the bound below which a merge that is delayed by d publications is stable.
 */
double cod_merge_alpha(int64_t delay);

/**
 * The arithmetic of a merge in the host's memory: values += factor·(peer - own).
 *
 * @param own  [count] NULL = the values themselves
 */
void cod_merge_floats(float *values, const float *peer, const float *own, float factor, size_t count);

/** One peer's version, or a range of it, to be merged. */
typedef struct cod_merge {
    size_t range;     /**< its number, as in cod_merger_create() */
    cod_buffer *peer; /**< [of the range] f32, a decoded publication */
    cod_buffer *own;  /**< the group's own publication of that version; NULL = the current values, a plain average */
    double alpha;
    double share; /**< the peer's part of the mean, by samples per step, such as 1/groups */
} cod_merge;

/** What of a peer's fragment was merged last. Zeroed before the first. */
typedef struct cod_merge_turn {
    uint64_t version;     /**< the peer's */
    uint64_t own_version; /**< the group's own version that it was merged against; 0 = none */
} cod_merge_turn;

/**
 * Whether a version that is held is to be merged after this step. Each is merged once, and beside an own version that
 * has not stood beside an earlier one: a faster peer's versions do not count more for being many. Plain averaging takes
 * each as it comes, however stale.
 *
 * @param[in,out] turn  takes note of it
 * @param[out] out      all but `range` and `share`, which are the caller's to fill in
 */
bool cod_merge_is_due(const cod_exchange_options *options, const cod_exchange_checkpoint *checkpoint, int64_t step,
                      cod_merge_turn *turn, cod_merge *out);

/**
 * Queues merges. The host does not wait, because it needs no values from the device.
 *
 * For each merge in turn, trainable values: θ += alpha·share·(peer - own); statistics move by `share` toward the
 * peer's, a convex mean. The bits are the same as with a call for each merge. In the host's memory, all merges together
 * take one pass over the target and one over each peer.
 *
 * @param merges  [count]; all buffers in the host's memory, or all in the device's
 */
COD_MUST_CHECK cod_status cod_merger_apply(cod_merger *merger, const cod_merge *merges, size_t count);

#endif
