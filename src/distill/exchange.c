/* The exchange as a whole; its publisher, its pulls and what the ranks of a group agree on have files of their own. */
#include "distill/exchange_internal.h"

#include "core/hash.h"
#include "core/log.h"
#include "core/trace.h"
#include "distill/file.h"
#include "distill/rma.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/** The part of a period that encoding is spread over. */
enum { ENCODING_PART = 3 };
enum { STORAGE_PATIENCE_S = 10 };

int exchange_shards_of(const cod_exchange *e, int group)
{
    return cod_group_members_of(e->group, group).size;
}

cod_slot_identity exchange_identity(const cod_exchange *e, int group, int shard)
{
    const cod_codec_range range = exchange_shard_range(&e->models[group], shard, exchange_shards_of(e, group));
    return (cod_slot_identity){.run = e->run,
                               .model = e->models[group].hash,
                               .group = (uint32_t)group,
                               .shard = (uint32_t)shard,
                               .shards = (uint32_t)exchange_shards_of(e, group),
                               .first = range.first,
                               .count = range.count,
                               .exact_from = range.exact_from};
}

cod_codec_key exchange_key(const cod_exchange *e, int group, uint64_t version, uint64_t life)
{
    const uint64_t run = life == 0 ? e->run : cod_hash(&life, sizeof life, e->run);
    return (cod_codec_key){.run = run, .publisher = (uint64_t)group, .version = version};
}

static cod_slot_layout common_layout(const cod_exchange *e)
{
    const cod_codec_options codec = exchange_codec_options(&e->options);
    cod_slot_layout layout = {.slots = (uint32_t)e->options.slots, .groups = (uint32_t)cod_group_count(e->group)};
    for (int g = 0; g < cod_group_count(e->group); g++) {
        const uint64_t bytes = exchange_slot_bytes(&codec, &e->models[g], exchange_shards_of(e, g));
        layout.slot_bytes = bytes > layout.slot_bytes ? bytes : layout.slot_bytes;
    }
    return layout;
}

static cod_status make_peers(cod_exchange *e)
{
    const int groups = cod_group_count(e->group), mine = cod_group_index(e->group);
    e->peers = calloc((size_t)groups, sizeof *e->peers);
    COD_REQUIRE_MEMORY(e->peers);
    for (int i = 1; i < groups; i++) {
        const int group = (mine + i) % groups;
        if (!cod_exchange_reads(&e->options, groups, mine, group))
            continue;
        held_peer *peer = &e->peers[e->peer_count++];
        peer->group = group;
        peer->model = e->models[peer->group];
    }
    return COD_OK;
}

static cod_status make_buffers(cod_exchange *e)
{
    const cod_codec_options codec = exchange_codec_options(&e->options);
    COD_TRY(exchange_publisher_init(&e->publisher, &codec));
    COD_TRY(make_peers(e));
    return exchange_pulls_init(e);
}

/** Names this process of the group, all its ranks by what the first one drew. */
static cod_status draw_life(cod_exchange *e)
{
    const uint64_t drawn[] = {exchange_wall_ms(), (uint64_t)getpid(), (uint64_t)(1e9 * cod_clock_s())};
    e->life = (cod_hash(drawn, sizeof drawn, e->run) & EXCHANGE_LIFE_MASK) | 1;
    return cod_group_broadcast(e->group, &e->life, sizeof e->life, 0);
}

/**
 * The ranks that this one reads: first shards, where news are, and the shards that it pulls; where groups wait for each other also
 * the first rank of each reader, which says what it has taken. @param[out] out  new; free() it
 */
static cod_status find_sources(const cod_exchange *e, int **out, size_t *count)
{
    const int groups = cod_group_count(e->group), mine = cod_group_index(e->group);
    const bool waits = exchange_will_wait(&e->options);
    int *sources = calloc((size_t)cod_comm_size(e->comm) + (size_t)groups, sizeof *sources);
    COD_REQUIRE_MEMORY(sources);
    *out = sources;
    *count = 0;
    for (int g = 0; g < groups; g++) {
        const bool read = cod_exchange_reads(&e->options, groups, mine, g),
                   reader = waits && cod_exchange_reads(&e->options, groups, g, mine);
        if (read || reader)
            sources[(*count)++] = cod_group_world_rank(e->group, g, 0);
        for (int k = e->rank; read && k < exchange_shards_of(e, g); k += e->size)
            sources[(*count)++] = cod_group_world_rank(e->group, g, k);
    }
    return COD_OK;
}

static cod_status make_window(cod_exchange *e, const cod_slot_identity *identity, const cod_slot_layout *layout)
{
    int *sources = NULL;
    size_t count = 0;
    cod_status status = cod_group_agree(cod_comm_world(e->comm), find_sources(e, &sources, &count), NULL);
    if (status == COD_OK)
        status = cod_rma_create(e->comm, identity, layout, e->pull_count, sources, count, &e->transport);
    free(sources);
    return status;
}

cod_status cod_exchange_create(cod_comm *comm, cod_group *group, const cod_exchange_options *options,
                               const cod_exchange_model *models, uint64_t run, cod_exchange **out)
{
    cod_exchange *e = calloc(1, sizeof *e);
    COD_REQUIRE_MEMORY(e);
    *out = e;
    const size_t groups = (size_t)cod_group_count(group);
    e->comm = comm;
    e->group = group;
    e->options = *options;
    e->run = run;
    e->rank = cod_group_rank(group);
    e->size = cod_group_size(group);
    e->holders = (cod_group_holders){.first = e->rank, .count = 1};
    e->models = malloc(groups * sizeof *models);
    COD_REQUIRE_MEMORY(e->models);
    memcpy(e->models, models, groups * sizeof *models);
    const cod_exchange_model *mine = &models[cod_group_index(group)];
    e->total = exchange_total_of(mine);
    COD_TRY(cod_group_agree(cod_comm_world(comm), make_buffers(e), NULL));
    COD_TRY(cod_group_agree(cod_comm_world(comm), exchange_share_values(e), NULL));
    COD_TRY(cod_group_agree(cod_comm_world(comm), exchange_make_values(e), NULL));
    COD_TRY(draw_life(e));
    const cod_slot_layout layout = common_layout(e);
    const cod_slot_identity identity = exchange_identity(e, cod_group_index(group), e->rank);
    if (options->transport == COD_TRANSPORT_RMA)
        return make_window(e, &identity, &layout);
    const cod_file_options shared = {.folder = options->directory,
                                     .key_file = options->key_file,
                                     .patience_s = fmax(options->pull_timeout_s, STORAGE_PATIENCE_S),
                                     .anew = options->anew,
                                     .pulls = e->pull_count};
    const cod_status status = cod_file_transport_create(&shared, &identity, &layout, &e->transport);
    COD_TRY(cod_group_agree(cod_comm_world(comm), status, NULL));
    double left = (double)e->transport->ops->left(e->transport);
    COD_TRY(cod_group_reduce(group, &left, 1, COD_REDUCE_MAX));
    e->publisher.left = (uint64_t)left;
    return COD_OK;
}

cod_status cod_exchange_destroy(cod_exchange *e)
{
    if (e == NULL)
        return COD_OK;
    cod_status status = exchange_pulls_end(e);
    if (e->transport != NULL) {
        const cod_status ended = e->transport->ops->destroy(e->transport);
        status = status == COD_OK ? ended : status;
    }
    exchange_device_destroy(e);
    exchange_free_values(e);
    cod_event_destroy(e->backend, e->copied);
    free(e->on_device);
    exchange_publisher_clear(&e->publisher);
    exchange_pulls_clear(e);
    free(e->events);
    free(e->peers);
    free(e->models);
    free(e->arrays);
    free(e->numbers);
    free(e);
    return status;
}

int64_t exchange_encoding_steps(const cod_exchange_options *options)
{
    return (options->period + ENCODING_PART - 1) / ENCODING_PART;
}

/** Chunks a step, so that the publication is through after its part of a period. */
static uint64_t encoded_a_step(const cod_exchange *e)
{
    const uint64_t chunks = exchange_snapshot_range(e).count / (uint64_t)e->options.chunk_values + 1,
                   steps = (uint64_t)exchange_encoding_steps(&e->options);
    return (chunks + steps - 1) / steps;
}

cod_status cod_exchange_advance(cod_exchange *e, int64_t step)
{
    const double begin = cod_clock_s();
    if (e->options.deterministic) {
        if (e->publisher.version > 0 && step == e->publisher.step + e->options.lag_steps)
            COD_TRY(exchange_take_all(e, step));
    } else {
        e->counters.skipped += exchange_is_publication_step(e, step) && e->publisher.step != step;
        /*
         * Not in the step that made the snapshot. On a device it has only queued the copy; at the end of the second step after it the
         * host reads a loss that was queued behind the copy, so that from the third on it does not wait. Whether the copy is done is
         * not asked: encoding must take the same steps on all ranks of the group, as its end decides what is merged when. Where the
         * ranks hold values together, one that is behind may in these steps still read the own version that is written over.
         */
        if (step > e->publisher.step + (e->copied != NULL || e->shared != NULL ? EXCHANGE_COPY_STEPS : 0))
            COD_TRY(exchange_encode_some(e, encoded_a_step(e)));
        COD_TRY(e->events != NULL ? exchange_replay_step(e, step) : exchange_move_pulls(e, step));
    }
    e->counters.seconds += cod_clock_s() - begin;
    return COD_OK;
}
