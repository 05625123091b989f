/**
 * @file
 * The `async_parameter_server` strategy: the first ranks hold the main network and do not train; the others, the
 * workers, push their gradients and pull the weights without waiting for each other.
 *
 * A server applies each gradient as it comes: θ ← U(θ, g, α/max(1, τ)), U the optimiser's rule, α the worker's learning
 * rate, τ the updates by others since that worker pulled (Dean et al. 2012, Downpour SGD; Zhang et al. 2016,
 * "Staleness-aware async-SGD", arXiv:1511.05950, n-softsync with a push an update). A worker waits for its weights
 * until the slowest worker is at most `max_delay` updates behind it (stale synchronous parallel; Ho et al. 2013,
 * section 3). Each of S servers holds the s-th part of the weights.
 */
#ifndef COD_STRATEGIES_ASYNC_PARAMETER_SERVER_H
#define COD_STRATEGIES_ASYNC_PARAMETER_SERVER_H

/** Registers `train.strategy: async_parameter_server`, with its section of that name. */
void cod_strategy_register_async_parameter_server(void);

#endif
