/**
 * @file
 * What the files of the exchange share.
 */
#ifndef COD_DISTILL_EXCHANGE_INTERNAL_H
#define COD_DISTILL_EXCHANGE_INTERNAL_H

#include "core/queue.h"
#include "distill/exchange_agreement_internal.h"
#include "distill/exchange_puller_internal.h"

/** Numbers that are saved: the shape and the publisher's; and those of each fragment, and of each that is held. exchange_state.c. */
enum { EXCHANGE_PERIOD_BITS = 40, EXCHANGE_NUMBERS = 3, EXCHANGE_CHAIN_NUMBERS = 2 + COD_EXCHANGE_OWN_KEPT };

/** A published version as this group itself will be seen: what a merge subtracts. */
typedef struct own_version {
    uint64_t version;   /**< 0 = empty or not complete yet */
    cod_buffer *values; /**< [of the version's fragment] f32 */
} own_version;

/** What is published of one fragment: each version is a delta against the one before of the same, or a key. */
typedef struct exchange_chain {
    uint64_t reference; /**< the last complete version, in own[]; 0 = none that a delta may be against */
    uint64_t since_key; /**< complete publications after the last key */
} exchange_chain;

/** What coding on a device needs: exchange_publish_device.c. */
typedef struct exchange_device exchange_device;

/** The own group's publications: exchange_publish.c. */
typedef struct exchange_publisher {
    cod_codec encoder, mirror; /**< own shard into the slot; the others' round trip */
    cod_coder coder;           /**< of codec AUTO */
    cod_buffer
        *snapshot; /**< [of the largest exchange_snapshot_range()] f32; pinned where the host codes for a device */
    float *
        snapshot_of_node; /**< [of the largest fragment] where ranks of a node share it: snapshot is this rank's part; else NULL */
    own_version *own;       /**< [own_count] version v at v mod own_count, which is of v's fragment */
    int own_count;          /**< COD_EXCHANGE_OWN_KEPT of each fragment */
    exchange_chain *chains; /**< [fragments] */
    int fragments;
    own_version *encoding; /**< under way, or NULL */
    unsigned char *room;
    int encoded_shards; /**< shards of the own group done, or left to other ranks of the node */
    bool waiting,
        unfit; /**< values held once: this rank's shard is done, the group's may not be; it held what is not finite */
    uint64_t version;      /**< last begun */
    cod_codec_key key;     /**< of its chunks */
    uint64_t against;      /**< what that is a delta against; 0 = it is a key */
    uint64_t restored;     /**< own version at the checkpoint gone on from */
    uint64_t left;         /**< newest that readers may hold from a process before this one */
    double left_out;       /**< publications of any rank that storage left out, as last told */
    uint64_t print;        /**< of the chunks encoded so far: a sum, so that their order does not matter */
    uint64_t print_of;     /**< EXCHANGE_PRINT_BITS of that of the last complete one */
    bool chain_broken;     /**< readers cannot use what is being encoded: no delta may be against it */
    int64_t step;          /**< of the last */
    uint64_t published_ms; /**< wall clock */
    double published_s;
    bool interval_passed;
} exchange_publisher;

struct cod_exchange {
    exchange_setup setup;
    size_t shared_used;         /**< bytes of setup.shared given away */
    cod_event *copied;          /**< the snapshot is there; NULL = it is written at once */
    exchange_device *on_device; /**< coding there; NULL = on the host */

    exchange_publisher publisher;
    exchange_puller puller;
    exchange_agreement agreement;

    /* Replaying. */
    cod_exchange_event *events; /**< NULL = not */
    size_t event_count, next_event;

    cod_exchange_counters counters;
    cod_exchange_array *arrays;
    size_t array_count;
    uint64_t *numbers;    /**< versions and steps, as saved */
    unsigned char *slots; /**< of all fragments, as saved last */
};

/** The newest own publication of a fragment that is complete; 0 = none. */
uint64_t exchange_newest_own(const cod_exchange *e, int fragment);
/** Publications that storage left out, of this rank's shard. */
uint64_t exchange_left_out(const cod_exchange *e);

/** Whether the entropy coder is chosen by what is measured: bytes that replay must not depend on time. */
static inline bool exchange_chooses_coder(const cod_exchange *e)
{
    return e->setup.options.codec == COD_EXCHANGE_AUTO && !e->setup.waits;
}
/** What is published is of this life: of none where bytes must repeat. */
static inline uint64_t exchange_life(const cod_exchange *e)
{
    return e->setup.waits ? 0 : e->setup.life;
}
/** Whether the run that is repeated published after this step. */
bool exchange_replays_publication(const cod_exchange *e, int64_t step);

/** Deterministic: takes this period's version of every peer. */
COD_MUST_CHECK cod_status exchange_take_all(cod_exchange *e, int64_t step);
/** Takes what the run that is repeated took over after this step. */
COD_MUST_CHECK cod_status exchange_replay_step(cod_exchange *e, int64_t step);

/**
 * Tries all entropy coders on the chunk of the own shard that was encoded last, where it is the one chosen for this publication.
 *
 * @param before  values of the shard that were encoded before that chunk
 */
COD_MUST_CHECK cod_status exchange_try_coders(cod_exchange *e, uint64_t before);
/** Where an own version is kept. */
own_version *exchange_own_of(cod_exchange *e, uint64_t version);
/** Makes codecs, and says that nothing has been published. */
COD_MUST_CHECK cod_status exchange_publisher_init(exchange_publisher *publisher, const cod_exchange_options *options);
void exchange_publisher_clear(exchange_publisher *publisher);
/** Saves what was published last, what the next deltas are against and which own versions are kept, or goes on from there. */
void exchange_publisher_pack(exchange_publisher *publisher, exchange_numbers *numbers);
/** Adds the fingerprint of what readers will decode, of the chunk that begins at value `first`. */
void exchange_note_print(exchange_publisher *publisher, uint64_t first, uint64_t fingerprint);
/**
 * Readers never have a version of which any rank's shard was left out, nor then the deltas that follow: the next publication is a
 * key, of all ranks. @param count  of all ranks since the start
 */
void exchange_note_left_out(exchange_publisher *publisher, double count);
/** Of the fragment that was begun last. */
exchange_chain *exchange_chain_now(const cod_exchange *e);
/** Where the own model's values of the fragment that was begun last begin. */
uint64_t exchange_first_now(const cod_exchange *e);
/** Whether a publication is due after this step, were there no minimum interval. */
bool exchange_is_publication_step(const cod_exchange *e, int64_t step);
/** Steps that encoding a publication is spread over. */
int64_t exchange_encoding_steps(const cod_exchange_options *options);
/**
 * Encodes up to `chunks` more chunks of the publication: of the own shard, and of the mirrors of all others. Ranks that
 * hold values together divide the mirrors of other nodes' shards, and need none of their own node's.
 */
COD_MUST_CHECK cod_status exchange_encode_some(cod_exchange *e, uint64_t chunks);
/**
 * Values held once: acts on what all ranks said of the publication under way.
 *
 * @param waiting,unfit  how many ranks have encoded their shard; how many of them met a value that is not finite
 */
void exchange_end_waiting(cod_exchange *e, int waiting, int unfit);
/** How the publication begun last stands on this rank. */
exchange_publication exchange_publication_of(const cod_exchange *e);
/** Acts on what all ranks of the group said of it. */
void exchange_hear_publications(cod_exchange *e, const exchange_publications *publications);
/**
 * Encodes what is left of the publication under way. Where the group's ranks hold values together it also waits for the others, and
 * is collective then.
 */
COD_MUST_CHECK cod_status exchange_finish_publication(cod_exchange *e);
/* What is held, and where: exchange_values.c. */

/**
 * Makes memory for what is held, which the group's ranks of each node hold together. Collective on the group; before
 * exchange_make_values().
 */
COD_MUST_CHECK cod_status exchange_share_values(cod_exchange *e);
/**
 * Makes the snapshot, own versions and peers' checkpoints: in the device's memory where it codes, else in the host's.
 * exchange_free_values() also after a failure.
 */
COD_MUST_CHECK cod_status exchange_make_values(cod_exchange *e);
/** Waits for copies to the snapshot that are under way. What was shared is each rank's own from then on. */
void exchange_free_values(cod_exchange *e);
/* Publishing from a device: exchange_publish_device.c. All work goes into the device's default queue. */

/** After the values have been made there. */
COD_MUST_CHECK cod_status exchange_device_create(cod_exchange *e);
/** Before the values end. */
void exchange_device_destroy(cod_exchange *e);
/** Queues the coding of the snapshot. */
COD_MUST_CHECK cod_status exchange_device_quantise(cod_exchange *e);
/**
 * Brings the own shard's chunks to the host, in two calls or more with steps between them, or at once.
 *
 * @param[out] fetched  they are there
 * @return COD_ERR_NUMERIC when a value of the snapshot is not finite
 */
COD_MUST_CHECK cod_status exchange_device_fetch(cod_exchange *e, bool at_once, bool *fetched);
/** Seals the own shard's next chunk. */
COD_MUST_CHECK cod_status exchange_device_seal(cod_exchange *e);
/** What was coded is what the next delta is against. */
void exchange_device_end(cod_exchange *e);
/** What was coded counts for nothing. */
COD_MUST_CHECK cod_status exchange_device_skip(cod_exchange *e);
/** Copies own versions to the host, for a checkpoint; exchange_device_restore() copies them back. */
COD_MUST_CHECK cod_status exchange_device_save(cod_exchange *e);
float *exchange_device_saved(const cod_exchange *e, int own);
COD_MUST_CHECK cod_status exchange_device_restore(cod_exchange *e);

#endif
