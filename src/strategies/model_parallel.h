/**
 * @file
 * The `model_parallel` strategy: the layers are divided over ranks, which pass activations and their gradients on; see
 * pipeline.h.
 *
 * Ranks 0 … p-1 of the group hold one network, the next p ranks another, and so on. The ranks with the same stage
 * average their gradients, as in data-parallel training. With m mini-batches in a step (train.accumulate) and equal
 * stages, each rank is idle (p-1)/(m+p-1) of the time (Huang et al. 2019, "GPipe", 2.3).
 */
#ifndef COD_STRATEGIES_MODEL_PARALLEL_H
#define COD_STRATEGIES_MODEL_PARALLEL_H

#include "core/option.h"
#include "train/strategy.h"

typedef struct cod_model_parallel_options {
    int64_t stages; /**< 0 = as many as ranks */
    cod_string_list cuts;
} cod_model_parallel_options;

/** Registers `train.strategy: model_parallel`, with its section `model_parallel`. */
void cod_strategy_register_model_parallel(void);

#endif
