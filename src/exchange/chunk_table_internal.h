/**
 * @file
 * The chunks of a fragment of a model, for coding on a device. On a device, a chunk's header counts values from the
 * fragment's first value; headers that travel count from the model's first value.
 */
#ifndef COD_EXCHANGE_CHUNK_TABLE_INTERNAL_H
#define COD_EXCHANGE_CHUNK_TABLE_INTERNAL_H

#include "exchange/setup_internal.h"

typedef struct chunk_table {
    int group, fragment, shards;
    cod_exchange_range range; /**< of the fragment */
    size_t *first;    /**< [shards + 1] number of each shard's first chunk; chunks are numbered shard after shard */
    uint64_t *prints; /**< [first[shards]] fingerprints of the chunks of the version held */
} chunk_table;

/** chunk_table_clear() also after a failure. */
COD_MUST_CHECK cod_status chunk_table_init(const exchange_setup *setup, int group, int fragment, chunk_table *table);
void chunk_table_clear(chunk_table *table);
/** Chunks of all shards. */
size_t chunk_table_count(const chunk_table *table);
/** Values of a shard, counted from the model's first one. */
cod_codec_range chunk_table_range(const exchange_setup *setup, const chunk_table *table, int shard);
/** Writes the headers of the chunks in the device's form. @param[out] heads [chunks] */
void chunk_table_plan(const exchange_setup *setup, const chunk_table *table, unsigned char *heads);
/** Converts a header that travels to the device's form; and the device's form back. */
void chunk_table_to_fragment(const chunk_table *table, unsigned char *head);
void chunk_table_to_model(const chunk_table *table, unsigned char *head);
/**
 * Fills in `prints`.
 *
 * @param      values  [range.count] of the host
 * @param[out] heads   [chunks] as chunk_table_plan() writes them
 */
void chunk_table_find_prints(const exchange_setup *setup, const float *values, chunk_table *table,
                             unsigned char *heads);

#endif
