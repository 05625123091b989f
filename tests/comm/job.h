/**
 * @file
 * What the MPI tests share: one job for all tests of a program, and checks that all ranks fail or pass together.
 */
#ifndef COD_TESTS_COMM_JOB_H
#define COD_TESTS_COMM_JOB_H

#include "support/test.h"

#include "comm/comm.h"

/** The job, between job_setup() and job_teardown(). */
extern cod_comm *job;

/** Group set-up and tear-down of cmocka. */
int job_setup(void **state);
int job_teardown(void **state);

/**
 * Fails the test on every rank unless `ok` holds on every rank: a failed assertion jumps away, and a rank that did so
 * alone would leave the others waiting. Collective on all ranks.
 */
void job_check(cod_status status, const char *what, const char *file, int line);

/** Checks that `condition` holds on all ranks. */
#define check_all(condition)                                                                                           \
    job_check((condition) ? COD_OK : cod_fail(COD_ERR_NUMERIC, "does not hold"), #condition, __FILE__, __LINE__)
/** Checks that `call` succeeds on all ranks. */
#define check_ok(call) job_check((call), #call, __FILE__, __LINE__)

/** Whether `call` failed with this code and a message that contains `part`. */
bool job_failed(cod_status status, cod_status expected, const char *part);

#endif
