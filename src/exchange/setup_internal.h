/**
 * @file
 * The setup that all parts of an exchange share: who publishes what and how, how models are cut, and where weights are
 * held.
 *
 * The exchange fills it in before the first step and gives it to its parts (publisher_internal.h,
 * puller_internal.h, agreement_internal.h), which only read it.
 */
#ifndef COD_EXCHANGE_SETUP_INTERNAL_H
#define COD_EXCHANGE_SETUP_INTERNAL_H

#include "codec/codec.h"
#include "comm/group_memory.h"
#include "exchange/exchange.h"
#include "exchange/transport.h"

typedef struct exchange_setup {
    cod_comm *comm;
    cod_group *group;
    cod_exchange_options options;
    int groups, mine;           /**< number of groups, and the index of this one */
    int rank, size;             /**< of this rank within the group */
    cod_exchange_model *models; /**< [groups] the model of each group */
    cod_group_members *members; /**< [groups] */
    uint64_t run;
    uint64_t life;              /**< life of this process of the group, the same on all its ranks; exact as a double */
    uint64_t begun_ms;          /**< when that process began, since 1970, by the clock of the group's first rank */
    cod_transport **transports; /**< [fragments] a window or folder for each fragment; NULL if nothing is published */
    int fragments;
    bool publishes; /**< whether groups publish, which needs several groups and a codec; otherwise nothing is held */
    bool waits;     /**< whether groups wait for each other: in a deterministic run or a replay */
    /** memory of the weights that the group's ranks of a node share; NULL = each rank has its own */
    cod_group_memory *shared;
    /** the ranks that share it, and this rank's place among them; only this rank if nothing is shared */
    cod_group_holders holders;
    const cod_backend *backend; /**< backend of cod_exchange_use_device() if it has queues; else NULL, like device */
    cod_device *device;
    bool codes_on_device; /**< whether weights are held and coded on the device */
} exchange_setup;

/** Copies its arguments and finds the members of each group. Call exchange_setup_clear() also after a failure. */
COD_MUST_CHECK cod_status exchange_setup_init(exchange_setup *setup, cod_comm *comm, cod_group *group,
                                              const cod_exchange_options *options, const cod_exchange_model *models,
                                              uint64_t run);
void exchange_setup_clear(exchange_setup *setup);

/** A life must be exact as a double, because it is part of the reductions. */
#define EXCHANGE_LIFE_MASK (UINT64_MAX >> 11)

/**
 * Steps after which work queued in a step is known to be done on a device, because the host has read a loss that was
 * queued after it.
 */
enum { EXCHANGE_COPY_STEPS = 2 };

/* How a checkpoint is cut: sizes.c. */

static inline uint64_t exchange_total_of(const cod_exchange_model *model)
{
    return model->count + model->state_count;
}
cod_codec_options exchange_codec_options(const cod_exchange_options *options);
static inline bool exchange_makes_deltas(const cod_exchange_options *options)
{
    return exchange_codec_options(options).coding == COD_CHUNK_STEP;
}
/** Whether own versions are kept exact, not as readers decode them. */
static inline bool exchange_keeps_exact(const cod_exchange_options *options)
{
    return options->merge_against == COD_AGAINST_EXACT;
}
/** Room for any of a checkpoint's shards, encoded. */
uint64_t exchange_slot_bytes(const cod_exchange_options *options, const cod_exchange_model *model, int shards);
/** Part `shard` of `shards` of a fragment of a checkpoint. */
cod_codec_range exchange_shard_range(const cod_exchange_options *options, const cod_exchange_model *model, int fragment,
                                     int shard, int shards);

/* Who publishes what. */

static inline int exchange_shards_of(const exchange_setup *setup, int group)
{
    return setup->members[group].size;
}
/** World rank of the rank that publishes a shard of a group. */
static inline int exchange_world_rank(const exchange_setup *setup, int group, int shard)
{
    return setup->members[group].world_ranks[shard];
}
/** The model of this group. */
static inline const cod_exchange_model *exchange_own_model(const exchange_setup *setup)
{
    return &setup->models[setup->mine];
}
/** The fragment to which a version belongs. */
static inline int exchange_fragment_of(const exchange_setup *setup, uint64_t version)
{
    return (int)(version % (uint64_t)setup->fragments);
}
/** Whether a number, which may come from a peer or a file, can be a version of the fragment: its step is a number. */
static inline bool exchange_is_version_of(const exchange_setup *setup, int fragment, uint64_t version)
{
    return version > 0 && version <= COD_SLOT_VERSION_MAX && exchange_fragment_of(setup, version) == fragment &&
           version <= (uint64_t)(INT64_MAX / cod_exchange_spacing(&setup->options));
}
/** Whether a saved version and its step are of the fragment, or say that there is none yet. */
static inline bool exchange_is_step_of(const exchange_setup *setup, int fragment, uint64_t version, int64_t step)
{
    return version == 0 ? step == 0
                        : exchange_is_version_of(setup, fragment, version) &&
                              step == (int64_t)version * cod_exchange_spacing(&setup->options);
}
/** Values of a shard of a fragment of a group's model. */
static inline cod_codec_range exchange_range_of(const exchange_setup *setup, int group, int fragment, int shard)
{
    return exchange_shard_range(&setup->options, &setup->models[group], fragment, shard,
                                exchange_shards_of(setup, group));
}
/**
 * Values of a fragment of this group's model that this rank copies: its part if ranks of a node share values, otherwise
 * all.
 */
cod_codec_range exchange_snapshot_range(const exchange_setup *setup, int fragment);
/**
 * The identity of a shard in its slots. Shards are numbered through all fragments, starting with those of the first.
 */
cod_slot_identity exchange_identity(const exchange_setup *setup, int group, int fragment, int shard);
/**
 * The key that seeds the checksums of a version's chunks. Each life of a group has different seeds, so that chunks made
 * before a restart are never taken for chunks made after it.
 */
cod_codec_key exchange_key(const exchange_setup *setup, int group, uint64_t version, uint64_t life);
/** Number of publications of this rank's shard that storage left out. */
uint64_t exchange_left_out(const exchange_setup *setup);
/** Slots with room for any shard of any group. */
cod_slot_layout exchange_layout(const exchange_setup *setup);

/** Whether ranks send each other the shards that each has pulled; they do not if all share them. */
static inline bool exchange_sends_shards(const exchange_setup *setup)
{
    return setup->holders.count < setup->size;
}
/** The values of a buffer in the host's memory. */
static inline float *exchange_floats(const cod_buffer *buffer)
{
    return buffer->host;
}

/* Groups that wait for each other. */

/** Whether groups will wait for each other by configuration: in a deterministic run or a replay. */
static inline bool exchange_will_wait(const cod_exchange_options *options)
{
    return options->deterministic || (options->replay != NULL && options->replay[0] != '\0');
}
/**
 * How long a group waits for another. One group may evaluate for minutes while another does not, and groups of a
 * replayed run may have been far apart.
 */
static inline double exchange_patience_s(const exchange_setup *setup)
{
    enum { TIMES = 60 };
    return TIMES * setup->options.pull_timeout_s;
}
/** A wait for another group, on the stack. */
typedef struct exchange_waiting {
    double since, told;
} exchange_waiting;
exchange_waiting exchange_wait_begin(void);
/**
 * Whether the wait has taken longer than exchange_patience_s(). Until then it logs every pull_timeout_s that this group
 * waits for `group` to do `what` with the version: "publish", "take".
 */
bool exchange_wait_is_over(const exchange_setup *setup, exchange_waiting *waiting, int group, const char *what,
                           uint64_t version);

/** Milliseconds since 1970. */
uint64_t exchange_wall_ms(void);

/* How long it takes: pace.c. */

/** Steps that encoding a publication is spread over. */
int64_t exchange_encoding_steps(const cod_exchange_options *options);
/** Steps that decoding a version is spread over: fewer where pulls are fewer than peers. */
int64_t exchange_decoding_steps(const cod_exchange_options *options, int peers);
/** How many pulls a group has at a time, so that all fragments of its peers get their turn within a period. */
int exchange_pulls_for(const cod_exchange_options *options, int peers);

/* What is saved. */

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

#endif
