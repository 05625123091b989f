/**
 * @file
 * The parts of `codistill plan`: which rank computes where, and what a group's ranks hold, move and take time for.
 */
#ifndef COD_TOOLS_PLAN_H
#define COD_TOOLS_PLAN_H

#include "core/backend.h"
#include "train/config.h"

/** Prints ranks, groups, nodes, processors and threads. @param[out] threads  that rank 0 would compute with */
COD_MUST_CHECK cod_status cod_plan_print_map(const cod_run_config *config, int *threads);

/** Whether two groups' plans are the same: they train, and where each reads one peer alone its peer trains, the same on as many ranks. */
bool cod_plan_is_alike(const cod_run_config *config, int a, int b);

/** Builds and times what group `index` trains, on the device, and prints it. */
COD_MUST_CHECK cod_status cod_plan_print_group(const cod_run_config *config, int index, const cod_backend *backend,
                                               cod_device *device);

#endif
