/*
 * Averages by src/cuda/nccl.cu, on the emulated GPU with the stand-in for NCCL, in the small steps of tests/comm:
 * several ranges at a time, of odd sizes, on streams whose work is done late and in an order by chance.
 */
#include "comm/job.h"

#include "comm/device_steps.h"
#include "cuda/cuda.h"
#include "emulated.h"
#include "ref/ref.h"

#include <stdlib.h>
#include <string.h>

enum { STEPS = 12, ORDERS = 3 };

static device_steps *host; /**< what comes of sums in host memory, in the order of the ranks */

/** Each rank's work has an order of its own. @return whether the bits are those of host memory */
static bool run_late(step_mistake mistake, uint64_t order, bool *early)
{
    char fault[256];
    device_steps *device = device_steps_create(&cod_cuda_backend, STEP_OWN, mistake, STEPS);
    check_all(device != NULL);
    if (host == NULL) {
        host = device_steps_create(&cod_ref_backend, STEP_OWN, STEP_RIGHT, STEPS);
        check_all(host != NULL);
        check_ok(device_steps_run(job, host));
    }
    cod_emulated_set_seed(1 + order * 16 + (uint64_t)cod_comm_rank(job));
    cod_emulated_set_late(true);
    check_ok(device_steps_run(job, device));
    cod_emulated_set_late(false);
    const bool equal = device_steps_are_equal(host, device);
    *early = device->early;
    check_all(cod_emulated_faults(fault, sizeof fault) == 0);
    free(device);
    return equal;
}

TEST(averages_have_the_bits_of_host_memory)
{
    for (uint64_t order = 0; order < ORDERS; order++) {
        bool early;
        check_all(run_late(STEP_RIGHT, order, &early));
        check_all(!early); /* nothing was done before the host waited, and starting did not wait */
    }
}

/**
 * Gradients that are averaged before they are there, an average that another queue waits for, and one that is used
 * before.
 */
TEST(a_missing_wait_gives_other_bits)
{
    static const step_mistake mistakes[] = {STEP_NO_READY, STEP_OTHER_QUEUE, STEP_TOO_EARLY};
    for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++) {
        bool early;
        const bool equal = run_late(mistakes[i], 0, &early);
        check_all(!equal || cod_comm_size(job) == 1); /* the average of one rank's gradients is what they are */
    }
}

static int tear_down(void **state)
{
    free(host);
    return job_teardown(state);
}

TEST_GROUP(job_setup, tear_down)
