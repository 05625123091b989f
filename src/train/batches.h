/**
 * @file
 * Brings the mini-batches of a step to the device.
 *
 * A device receives a mini-batch through one of two pinned slots while it computes with the one before (feed.h). A step
 * whose sub-steps update several sets runs all its mini-batches before each update: where there is more than one, the
 * host keeps them until the step ends.
 */
#ifndef COD_TRAIN_BATCHES_H
#define COD_TRAIN_BATCHES_H

#include "train/feed.h"
#include "train/session.h"

/**
 * A mini-batch on the host, f32, of the shapes of the session's input and truth; borrowed. NULL if it travels in 8
 * bits.
 */
typedef struct cod_mini_batch {
    const float *input, *truth;
} cod_mini_batch;

/** Zeroed = none. */
typedef struct cod_batches {
    const cod_train_session *session;
    int64_t count;                     /**< mini-batches of a step */
    char *kept;                        /**< [count] copies of all parts; NULL = none is needed again */
    int64_t on_device;                 /**< index of the mini-batch on the device; -1 = none of this step */
    cod_mini_batch host;               /**< the last loaded mini-batch, until the next load */
    const void *parts[COD_FEED_PARTS]; /**< the same, in the form that travels */
    cod_feed feed;
} cod_batches;

/**
 * @param session  compiled; borrowed
 * @param samples  samples of the loader; if cod_feed_takes_bytes() of the feed is true, the loader's options must ask
 *                 for bytes
 * @param again    whether a step needs each mini-batch more than once
 */
COD_MUST_CHECK cod_status cod_batches_init(cod_batches *batches, const cod_train_session *session,
                                           const cod_samples *samples, bool again);
void cod_batches_clear(cod_batches *batches);

/** Begins a step, of which no mini-batch is loaded yet. */
void cod_batches_begin(cod_batches *batches);
/**
 * Brings mini-batch `index` of the step to the session's input and truth, for programs that are queued later.
 *
 * @param first  the first time in this step; the mini-batch then comes from the loader
 */
COD_MUST_CHECK cod_status cod_batches_load(cod_batches *batches, cod_loader *loader, int64_t index, bool first);

#endif
