/**
 * @file
 * Runs training jobs whose ranks are threads (tests/mpi/inprocess), each job in a process of its own.
 *
 * A run that fails leaves memory and threads behind, as `codistill` ends its process then. A child process goes with
 * all that, and with what is one a process: the log's sink, collectives that never complete. Reports lie in memory
 * that parent and child share.
 */
#ifndef COD_TESTS_TRAIN_JOB_H
#define COD_TESTS_TRAIN_JOB_H

#include "support/test.h"

#include "train/train.h"

enum { JOB_RANKS = 4, JOB_SETTINGS = 32, JOB_NOTES = 1 << 14, JOB_LOG = 1 << 15 };

/** What became of one rank. */
typedef struct rank_report {
    bool ended; /**< cod_train_run() returned; else another rank ended the job before */
    cod_status status;
    bool said_elsewhere; /**< cod_error_said_elsewhere() */
    cod_train_ending ending;
    char message[2048];
    char notes[JOB_NOTES]; /**< of job_note() */
} rank_report;

typedef struct job_report {
    bool killed; /**< by a signal: it hung, crashed, or a sanitizer ended it */
    rank_report ranks[JOB_RANKS];
    char log[JOB_LOG]; /**< lines of all ranks */
} job_report;

typedef struct train_job {
    int ranks;
    const char *settings[JOB_SETTINGS]; /**< such as "train.steps=4", over those of every job; NULL ends them */
    /** A rank that fails ends the job at once, because others wait for it; else when all have come back. */
    bool fails_alone;
    const void *plan; /**< what the job's fakes are to do */
} train_job;

/** A rank's place in its job, for fakes. */
typedef struct job_rank {
    const train_job *job;
    int rank;
    rank_report *report;
    atomic_int stop; /**< the rank's stop_signal */
} job_rank;

/** Of the calling thread: the one that a rank trains on. */
extern _Thread_local job_rank *job_self;

/** Adds to this rank's notes. */
void job_note(const char *format, ...) COD_PRINTF(1, 2);

/**
 * Registers `ref`, late where COD_TEST_LATE says so, the strategies of `train`,
 * `model_parallel`, the supervised recipe and the fakes; cmocka's set-up of a group of tests.
 */
int job_set_up(void **state);

/**
 * Trains as its settings say: a tiny perceptron on generated examples in the test's folder, without evaluations in
 * between.
 *
 * @return valid until the next job
 */
const job_report *job_run(const train_job *job);

/** Fails the test unless all ranks succeeded. @return as job_run() */
const job_report *job_run_ok(const train_job *job);

/**
 * Fails the test unless every rank failed, `rank` with this status and a message that has `part`, while the others
 * leave the word to it: with COD_ERR_PEER, or a status of their own. -1 = any one rank.
 */
void job_assert_agreed_failure(const job_report *report, int ranks, int rank, cod_status status, const char *part);

/**
 * Compares all arrays of a part of two runs' checkpoints, which must have the same ones.
 *
 * @return 0 where all bits are equal, else the largest difference of two numbers
 */
double job_difference(const char *run, const char *other, int64_t step, const char *part);

#endif
