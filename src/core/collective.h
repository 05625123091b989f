/**
 * @file
 * The collective contract: averaging ranges over the ranks of a group while the caller computes. Implemented by comm
 * (MPI), cuda (NCCL) and, with coded messages, train; `train` connects it to the compiled program's "bucket ready" signals.
 */
#ifndef COD_CORE_COLLECTIVE_H
#define COD_CORE_COLLECTIVE_H

#include "core/tensor.h"

typedef struct cod_collective cod_collective;
typedef struct cod_reduction cod_reduction;

typedef struct cod_collective_ops {
    /**
     * Starts averaging `count` f32 of `buffer` from byte `offset` on over the group, in place; returns before data arrives.
     * Every rank starts the same ranges in the same order. The range is not to be touched until the reduction is done.
     */
    cod_status (*average_start)(cod_collective *collective, cod_buffer *buffer, size_t offset, size_t count,
                                cod_reduction **out);
    /** Whether it is done; never blocks. */
    cod_status (*test)(cod_reduction *reduction, bool *done);
    /** Waits until it is done and frees it; NULL is done already. */
    cod_status (*wait)(cod_reduction *reduction);
} cod_collective_ops;

/** Implementations put this first in their own struct. */
struct cod_collective {
    const cod_collective_ops *ops;
    int rank, size;
};

#endif
