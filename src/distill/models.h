/**
 * @file
 * What groups train, as the exchange sees it: from their configuration alone, for a group may be another job and not there yet.
 */
#ifndef COD_DISTILL_MODELS_H
#define COD_DISTILL_MODELS_H

#include "distill/exchange.h"
#include "train/config.h"

/**
 * Counts the weights that travel of each group's recipe and takes their fingerprint; builds graphs and nothing else.
 *
 * @param[out] models  new [groups]; free(). NULL on failure
 */
COD_MUST_CHECK cod_status cod_exchange_models_read(const cod_run_config *config, int groups,
                                                   cod_exchange_model **models);

#endif
