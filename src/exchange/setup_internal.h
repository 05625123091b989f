/**
 * @file
 * The setup that all parts of an exchange share: who publishes what and how, and where weights are held.
 *
 * The exchange fills it in before the first step and gives it to its parts (publisher_internal.h, puller_internal.h,
 * agreement_internal.h), which only read it.
 */
#ifndef COD_EXCHANGE_SETUP_INTERNAL_H
#define COD_EXCHANGE_SETUP_INTERNAL_H

#include "comm/group_memory.h"
#include "exchange/cut_internal.h"
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

/** Milliseconds since 1970. */
uint64_t exchange_wall_ms(void);

#endif
