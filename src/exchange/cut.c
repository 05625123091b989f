#include "exchange/cut_internal.h"

#include "core/memory.h"

enum { SHARD_ALIGNMENT = 16 };

cod_codec_options exchange_codec_options(const cod_exchange_options *options)
{
    static const cod_chunk_coding codings[] = {COD_CHUNK_F32,  COD_CHUNK_F32,  COD_CHUNK_BF16,
                                               COD_CHUNK_INT8, COD_CHUNK_STEP, COD_CHUNK_STEP};
    const bool chosen = options->codec == COD_EXCHANGE_AUTO;
    return (cod_codec_options){.coding = codings[options->codec],
                               .entropy = chosen ? COD_CODEC_ZSTD : (cod_codec_entropy)options->entropy,
                               .quality_db = options->quality_db,
                               .rounding = (float)options->rounding,
                               .bf16_scales = options->scales == 1,
                               .chunk_values = (uint32_t)options->chunk_values};
}

/** Part `part` of `parts` of a range, cut between units. */
static cod_exchange_range cut(cod_exchange_range range, uint64_t unit, uint64_t part, uint64_t parts)
{
    const uint64_t units = (range.count + unit - 1) / unit, first = units * part / parts * unit,
                   end = units * (part + 1) / parts * unit;
    return (cod_exchange_range){range.first + first, (end < range.count ? end : range.count) - first};
}

cod_exchange_range cod_exchange_fragment_range(const cod_exchange_options *options, const cod_exchange_model *model,
                                               int fragment)
{
    const cod_exchange_range all = {.count = exchange_total_of(model)};
    return cut(all, (uint64_t)options->chunk_values, (uint64_t)fragment, (uint64_t)cod_exchange_fragments(options));
}

cod_codec_range exchange_shard_range(const cod_exchange_options *options, const cod_exchange_model *model, int fragment,
                                     int shard, int shards)
{
    const cod_exchange_range range =
        cut(cod_exchange_fragment_range(options, model, fragment), SHARD_ALIGNMENT, (uint64_t)shard, (uint64_t)shards);
    return (cod_codec_range){.first = range.first, .count = range.count, .exact_from = model->count};
}

uint64_t exchange_slot_bytes(const cod_exchange_options *options, const cod_exchange_model *model, int shards)
{
    const cod_codec_options codec = exchange_codec_options(options);
    uint64_t most = 0;
    for (int s = 0; s < shards * cod_exchange_fragments(options); s++) {
        const cod_codec_range range = exchange_shard_range(options, model, s / shards, s % shards, shards);
        const uint64_t bytes = cod_align_up(cod_codec_bound(&codec, &range));
        most = bytes > most ? bytes : most;
    }
    return most;
}
