/**
 * @file
 * The models of all groups, for the exchange. They are computed from the configuration alone, because a group may be
 * another job that has not started yet.
 */
#ifndef COD_DISTILL_MODELS_H
#define COD_DISTILL_MODELS_H

#include "exchange/exchange.h"
#include "train/config.h"

/**
 * Counts the weights of each group's recipe that travel, and computes their fingerprint. Builds graphs and nothing
 * else.
 *
 * @param[out] models  new [groups]; free(). NULL on failure
 */
COD_MUST_CHECK cod_status cod_exchange_models_read(const cod_run_config *config, int groups,
                                                   cod_exchange_model **models);

#endif
