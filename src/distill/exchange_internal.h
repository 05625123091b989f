/**
 * @file
 * What the files of the exchange share.
 */
#ifndef COD_DISTILL_EXCHANGE_INTERNAL_H
#define COD_DISTILL_EXCHANGE_INTERNAL_H

#include "codec/codec.h"
#include "codec/coder.h"
#include "comm/group_memory.h"
#include "core/queue.h"
#include "distill/exchange.h"
#include "distill/transport.h"

/** Numbers that are saved: the shape and the publisher's; and those of each fragment, and of each that is held. exchange_state.c. */
enum {
    EXCHANGE_PERIOD_BITS = 40,
    EXCHANGE_NUMBERS = 3,
    EXCHANGE_CHAIN_NUMBERS = 2 + COD_EXCHANGE_OWN_KEPT,
    EXCHANGE_PEER_NUMBERS = 4
};

/** Numbers of a checkpoint in a fixed order, being written or read. */
typedef struct exchange_numbers {
    uint64_t *next;
    bool restoring;
} exchange_numbers;

static inline void exchange_pack_u64(exchange_numbers *numbers, uint64_t *field)
{
    if (numbers->restoring)
        *field = *numbers->next++;
    else
        *numbers->next++ = *field;
}

static inline void exchange_pack_i64(exchange_numbers *numbers, int64_t *field)
{
    uint64_t bits = (uint64_t)*field;
    exchange_pack_u64(numbers, &bits);
    *field = (int64_t)bits;
}

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

/** A fragment of a peer's model, which is pulled and held by itself. */
typedef struct held_peer {
    int group, fragment;
    cod_exchange_model model;
    cod_exchange_range range;
    cod_buffer *values, *incoming; /**< [range.count] f32 */
    uint64_t version, refused;     /**< held; the newest that was no use */
    int64_t step, pulled_at;
    uint64_t published_ms, incoming_ms; /**< of values and incoming, by the publisher's clock; 0 = not known */
    bool asked;                         /**< what it publishes, and it has not answered yet */
    uint64_t asked_before;              /**< the pull of this number, as exchange_pull.begun counts */
    bool foreign;                       /**< publishes something else; said once */
    cod_exchange_peer_counters counters;
} held_peer;

/** What coding on a device needs: exchange_device.c. */
typedef struct exchange_device exchange_device;
typedef struct exchange_device_pull exchange_device_pull;

/** Values in the host's memory. */
static inline float *exchange_floats(const cod_buffer *buffer)
{
    return buffer->host;
}

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
    bool unlike;           /**< ranks of the group have published different weights: said once */
    bool chain_broken;     /**< readers cannot use what is being encoded: no delta may be against it */
    int64_t step;          /**< of the last */
    uint64_t published_ms; /**< wall clock */
    double published_s;
    bool interval_passed;
} exchange_publisher;

typedef enum exchange_phase { IDLE, PULLING, GATHERING } exchange_phase;

/** One pull at a time, of the peers that are its own: those whose number modulo the number of pulls is its place. exchange_pull.c. */
typedef struct exchange_pull {
    int place;
    int turn; /**< the peer that is proposed next, where it has something newer */
    cod_codec decoder;
    exchange_phase phase;
    int64_t phase_since;
    uint64_t begun;          /**< pulls so far */
    double polled_s, idle_s; /**< when the pull was last looked at; for how long it has not moved, as looks tell */
    held_peer *peer;         /**< being pulled */
    uint64_t version, life;  /**< all its shards are of that life; EXCHANGE_ANY_LIFE */
    int shard;               /**< being pulled */
    bool arrived, done, lost, refused;
    bool look; /**< for news at once: the last pull has just ended */
    cod_pulled pulled;
    uint64_t bytes, published_ms; /**< of the shards that have come */
    cod_request *gathering;
    int proposed; /**< the number of a peer, or EXCHANGE_NO_PEER */
    uint64_t proposed_version, proposed_life;
    exchange_device_pull *on_device; /**< NULL = decoded on the host */
} exchange_pull;

enum { EXCHANGE_NO_PEER = -1 };

struct cod_exchange {
    cod_comm *comm;
    cod_group *group;
    cod_exchange_options options;
    cod_exchange_model *models;
    uint64_t run, total;
    uint64_t life;              /**< of this process of the group, the same on all its ranks; exact as a double */
    cod_transport **transports; /**< [fragments] each is a window, or a folder, of one fragment */
    int fragments;
    int rank, size;           /**< in the group */
    cod_group_memory *shared; /**< what is held, once for the group's ranks of a node; NULL = each rank has its own */
    size_t shared_used;       /**< bytes given away */
    cod_group_holders
        holders; /**< the ranks that share that with this one, and its place; this one alone where nobody shares */

    const cod_backend *backend; /**< as device: of cod_exchange_use_device(), where it has queues; else NULL */
    cod_device *device;
    cod_event *copied;          /**< the snapshot is there; NULL = it is written at once */
    exchange_device *on_device; /**< coding there; NULL = on the host */

    exchange_publisher publisher;
    held_peer *peers; /**< [peer_count] all fragments of the first group that is read, then those of the next */
    int peer_count;
    exchange_pull *pulls; /**< [pull_count] */
    int pull_count;
    cod_rooms rooms; /**< of the pulls, whichever fragment each is of */
    uint64_t now_ms; /**< wall clock of the group's first rank, as last told; 0 = not known */

    /* Replaying. */
    cod_exchange_event *events; /**< NULL = not */
    size_t event_count, next_event;

    cod_exchange_counters counters;
    cod_exchange_array *arrays;
    size_t array_count;
    uint64_t *numbers;    /**< versions and steps, as saved */
    unsigned char *slots; /**< of all fragments, as saved last; NULL with one fragment */
};

/** The newest own publication of a fragment that is complete; 0 = none. */
uint64_t exchange_newest_own(const cod_exchange *e, int fragment);
/** Publications that storage left out, of this rank's shard. */
uint64_t exchange_left_out(const cod_exchange *e);

#define EXCHANGE_ANY_LIFE UINT64_MAX

/** Sums over 1024 ranks of the squares of so many bits, times the ranks, are exact as doubles. */
enum { EXCHANGE_PRINT_BITS = 16 };
/** A life is exact as a double, in which it rides in the reductions. */
#define EXCHANGE_LIFE_MASK (UINT64_MAX >> 11)

/** Steps after which what a step queued is known to be done on a device: the host has read a loss that was queued behind it. */
enum { EXCHANGE_COPY_STEPS = 2 };

static inline uint64_t exchange_total_of(const cod_exchange_model *model)
{
    return model->count + model->state_count;
}

cod_codec_options exchange_codec_options(const cod_exchange_options *options);
static inline bool exchange_makes_deltas(const cod_exchange_options *options)
{
    return exchange_codec_options(options).coding == COD_CHUNK_STEP;
}
/** Room for any of a checkpoint's shards, encoded. */
uint64_t exchange_slot_bytes(const cod_exchange_options *options, const cod_exchange_model *model, int shards);
/** Part `shard` of `shards` of a fragment of a checkpoint. */
cod_codec_range exchange_shard_range(const cod_exchange_options *options, const cod_exchange_model *model, int fragment,
                                     int shard, int shards);
int exchange_shards_of(const cod_exchange *e, int group);
/** The fragment that a version is of. */
static inline int exchange_fragment_of(const cod_exchange *e, uint64_t version)
{
    return (int)(version % (uint64_t)e->fragments);
}
/** What a shard of a fragment of a group says that it is: shards of the first fragment are numbered first. */
cod_slot_identity exchange_identity(const cod_exchange *e, int group, int fragment, int shard);
/** A group's life is a run of its own to its chunks: what it made before its death and after it never passes for each other. */
cod_codec_key exchange_key(const cod_exchange *e, int group, uint64_t version, uint64_t life);

/** Whether groups wait for each other, by what is configured: deterministic, or repeating a run. */
static inline bool exchange_will_wait(const cod_exchange_options *options)
{
    return options->deterministic || (options->replay != NULL && options->replay[0] != '\0');
}
/** Whether they do. */
static inline bool exchange_waits(const cod_exchange *e)
{
    return e->options.deterministic || e->events != NULL;
}
/** Whether the entropy coder is chosen by what is measured: bytes that replay must not depend on time. */
static inline bool exchange_chooses_coder(const cod_exchange *e)
{
    return e->options.codec == COD_EXCHANGE_AUTO && !exchange_waits(e);
}
/** What is published is of this life: of none where bytes must repeat. */
static inline uint64_t exchange_life(const cod_exchange *e)
{
    return exchange_waits(e) ? 0 : e->life;
}
/**
 * How long they wait: one group may evaluate for minutes while another does not, and groups of a run that is repeated may
 * have been far apart.
 */
static inline double exchange_patience_s(const cod_exchange *e)
{
    enum { TIMES = 60 };
    return TIMES * e->options.pull_timeout_s;
}
/** A wait for another group, on the stack. */
typedef struct exchange_waiting {
    double since, told;
} exchange_waiting;
exchange_waiting exchange_wait_begin(void);
/**
 * Whether the wait has taken longer than exchange_patience_s(). Until then it logs every pull_timeout_s that this group waits for
 * `group` to do `what` with the version: "publish", "take".
 */
bool exchange_wait_is_over(const cod_exchange *e, exchange_waiting *waiting, int group, const char *what,
                           uint64_t version);
/** Whether the run that is repeated published after this step. */
bool exchange_replays_publication(const cod_exchange *e, int64_t step);

/* A pull, from one step to the next: exchange_pull.c. */

/** How many pulls a group has at a time, so that all fragments of its peers get their turn within a period. */
int exchange_pulls_for(const cod_exchange_options *options, int peers);
/** Steps that decoding a version is spread over: fewer where pulls are fewer than peers. */
int64_t exchange_decoding_steps(const cod_exchange_options *options, int peers);
/** Makes the pulls. exchange_pulls_clear() also after a failure. */
COD_MUST_CHECK cod_status exchange_pulls_init(cod_exchange *e);
/** Cancels what is being pulled. Leaves a gather that does not end within `pull_timeout_s` to itself, with its memory. */
COD_MUST_CHECK cod_status exchange_pulls_end(cod_exchange *e);
void exchange_pulls_clear(cod_exchange *e);
/** Saves which versions are held of peers' fragments, or goes on from there. A pull under way is not saved. */
void exchange_peers_pack(held_peer *peers, int count, exchange_numbers *numbers);
/** The one that a peer belongs to. */
exchange_pull *exchange_pull_of(const cod_exchange *e, const held_peer *peer);
/** Moves all pulls by a step. */
COD_MUST_CHECK cod_status exchange_move_pulls(cod_exchange *e, int64_t step);

/** @param life  of every shard, or EXCHANGE_ANY_LIFE where groups resume together */
COD_MUST_CHECK cod_status exchange_start_pull(cod_exchange *e, held_peer *peer, uint64_t version, uint64_t life,
                                              int64_t step);
/** Moves the pull of the current shard, and decodes up to `chunks` chunks of it once it is here. */
COD_MUST_CHECK cod_status exchange_move_pull(cod_exchange *e, exchange_pull *pull, uint64_t chunks);
/** Whether ranks send each other the shards that each pulled: not where all hold them together. */
static inline bool exchange_sends_shards(const cod_exchange *e)
{
    return e->holders.count < e->size;
}
/** Every rank has its shards: the group completes them, each rank's in turn. */
COD_MUST_CHECK cod_status exchange_start_gather(cod_exchange *e, exchange_pull *pull, int64_t step);
/** Moves that on; on a device all is decoded then. */
COD_MUST_CHECK cod_status exchange_move_gather(cod_exchange *e, exchange_pull *pull);
/** All ranks of the group hold the version: it replaces the last. */
void exchange_take_over(cod_exchange *e, exchange_pull *pull, int64_t step);
/** The version is given up. @param useless  it is damaged: it is not asked for again */
void exchange_give_up(cod_exchange *e, exchange_pull *pull, bool useless);

/** Deterministic: takes this period's version of every peer. */
COD_MUST_CHECK cod_status exchange_take_all(cod_exchange *e, int64_t step);
/** Takes what the run that is repeated took over after this step. */
COD_MUST_CHECK cod_status exchange_replay_step(cod_exchange *e, int64_t step);

/** Milliseconds since 1970. */
uint64_t exchange_wall_ms(void);
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
void exchange_end_waiting(cod_exchange *e, double waiting, double unfit);
/**
 * Encodes what is left of the publication under way. Where the group's ranks hold values together it also waits for the others, and
 * is collective then.
 */
COD_MUST_CHECK cod_status exchange_finish_publication(cod_exchange *e);
/** Values of a fragment of the own model that this rank copies: its part where ranks of a node hold values together, else all. */
cod_codec_range exchange_snapshot_range(const cod_exchange *e, int fragment);

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
/** Leaves a gather that does not end to itself, with its memory. */
void exchange_abandon_gather(cod_exchange *e, exchange_pull *pull);

/* Coding on a device: exchange_device.c. All work goes into the device's default queue. */

/** Makes the values, on the device where it has the ops. */
COD_MUST_CHECK cod_status exchange_device_create(cod_exchange *e);
/** All but the values, and the memory of e->on_device itself: exchange_free_values() asks whether there is one. */
void exchange_device_destroy(cod_exchange *e);
/** A gather that was given up goes on to use its memory. */
void exchange_device_forget_gather(exchange_pull *pull);
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
/** A version is going to be pulled. */
COD_MUST_CHECK cod_status exchange_device_begin(cod_exchange *e, exchange_pull *pull);
/** Checks up to `chunks` chunks of the shard that has come, and makes them plain. */
COD_MUST_CHECK cod_status exchange_device_open(cod_exchange *e, exchange_pull *pull, uint64_t chunks);
/** Starts sharing the shards' plain chunks in the group. */
COD_MUST_CHECK cod_status exchange_device_share(cod_exchange *e, exchange_pull *pull);
/** Queues what decodes them, and looks whether that is done. @return COD_ERR_NUMERIC when a value is not finite */
COD_MUST_CHECK cod_status exchange_device_decode(cod_exchange *e, exchange_pull *pull, bool *done);
/** The version that was decoded is held. */
void exchange_device_take_over(cod_exchange *e, exchange_pull *pull);
/**
 * Copies all values to the host, for a checkpoint; exchange_device_restore() copies them back.
 *
 * @param[out] values  [own_count + peer_count] of the host; the exchange's own, the same at every call
 */
COD_MUST_CHECK cod_status exchange_device_save(cod_exchange *e, float ***values);
COD_MUST_CHECK cod_status exchange_device_restore(cod_exchange *e);

#endif
