#include "exchange/chunk_table_internal.h"

#include "core/fingerprint.h"

#include <stdlib.h>

cod_codec_range chunk_table_range(const exchange_setup *setup, const chunk_table *table, int shard)
{
    return exchange_shard_range(&setup->options, &setup->models[table->group], table->fragment, shard, table->shards);
}

cod_status chunk_table_init(const exchange_setup *setup, int group, int fragment, chunk_table *table)
{
    const cod_codec_options options = exchange_codec_options(&setup->options);
    table->group = group;
    table->fragment = fragment;
    table->shards = exchange_shards_of(setup, group);
    table->range = cod_exchange_fragment_range(&setup->options, &setup->models[group], fragment);
    table->first = calloc((size_t)table->shards + 1, sizeof *table->first);
    COD_REQUIRE_MEMORY(table->first);
    for (int s = 0; s < table->shards; s++) {
        const cod_codec_range range = chunk_table_range(setup, table, s);
        table->first[s + 1] = table->first[s] + (size_t)cod_codec_chunk_count(&options, &range);
    }
    table->prints = calloc(table->first[table->shards] + 1, sizeof *table->prints);
    COD_REQUIRE_MEMORY(table->prints);
    return COD_OK;
}

void chunk_table_clear(chunk_table *table)
{
    free(table->first);
    free(table->prints);
}

size_t chunk_table_count(const chunk_table *table)
{
    return table->first[table->shards];
}

void chunk_table_to_fragment(const chunk_table *table, unsigned char *head)
{
    cod_store_u64(head + COD_CHUNK_AT_FIRST, cod_load_u64(head + COD_CHUNK_AT_FIRST) - table->range.first);
}

void chunk_table_to_model(const chunk_table *table, unsigned char *head)
{
    cod_store_u64(head + COD_CHUNK_AT_FIRST, cod_load_u64(head + COD_CHUNK_AT_FIRST) + table->range.first);
}

void chunk_table_plan(const exchange_setup *setup, const chunk_table *table, unsigned char *heads)
{
    const cod_codec_options options = exchange_codec_options(&setup->options);
    for (int s = 0; s < table->shards; s++) {
        const cod_codec_range range = chunk_table_range(setup, table, s);
        cod_codec_plan(&options, &range, heads + table->first[s] * COD_CHUNK_HEADER_BYTES);
    }
    for (size_t k = 0; k < chunk_table_count(table); k++)
        chunk_table_to_fragment(table, heads + k * COD_CHUNK_HEADER_BYTES);
}

void chunk_table_find_prints(const exchange_setup *setup, const float *values, chunk_table *table, unsigned char *heads)
{
    chunk_table_plan(setup, table, heads);
    for (size_t k = 0; k < chunk_table_count(table); k++) {
        const unsigned char *head = heads + k * COD_CHUNK_HEADER_BYTES;
        table->prints[k] =
            cod_fingerprint(values + cod_load_u64(head + COD_CHUNK_AT_FIRST), cod_load_u32(head + COD_CHUNK_AT_COUNT));
    }
}
