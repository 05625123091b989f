/**
 * @file
 * The parts of `codistill plan`: which rank computes where, and what a group's ranks hold, move and take time for.
 */
#ifndef COD_TOOLS_PLAN_H
#define COD_TOOLS_PLAN_H

#include "core/backend.h"
#include "train/config.h"

/** What groups whose configured device is of one kind compute on; zeroed = no group does. */
typedef struct cod_plan_device {
    const cod_backend *backend;
    cod_device *device;
} cod_plan_device;

/** That rank 0 would compute with. */
COD_MUST_CHECK cod_status cod_plan_threads(const cod_run_config *config, int *threads);

/** What of this machine's processors the ranks that compute on them use. */
typedef struct cod_plan_load {
    int ranks, threads, processors; /**< threads: of all these ranks */
    /** how many times longer than alone a rank computes, where there are more threads than processors; else 1 */
    double slower;
} cod_plan_load;

/** @param devices  as cod_plan_print_map() has it */
COD_MUST_CHECK cod_status cod_plan_load_read(const cod_run_config *config, const cod_plan_device *devices,
                                             cod_plan_load *out);

/**
 * Prints ranks, groups, nodes, devices, processors and threads.
 *
 * @param devices  [cod_device_kind] open for all groups
 */
COD_MUST_CHECK cod_status cod_plan_print_map(const cod_run_config *config, const cod_plan_device *devices);

/**
 * Whether two groups' plans are the same: they train on like devices, and where each reads one peer alone its peer
 * trains, the same on as many ranks.
 */
bool cod_plan_is_alike(const cod_run_config *config, int a, int b);

/** Builds and times what group `index` trains, on the device, and prints it. */
COD_MUST_CHECK cod_status cod_plan_print_group(const cod_run_config *config, int index, const cod_plan_device *device,
                                               const cod_plan_load *load);

#endif
