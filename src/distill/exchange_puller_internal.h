/**
 * @file
 * What a group holds of its peers, and how new versions of it come: pulled through transports into rooms, decoded a few
 * chunks a step, and put in the place of what was held.
 *
 * The exchange calls it, with what the group has agreed on or, where groups wait for each other, with what it waits
 * for. The puller knows neither the agreement nor the publisher: which own versions there are is told to it where it
 * looks for news.
 *
 * One pull, on each rank:
 *   exchange_puller_look()     the first rank finds something new, which the exchange proposes to the group
 *   exchange_puller_start()    the rank's shards of that version begin to come
 *   exchange_puller_move()     once a step, until they are done or lost
 *   exchange_puller_gather(), exchange_puller_move_gather()   where ranks complete it among themselves, or on a device
 *   exchange_puller_take_over() or exchange_puller_give_up(), after exchange_puller_note_outcome()
 *   exchange_puller_start_following()   where the proposal was of several deltas: the next begins at once
 */
#ifndef COD_DISTILL_EXCHANGE_PULLER_INTERNAL_H
#define COD_DISTILL_EXCHANGE_PULLER_INTERNAL_H

#include "codec/coder.h"
#include "distill/exchange_reports_internal.h"
#include "distill/exchange_setup_internal.h"

/** A fragment of a peer's model, which is pulled and held by itself. */
typedef struct held_peer {
    int group, fragment;
    cod_exchange_model model;
    cod_exchange_range range;
    cod_slot_identity first_shard; /**< which is asked for news */
    cod_buffer *values, *incoming; /**< [range.count] f32 */
    uint64_t version, refused;     /**< held; the newest that was no use */
    int64_t step, pulled_at;
    uint64_t published_ms, incoming_ms; /**< of values and incoming, by the publisher's clock; 0 = not known */
    bool asked;                         /**< what it publishes, and it has not answered yet */
    uint64_t asked_before;              /**< the pull of this number, as exchange_pull.begun counts */
    bool foreign;                       /**< publishes something else; said once */
    cod_exchange_peer_counters counters;
} held_peer;

/** What decoding on a device needs: exchange_puller_device.c. */
typedef struct exchange_puller_device exchange_puller_device;
typedef struct exchange_device_pull exchange_device_pull;

/** One pull at a time, of the peers that are its own: those whose number modulo the number of pulls is its place. */
typedef struct exchange_pull {
    int place;
    int turn; /**< the peer that is looked at next */
    cod_codec decoder;
    uint64_t begun;          /**< pulls so far */
    double polled_s, idle_s; /**< when the pull was last looked at; for how long it has not moved, as looks tell */
    held_peer *peer;         /**< being pulled; NULL = none */
    uint64_t version, life;  /**< all its shards are of that life; EXCHANGE_ANY_LIFE */
    exchange_proposal next;  /**< the delta that the pull takes after this version; of version 0: none */
    int rest_steps;          /**< in which nothing is decoded yet */
    int shard;               /**< being pulled */
    bool arrived;
    exchange_standing standing;
    bool look; /**< for news at once: the last pull has just ended */
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
    cod_rooms rooms;  /**< of the pulls, whichever fragment each is of */
    cod_coder *coder; /**< is told what pulls move; borrowed, NULL = nobody asks */
    exchange_puller_counters counters;
    exchange_puller_device *on_device; /**< decoding there; NULL = on the host */
} exchange_puller;

/**
 * Finds the peers and makes pulls and rooms; values are made by the exchange. exchange_puller_clear() also after a
 * failure.
 */
COD_MUST_CHECK cod_status exchange_puller_init(exchange_puller *puller, const exchange_setup *setup, cod_coder *coder);
/**
 * Cancels what is being pulled. Leaves a gather that does not end within `pull_timeout_s` to itself, with its memory.
 */
COD_MUST_CHECK cod_status exchange_puller_end(exchange_puller *puller);
void exchange_puller_clear(exchange_puller *puller);

/** The pull that a peer belongs to. */
static inline exchange_pull *exchange_pull_of(const exchange_puller *puller, const held_peer *peer)
{
    return &puller->pulls[(peer - puller->peers) % puller->pull_count];
}

/** Whether a call failed because of what a peer sent. */
static inline bool exchange_is_bad_data(cod_status status)
{
    return status == COD_ERR_FORMAT || status == COD_ERR_NUMERIC;
}

/* Looking for news: exchange_puller_news.c. */

/** Whether a version is newer than what is held, and has not been refused. */
bool exchange_puller_wants(const exchange_puller *puller, const exchange_proposal *proposal);
/**
 * Asks the pull's peers what they have, some times a period and whenever the pull has ended, and takes what answers
 * have come.
 *
 * @param newest_own  [fragments] own versions: where weights are merged, peers' versions after the next of these wait
 * @param[out] out    set where there is something new
 */
COD_MUST_CHECK cod_status exchange_puller_look(exchange_puller *puller, exchange_pull *pull, int64_t step,
                                               const uint64_t *newest_own, exchange_proposal *out);

/* One version. */

/** @param life  of every shard, or EXCHANGE_ANY_LIFE where groups resume together */
COD_MUST_CHECK cod_status exchange_puller_start(exchange_puller *puller, held_peer *peer, uint64_t version,
                                                uint64_t life);
/** The same of what the group agreed on: the version and, once each is taken over, the deltas behind it. */
COD_MUST_CHECK cod_status exchange_puller_start_proposed(exchange_puller *puller, const exchange_proposal *proposal);
/**
 * After a version was taken over: begins the next delta of those that were proposed together.
 *
 * @param[out] began  there is one
 */
COD_MUST_CHECK cod_status exchange_puller_start_following(exchange_puller *puller, exchange_pull *pull, bool *began);
/** Moves the current shard, and decodes up to `chunks` chunks of it once it is here. */
COD_MUST_CHECK cod_status exchange_puller_move_some(exchange_puller *puller, exchange_pull *pull, uint64_t chunks);
/** The same, a step's part of it; a pull that does not move for `pull_timeout_s` is lost. */
COD_MUST_CHECK cod_status exchange_puller_move(exchange_puller *puller, exchange_pull *pull);
/** Every rank has its shards: the group completes them, each rank's in turn. */
COD_MUST_CHECK cod_status exchange_puller_gather(exchange_puller *puller, exchange_pull *pull);
/** Moves that on; on a device all is decoded then. */
COD_MUST_CHECK cod_status exchange_puller_move_gather(exchange_puller *puller, exchange_pull *pull);
/** What became of the pull on all ranks together: counted as the peer's. */
void exchange_puller_note_outcome(exchange_pull *pull, const exchange_outcome *outcome);
/** All ranks of the group hold the version: it replaces the last. */
void exchange_puller_take_over(exchange_puller *puller, exchange_pull *pull, int64_t step);
/** The version is given up. @param useless  it is damaged: it is not asked for again */
void exchange_puller_give_up(exchange_puller *puller, exchange_pull *pull, bool useless);

/* What is saved. A pull under way is not: its version is proposed again. */

/** Numbers of each peer. */
enum { EXCHANGE_PEER_NUMBERS = 4 };
/** Saves which versions are held of peers' fragments, or goes on from there. */
void exchange_puller_pack(exchange_puller *puller, exchange_numbers *numbers);
/** Brings the values that are held to the host, where they are not. */
COD_MUST_CHECK cod_status exchange_puller_save(exchange_puller *puller);
/** A peer's values [range.count] to be written, or filled in; after exchange_puller_save(). */
float *exchange_puller_saved(const exchange_puller *puller, int peer);
/** Goes on from the values that were filled in. */
COD_MUST_CHECK cod_status exchange_puller_restored(exchange_puller *puller);

/* Decoding on a device: exchange_puller_device.c. All work goes into the device's default queue. */

/** After the values have been made there. */
COD_MUST_CHECK cod_status exchange_puller_use_device(exchange_puller *puller);
/** Before the values end. */
void exchange_puller_leave_device(exchange_puller *puller);
/** A gather that was given up goes on to use its memory. */
void exchange_puller_device_forget_gather(exchange_pull *pull);
/** A version is going to be pulled. */
COD_MUST_CHECK cod_status exchange_puller_device_begin(exchange_puller *puller, exchange_pull *pull);
/** Checks up to `chunks` chunks of the shard that has come, and makes them plain. */
COD_MUST_CHECK cod_status exchange_puller_device_open(exchange_puller *puller, exchange_pull *pull, uint64_t chunks);
/** Starts sharing the shards' plain chunks in the group. */
COD_MUST_CHECK cod_status exchange_puller_device_share(exchange_puller *puller, exchange_pull *pull);
/** Queues what decodes them, and looks whether that is done. @return COD_ERR_NUMERIC when a value is not finite */
COD_MUST_CHECK cod_status exchange_puller_device_decode(exchange_puller *puller, exchange_pull *pull, bool *done);
/** The version that was decoded is held. */
void exchange_puller_device_take_over(exchange_puller *puller, exchange_pull *pull);
COD_MUST_CHECK cod_status exchange_puller_device_save(exchange_puller *puller);
float *exchange_puller_device_saved(const exchange_puller *puller, int peer);
COD_MUST_CHECK cod_status exchange_puller_device_restored(exchange_puller *puller);

#endif
