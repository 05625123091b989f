/* What publishing and pulling take. */
#include "exchange/exchange_internal.h"
#include "exchange/pace_internal.h"

#include "core/memory.h"
#include "exchange/slot.h"

/** Of the largest fragment. */
static uint64_t publication_bytes(const cod_exchange_options *options, const cod_exchange_model *model, int shards)
{
    const cod_codec_options codec = exchange_codec_options(options);
    uint64_t most = 0;
    for (int f = 0; f < cod_exchange_fragments(options); f++) {
        uint64_t bytes = 0;
        for (int s = 0; s < shards; s++) {
            const cod_codec_range range = exchange_shard_range(options, model, f, s, shards);
            bytes += cod_codec_bound(&codec, &range);
        }
        most = bytes > most ? bytes : most;
    }
    return most;
}

/** Bytes of the values of a model's largest fragment. */
static uint64_t fragment_bytes(const cod_exchange_options *options, const cod_exchange_model *model)
{
    uint64_t most = 0;
    for (int f = 0; f < cod_exchange_fragments(options); f++) {
        const uint64_t count = cod_exchange_fragment_range(options, model, f).count;
        most = count > most ? count : most;
    }
    return most * sizeof(float);
}

/** Chunks of a model's fragment. */
static uint64_t chunks_of(const cod_exchange_options *options, const cod_exchange_model *model, int fragment,
                          int shards)
{
    const cod_codec_options codec = exchange_codec_options(options);
    uint64_t chunks = 0;
    for (int s = 0; s < shards; s++) {
        const cod_codec_range range = exchange_shard_range(options, model, fragment, s, shards);
        chunks += cod_codec_chunk_count(&codec, &range);
    }
    return chunks;
}

/**
 * What the plain chunks of a model's largest fragment take on a device, each with its header and, of a peer's, its
 * fingerprint.
 */
static uint64_t chunk_bytes(const cod_exchange_options *options, const cod_exchange_model *model, int shards)
{
    const cod_codec_options codec = exchange_codec_options(options);
    uint64_t most = 0;
    for (int f = 0; f < cod_exchange_fragments(options); f++) {
        const uint64_t chunks = chunks_of(options, model, f, shards);
        most = chunks > most ? chunks : most;
    }
    return most * (COD_CHUNK_HEADER_BYTES + cod_codec_plain_room(&codec) + sizeof(uint64_t));
}

/** What the planned headers of all of a model's fragments take there. */
static uint64_t planned_bytes(const cod_exchange_options *options, const cod_exchange_model *model, int shards)
{
    uint64_t chunks = 0;
    for (int f = 0; f < cod_exchange_fragments(options); f++)
        chunks += chunks_of(options, model, f, shards);
    return chunks * COD_CHUNK_HEADER_BYTES;
}

/** What a rank saves of its slots, were they full: transport.h's state(). */
static uint64_t saved_slot_bytes(const cod_exchange_options *options, const cod_slot_layout *layout)
{
    if (options->transport == COD_TRANSPORT_FILE) /* the newest version alone, and what it is */
        return sizeof(cod_slot_header) + cod_slot_data_at(layout, 0) + layout->slot_bytes + sizeof(cod_slot_entry);
    return sizeof(cod_slot_header) + cod_slot_window_bytes(layout);
}

cod_exchange_sizes cod_exchange_plan(const cod_exchange_options *options, const cod_exchange_model *models,
                                     const int *ranks, int groups, int mine, int together)
{
    const uint64_t holders = together > 1 ? (uint64_t)together : 1;
    const uint64_t fragments = (uint64_t)cod_exchange_fragments(options);
    cod_slot_layout layout = {.slots = (uint32_t)options->slots, .groups = (uint32_t)groups};
    if (options->codec == COD_EXCHANGE_NONE)
        return (cod_exchange_sizes){0};
    cod_exchange_sizes sizes = {.published = publication_bytes(options, &models[mine], ranks[mine])};
    const uint64_t total = exchange_total_of(&models[mine]),
                   kept = (COD_EXCHANGE_OWN_KEPT + exchange_keeps_exact(options)) * total;
    sizes.own_bytes = (fragment_bytes(options, &models[mine]) + kept * sizeof(float)) / holders;
    uint64_t incoming = 0, saved_values = kept;
    for (int g = 0; g < groups; g++) {
        const uint64_t bytes = exchange_slot_bytes(options, &models[g], ranks[g]);
        layout.slot_bytes = bytes > layout.slot_bytes ? bytes : layout.slot_bytes;
        if (!cod_exchange_reads(options, groups, mine, g))
            continue;
        sizes.peers++;
        sizes.pulled += publication_bytes(options, &models[g], ranks[g]);
        saved_values += exchange_total_of(&models[g]);
        sizes.held_bytes += 2 * exchange_total_of(&models[g]) * sizeof(float) / holders;
        const uint64_t chunks = chunk_bytes(options, &models[g], ranks[g]);
        incoming = chunks > incoming ? chunks : incoming;
    }
    /* The window of each fragment and its copy for checkpoints, or two rooms and a copy of one; a room of each pull. */
    const uint64_t published =
        fragments *
        (options->transport == COD_TRANSPORT_FILE ? 3 * layout.slot_bytes : 2 * cod_slot_window_bytes(&layout));
    sizes.pulls = exchange_pulls_for(options, sizes.peers);
    sizes.encoding_steps = exchange_encoding_steps(options);
    sizes.decoding_steps = exchange_decoding_steps(options, sizes.peers);
    sizes.slot_bytes = published + (uint64_t)sizes.pulls * layout.slot_bytes;
    const uint64_t numbers = EXCHANGE_SHAPE_NUMBERS + EXCHANGE_PUBLISHER_NUMBERS +
                             fragments * (EXCHANGE_CHAIN_NUMBERS + EXCHANGE_PEER_NUMBERS * (uint64_t)sizes.peers);
    sizes.checkpoint_bytes = numbers * sizeof(uint64_t) + saved_values * sizeof(float) +
                             (uint64_t)ranks[mine] * fragments * saved_slot_bytes(options, &layout);
    sizes.memory_bytes = sizes.held_bytes + sizes.own_bytes + sizes.slot_bytes;
    /* There the last publication as readers hold it is kept either way. */
    const uint64_t decoded = exchange_keeps_exact(options) ? 0 : total * sizeof(float);
    sizes.device_bytes = sizes.held_bytes + sizes.own_bytes + decoded +
                         planned_bytes(options, &models[mine], ranks[mine]) +
                         chunk_bytes(options, &models[mine], ranks[mine]) + (uint64_t)sizes.pulls * incoming;
    return sizes;
}
