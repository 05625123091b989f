/**
 * @file
 * Publishes a group's weights: copies them, encodes the copy a few chunks in each step, and keeps them as readers will
 * decode them, or exact.
 *
 * The publisher knows neither the puller nor the agreement. It reports the state of this rank's publication to the
 * exchange, which returns the reports of all ranks of the group.
 *
 * One publication, on each rank:
 *   exchange_publisher_snapshot()   says where the weights are to be copied
 *   exchange_publisher_begin()      names the version, a key or a delta, and opens a slot
 *   exchange_publisher_advance()    encodes some of it each step; readers may have the own shard once that is encoded
 *   exchange_publisher_report(), exchange_publisher_hear()   each step; where ranks hold values together, it ends so
 */
#ifndef COD_EXCHANGE_PUBLISHER_INTERNAL_H
#define COD_EXCHANGE_PUBLISHER_INTERNAL_H

#include "codec/coder.h"
#include "core/queue.h"
#include "exchange/numbers_internal.h"
#include "exchange/reports_internal.h"
#include "exchange/setup_internal.h"

/** A published version, as readers decode it, or exact with exchange_keeps_exact(). Merges subtract it. */
typedef struct own_version {
    uint64_t version;   /**< 0 = empty or not complete yet */
    cod_buffer *values; /**< [of the version's fragment] f32 */
} own_version;

/** The publications of one fragment: each version is a delta against the fragment's version before, or a key. */
typedef struct exchange_chain {
    uint64_t reference; /**< the last complete version, in own[]; 0 = none to which a delta may refer */
    uint64_t since_key; /**< complete publications after the last key */
    /** [of the fragment] f32 values that readers hold, updated in place; NULL = own[] holds them */
    cod_buffer *decoded;
} exchange_chain;

/** State of coding on a device: publisher_device.c. */
typedef struct exchange_publisher_device exchange_publisher_device;

/** Counters of this rank since the start; part of cod_exchange_counters. */
typedef struct exchange_publisher_counters {
    uint64_t published, published_bytes, skipped;
    double encode_s;
} exchange_publisher_counters;

typedef struct exchange_publisher {
    const exchange_setup *setup;
    cod_codec encoder,
        mirror;      /**< encoder: this rank's shard into the slot; mirror: what readers decode of the other shards */
    cod_coder coder; /**< of codec AUTO */
    /** [of the largest exchange_snapshot_range()] f32; pinned where the host codes for a device. */
    cod_buffer *snapshot;
    /**
     * [of the largest fragment] if ranks of a node share the snapshot, of which `snapshot` is this rank's part; else
     * NULL.
     */
    float *snapshot_of_node;
    cod_event *copied;      /**< reached when the snapshot is complete; NULL = it is written at once */
    own_version *own;       /**< [own_count] version v at v mod own_count, which is of v's fragment */
    int own_count;          /**< COD_EXCHANGE_OWN_KEPT of each fragment */
    exchange_chain *chains; /**< [fragments] */
    own_version *encoding;  /**< the version being encoded, or NULL */
    unsigned char *room;    /**< memory of the slot that it is encoded into */
    int encoded_shards;     /**< number of the group's shards that are done, or left to other ranks of the node */
    bool waiting;           /**< with shared values: this rank's shard is done, but others of the group may not be */
    bool unfit;             /**< that shard had a value that is not finite */
    uint64_t version;       /**< last begun */
    cod_codec_key key;      /**< of its chunks */
    uint64_t against;       /**< version that it is a delta against; 0 = it is a key */
    uint64_t restored;      /**< the group's version at the checkpoint from which the run resumed */
    uint64_t left;          /**< newest version that readers may hold from an earlier process */
    double left_out;        /**< publications that storage left out, over all ranks, as last reported */
    uint64_t print;         /**< of the chunks encoded so far: a sum, so that their order does not matter */
    uint64_t print_of;      /**< EXCHANGE_PRINT_BITS of that of the last complete one */
    bool chain_broken;      /**< readers cannot use the version being encoded, so no delta may refer to it */
    int64_t step;           /**< of the last */
    uint64_t published_ms;  /**< wall clock */
    double published_s;
    bool interval_passed;
    exchange_publisher_counters counters;
    exchange_publisher_device *on_device; /**< coding there; NULL = on the host */
} exchange_publisher;

/**
 * Makes the codecs; the exchange makes the values. Nothing is published yet. Call exchange_publisher_clear() also after
 * a failure.
 *
 * @param setup  borrowed
 */
COD_MUST_CHECK cod_status exchange_publisher_init(exchange_publisher *publisher, const exchange_setup *setup);
void exchange_publisher_clear(exchange_publisher *publisher);

/* One publication. */

/** Whether a publication is due after this step, apart from the minimum interval. */
bool exchange_publisher_is_due(const exchange_publisher *publisher, int64_t step);
/** cod_exchange_snapshot(). */
COD_MUST_CHECK cod_status exchange_publisher_snapshot(exchange_publisher *publisher, int64_t step,
                                                      cod_exchange_part *part);
/** cod_exchange_publish(), except that in deterministic mode the exchange then encodes everything at once. */
COD_MUST_CHECK cod_status exchange_publisher_begin(exchange_publisher *publisher, int64_t step, uint64_t fingerprint);
/**
 * Encodes a step's part of the current publication; counts a publication that was due after this step and was left out.
 */
COD_MUST_CHECK cod_status exchange_publisher_advance(exchange_publisher *publisher, int64_t step);
/**
 * Encodes up to `chunks` more chunks of the publication: of this rank's shard, and the mirrors of all other shards.
 * Ranks that share values divide the mirrors of other nodes' shards among themselves, and need none of their own node's
 * shards.
 */
COD_MUST_CHECK cod_status exchange_publisher_encode(exchange_publisher *publisher, uint64_t chunks);
/**
 * Encodes the rest of the current publication. If the group's ranks share values, the call is collective and waits for
 * the others.
 */
COD_MUST_CHECK cod_status exchange_publisher_finish(exchange_publisher *publisher);
/** State of this rank's last publication. */
exchange_publication exchange_publisher_report(const exchange_publisher *publisher);
/** Acts on the reports of all ranks of the group. */
void exchange_publisher_hear(exchange_publisher *publisher, const exchange_publications *publications);

/* What was published: publisher_own.c. */

/** Where a version of this group is kept. */
own_version *exchange_own_of(const exchange_publisher *publisher, uint64_t version);
/** The newest complete version of a fragment; 0 = none. */
uint64_t exchange_newest_own(const exchange_publisher *publisher, int fragment);
/**
 * The version that a merge with a peer's version subtracts: the group's own version of the same number, or NULL if that
 * is the next one to be published. If groups are further apart, the newest own version.
 */
const own_version *exchange_own_beside(const exchange_publisher *publisher, uint64_t version);
/**
 * Buffer with the values that readers hold of a version, while the version is being encoded or is the reference of the
 * next delta.
 */
cod_buffer *exchange_decoded_of(const exchange_publisher *publisher, uint64_t version);
/**
 * How many buffers of values are held beside the snapshot, and where the i-th is: each own version, then each
 * fragment's `decoded`, if they exist. The i-th belongs to fragment i mod `fragments`.
 */
int exchange_publisher_held_count(const exchange_publisher *publisher);
cod_buffer **exchange_publisher_held(const exchange_publisher *publisher, int i);
/** The fragment that was begun last. */
static inline int exchange_fragment_now(const exchange_publisher *publisher)
{
    return exchange_fragment_of(publisher->setup, publisher->version);
}
/** Of that fragment. */
exchange_chain *exchange_chain_now(const exchange_publisher *publisher);
/** Adds the fingerprint of what readers will decode, of the chunk that begins at value `first`. */
void exchange_note_print(exchange_publisher *publisher, uint64_t first, uint64_t fingerprint);

/* Saved state. A publication in progress is finished first. */

/** Count of saved numbers: of the publisher; and of each fragment with its kept versions. */
enum { EXCHANGE_PUBLISHER_NUMBERS = 2, EXCHANGE_CHAIN_NUMBERS = 2 + COD_EXCHANGE_OWN_KEPT };
/** Saves or restores the last publication, the references of the next deltas and the list of kept versions. */
void exchange_publisher_pack(exchange_publisher *publisher, exchange_numbers *numbers);
/** Fails unless the restored numbers can be a publisher's: its versions say where values are held. */
COD_MUST_CHECK cod_status exchange_publisher_check(const exchange_publisher *publisher);
/** Copies the values to the host if they are on a device. */
COD_MUST_CHECK cod_status exchange_publisher_save(exchange_publisher *publisher);
/** The values of exchange_publisher_held() to be written, or filled in; after exchange_publisher_save(). */
float *exchange_publisher_saved(const exchange_publisher *publisher, int i);
/** Continues from the restored values. */
COD_MUST_CHECK cod_status exchange_publisher_restored(exchange_publisher *publisher);

/* Publishing from a device: publisher_device.c. All work goes into the device's default queue. */

/** Starts coding on the device; call it after the values have been made there. */
COD_MUST_CHECK cod_status exchange_publisher_use_device(exchange_publisher *publisher);
/** Ends coding on the device; call it before the values are freed. */
void exchange_publisher_leave_device(exchange_publisher *publisher);
/** Queues the coding of the snapshot. */
COD_MUST_CHECK cod_status exchange_publisher_device_quantise(exchange_publisher *publisher);
/**
 * Copies the chunks of this rank's shard to the host, in two or more calls with steps between them, or at once.
 *
 * @param[out] fetched  whether they have arrived
 * @return COD_ERR_NUMERIC when a value of the snapshot is not finite
 */
COD_MUST_CHECK cod_status exchange_publisher_device_fetch(exchange_publisher *publisher, bool at_once, bool *fetched);
/** Seals the next chunk of this rank's shard; does nothing if there are no more. */
COD_MUST_CHECK cod_status exchange_publisher_device_seal(exchange_publisher *publisher);
/**
 * Whether as many chunks have been sealed as the group's longest shard has. This becomes true in the same step on all
 * ranks, although their shards may differ by some chunks.
 */
bool exchange_publisher_device_sealed(const exchange_publisher *publisher);
/** The version that was coded is complete: it is the reference of the fragment's next delta. */
void exchange_publisher_device_end(exchange_publisher *publisher);
/** Drops the version that was coded: the fragment's next delta, if one may follow, is against the one before. */
COD_MUST_CHECK cod_status exchange_publisher_device_skip(exchange_publisher *publisher);
COD_MUST_CHECK cod_status exchange_publisher_device_save(exchange_publisher *publisher);
float *exchange_publisher_device_saved(const exchange_publisher *publisher, int i);
COD_MUST_CHECK cod_status exchange_publisher_device_restored(exchange_publisher *publisher);

#endif
