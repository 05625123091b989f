/**
 * @file
 * Training steps in small: buckets are made in two queues of a device, averaged over a group, and used; the host does
 * not meet the device. They must leave the same bits on every backend.
 */
#ifndef COD_TESTS_COMM_DEVICE_STEPS_H
#define COD_TESTS_COMM_DEVICE_STEPS_H

#include "comm/comm.h"
#include "core/backend.h"

enum { STEP_VALUES = 20011, STEP_STATISTICS = 37 };

/**
 * From STEP_DIRECT on, without the host's memory: by cod_group_average_direct(), and by the backend's own collective.
 * In host memory these are sums in the order of the ranks, as the first one's header promises.
 */
typedef enum step_average {
    STEP_PLAIN,
    STEP_BY_NODE,
    STEP_CODED,
    STEP_DIRECT,
    STEP_DIRECT_BY_NODE,
    STEP_OWN
} step_average;

/** A mistake that `late` must find. The last one uses an average before it waits for it. */
typedef enum step_mistake { STEP_RIGHT, STEP_NO_READY, STEP_OTHER_QUEUE, STEP_TOO_EARLY } step_mistake;

/** Whether STEP_DIRECT_BY_NODE can be with so many ranks: its nodes have equally many. */
bool device_steps_nodes_are_equal(int ranks);

typedef struct device_steps {
    const cod_backend *backend; /**< may differ between ranks */
    step_average average;
    step_mistake mistake;
    int steps;
    bool holds; /**< this rank's device, of `late`, does not begin step 1 before all ranks have started its averages */
    /* results */
    float gradients[STEP_VALUES], sums[STEP_VALUES];
    float statistics[STEP_STATISTICS]; /**< averaged in host memory, amid the buckets; not where averages are coded */
    bool early;                        /**< an average was done before the device that was held went on */
    /** In the steps after the first, on all ranks of this process. */
    size_t crossings, creations, allocations;
} device_steps;

/** Steps to be run. @return new, free() it; NULL = out of memory */
device_steps *device_steps_create(const cod_backend *backend, step_average average, step_mistake mistake, int steps);
/** Whether both left the same bits. */
bool device_steps_are_equal(const device_steps *a, const device_steps *b);

/** `late` around `ref`; counts the queues, events and pinned buffers that are made. Call it before ranks start. */
const cod_backend *device_steps_late(void);

/** Collective on all ranks of the job, which are one group. */
COD_MUST_CHECK cod_status device_steps_run(cod_comm *comm, device_steps *steps);

#endif
