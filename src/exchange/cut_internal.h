/**
 * @file
 * How a model is cut into fragments and shards, and what these are coded with: functions of the options alone.
 */
#ifndef COD_EXCHANGE_CUT_INTERNAL_H
#define COD_EXCHANGE_CUT_INTERNAL_H

#include "codec/codec.h"
#include "exchange/exchange.h"

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

#endif
