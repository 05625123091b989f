/**
 * @file
 * Holds the peers' checkpoints and replaces them by new versions, which are pulled through transports into rooms and
 * decoded a few chunks in each step.
 *
 * The exchange tells it which versions to pull: those that the group has agreed on or, if groups wait for each other,
 * those that it waits for. The puller knows neither the agreement nor the publisher; it is told the group's own
 * versions when it looks for news.
 *
 * One pull, on each rank:
 *   exchange_puller_look()     the first rank finds something new, which the exchange proposes to the group
 *   exchange_puller_start()    the rank's shards of that version begin to come
 *   exchange_puller_move()     once a step, until they are done or lost
 *   exchange_puller_gather(), exchange_puller_move_gather()   where ranks complete it among themselves, or on a device
 *   exchange_puller_take_over() or exchange_puller_give_up(), after exchange_puller_note_outcome()
 *   exchange_puller_start_following()   where the proposal was of several deltas: the next begins at once
 */
#ifndef COD_EXCHANGE_PULLER_INTERNAL_H
#define COD_EXCHANGE_PULLER_INTERNAL_H

#include "codec/coder.h"
#include "exchange/numbers_internal.h"
#include "exchange/reports_internal.h"
#include "exchange/setup_internal.h"

/** A fragment of a peer's model. Each fragment is pulled and held separately. */
typedef struct held_peer {
    int group, fragment;
    cod_exchange_model model;
    cod_exchange_range range;
    cod_slot_identity first_shard; /**< the shard that is asked for news */
    cod_buffer *values, *incoming; /**< [range.count] f32 */
    uint64_t version, refused;     /**< version held; newest version that was refused */
    int64_t step, pulled_at;
    uint64_t published_ms, incoming_ms; /**< of values and incoming, by the publisher's clock; 0 = not known */
    bool asked;                         /**< what it publishes, and it has not answered yet */
    uint64_t asked_before;              /**< the pull of this number, as exchange_pull.begun counts */
    bool foreign;                       /**< publishes something else; said once */
    cod_exchange_peer_counters counters;
} held_peer;

/** State of decoding on a device: puller_device.c. */
typedef struct exchange_puller_device exchange_puller_device;
typedef struct exchange_device_pull exchange_device_pull;

/** A place for one pull at a time. It serves the peers whose number modulo the number of pulls is its place. */
typedef struct exchange_pull {
    int place;
    int turn; /**< the peer to ask next */
    cod_codec decoder;
    uint64_t begun;          /**< pulls so far */
    double polled_s, idle_s; /**< time of the last check; seconds without progress, as the checks have seen it */
    held_peer *peer;         /**< peer being pulled; NULL = none */
    uint64_t version, life;  /**< version being pulled, and the life of all its shards or EXCHANGE_ANY_LIFE */
    exchange_proposal next;  /**< the delta that the pull takes after this version; of version 0: none */
    int rest_steps;          /**< number of steps in which nothing is decoded yet */
    int shard;               /**< being pulled */
    bool arrived;
    exchange_standing standing;
    bool look; /**< ask for news at once, because the last pull has just ended */
    cod_pulled pulled;
    cod_request *gathering;
    exchange_device_pull *on_device; /**< NULL = decoded on the host */
} exchange_pull;

#define EXCHANGE_ANY_LIFE UINT64_MAX

/** This rank's, since the start: cod_exchange_counters. */
typedef struct exchange_puller_counters {
    uint64_t pulled, pulled_bytes, rejected, lost;
    double decode_s;
} exchange_puller_counters;

typedef struct exchange_puller {
    const exchange_setup *setup;
    held_peer *peers; /**< [peer_count] all fragments of the first group that is read, then those of the next */
    int peer_count;
    exchange_pull *pulls; /**< [pull_count] */
    int pull_count;
    cod_rooms rooms;  /**< for the pulls of all fragments */
    cod_coder *coder; /**< receives the speed of pulls; borrowed, NULL = not needed */
    exchange_puller_counters counters;
    exchange_puller_device *on_device; /**< decoding there; NULL = on the host */
} exchange_puller;

/**
 * Finds the peers and makes pulls and rooms; values are made by the exchange. exchange_puller_clear() also after a
 * failure.
 */
COD_MUST_CHECK cod_status exchange_puller_init(exchange_puller *puller, const exchange_setup *setup, cod_coder *coder);
/**
 * Cancels all pulls. A gather is abandoned, and its memory not freed, if one of its ranks shows no sign of life for
 * `pull_timeout_s`.
 */
COD_MUST_CHECK cod_status exchange_puller_end(exchange_puller *puller);
void exchange_puller_clear(exchange_puller *puller);

/** The pull that a peer belongs to. */
static inline exchange_pull *exchange_pull_of(const exchange_puller *puller, const held_peer *peer)
{
    return &puller->pulls[(peer - puller->peers) % puller->pull_count];
}

/** Whether a call failed because of a peer's data. */
static inline bool exchange_is_bad_data(cod_status status)
{
    return status == COD_ERR_FORMAT || status == COD_ERR_NUMERIC;
}

/* Looking for news: puller_news.c. */

/** Whether a version is newer than the one held and has not been refused. */
bool exchange_puller_wants(const exchange_puller *puller, const exchange_proposal *proposal);
/**
 * Asks the pull's peers for their versions, several times a period and whenever the pull has ended, and reads the
 * answers that have arrived.
 *
 * @param newest_own  [fragments] own versions: where weights are merged, peers' versions after the next of these wait
 * @param[out] out    set if there is something new
 */
COD_MUST_CHECK cod_status exchange_puller_look(exchange_puller *puller, exchange_pull *pull, int64_t step,
                                               const uint64_t *newest_own, exchange_proposal *out);

/* One version. */

/** @param life  of every shard, or EXCHANGE_ANY_LIFE where groups resume together */
COD_MUST_CHECK cod_status exchange_puller_start(exchange_puller *puller, held_peer *peer, uint64_t version,
                                                uint64_t life);
/** Starts what the group agreed on: the version and, after each is taken over, the deltas that follow it. */
COD_MUST_CHECK cod_status exchange_puller_start_proposed(exchange_puller *puller, const exchange_proposal *proposal);
/**
 * Starts the next delta of those proposed together, after a version was taken over.
 *
 * @param[out] began  whether there is one
 */
COD_MUST_CHECK cod_status exchange_puller_start_following(exchange_puller *puller, exchange_pull *pull, bool *began);
/** Advances the current shard, and decodes up to `chunks` chunks of it after it has arrived. */
COD_MUST_CHECK cod_status exchange_puller_move_some(exchange_puller *puller, exchange_pull *pull, uint64_t chunks);
/** Does a step's part of exchange_puller_move_some(). A pull without progress for `pull_timeout_s` is lost. */
COD_MUST_CHECK cod_status exchange_puller_move(exchange_puller *puller, exchange_pull *pull);
/** Starts to gather the shards when every rank has its own: each rank sends its shards in turn. */
COD_MUST_CHECK cod_status exchange_puller_gather(exchange_puller *puller, exchange_pull *pull);
/** Advances the gathering; on a device everything is decoded then. */
COD_MUST_CHECK cod_status exchange_puller_move_gather(exchange_puller *puller, exchange_pull *pull);
/** Counts the outcome of the pull on all ranks for its peer. */
void exchange_puller_note_outcome(exchange_pull *pull, const exchange_outcome *outcome);
/** Replaces the version held by the new one, which all ranks of the group have. */
void exchange_puller_take_over(exchange_puller *puller, exchange_pull *pull, int64_t step);
/** Abandons the version. @param useless it is damaged and will not be requested again */
void exchange_puller_give_up(exchange_puller *puller, exchange_pull *pull, bool useless);

/* Saved state. A pull in progress is not saved; its version is proposed again. */

/** Count of saved numbers of each peer. */
enum { EXCHANGE_PEER_NUMBERS = 4 };
/** Saves or restores which versions of the peers' fragments are held. */
void exchange_puller_pack(exchange_puller *puller, exchange_numbers *numbers);
/** Fails unless the restored numbers can be a puller's. */
COD_MUST_CHECK cod_status exchange_puller_check(const exchange_puller *puller);
/** Copies the values held to the host if they are on a device. */
COD_MUST_CHECK cod_status exchange_puller_save(exchange_puller *puller);
/** A peer's values [range.count] to be written, or filled in; after exchange_puller_save(). */
float *exchange_puller_saved(const exchange_puller *puller, int peer);
/** Continues from the restored values. */
COD_MUST_CHECK cod_status exchange_puller_restored(exchange_puller *puller);

/* Decoding on a device: puller_device.c. All work goes into the device's default queue. */

/** Starts decoding on the device; call it after the values have been made there. */
COD_MUST_CHECK cod_status exchange_puller_use_device(exchange_puller *puller);
/** Ends decoding on the device; call it before the values are freed. */
void exchange_puller_leave_device(exchange_puller *puller);
/** Leaves the memory to a gather that was abandoned and still uses it. */
void exchange_puller_device_forget_gather(exchange_pull *pull);
/** Prepares for pulling a version. */
COD_MUST_CHECK cod_status exchange_puller_device_begin(exchange_puller *puller, exchange_pull *pull);
/** Checks up to `chunks` chunks of the shard that has arrived, and makes them plain. */
COD_MUST_CHECK cod_status exchange_puller_device_open(exchange_puller *puller, exchange_pull *pull, uint64_t chunks);
/** Starts sharing the shards' plain chunks in the group. */
COD_MUST_CHECK cod_status exchange_puller_device_share(exchange_puller *puller, exchange_pull *pull);
/**
 * Queues the decoding of the chunks, or checks whether it is done. @return COD_ERR_NUMERIC when a value is not finite
 */
COD_MUST_CHECK cod_status exchange_puller_device_decode(exchange_puller *puller, exchange_pull *pull, bool *done);
/** Notes that the decoded version is now held. */
void exchange_puller_device_take_over(exchange_puller *puller, exchange_pull *pull);
COD_MUST_CHECK cod_status exchange_puller_device_save(exchange_puller *puller);
float *exchange_puller_device_saved(const exchange_puller *puller, int peer);
COD_MUST_CHECK cod_status exchange_puller_device_restored(exchange_puller *puller);

#endif
