/**
 * @file
 * The `local_sgd` strategy: groups train alone and every `period` steps replace their weights by the mean of all
 * groups'.
 *
 * θ ← Σ_g (n_g / Σ n) θ_g, n_g the samples of a group, every H steps: FedAvg with every client in every round (McMahan
 * et al. 2017, "Communication-efficient learning of deep networks from decentralized data", Algorithm 1); with equal
 * groups Local SGD (Stich 2019, "Local SGD converges fast and communicates little", Algorithm 1). Statistics of
 * normalisation are averaged too; each group keeps its optimiser's moments, about which both papers say nothing,
 * because their optimiser has none. With H = 1, plain SGD and equal groups it is data-parallel training over all ranks.
 */
#ifndef COD_STRATEGIES_LOCAL_SGD_H
#define COD_STRATEGIES_LOCAL_SGD_H

#include <stdint.h>

typedef struct cod_local_sgd_options {
    int64_t period;
} cod_local_sgd_options;

/** Registers `train.strategy: local_sgd`, with its section `local_sgd`. */
void cod_strategy_register_local_sgd(void);

#endif
