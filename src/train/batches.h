/**
 * @file
 * The mini-batches of a step on their way to the device.
 *
 * A device gets them through two pinned slots while it computes with the one before (feed.h).
 * A step whose sub-steps update several sets runs all its mini-batches before each update: where there is more than one, the host
 * keeps them until the step ends.
 */
#ifndef COD_TRAIN_BATCHES_H
#define COD_TRAIN_BATCHES_H

#include "train/feed.h"
#include "train/session.h"

/** A mini-batch on the host, f32, of the shapes of the session's input and truth; borrowed. NULL where it travels in 8 bits. */
typedef struct cod_mini_batch {
    const float *input, *truth;
} cod_mini_batch;

/** Zeroed = none. */
typedef struct cod_batches {
    const cod_train_session *session;
    int64_t count;                     /**< mini-batches of a step */
    char *kept;                        /**< [count] of all parts; NULL = none is needed again */
    int64_t on_device;                 /**< the one that lies there; -1 = none of this step */
    cod_mini_batch host;               /**< what was loaded last, until the next load */
    const void *parts[COD_FEED_PARTS]; /**< the same, as it travels */
    cod_feed feed;
} cod_batches;

/**
 * @param session  compiled; borrowed
 * @param samples  that the loader will draw; where cod_feed_takes_bytes() of the feed says so, its options must ask for bytes
 * @param again    whether a step needs each of them more than once
 */
COD_MUST_CHECK cod_status cod_batches_init(cod_batches *batches, const cod_train_session *session,
                                           const cod_samples *samples, bool again);
void cod_batches_clear(cod_batches *batches);

/** A step begins: all its mini-batches are yet to come. */
void cod_batches_begin(cod_batches *batches);
/**
 * Leaves mini-batch `index` of the step in the session's input and truth, for programs that are queued later.
 *
 * @param first  the first time in this step: it then comes from the loader
 */
COD_MUST_CHECK cod_status cod_batches_load(cod_batches *batches, cod_loader *loader, int64_t index, bool first);

#endif
