/**
 * @file
 * The `central_storage` strategy: data-parallel training of one network whose weights and optimiser moments are kept
 * once on each node.
 *
 * Ranks of a node compute on the same weights, in shared memory. Each rank sums one part of all their gradients,
 * averages it with the ranks that have the same place on other nodes, and updates that part of the weights (sharded
 * update: ZeRO, Rajbhandari et al. 2020, section 5.1; one copy of the variables a machine: TensorFlow's
 * CentralStorageStrategy). The same as `allreduce`, bit for bit where sums do not depend on their order.
 */
#ifndef COD_STRATEGIES_CENTRAL_STORAGE_H
#define COD_STRATEGIES_CENTRAL_STORAGE_H

/** Registers `train.strategy: central_storage`; it has no section. */
void cod_strategy_register_central_storage(void);

#endif
