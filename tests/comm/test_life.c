/* Waiting for ranks that are late: as long as they live, however long that takes. */
#include "comm/job.h"

#include "comm/group.h"
#include "core/trace.h"
#include "support/patience.h"

#include <stdio.h>
#include <unistd.h>

/** A rank that is given up is silent for as long; one that is not does not come for longer. */
static const double SHORT_S = 0.4, LONG_S = 1.5, LATE_S = 3;

static cod_status begin_to_meet(cod_request **meeting)
{
    static double sum;
    sum = 1;
    return cod_group_reduce_start(cod_comm_world(job), &sum, 1, COD_REDUCE_SUM, meeting);
}

static bool is_late(void)
{
    return cod_comm_rank(job) == cod_comm_size(job) - 1;
}

/** All ranks meet, of which the last one comes late, after `late`. */
static cod_status meet(void (*late)(void))
{
    cod_request *meeting = NULL;
    if (is_late())
        late();
    COD_TRY(begin_to_meet(&meeting));
    return cod_comm_wait_for_ranks(job, &meeting, LONG_S);
}

/** Computes, without a word to MPI. */
static void compute(void)
{
    const double end_s = cod_clock_s() + LATE_S;
    while (cod_clock_s() < end_s)
        ;
}

TEST(a_rank_that_computes_is_waited_for)
{
    check_ok(meet(compute));
}

/** Waits for what takes no processor time, and says so. */
static void wait_for_storage(void)
{
    const double end_s = cod_clock_s() + LATE_S;
    while (cod_clock_s() < end_s) {
        cod_comm_note_life(job);
        usleep(1000);
    }
}

TEST(a_rank_that_notes_its_life_is_waited_for)
{
    check_ok(meet(wait_for_storage));
}

TEST(a_rank_that_hangs_is_named_and_given_up)
{
    cod_request *meeting = NULL;
    char name[32];
    snprintf(name, sizeof name, "rank %d on ", cod_comm_size(job) - 1);
    if (is_late())
        sleep(2); /* its progress thread answers meanwhile */
    const double begin_s = cod_clock_s();
    bool ok = begin_to_meet(&meeting) == COD_OK;
    if (!is_late())
        ok = ok && job_failed(cod_comm_wait_for_ranks(job, &meeting, SHORT_S), COD_ERR_INTERRUPTED, name) &&
             meeting != NULL && cod_clock_s() - begin_s >= SHORT_S;
    /* It comes, after all. */
    const cod_status status = cod_request_wait(&meeting, COD_TEST_PATIENCE_S);
    check_all(ok);
    check_ok(status);
}

TEST_GROUP(job_setup, job_teardown)
