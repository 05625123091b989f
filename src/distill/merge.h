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

/**
 * Queues a merge; nothing comes from the device, so that the host does not wait for it.
 *
 * Trainable part: θ += alpha·share·(peer - own). Statistics: moved by `share` toward the peer's, a convex mean.
 *
 * @param number     of the range, as in cod_merger_create()
 * @param peer, own  [of the range of cod_weights_layout_of()] f32, of the host's memory or both of the device's: decoded publications of the same version; own NULL = the weights as they are now, a plain
 *                   average with a peer that may be stale
 * @param share      the peer's part of the mean, by samples per step, such as 1/groups
 */
COD_MUST_CHECK cod_status cod_merger_apply(cod_merger *merger, size_t number, cod_buffer *peer, cod_buffer *own,
                                           double alpha, double share);

#endif
