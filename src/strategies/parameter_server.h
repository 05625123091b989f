/**
 * @file
 * The `parameter_server` strategy: rank 0 holds the main network and does not train; the others, the workers, send it
 * their gradients and get its weights back, in step.
 *
 * θ ← U(θ, 1/W Σ_w g_w(θ)), U the optimiser's rule, W workers: synchronous distributed gradient descent (Li et al.
 * 2014, "Scaling distributed machine learning with the parameter server", Algorithm 1 with bounded delay 0; Dean et al.
 * 2012 without waiting). The result equals `allreduce` over the workers, bit for bit if sums do not depend on their
 * order. But the server's link carries W·S bytes each way in a step, where S is the size of the weights.
 */
#ifndef COD_STRATEGIES_PARAMETER_SERVER_H
#define COD_STRATEGIES_PARAMETER_SERVER_H

/** Registers `train.strategy: parameter_server`; it has no section. */
void cod_strategy_register_parameter_server(void);

#endif
