/**
 * @file
 * What a group publishes: a copy of its weights, encoded a few chunks a step, and kept as readers will decode it, or as
 * it was.
 *
 * The exchange calls it. The publisher knows neither the puller nor the agreement: it reports to the exchange how
 * this rank's publication stands, and hears from it what all ranks of the group said.
 *
 * One publication, on each rank:
 *   exchange_publisher_snapshot()   says where the weights are to be copied
 *   exchange_publisher_begin()      names the version, a key or a delta, and opens a slot
 *   exchange_publisher_advance()    encodes some of it each step; readers may have the own shard once that is encoded
 *   exchange_publisher_report(), exchange_publisher_hear()   each step; where ranks hold values together, it ends so
 */
#ifndef COD_DISTILL_EXCHANGE_PUBLISHER_INTERNAL_H
#define COD_DISTILL_EXCHANGE_PUBLISHER_INTERNAL_H

#include "codec/coder.h"
#include "core/queue.h"
#include "distill/exchange_reports_internal.h"
#include "distill/exchange_setup_internal.h"

/** A published version, as readers decode it, or exact where exchange_keeps_exact(): what a merge subtracts. */
typedef struct own_version {
    uint64_t version;   /**< 0 = empty or not complete yet */
    cod_buffer *values; /**< [of the version's fragment] f32 */
} own_version;

/** What is published of one fragment: each version is a delta against the one before of the same, or a key. */
typedef struct exchange_chain {
    uint64_t reference;  /**< the last complete version, in own[]; 0 = none that a delta may be against */
    uint64_t since_key;  /**< complete publications after the last key */
    cod_buffer *decoded; /**< [of the fragment] f32 what readers hold, coded in place; NULL = own[] holds that */
} exchange_chain;

/** What coding on a device needs: exchange_publisher_device.c. */
typedef struct exchange_publisher_device exchange_publisher_device;

/** This rank's, since the start: cod_exchange_counters. */
typedef struct exchange_publisher_counters {
    uint64_t published, published_bytes, skipped;
    double encode_s;
} exchange_publisher_counters;

typedef struct exchange_publisher {
    const exchange_setup *setup;
    cod_codec encoder, mirror; /**< own shard into the slot; the others' round trip */
    cod_coder coder;           /**< of codec AUTO */
    /** [of the largest exchange_snapshot_range()] f32; pinned where the host codes for a device. */
    cod_buffer *snapshot;
    /** [of the largest fragment] where ranks of a node share it: snapshot is this rank's part; else NULL. */
    float *snapshot_of_node;
    cod_event *copied;      /**< the snapshot is there; NULL = it is written at once */
    own_version *own;       /**< [own_count] version v at v mod own_count, which is of v's fragment */
    int own_count;          /**< COD_EXCHANGE_OWN_KEPT of each fragment */
    exchange_chain *chains; /**< [fragments] */
    own_version *encoding;  /**< under way, or NULL */
    unsigned char *room;    /**< of the slot that it is encoded into */
    int encoded_shards;     /**< shards of the own group done, or left to other ranks of the node */
    bool waiting;           /**< values held once: this rank's shard is done, the group's may not be */
    bool unfit;             /**< that shard held what is not finite */
    uint64_t version;       /**< last begun */
    cod_codec_key key;      /**< of its chunks */
    uint64_t against;       /**< what that is a delta against; 0 = it is a key */
    uint64_t restored;      /**< own version at the checkpoint gone on from */
    uint64_t left;          /**< newest that readers may hold from a process before this one */
    double left_out;        /**< publications of any rank that storage left out, as last told */
    uint64_t print;         /**< of the chunks encoded so far: a sum, so that their order does not matter */
    uint64_t print_of;      /**< EXCHANGE_PRINT_BITS of that of the last complete one */
    bool chain_broken;      /**< readers cannot use what is being encoded: no delta may be against it */
    int64_t step;           /**< of the last */
    uint64_t published_ms;  /**< wall clock */
    double published_s;
    bool interval_passed;
    exchange_publisher_counters counters;
    exchange_publisher_device *on_device; /**< coding there; NULL = on the host */
} exchange_publisher;

/**
 * Makes codecs; the exchange makes the values. Nothing has been published. exchange_publisher_clear() also after a
 * failure.
 *
 * @param setup  borrowed
 */
COD_MUST_CHECK cod_status exchange_publisher_init(exchange_publisher *publisher, const exchange_setup *setup);
void exchange_publisher_clear(exchange_publisher *publisher);

/* One publication. */

/** Whether one comes after this step, were there no minimum interval. */
bool exchange_publisher_is_due(const exchange_publisher *publisher, int64_t step);
/** cod_exchange_snapshot(). */
COD_MUST_CHECK cod_status exchange_publisher_snapshot(exchange_publisher *publisher, int64_t step,
                                                      cod_exchange_part *part);
/** cod_exchange_publish(), but for deterministic mode, where the exchange then encodes all at once. */
COD_MUST_CHECK cod_status exchange_publisher_begin(exchange_publisher *publisher, int64_t step, uint64_t fingerprint);
/** Encodes a step's part of the publication under way; counts one that was due after this step and left out. */
COD_MUST_CHECK cod_status exchange_publisher_advance(exchange_publisher *publisher, int64_t step);
/**
 * Encodes up to `chunks` more chunks of the publication: of the own shard, and of the mirrors of all others. Ranks that
 * hold values together divide the mirrors of other nodes' shards, and need none of their own node's.
 */
COD_MUST_CHECK cod_status exchange_publisher_encode(exchange_publisher *publisher, uint64_t chunks);
/**
 * Encodes what is left of the publication under way. Where the group's ranks hold values together it is collective,
 * and waits for the others.
 */
COD_MUST_CHECK cod_status exchange_publisher_finish(exchange_publisher *publisher);
/** How the publication begun last stands on this rank. */
exchange_publication exchange_publisher_report(const exchange_publisher *publisher);
/** Acts on what all ranks of the group said of it. */
void exchange_publisher_hear(exchange_publisher *publisher, const exchange_publications *publications);

/* What was published: exchange_publisher_own.c. */

/** Where an own version is kept. */
own_version *exchange_own_of(const exchange_publisher *publisher, uint64_t version);
/** The newest of a fragment that is complete; 0 = none. */
uint64_t exchange_newest_own(const exchange_publisher *publisher, int fragment);
/**
 * What a merge with a peer's version subtracts: the own version of the same number, or NULL where that comes next.
 * Where groups are further apart, the newest own version.
 */
const own_version *exchange_own_beside(const exchange_publisher *publisher, uint64_t version);
/** Where what readers hold of a version is kept, while that is under way or the reference of the next delta. */
cod_buffer *exchange_decoded_of(const exchange_publisher *publisher, uint64_t version);
/**
 * How many buffers of values are held beside the snapshot, and where the i-th is: each own version, then each fragment's
 * `decoded` where there are such. The i-th is of fragment i mod `fragments`.
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

/* What is saved. A publication under way is finished first. */

/** Numbers of the publisher; and those of each fragment, and of each own version that is kept of it. */
enum { EXCHANGE_PUBLISHER_NUMBERS = 2, EXCHANGE_CHAIN_NUMBERS = 2 + COD_EXCHANGE_OWN_KEPT };
/** Saves or restores what was published last, what the next deltas are against and which own versions are kept. */
void exchange_publisher_pack(exchange_publisher *publisher, exchange_numbers *numbers);
/** Brings what is held to the host, where it is not. */
COD_MUST_CHECK cod_status exchange_publisher_save(exchange_publisher *publisher);
/** The values of exchange_publisher_held() to be written, or filled in; after exchange_publisher_save(). */
float *exchange_publisher_saved(const exchange_publisher *publisher, int i);
/** Goes on from the values that were filled in. */
COD_MUST_CHECK cod_status exchange_publisher_restored(exchange_publisher *publisher);

/* Publishing from a device: exchange_publisher_device.c. All work goes into the device's default queue. */

/** After the values have been made there. */
COD_MUST_CHECK cod_status exchange_publisher_use_device(exchange_publisher *publisher);
/** Before the values end. */
void exchange_publisher_leave_device(exchange_publisher *publisher);
/** Queues the coding of the snapshot. */
COD_MUST_CHECK cod_status exchange_publisher_device_quantise(exchange_publisher *publisher);
/**
 * Brings the own shard's chunks to the host, in two calls or more with steps between them, or at once.
 *
 * @param[out] fetched  they are there
 * @return COD_ERR_NUMERIC when a value of the snapshot is not finite
 */
COD_MUST_CHECK cod_status exchange_publisher_device_fetch(exchange_publisher *publisher, bool at_once, bool *fetched);
/** Seals the own shard's next chunk; does nothing where the own shard has no more. */
COD_MUST_CHECK cod_status exchange_publisher_device_seal(exchange_publisher *publisher);
/**
 * Whether chunks have been sealed as often as the group's longest shard has chunks: in the same step on all ranks,
 * whose shards may differ by some chunks.
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
