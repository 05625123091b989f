#include "exchange/setup_internal.h"

#include "core/hash.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

cod_status exchange_setup_init(exchange_setup *setup, cod_comm *comm, cod_group *group,
                               const cod_exchange_options *options, const cod_exchange_model *models, uint64_t run)
{
    const int groups = cod_group_count(group), fragments = cod_exchange_fragments(options);
    *setup = (exchange_setup){.comm = comm,
                              .group = group,
                              .options = *options,
                              .groups = groups,
                              .mine = cod_group_index(group),
                              .rank = cod_group_rank(group),
                              .size = cod_group_size(group),
                              .run = run,
                              .fragments = fragments,
                              .publishes = groups > 1 && options->codec != COD_EXCHANGE_NONE,
                              .waits = options->deterministic};
    setup->holders = (cod_group_holders){.first = setup->rank, .count = 1};
    setup->members = calloc((size_t)groups, sizeof *setup->members);
    setup->transports = calloc((size_t)fragments, sizeof(cod_transport *));
    setup->models = malloc((size_t)groups * sizeof *models);
    COD_REQUIRE_MEMORY(setup->members);
    COD_REQUIRE_MEMORY(setup->transports);
    COD_REQUIRE_MEMORY(setup->models);
    memcpy(setup->models, models, (size_t)groups * sizeof *models);
    for (int g = 0; g < groups; g++)
        setup->members[g] = cod_group_members_of(group, g);
    return COD_OK;
}

void exchange_setup_clear(exchange_setup *setup)
{
    free(setup->members);
    free(setup->transports);
    free(setup->models);
}

cod_codec_range exchange_snapshot_range(const exchange_setup *setup, int fragment)
{
    return exchange_shard_range(&setup->options, exchange_own_model(setup), fragment, setup->holders.place,
                                setup->holders.count);
}

cod_slot_identity exchange_identity(const exchange_setup *setup, int group, int fragment, int shard)
{
    const int shards = exchange_shards_of(setup, group);
    const cod_codec_range range = exchange_range_of(setup, group, fragment, shard);
    return (cod_slot_identity){.run = setup->run,
                               .model = setup->models[group].hash,
                               .group = (uint32_t)group,
                               .shard = (uint32_t)(fragment * shards + shard),
                               .shards = (uint32_t)(setup->fragments * shards),
                               .first = range.first,
                               .count = range.count,
                               .exact_from = range.exact_from};
}

cod_codec_key exchange_key(const exchange_setup *setup, int group, uint64_t version, uint64_t life)
{
    const uint64_t run = life == 0 ? setup->run : cod_hash(&life, sizeof life, setup->run);
    return (cod_codec_key){.run = run, .publisher = (uint64_t)group, .version = version};
}

uint64_t exchange_left_out(const exchange_setup *setup)
{
    uint64_t count = 0;
    for (int f = 0; setup->publishes && f < setup->fragments; f++)
        if (setup->transports[f]->ops->failures != NULL)
            count += setup->transports[f]->ops->failures(setup->transports[f]);
    return count;
}

cod_slot_layout exchange_layout(const exchange_setup *setup)
{
    cod_slot_layout layout = {.slots = (uint32_t)setup->options.slots, .groups = (uint32_t)setup->groups};
    for (int g = 0; g < setup->groups; g++) {
        const uint64_t bytes = exchange_slot_bytes(&setup->options, &setup->models[g], exchange_shards_of(setup, g));
        layout.slot_bytes = bytes > layout.slot_bytes ? bytes : layout.slot_bytes;
    }
    return layout;
}

uint64_t exchange_wall_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}
