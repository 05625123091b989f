/**
 * @file
 * The transport contract: how an encoded shard gets from its publisher to a reader. No call here ever waits for another
 * rank.
 */
#ifndef COD_EXCHANGE_TRANSPORT_H
#define COD_EXCHANGE_TRANSPORT_H

#include "exchange/room.h"

#include "core/status.h"

#include <stdbool.h>

typedef struct cod_transport cod_transport;

/** State of a pull. */
typedef enum cod_pull_state {
    COD_PULL_BUSY,
    COD_PULL_DONE, /**< all bytes of the requested version have arrived */
    COD_PULL_LOST, /**< its slot was reopened, or its file removed, for a newer version */
} cod_pull_state;

/**
 * A shard that has arrived; valid until the next pull in the same place, also by another transport with the same rooms.
 */
typedef struct cod_pulled {
    const unsigned char *data; /**< NULL while the pull is in progress */
    uint64_t bytes; /**< while the pull is in progress, bytes received so far, which show whether it makes progress */
    uint64_t life, published_ms; /**< as in its slot */
    /** seconds that its bytes took, as far as the reader, which looks from time to time, can measure */
    double seconds;
    bool queued; /**< no byte was requested yet, because the transport works on something else that makes progress */
} cod_pulled;

typedef struct cod_transport_ops {
    /** Reopens the oldest slot for writing; *room has layout.slot_bytes. Readers of its old version lose it. */
    cod_status (*publish_begin)(cod_transport *transport, unsigned char **room);
    /** The version that the next publish_begin() overwrites; 0 = none. */
    uint64_t (*oldest)(cod_transport *transport);
    /** Makes the written bytes readable with `entry`, whose sequence is ignored. */
    cod_status (*publish_end)(cod_transport *transport, const cod_slot_entry *entry);
    /**
     * Asks in the background what a rank publishes, or checks for the answer to the last question. A rank that does not
     * answer does not delay questions to other ranks.
     *
     * @param[out] answered  the answer has arrived; the next call asks again
     * @param[out] offered   cod_slot_offer() of the answer; zeros until it has arrived
     */
    cod_status (*offer)(cod_transport *transport, const cod_slot_identity *expected, int world_rank,
                        const cod_slot_wanted *wanted, bool *answered, cod_slot_offered *offered);
    /**
     * Starts pulling one version of a rank's shard.
     *
     * @param place  place in the transport's rooms. A place has one pull at a time over all transports: the last one
     *               there must have ended or been cancelled
     */
    cod_status (*pull_start)(cod_transport *transport, int place, const cod_slot_identity *expected, int world_rank,
                             uint64_t version);
    cod_status (*pull_poll)(cod_transport *transport, int place, cod_pull_state *state, cod_pulled *out);
    /** Abandons the pull. */
    void (*pull_cancel)(cod_transport *transport, int place);
    /**
     * Deterministic mode: acknowledge() announces that this rank's group has taken a group's version; acknowledged()
     * asks a rank what it has taken.
     */
    cod_status (*acknowledge)(cod_transport *transport, uint32_t group, uint64_t version);
    cod_status (*acknowledged)(cod_transport *transport, const cod_slot_identity *reader, int world_rank,
                               uint32_t group, uint64_t *version);
    /**
     * The newest version that an earlier process of this publisher left to its readers; 0 = none. NULL = versions do
     * not outlive the process.
     */
    uint64_t (*left)(cod_transport *transport);
    /**
     * Number of publications that publish_end() accepted but that could not be made readable; NULL = that never
     * happens.
     */
    uint64_t (*failures)(cod_transport *transport);
    /** Content of this rank's slots, to be saved. @param[out] data new; free() */
    cod_status (*state)(cod_transport *transport, void **data, size_t *bytes);
    /**
     * Makes saved slots readable again. Also accepts the format of earlier versions, which saved whole slots.
     *
     * @param data  borrowed
     * @return COD_ERR_FORMAT if it belongs to another run, model or layout, or is cut off
     */
    cod_status (*restored)(cod_transport *transport, const void *data, size_t bytes);
    /** Collective on all ranks of the job; waits for a bounded time. The transport is taken. */
    cod_status (*destroy)(cod_transport *transport);
} cod_transport_ops;

/** Implementations put this first in their own struct. */
struct cod_transport {
    const cod_transport_ops *ops;
};

#endif
