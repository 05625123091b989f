/**
 * @file
 * The collective contract: averaging ranges over the ranks of a group while the caller computes. Implemented by comm
 * (MPI, with copies through the host and without), cuda (NCCL) and, with coded messages, train; `train` connects it to the compiled program's "bucket ready" signals.
 *
 * Ranges lie in host memory or in a device's. In a device's, average_start(), test() and wait() use the device, so only the
 * thread that uses it calls them. average_start() and test() never block; wait() blocks until the group's messages are
 * through, but not for the copy back to the device.
 */
#ifndef COD_CORE_COLLECTIVE_H
#define COD_CORE_COLLECTIVE_H

#include "core/backend.h"

typedef struct cod_reduction cod_reduction;

typedef struct cod_collective_ops {
    /**
     * Starts averaging `count` f32 of `buffer` from byte `offset` on over the group, in place; returns before data arrives.
     * Every rank starts the same ranges in the same order. The range is not to be touched until the reduction is done.
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
    /** Whether wait() would not block; never blocks. A device's range is not to be touched before wait() even so. */
    cod_status (*test)(cod_reduction *reduction, bool *done);
    /**
     * Blocks the host until the average is there, or for a device on its way there, and frees the reduction; NULL is
     * done already.
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
