#include "comm/job.h"

#include "core/trace.h"
#include "distill/exchange_run.h"

#include <signal.h>
#include <unistd.h>

/* The stop is as long as the design's figure asks of any peer: far beyond every time-out of the exchange but teardown. */
static const double STOP_FROM_S = 1.0, STOP_S = 5.0, END_S = 7.0;

/** What a rank saw of the others while the last one was stopped. */
typedef struct phase {
    double slowest_s;
    int64_t steps;
    uint64_t takeovers;
} phase;

static phase steps_until(exchange_run *r, double end_s)
{
    const int64_t from = r->step;
    const uint64_t before = r->takeovers;
    r->slowest_s = 0;
    while (cod_clock_s() < end_s)
        run_until(r, r->step + 1);
    return (phase){r->slowest_s, r->step - from, r->takeovers - before};
}

static void a_stopped_group_delays_no_other(void **state)
{
    (void)state;
    static const int sizes[] = {1, 1, 1};
    const pid_t mine = getpid();
    pid_t pids[3];
    exchange_run r;
    cod_exchange_options options = run_options(20);
    options.pull_timeout_s = 0.5;
    options.min_interval_ms = 20;
    run_open(&r, sizes, 3, &options, 7);
    r.pause_ms = 2;
    must(cod_group_gather(cod_comm_world(job), &mine, sizeof mine, pids));
    must(cod_group_barrier(cod_comm_world(job)));
    const double begin = cod_clock_s();
    const int rank = cod_comm_rank(job);

    const phase before = steps_until(&r, begin + STOP_FROM_S);
    if (rank == 0)
        must(kill(pids[2], SIGSTOP) == 0 ? COD_OK : cod_fail(COD_ERR_IO, "cannot stop rank 2"));
    const uint64_t held = run_held(&r, 2);
    const phase during = steps_until(&r, begin + STOP_FROM_S + STOP_S);
    if (rank == 0)
        must(kill(pids[2], SIGCONT) == 0 ? COD_OK : cod_fail(COD_ERR_IO, "cannot go on with rank 2"));
    const phase after = steps_until(&r, begin + END_S);
    const uint64_t back = run_held(&r, 2);
    const bool sound = r.wrong == 0 && run_counters(&r).rejected == 0;
    run_close(&r);

    print_message("rank %d: slowest step's exchange %.1f / %.1f / %.1f ms, %lld / %lld / %lld steps, %llu / %llu / "
                  "%llu taken over\n",
                  rank, 1e3 * before.slowest_s, 1e3 * during.slowest_s, 1e3 * after.slowest_s, (long long)before.steps,
                  (long long)during.steps, (long long)after.steps, (unsigned long long)before.takeovers,
                  (unsigned long long)during.takeovers, (unsigned long long)after.takeovers);
    /* The stopped rank itself, of course, lost its time. */
    const bool free_of_it = rank == 2 || during.slowest_s <= before.slowest_s + 0.1;
    check_all(free_of_it);
    /* As many steps a second as before, but for a share that leaves room for a busy machine. */
    check_all(rank == 2 || (double)during.steps / STOP_S >= 0.5 * (double)before.steps / STOP_FROM_S);
    check_all(rank == 2 || during.takeovers >= 10);
    check_all(rank == 2 || back > held);
    /* What it was pulling may have been overwritten; it goes on with what there is then. */
    check_all(rank != 2 || after.takeovers >= 2);
    check_all(sound);
}

/** The last rank has published and is stopped before anybody has read a byte of it but for the window's warm-up. */
static void a_group_that_is_stopped_at_the_first_pull_delays_no_other(void **state)
{
    (void)state;
    static const int sizes[] = {1, 1, 1};
    static const double stopped_s = 2, end_s = 4;
    const pid_t mine = getpid();
    pid_t pids[3];
    exchange_run r;
    cod_exchange_options options = run_options(20);
    options.pull_timeout_s = 0.5;
    options.min_interval_ms = 20;
    run_open(&r, sizes, 3, &options, 8);
    r.pause_ms = 2;
    const int rank = cod_comm_rank(job);
    must(cod_group_gather(cod_comm_world(job), &mine, sizeof mine, pids));
    if (rank == 2)
        run_until(&r, 39); /* its first version is complete, and the other groups have none */
    must(cod_group_barrier(cod_comm_world(job)));
    if (rank == 0)
        must(kill(pids[2], SIGSTOP) == 0 ? COD_OK : cod_fail(COD_ERR_IO, "cannot stop rank 2"));
    usleep(rank == 2 ? 0 : 20000);
    const double begin = cod_clock_s();
    const phase during = steps_until(&r, begin + stopped_s);
    if (rank == 0)
        must(kill(pids[2], SIGCONT) == 0 ? COD_OK : cod_fail(COD_ERR_IO, "cannot go on with rank 2"));
    const phase after = steps_until(&r, begin + end_s);
    const uint64_t back = run_held(&r, 2);
    run_close(&r);
    print_message("rank %d: slowest step's exchange %.1f / %.1f ms, %lld / %lld steps, %llu / %llu taken over\n", rank,
                  1e3 * during.slowest_s, 1e3 * after.slowest_s, (long long)during.steps, (long long)after.steps,
                  (unsigned long long)during.takeovers, (unsigned long long)after.takeovers);
    /* A get that waited for the stopped rank would have waited for all of its stop. */
    check_all(rank == 2 || during.slowest_s < stopped_s / 2);
    check_all(rank == 2 || (during.takeovers >= 3 && back > 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_stopped_group_delays_no_other),
                                       cmocka_unit_test(a_group_that_is_stopped_at_the_first_pull_delays_no_other)};
    return cmocka_run_group_tests(tests, job_setup, job_teardown);
}
