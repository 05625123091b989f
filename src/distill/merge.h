/**
 * @file
 * Merging a peer's weights, corrected for delay (DESIGN: "delay-corrected merge").
 */
#ifndef COD_DISTILL_MERGE_H
#define COD_DISTILL_MERGE_H

#include "nn/weights.h"

typedef struct cod_merger cod_merger;

/**
 * For these sets of the weights, which are borrowed.
 *
 * @param ends  [count] where each range of the values that is merged by itself ends, in their order; NULL = all are one
 */
COD_MUST_CHECK cod_status cod_merger_create(cod_weights *weights, cod_sets sets, const size_t *ends, size_t count,
                                            cod_merger **out);
void cod_merger_destroy(cod_merger *merger);

/** sin(π/(4d+2)): half of 2·sin(π/(4d+2)), below which a merge delayed by d of one's own publications stays stable. */
double cod_merge_alpha(int64_t delay);

/** One peer's version, or a range of it, to be merged. */
typedef struct cod_merge {
    size_t range;     /**< its number, as in cod_merger_create() */
    cod_buffer *peer; /**< [of the range of cod_weights_layout_of()] f32, a decoded publication */
    cod_buffer *own; /**< one's own of the same version, decoded or exact; NULL = the weights of now, a plain average */
    double alpha;
    double share; /**< the peer's part of the mean, by samples per step, such as 1/groups */
} cod_merge;

/**
 * Queues merges; nothing comes from the device, so that the host does not wait for it.
 *
 * Of each in turn, trainable part: θ += alpha·share·(peer - own). Statistics: moved by `share` toward the peer's, a
 * convex mean. The bits are those of a call for each. In the host's memory they take one pass over the weights together,
 * and one over each peer.
 *
 * @param merges  [count] buffers of the host's memory, or all of the device's
 */
COD_MUST_CHECK cod_status cod_merger_apply(cod_merger *merger, const cod_merge *merges, size_t count);

#endif
