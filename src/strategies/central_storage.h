/**
 * @file
 * The `central_storage` strategy: data-parallel training of one network whose weights and optimiser's moments are kept once a node.
 *
 * Ranks of a node compute on the same weights, in shared memory. Each sums a part of all their gradients, averages it with the
 * ranks of its place on other nodes, and updates that part of the weights (sharded update: ZeRO, Rajbhandari et al. 2020,
 * section 5.1; one copy of the variables a machine: TensorFlow's CentralStorageStrategy). The same as `allreduce`, bit for bit
 * where sums do not depend on their order.
 */
#ifndef COD_STRATEGIES_CENTRAL_STORAGE_H
#define COD_STRATEGIES_CENTRAL_STORAGE_H

/** Makes `train.strategy: central_storage` known; it has no section. */
void cod_strategy_register_central_storage(void);

#endif
