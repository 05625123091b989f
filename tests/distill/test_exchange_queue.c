/* Four groups on the file transport, where one thread of each rank reads one version after another. */
#include "comm/job.h"

#include "distill/exchange_run.h"

#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

/** A version is read within the patience of its pull, two are not. */
static const double PATIENCE_S = 1;
enum { READ_MS = 600 };

static atomic_bool slow;
static _Thread_local bool trains;

/* In place of the C library's, in this program: storage that takes its time with the transport's thread. */
ssize_t pread(int file, void *data, size_t bytes, off_t offset)
{
    if (!trains && atomic_load(&slow))
        usleep(1000 * READ_MS);
    return syscall(SYS_pread64, file, data, bytes, offset);
}

/** Three pulls at once: the last of them waits for storage longer than its patience, and then comes. */
static void pulls_that_wait_for_their_turn_are_not_given_up(void **state)
{
    (void)state;
    enum { PERIOD = 20 }; /* at which three peers have a pull each */
    static const int sizes[] = {1, 1, 1, 1};
    exchange_run r;
    cod_exchange_options options = run_options(PERIOD);
    options.slots = 16;
    options.codec = COD_EXCHANGE_INT8; /* any version can be taken after any other */
    options.pull_timeout_s = PATIENCE_S;
    atomic_store(&slow, true);
    run_open(&r, sizes, 4, &options, 7);
    r.pause_ms = 40;
    run_until_all_hold(&r, 4);
    atomic_store(&slow, false);
    const cod_exchange_counters counters = run_counters(&r);
    run_close(&r);
    check_all(counters.lost == 0);
    check_all(counters.pulled >= 6);
}

int main(void)
{
    trains = true;
    const struct CMUnitTest tests[] = {cmocka_unit_test(pulls_that_wait_for_their_turn_are_not_given_up)};
    return cmocka_run_group_tests(tests, job_setup, job_teardown);
}
