/**
 * @file
 * Measures overlapped averaging beside MPI's blocking allreduce; for `codistill bench allreduce`.
 */
#ifndef COD_COMM_BENCH_H
#define COD_COMM_BENCH_H

#include "comm/group.h"

typedef struct cod_bench_allreduce_result {
    double blocking_s;   /**< one MPI_Allreduce of all bytes, median */
    double bucketed_s;   /**< all buckets started at once through the group's collective, then waited for, median */
    double ratio;        /**< median over rounds of bucketed / blocking, each pair measured back to back */
    double compute_s;    /**< a computation as long as about two blocking all-reduces, alone */
    double overlapped_s; /**< the same computation with the buckets started evenly during it, until all are done */
} cod_bench_allreduce_result;

/**
 * Collective on the group.
 *
 * @param bytes of f32 gradients
 * @param buckets into which they are cut
 * @param rounds measured
 */
COD_MUST_CHECK cod_status cod_bench_allreduce(cod_group *group, size_t bytes, int buckets, int rounds,
                                              cod_bench_allreduce_result *out);

#endif
