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

/** The part of the time between two publications that encoding is spread over. */
enum { ENCODING_PART = 3 };
enum { STORAGE_PATIENCE_S = 10 };

int exchange_shards_of(const cod_exchange *e, int group)
{
    return cod_group_members_of(e->group, group).size;
}

cod_slot_identity exchange_identity(const cod_exchange *e, int group, int fragment, int shard)
{
    const int shards = exchange_shards_of(e, group);
    const cod_codec_range range = exchange_shard_range(&e->options, &e->models[group], fragment, shard, shards);
    return (cod_slot_identity){.run = e->run,
                               .model = e->models[group].hash,
                               .group = (uint32_t)group,
                               .shard = (uint32_t)(fragment * shards + shard),
                               .shards = (uint32_t)(e->fragments * shards),
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
    cod_slot_layout layout = {.slots = (uint32_t)e->options.slots, .groups = (uint32_t)cod_group_count(e->group)};
    for (int g = 0; g < cod_group_count(e->group); g++) {
        const uint64_t bytes = exchange_slot_bytes(&e->options, &e->models[g], exchange_shards_of(e, g));
        layout.slot_bytes = bytes > layout.slot_bytes ? bytes : layout.slot_bytes;
    }
    return layout;
}

static cod_status make_peers(cod_exchange *e)
{
    const int groups = cod_group_count(e->group), mine = cod_group_index(e->group);
    e->peers = calloc((size_t)(groups * e->fragments), sizeof *e->peers);
    COD_REQUIRE_MEMORY(e->peers);
    for (int i = 1; i < groups; i++) {
        const int group = (mine + i) % groups;
        if (!cod_exchange_reads(&e->options, groups, mine, group))
            continue;
        for (int f = 0; f < e->fragments; f++)
            e->peers[e->peer_count++] =
                (held_peer){.group = group,
                            .fragment = f,
                            .model = e->models[group],
                            .range = cod_exchange_fragment_range(&e->options, &e->models[group], f)};
    }
    return COD_OK;
}

/** A fragment is one chunk at least. */
static cod_status check_fragments(const cod_exchange *e)
{
    for (int g = 0; g < cod_group_count(e->group); g++) {
        const uint64_t total = exchange_total_of(&e->models[g]),
                       chunks = (total + (uint64_t)e->options.chunk_values - 1) / (uint64_t)e->options.chunk_values;
        COD_REQUIRE(e->fragments == 1 || chunks >= (uint64_t)e->fragments,
                    "exchange.fragments: the model of group %d has %llu chunks of %lld values, which do not make %d "
                    "fragments: set fewer, or exchange.chunk_values lower",
                    g, (unsigned long long)chunks, (long long)e->options.chunk_values, e->fragments);
    }
    return COD_OK;
}

static cod_status make_buffers(cod_exchange *e)
{
    COD_TRY(check_fragments(e));
    COD_TRY(exchange_publisher_init(&e->publisher, &e->options));
    COD_TRY(make_peers(e));
    COD_TRY(exchange_pulls_init(e));
    return cod_rooms_init(&e->rooms, e->pull_count, common_layout(e).slot_bytes);
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

static cod_status make_window(cod_exchange *e, const cod_slot_identity *identity, const cod_slot_layout *layout,
                              cod_transport **out)
{
    int *sources = NULL;
    size_t count = 0;
    cod_status status = cod_group_agree(cod_comm_world(e->comm), find_sources(e, &sources, &count), NULL);
    if (status == COD_OK)
        status = cod_rma_create(e->comm, identity, layout, &e->rooms, sources, count, out);
    free(sources);
    return status;
}

static cod_status open_folder(cod_exchange *e, const cod_slot_identity *identity, const cod_slot_layout *layout,
                              cod_transport **out)
{
    const cod_exchange_options *options = &e->options;
    const cod_file_options shared = {.folder = options->directory,
                                     .key_file = options->key_file,
                                     .patience_s = fmax(options->pull_timeout_s, STORAGE_PATIENCE_S),
                                     .anew = options->anew,
                                     .rooms = &e->rooms};
    const cod_status status = cod_file_transport_create(&shared, identity, layout, out);
    COD_TRY(cod_group_agree(cod_comm_world(e->comm), status, NULL));
    double left = (double)(*out)->ops->left(*out);
    COD_TRY(cod_group_reduce(e->group, &left, 1, COD_REDUCE_MAX));
    if ((uint64_t)left > e->publisher.left)
        e->publisher.left = (uint64_t)left;
    return COD_OK;
}

static cod_status make_transports(cod_exchange *e)
{
    const cod_slot_layout layout = common_layout(e);
    for (int f = 0; f < e->fragments; f++) {
        const cod_slot_identity identity = exchange_identity(e, cod_group_index(e->group), f, e->rank);
        COD_TRY(e->options.transport == COD_TRANSPORT_RMA ? make_window(e, &identity, &layout, &e->transports[f])
                                                          : open_folder(e, &identity, &layout, &e->transports[f]));
    }
    return COD_OK;
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
    e->fragments = cod_exchange_fragments(options);
    e->transports = calloc((size_t)e->fragments, sizeof *e->transports);
    COD_REQUIRE_MEMORY(e->transports);
    COD_TRY(cod_group_agree(cod_comm_world(comm), make_buffers(e), NULL));
    COD_TRY(cod_group_agree(cod_comm_world(comm), exchange_share_values(e), NULL));
    COD_TRY(cod_group_agree(cod_comm_world(comm), exchange_make_values(e), NULL));
    COD_TRY(draw_life(e));
    return make_transports(e);
}

cod_status cod_exchange_destroy(cod_exchange *e)
{
    if (e == NULL)
        return COD_OK;
    cod_status status = exchange_pulls_end(e);
    /* Where other groups do not come to the end of one, they would be waited for as long at each of the others. */
    bool came = true;
    for (int f = 0; e->transports != NULL && f < e->fragments && came; f++) {
        const cod_status ended = e->transports[f] != NULL ? e->transports[f]->ops->destroy(e->transports[f]) : COD_OK;
        status = status == COD_OK ? ended : status;
        came = ended == COD_OK;
    }
    free(e->transports);
    exchange_device_destroy(e);
    exchange_free_values(e);
    cod_event_destroy(e->backend, e->copied);
    free(e->on_device);
    exchange_publisher_clear(&e->publisher);
    exchange_pulls_clear(e);
    cod_rooms_clear(&e->rooms);
    free(e->events);
    free(e->peers);
    free(e->models);
    free(e->arrays);
    free(e->numbers);
    free(e->slots);
    free(e);
    return status;
}

int64_t exchange_encoding_steps(const cod_exchange_options *options)
{
    return (cod_exchange_spacing(options) + ENCODING_PART - 1) / ENCODING_PART;
}

/** Chunks a step, so that the publication is through after its part of the time until the next one. */
static uint64_t encoded_a_step(const cod_exchange *e)
{
    const int fragment = exchange_fragment_of(e, e->publisher.version);
    const uint64_t chunks = exchange_snapshot_range(e, fragment).count / (uint64_t)e->options.chunk_values + 1,
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
