/**
 * @file
 * The exchange: publishes this group's checkpoints and pulls those of its peers, without waiting for other groups.
 *
 * How a pull works. Each rank publishes a shard of its group's model. The group's rank 0 watches the peers; when a peer
 * has a new version, it proposes (peer, version): the newest key, or else the delta against the version held. If
 * weights are merged, it proposes only versions whose number the group's own versions have reached or reach next, as
 * long as the peer's slots still hold such a version. Rank j of n pulls the peer's shards k with k mod n = j, all of
 * exactly that version; when all ranks hold theirs, the group gathers them; when all have everything, all take the
 * checkpoint over, at the same step. The ranks' messages to each other (proposed, done, lost) are part of a reduction
 * that the caller makes each step, and take effect two steps later, so no rank waits. As many peers are pulled at a
 * time as are needed to give each its turn within a period. If a rank loses a version (its slot was reopened, bytes
 * were damaged, or time ran out), all ranks abandon it. When the peers are asked again, a version that they have then
 * is proposed, but never one that was damaged. Versions are counted in periods: version v is of step v * period in
 * every group, whatever a group left out, so that a peer's version v and the group's own version v have had the same
 * number of steps.
 *
 * *Fragments*: a model may be cut into P ranges, of which one is published every period / P steps, in turn; versions
 * are counted in these steps, and version v is of fragment v mod P. Each fragment is an exchange of its own: slots,
 * keys and deltas, own versions and pulls know of no other fragment, so that everything said here about a model applies
 * to each fragment.
 *
 * In *deterministic* mode nothing depends on time: a publication at step s is encoded at once, and at step s + lag
 * every reader waits for it, from all peers; a publisher reopens a slot only when all its readers have acknowledged it.
 *
 * The caller, each step t, on every rank of the group, in this order:
 * - cod_exchange_flags_in(t) with the sums of step t - 2, before this step's flags are set
 * - where cod_exchange_publish_due(t): cod_exchange_snapshot(), the weights copied there, cod_exchange_publish()
 * - cod_exchange_advance(t)
 * - cod_exchange_read_checkpoint(peer, fragment): looks whether its version changed
 * - cod_exchange_flags_out() into the reduction of step t
 */
#ifndef COD_EXCHANGE_EXCHANGE_H
#define COD_EXCHANGE_EXCHANGE_H

#include "comm/group.h"
#include "core/backend.h"
#include "core/option.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct cod_exchange cod_exchange;

/** Limits: pulls of a group at a time, and numbers in the reduction. */
enum {
    COD_EXCHANGE_FRAGMENTS_MOST = 64,
    COD_EXCHANGE_PULLS_MOST = 16,
    COD_EXCHANGE_FLAGS_MOST = 7 + 9 * COD_EXCHANGE_PULLS_MOST,
    COD_EXCHANGE_OWN_KEPT = 4
};

typedef enum cod_exchange_publish_kind { COD_PUBLISH_RAW, COD_PUBLISH_EMA } cod_exchange_publish_kind;
typedef enum cod_exchange_codec {
    COD_EXCHANGE_NONE,
    COD_EXCHANGE_F32,
    COD_EXCHANGE_BF16,
    COD_EXCHANGE_INT8,
    COD_EXCHANGE_DELTA,
    COD_EXCHANGE_AUTO /**< DELTA, with an entropy coder chosen by the speed of the link */
} cod_exchange_codec;
typedef enum cod_exchange_merge_kind {
    COD_MERGE_NONE,
    COD_MERGE_DELAY_CORRECTED,
    COD_MERGE_AVERAGE
} cod_exchange_merge_kind;
/**
 * What a merge subtracts: the group's own publication as readers decode it, or the exact weights that were published.
 */
typedef enum cod_exchange_merge_against { COD_AGAINST_DECODED, COD_AGAINST_EXACT } cod_exchange_merge_against;
typedef enum cod_exchange_peers { COD_PEERS_ALL, COD_PEERS_RING, COD_PEERS_RANDOM, COD_PEERS_AUTO } cod_exchange_peers;

typedef enum cod_exchange_teacher_fragments { COD_TEACHER_MIXED, COD_TEACHER_WHOLE } cod_exchange_teacher_fragments;

typedef enum cod_exchange_transport { COD_TRANSPORT_RMA, COD_TRANSPORT_FILE } cod_exchange_transport;

/**
 * Section "exchange" of a config. `publish`, `teacher_fragments`, `replay` and `max_staleness_*` are the caller's to
 * read; `merge` and `merge_alpha` are for merge.h.
 */
typedef struct cod_exchange_options {
    int64_t period, fragments; /**< cod_exchange_fragments(), cod_exchange_spacing() */
    int codec;                 /**< cod_exchange_codec; NONE publishes, reads and holds nothing */
    double quality_db, rounding;
    int64_t key_every;
    int entropy; /**< cod_codec_entropy */
    int scales;  /**< index into f32, bf16 */
    int64_t chunk_values;
    int64_t slots;
    int publish; /**< cod_exchange_publish_kind */
    double min_interval_ms;
    int64_t max_staleness_steps;
    double max_staleness_s;
    double pull_timeout_s;
    bool deterministic;
    int64_t lag_steps;
    int merge; /**< cod_exchange_merge_kind */
    double merge_alpha;
    int merge_against;     /**< cod_exchange_merge_against */
    int teacher_fragments; /**< cod_exchange_teacher_fragments */
    int peers;             /**< cod_choice_index(): cod_exchange_peers; cod_choice_argument(): peers of a random draw */
    const char *replay;    /**< folder of a run whose exchange is repeated; "" = none */
    int transport;         /**< cod_exchange_transport */
    const char *directory; /**< of the file transport */
    const char *key_file;  /**< of the file transport: seals what it writes; "" = none */
    uint64_t seed;         /**< not an option: of the run, for the draw */
    bool anew;             /**< not an option: the run starts anew, and the file transport empties its folders */
    int64_t last_step;     /**< not an option: the last step, whose publication stays readable; 0 = unknown */
} cod_exchange_options;

extern const cod_option_table cod_exchange_option_table;

/** Told of an option whose value cannot be: its name, as "exchange.period", and a message. */
typedef void cod_exchange_problem(void *context, const char *option, const char *message);

/**
 * Checks what must hold between the options; what must hold of each alone is in their table.
 *
 * @param options  `deterministic` if the run is
 * @param groups   number of groups
 */
void cod_exchange_check(const cod_exchange_options *options, int groups, cod_exchange_problem *problem, void *context);

/** Number of ranges that a model is cut into, one of which is published at a time. Zeroed options also give 1. */
static inline int cod_exchange_fragments(const cod_exchange_options *options)
{
    return options->fragments > 1 ? (int)options->fragments : 1;
}

/** Steps from one publication to the next, which is of the next fragment. */
static inline int64_t cod_exchange_spacing(const cod_exchange_options *options)
{
    return options->period / cod_exchange_fragments(options);
}

/**
 * Whether group `reader` of `groups` reads `publisher`'s checkpoints; false for all with COD_EXCHANGE_NONE. A random
 * draw is a function of the run's seed and the reader, made once for the whole run, so that every rank knows who reads
 * whom, also after a resume. It is not redrawn, because a teacher's program, the memory of its checkpoint and the
 * references of deltas belong to a peer and would be lost.
 */
bool cod_exchange_reads(const cod_exchange_options *options, int groups, int reader, int publisher);

/**
 * Number of peers that a group can follow without skipping publications: a pull takes 11 steps at least, and 16 run at
 * a time. COD_PEERS_AUTO reads all peers up to this number; above it, a random draw of this many.
 */
int cod_exchange_peers_allowed(const cod_exchange_options *options);

/**
 * Whether a group with this many peers must skip publications of theirs.
 *
 * @param[out] advice  why, and what to do
 */
bool cod_exchange_falls_behind(const cod_exchange_options *options, int peers, char *advice, size_t bytes);

/** What a group trains; groups may train different models. */
typedef struct cod_exchange_model {
    uint64_t count;       /**< parameters */
    uint64_t state_count; /**< normalisation statistics, which follow the parameters; always sent as f32 */
    uint64_t hash;        /**< of the architecture; a peer whose hash is not the expected one is refused */
} cod_exchange_model;

/** Values of a model, among its count + state_count. */
typedef struct cod_exchange_range {
    uint64_t first, count;
} cod_exchange_range;

/**
 * Fragment `fragment` of a model. Fragments are whole chunks of `chunk_values`, so their sizes may differ by a chunk.
 * Version v is of fragment v mod `fragments`.
 */
cod_exchange_range cod_exchange_fragment_range(const cod_exchange_options *options, const cod_exchange_model *model,
                                               int fragment);

/**
 * A fragment of a peer's model as this group holds it. Borrowed: valid until the next flags_in() or advance(), and for
 * work that the device's default queue has by then. Buffers are in the device's memory if the exchange codes there,
 * otherwise in the host's.
 */
typedef struct cod_exchange_checkpoint {
    cod_exchange_range range; /**< of the peer's model */
    cod_buffer *values;       /**< [range.count] f32; NULL = none yet */
    uint64_t version;         /**< the peer's step / spacing when it published; 0 = none yet */
    int64_t step;             /**< the peer's step when it published */
    int64_t pulled_at;        /**< own step when it was taken over */
    double age_s;             /**< since its publisher copied its weights, by the clocks of both; NaN = not known */
    cod_buffer *own;          /**< the group's own publication to merge with, decoded or exact; NULL = not made yet */
    uint64_t own_version;     /**< version of `own`: the same number, or the newest if groups are too far apart */
} cod_exchange_checkpoint;

/** Counters of this rank since the start (a resume does not restore them). */
typedef struct cod_exchange_counters {
    uint64_t published, pulled; /**< publications of this rank's shard; checkpoints taken over */
    uint64_t published_bytes, pulled_bytes;
    uint64_t rejected; /**< damaged, not finite, or of another model */
    uint64_t lost;     /**< slot reopened while it was read, or too slow */
    uint64_t skipped;  /**< own publications not made: too soon, values not finite, or storage full or gone */
    uint64_t switches; /**< times that a version held was replaced */
    double seconds;    /**< the caller's time spent in here */
    double encode_s, decode_s;
} cod_exchange_counters;

/**
 * Counters of one peer's versions since the start (a resume does not restore them), summed over the group's ranks
 * except for the last two.
 */
typedef struct cod_exchange_peer_counters {
    uint64_t pulled, rejected,
        lost;             /**< taken over; damaged, not finite, foreign; reopened while being read, or too slow */
    uint64_t bytes;       /**< bytes pulled, including those of versions that were then refused */
    uint64_t timed_bytes; /**< this rank's */
    double timed_s;       /**< seconds from the request of these bytes until they were seen to have arrived */
} cod_exchange_peer_counters;

/** What one group's part in an exchange costs, computed without measuring. */
typedef struct cod_exchange_sizes {
    int peers, pulls;      /**< peers that the group reads; pulls at a time */
    uint64_t published;    /**< bytes of one publication at most; less with an entropy coder */
    uint64_t pulled;       /**< bytes of one publication of each peer */
    uint64_t held_bytes;   /**< of a rank: the peers' checkpoints, one in use and one under way of each */
    uint64_t own_bytes;    /**< of a rank: the copy being published, and own publications */
    uint64_t slot_bytes;   /**< of a rank: encoded versions, its own and those being pulled, at most */
    uint64_t memory_bytes; /**< of a rank: all three */
    uint64_t device_bytes; /**< of a rank, in the memory of a device that codes: the first two, and chunks both ways */
    /** of all its ranks: what cod_exchange_state() saves, at most; less with an entropy coder */
    uint64_t checkpoint_bytes;
    int64_t encoding_steps; /**< that a publication's encoding is spread over */
    int64_t decoding_steps; /**< that the decoding of a peer's version is spread over */
} cod_exchange_sizes;

/**
 * Computes them without making an exchange; all are 0 with COD_EXCHANGE_NONE.
 *
 * @param models  [groups] what each group trains
 * @param ranks   [groups] ranks of each
 * @param mine    the group
 * @param together  its ranks that hold values together, of which each has its part here: those of one node, where all
 *                  the group's ranks compute on processors; else 1
 */
cod_exchange_sizes cod_exchange_plan(const cod_exchange_options *options, const cod_exchange_model *models,
                                     const int *ranks, int groups, int mine, int together);

/** Ranks of this exchange's group that hold values together with this one, itself counted. */
int cod_exchange_holders(const cod_exchange *exchange);

/**
 * Makes the exchange and its transport. Collective on all ranks of the job, with equal arguments but for `group`.
 *
 * @param group   borrowed while the exchange lives
 * @param models  [groups] what each group trains; copied
 * @param run     names the run: bytes of another never pass
 */
COD_MUST_CHECK cod_status cod_exchange_create(cod_comm *comm, cod_group *group, const cod_exchange_options *options,
                                              const cod_exchange_model *models, uint64_t run, cod_exchange **out);

/**
 * Says where the weights lie, before the first step. Where the backend has queues, and ops QUANTISE and DEQUANTISE,
 * everything that is held stays in the device's memory: versions are coded there, and only coded bytes are copied
 * between it and the host. Without these ops snapshots go to pinned memory, and the host codes. Either way encoding
 * begins in the third step after a publication, so that the host need not wait for copies; in deterministic mode it
 * does. Collective on the group.
 *
 * @param backend,device  borrowed while the exchange lives
 */
COD_MUST_CHECK cod_status cod_exchange_use_device(cod_exchange *exchange, const cod_backend *backend,
                                                  cod_device *device);

/** Whether an exchange would code on this device: it has memory of its own, and the ops. */
bool cod_exchange_codes_on(const cod_backend *backend, cod_device *device);

/**
 * Collective on all ranks of the job, bounded by the teardown timeout; peers may read until then. Taken; NULL does
 * nothing.
 */
COD_MUST_CHECK cod_status cod_exchange_destroy(cod_exchange *exchange);

/** Something that an asynchronous exchange did after a step. */
typedef struct cod_exchange_event {
    int64_t step;
    int group; /**< the peer whose version was taken over; -1 = the own group published */
    uint64_t version;
} cod_exchange_event;

/**
 * Repeats what an earlier run of the same configuration did, whenever it happened: publishes after these steps only,
 * and after these steps takes over exactly these versions, waiting for them. All ranks, before the first step; the run
 * must be replayed from its beginning.
 *
 * @param events  in the order of their steps, the same on all ranks of the group; copied
 */
COD_MUST_CHECK cod_status cod_exchange_replay(cod_exchange *exchange, const cod_exchange_event *events, size_t count);

/** Whether step `step` is one after which to publish; the same on every rank of the group. */
bool cod_exchange_publish_due(const cod_exchange *exchange, int64_t step);

/** Values of the own model that a rank copies before a publication. */
typedef struct cod_exchange_part {
    cod_buffer *values; /**< [count] f32; the exchange's own */
    uint64_t first,
        count; /**< of the model's count + state_count: the fragment, or its part where a node's ranks share values */
    cod_exchange_range fragment; /**< of all ranks */
    bool wants_fingerprint;      /**< cod_exchange_publish() reads one, of the fragment */
} cod_exchange_part;

/**
 * Where a consistent step's weights are to be put before cod_exchange_publish(): by the host, or on a device by copies
 * in its default queue. What was published last is encoded from there, so that ends first. All ranks of the group.
 *
 * @param step  after which they will be published
 */
COD_MUST_CHECK cod_status cod_exchange_snapshot(cod_exchange *exchange, int64_t step, cod_exchange_part *part);

/**
 * Begins to publish this rank's shard of the snapshot. All ranks of the group, with equal bits in it; `step` is a
 * multiple of cod_exchange_spacing(), after the last one published. In deterministic mode it waits for the readers of
 * the slot it reopens.
 *
 * @param fingerprint  of all values of the fragment, however computed, where the part wants one; else not read
 * @return COD_ERR_PEER when, in deterministic mode, a reader does not come within pull_timeout_s
 */
COD_MUST_CHECK cod_status cod_exchange_publish(cod_exchange *exchange, int64_t step, uint64_t fingerprint);

/** Encodes some chunks, moves the pull under way. Once a step; waits only in deterministic mode. */
COD_MUST_CHECK cod_status cod_exchange_advance(cod_exchange *exchange, int64_t step);

/**
 * Numbers that ride in the reduction: some of the group and eight of each pull that it has at a time. The same on all
 * its ranks.
 */
size_t cod_exchange_flag_count(const cod_exchange *exchange);

/** This step's part of the reduction: to be *summed* over the group. @param[out] out  [cod_exchange_flag_count()] */
void cod_exchange_flags_out(const cod_exchange *exchange, double *out);

/**
 * Acts on the sums made two steps ago; all ranks of the group call it at the same step, with equal numbers. If ranks of
 * the group have published different weights, which can happen on mixed processors, a warning names them once.
 *
 * @param in  [cod_exchange_flag_count()]
 */
COD_MUST_CHECK cod_status cod_exchange_flags_in(cod_exchange *exchange, int64_t step, const double *in);

/** Number of peers that this group reads, and the group number of the i-th peer. */
int cod_exchange_peer_count(const cod_exchange *exchange);
int cod_exchange_peer_group(const cod_exchange *exchange, int peer);
/** @param fragment  of the peer's model, below cod_exchange_fragments() */
void cod_exchange_read_checkpoint(const cod_exchange *exchange, int peer, int fragment, cod_exchange_checkpoint *out);

void cod_exchange_read_peer(const cod_exchange *exchange, int peer, cod_exchange_peer_counters *out);

/** The entropy coder of this rank's publications, by its name in exchange.entropy; NULL = it publishes nothing. */
const char *cod_exchange_entropy(const cod_exchange *exchange);

void cod_exchange_read_counters(const cod_exchange *exchange, cod_exchange_counters *out);

/** Index of the array with the published slots, whose size depends on its content. */
#define COD_EXCHANGE_SLOTS "exchange.slots.0"

/** One array of a saved exchange. */
typedef struct cod_exchange_array {
    char name[48];
    void *data;
    size_t bytes;
    bool of_group;  /**< equal on all ranks of the group: each saves its part */
    bool held_once; /**< and the same memory for all of them, because they run on one node */
} cod_exchange_array;

/**
 * The arrays that hold the exchange's state: published slots, held versions, own publications, versions; there are none
 * if groups do not publish. To save, write them. To restore, fill all but COD_EXCHANGE_SLOTS with the saved content and
 * call cod_exchange_restored(). A publication in progress is completed first; the call is then collective on the group.
 * A pull in progress is not part of the state; its version is proposed again.
 *
 * @param[out] arrays  borrowed until the next call of the exchange
 */
COD_MUST_CHECK cod_status cod_exchange_state(cod_exchange *exchange, const cod_exchange_array **arrays, size_t *count);

/**
 * Checks the restored arrays and makes the slots readable again.
 *
 * @param slots  saved content of COD_EXCHANGE_SLOTS, written by this version or an earlier one; borrowed
 * @return COD_ERR_FORMAT when it is not of this run's shape
 */
COD_MUST_CHECK cod_status cod_exchange_restored(cod_exchange *exchange, const void *slots, size_t slot_bytes);

/**
 * Keeps bytes of an exchange's state under a name, where and how the caller likes. Of what all ranks of a group have,
 * each is given its part.
 *
 * @param data  borrowed until the next call of the exchange
 */
typedef cod_status cod_exchange_keep(void *context, const char *name, const void *data, size_t bytes);
/** What this rank kept under a name, borrowed until cod_exchange_load() returns. NULL = nothing has this name. */
typedef const void *cod_exchange_find(const void *context, const char *name, size_t *bytes);

/** Gives the state to `keep`. Collective on the group, as cod_exchange_state(). */
COD_MUST_CHECK cod_status cod_exchange_save(cod_exchange *exchange, cod_exchange_keep *keep, void *context);

/**
 * Takes it back, and restores. Collective on the group.
 *
 * @return COD_ERR_ARGUMENT if the groups of the saved run exchanged and those of this run do not, or vice versa;
 *         COD_ERR_FORMAT if it is not of this run's shape
 */
COD_MUST_CHECK cod_status cod_exchange_load(cod_exchange *exchange, cod_exchange_find *find, const void *context);

#endif
