/**
 * @file
 * How many steps publishing and pulling take, and how many pulls a group has at a time: functions of the options alone.
 */
#ifndef COD_EXCHANGE_PACE_INTERNAL_H
#define COD_EXCHANGE_PACE_INTERNAL_H

#include "exchange/exchange.h"

/** Whether groups will wait for each other by configuration: in a deterministic run or a replay. */
static inline bool exchange_will_wait(const cod_exchange_options *options)
{
    return options->deterministic || (options->replay != NULL && options->replay[0] != '\0');
}
/** Steps that encoding a publication is spread over. */
int64_t exchange_encoding_steps(const cod_exchange_options *options);
/** Steps that decoding a version is spread over: fewer where pulls are fewer than peers. */
int64_t exchange_decoding_steps(const cod_exchange_options *options, int peers);
/** How many pulls a group has at a time, so that all fragments of its peers get their turn within a period. */
int exchange_pulls_for(const cod_exchange_options *options, int peers);

#endif
