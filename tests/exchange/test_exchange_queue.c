/* Four groups on the file transport, where one thread of each rank reads one version after another. */
#include "comm/job.h"

#include "exchange/exchange_run.h"
#include "support/clock.h"
#include "support/patience.h"

#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { RANKS = 4, PERIOD = 20 /* at which three peers have a pull each */ };
/** A version is read within the patience of its pull, two are not. */
enum { PATIENCE_S = COD_TEST_PATIENCE_S, READ_STEPS = 15, READ_STEP_S = PATIENCE_S / 25 };
/** Of a step in which no version is read: so many as no test makes are shorter than a pull's patience. */
static const double STEP_S = 1e-3;

static atomic_bool slow, reading;
static atomic_int read_steps; /**< made since the read began */
static _Thread_local bool trains;

/* In place of the C library's, in this program: storage that takes its time with the transport's thread. */
ssize_t pread(int file, void *data, size_t bytes, off_t offset)
{
    if (!trains && atomic_load(&slow)) {
        atomic_store(&read_steps, 0);
        atomic_store(&reading, true);
        while (atomic_load(&read_steps) < READ_STEPS && atomic_load(&slow))
            usleep(100);
        atomic_store(&reading, false);
    }
    return syscall(SYS_pread64, file, data, bytes, offset);
}

/** Time passes by steps alone: how long the transport's thread waits for a processor does not matter. */
static void step(exchange_run *r)
{
    const bool reads = atomic_load(&reading);
    run_until(r, r->step + 1);
    cod_test_clock_pass(reads ? READ_STEP_S : STEP_S);
    if (reads)
        atomic_fetch_add(&read_steps, 1);
}

static bool holds_all(const exchange_run *r, uint64_t version)
{
    for (int g = 0; g < RANKS; g++)
        if (g != cod_comm_rank(job) && run_held(r, g) < version)
            return false;
    return true;
}

/** Three pulls at once: the last of them waits for storage longer than its patience, and then comes. */
TEST(pulls_that_wait_for_their_turn_are_not_given_up)
{
    enum { ROUNDS = 4 };
    static const int sizes[RANKS] = {1, 1, 1, 1};
    exchange_run r;
    cod_exchange_options options = run_options(PERIOD);
    options.slots = 16;
    options.codec = COD_EXCHANGE_INT8; /* any version can be taken after any other */
    options.pull_timeout_s = PATIENCE_S;
    trains = true;
    cod_test_clock_stop_after(0);
    atomic_store(&slow, true);
    run_open(&r, sizes, RANKS, &options, 7);
    for (int round = 0; round < ROUNDS; round++) {
        /* One version of each group, which stays until all have taken it. */
        const int64_t version = r.step / PERIOD + 1;
        r.last_publication = version * PERIOD;
        for (double missing = 1; missing > 0;) {
            step(&r);
            missing = !holds_all(&r, (uint64_t)version);
            must(cod_group_reduce(cod_comm_world(job), &missing, 1, COD_REDUCE_SUM));
        }
    }
    atomic_store(&slow, false);
    cod_test_clock_go();
    const cod_exchange_counters counters = run_counters(&r);
    run_close(&r);
    check_all(counters.lost == 0);
    check_all(counters.pulled == ROUNDS * (RANKS - 1));
}

TEST_GROUP(job_setup, job_teardown)
