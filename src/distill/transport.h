/**
 * @file
 * The transport contract: how an encoded shard gets from its publisher to a reader. No call here ever waits for another rank.
 */
#ifndef COD_DISTILL_TRANSPORT_H
#define COD_DISTILL_TRANSPORT_H

#include "distill/room.h"

#include "core/status.h"

#include <stdbool.h>

typedef struct cod_transport cod_transport;

/** How a pull stands. */
typedef enum cod_pull_state {
    COD_PULL_BUSY,
    COD_PULL_DONE, /**< the shard's bytes are all here, of the version asked for */
    COD_PULL_LOST, /**< its slot was reopened, or its file removed: a newer version replaces it */
} cod_pull_state;

/** A shard that has arrived; valid until the next pull in the same place, also of another transport that has the same rooms. */
typedef struct cod_pulled {
    const unsigned char *data;   /**< NULL while it is under way */
    uint64_t bytes;              /**< while it is under way, those that have come: it moves when they grow */
    uint64_t life, published_ms; /**< as its slot says */
    double seconds;              /**< that its bytes took, as far as the reader, who looks now and then, can tell */
    bool queued; /**< no byte of it has been asked for: the transport is at work on something else, which moves */
} cod_pulled;

typedef struct cod_transport_ops {
    /** Reopens the oldest slot for writing; *room has layout.slot_bytes. Readers of what it held lose it. */
    cod_status (*publish_begin)(cod_transport *transport, unsigned char **room);
    /** The version that the next publish_begin() takes away from its readers; 0 = none. */
    uint64_t (*oldest)(cod_transport *transport);
    /** Makes what was written readable as `entry` says; its sequence does not count. */
    cod_status (*publish_end)(cod_transport *transport, const cod_slot_entry *entry);
    /**
     * Asks in the background what a rank publishes, or looks for the answer to the question asked last. A rank that does not answer
     * delays no question to another.
     *
     * @param[out] answered  the answer has come; the next call asks anew
     * @param[out] offered   cod_slot_offer() of the answer; zeros until it has come
     */
    cod_status (*offer)(cod_transport *transport, const cod_slot_identity *expected, int world_rank,
                        const cod_slot_wanted *wanted, bool *answered, cod_slot_offered *offered);
    /**
     * Starts pulling one version of a rank's shard.
     *
     * @param place  of the rooms that the transport was made with. Each has one pull at a time, whichever transport's: before the next
     *               one there, the last has ended or was cancelled
     */
    cod_status (*pull_start)(cod_transport *transport, int place, const cod_slot_identity *expected, int world_rank,
                             uint64_t version);
    cod_status (*pull_poll)(cod_transport *transport, int place, cod_pull_state *state, cod_pulled *out);
    /** Gives the pull up, whatever is under way. */
    void (*pull_cancel)(cod_transport *transport, int place);
    /** Deterministic mode: says that this rank's group has taken a group's version, and asks a rank what it has taken. */
    cod_status (*acknowledge)(cod_transport *transport, uint32_t group, uint64_t version);
    cod_status (*acknowledged)(cod_transport *transport, const cod_slot_identity *reader, int world_rank,
                               uint32_t group, uint64_t *version);
    /** The newest version that an earlier process of this publisher left to its readers; 0 = none. NULL = they end with it. */
    uint64_t (*left)(cod_transport *transport);
    /** Publications that could not be made readable, though publish_end() took them; NULL = that never happens. */
    uint64_t (*failures)(cod_transport *transport);
    /** What this rank's slots hold, to be saved. @param[out] data  new; free() */
    cod_status (*state)(cod_transport *transport, void **data, size_t *bytes);
    /**
     * Shows readers again what was saved; also in the form of versions before this one, which saved slots whole.
     *
     * @param data  borrowed
     * @return COD_ERR_FORMAT when it is of another run, model or layout, or cut off
     */
    cod_status (*restored)(cod_transport *transport, const void *data, size_t bytes);
    /** Collective on all ranks of the job; bounded. Taken. */
    cod_status (*destroy)(cod_transport *transport);
} cod_transport_ops;

/** Implementations put this first in their own struct. */
struct cod_transport {
    const cod_transport_ops *ops;
};

#endif
