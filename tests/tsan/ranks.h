/**
 * @file
 * Runs a test's body on every rank of an in-process job.
 */
#ifndef COD_TESTS_RANKS_H
#define COD_TESTS_RANKS_H

#include "comm/comm.h"

/** Fails the rank unless `condition` holds. cmocka's asserts are for one thread only. */
#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            return cod_fail(COD_ERR_NUMERIC, "%s does not hold", #condition);                                          \
    } while (0)

typedef cod_status (*rank_body)(cod_comm *comm, void *context);

/**
 * Joins the job on `size` ranks, two on each node, calls body(comm, context) and ends the job. A rank that fails says
 * why and ends the process: the others might wait for it.
 */
void run_ranks(int size, rank_body body, void *context);

#endif
