/*
 * A group that is stopped (SIGSTOP) delays no other. The stop lasts until the others have done what they are to do
 * meanwhile: whoever waits for the stopped group waits until the alarm, whatever the machine is busy with.
 */
#include "comm/job.h"

#include "core/trace.h"
#include "exchange/exchange_run.h"
#include "support/patience.h"

#include <signal.h>
#include <unistd.h>

/* Ranks, each a group: the first one stops the last one; the second one goes on beside it. */
enum { FIRST, SECOND, STOPPED, RANKS };
enum { PERIOD = 20, ALARM_S = COD_TEST_PATIENCE_S };

static pid_t pids[RANKS];
static volatile sig_atomic_t told, alarmed;

/** The second rank has done its part of the stop; or, to the others: the stop is over. */
static void hear_told(int signal)
{
    (void)signal;
    told = 1;
}

static void end_stop(void)
{
    kill(pids[STOPPED], SIGCONT);
    kill(pids[SECOND], SIGUSR1);
}

static void hear_alarm(int signal)
{
    (void)signal;
    alarmed = 1;
    end_stop();
}

/** On every rank; then all know each other's process. */
static void listen(void)
{
    const pid_t mine = getpid();
    told = alarmed = 0;
    signal(SIGUSR1, hear_told);
    signal(SIGCONT, hear_told);
    signal(SIGALRM, hear_alarm);
    must(cod_group_gather(cod_comm_world(job), &mine, sizeof mine, pids));
    must(cod_group_barrier(cod_comm_world(job)));
}

static void open_three(exchange_run *r, double pull_timeout_s)
{
    static const int sizes[] = {1, 1, 1};
    static uint64_t run = 7;
    cod_exchange_options options = run_options(PERIOD);
    options.pull_timeout_s = pull_timeout_s;
    options.min_interval_ms = 20;
    run_open(r, sizes, RANKS, &options, run++);
    r->pause_ms = 2;
    listen();
}

/** Steps on the ranks that are not stopped, until each has taken over so many versions and so many seconds are over. */
static void go_on_beside(exchange_run *r, uint64_t takeovers, double seconds)
{
    const double begin = cod_clock_s();
    const uint64_t before = r->takeovers;
    const int rank = cod_comm_rank(job);
    while (!alarmed && (r->takeovers < before + takeovers || cod_clock_s() < begin + seconds))
        run_until(r, r->step + 1);
    if (rank == SECOND)
        must(kill(pids[FIRST], SIGUSR1) == 0 ? COD_OK : cod_fail(COD_ERR_IO, "cannot tell rank 0"));
    while (!told && !alarmed)
        run_until(r, r->step + 1);
    if (rank == FIRST)
        end_stop();
}

/** The stop of the last rank, on all ranks; the last one makes steps until it was stopped. */
static void stop_last(exchange_run *r, uint64_t takeovers, double seconds)
{
    const int rank = cod_comm_rank(job);
    if (rank == FIRST) {
        alarm(ALARM_S);
        must(kill(pids[STOPPED], SIGSTOP) == 0 ? COD_OK : cod_fail(COD_ERR_IO, "cannot stop rank 2"));
    }
    if (rank != STOPPED)
        go_on_beside(r, takeovers, seconds);
    while (!told && rank == STOPPED)
        run_until(r, r->step + 1);
    alarm(0);
}

/** Steps until each rank holds a version of all others that is newer than the newest it holds. */
static void go_on_together(exchange_run *r)
{
    uint64_t newest = 0;
    for (int g = FIRST; g < RANKS; g++)
        newest = g != cod_comm_rank(job) && run_held(r, g) > newest ? run_held(r, g) : newest;
    run_until_all_hold(r, cod_comm_rank(job) == STOPPED ? newest + 1 : run_held(r, STOPPED) + 1);
}

/**
 * No time-out of the exchange ends while the test runs, so that a step that waited for the stopped group would wait for
 * ever.
 */
TEST(a_stopped_group_delays_no_other)
{
    exchange_run r;
    open_three(&r, 1e6);
    run_until_all_hold(&r, 3);
    stop_last(&r, 10, 0);
    go_on_together(&r);
    const bool in_time = !alarmed, sound = r.wrong == 0 && run_counters(&r).rejected == 0;
    run_close(&r);
    check_all(in_time);
    check_all(sound);
}

/**
 * The last rank has published and is stopped before anybody has read a byte of it but for the window's warm-up; pulls
 * of it are given up.
 */
TEST(a_group_that_is_stopped_at_the_first_pull_delays_no_other)
{
    static const double patience_s = 0.5;
    exchange_run r;
    open_three(&r, patience_s);
    if (cod_comm_rank(job) == STOPPED)
        run_until(&r, 2 * PERIOD - 1); /* its first version is complete, and the other groups have none */
    must(cod_group_barrier(cod_comm_world(job)));
    stop_last(&r, 3, 2 * patience_s);
    go_on_together(&r);
    const bool in_time = !alarmed, sound = r.wrong == 0 && run_counters(&r).rejected == 0;
    run_close(&r);
    check_all(in_time);
    check_all(sound);
}

TEST_GROUP(job_setup, job_teardown)
