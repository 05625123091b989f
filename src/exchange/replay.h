/**
 * @file
 * The record of an asynchronous run, exchange.GROUP.jsonl in its folder, read for cod_exchange_replay().
 */
#ifndef COD_EXCHANGE_REPLAY_H
#define COD_EXCHANGE_REPLAY_H

#include "exchange/exchange.h"

/**
 * @param folder  of the run that was recorded
 * @param[out] events  new; free()
 * @return COD_ERR_IO when there is no record of that group, COD_ERR_FORMAT, naming the line, if it is not a record
 */
COD_MUST_CHECK cod_status cod_replay_read(const char *folder, int group, cod_exchange_event **events, size_t *count);

#endif
