/**
 * @file
 * The collective contract: averaging ranges over the ranks of a group while the caller computes. comm implements it
 * with MPI (with and without copies through the host), cuda with NCCL, and train with coded messages. `train` connects
 * it to the compiled program's "bucket ready" signals.
 *
 * Ranges lie in host memory or in a device's memory. For a range in a device's memory, average_start(), test() and
 * wait() use the device, so only the thread that uses the device may call them. average_start() and test() never block;
 * wait() blocks until the group's messages have arrived, but not until they are copied back to the device.
 */
#ifndef COD_CORE_COLLECTIVE_H
#define COD_CORE_COLLECTIVE_H

#include "core/backend.h"

typedef struct cod_reduction cod_reduction;

typedef struct cod_collective_ops {
    /**
     * Starts averaging `count` f32 of `buffer` from byte `offset` on over the group, in place; returns before data
     * arrives. Every rank starts the same ranges in the same order. The range is not to be touched until the reduction
     * is done.
     *
     * Ranks may reach their events in different orders: reductions reach the group in the order of these calls, each
     * after those before it.
     *
     * @param ready     the range is read once this event is reached; NULL = now, because nothing that is queued still
     *                  writes it. Borrowed for this call: it may be recorded again at once. Buffers with `host` set
     *                  belong to backends without events; theirs is NULL.
     * @param[out] out  new; end it with wait()
     */
    cod_status (*average_start)(cod_collective *collective, cod_buffer *buffer, size_t offset, size_t count,
                                cod_event *ready, cod_reduction **out);
    /**
     * Whether wait() would return at once; never blocks. Even then, a range in a device's memory is not to be touched
     * before wait().
     */
    cod_status (*test)(cod_reduction *reduction, bool *done);
    /**
     * Blocks the host until the average has arrived in host memory, or is queued to be copied to the device, and frees
     * the reduction. NULL is done already.
     *
     * @param queue  its later work waits until the range holds the average, so that its use can be queued at once;
     *               other queues need an event of this one. NULL = the default queue. Without meaning for host memory.
     */
    cod_status (*wait)(cod_reduction *reduction, cod_queue *queue);
} cod_collective_ops;

/** Implementations put this first in their own struct. */
struct cod_collective {
    const cod_collective_ops *ops;
    int rank, size;
};

#endif
