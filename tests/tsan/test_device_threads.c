#include "ranks.h"
#include "support/test.h"

#include "comm/device_steps.h"

#include "ref/ref.h"
#include "support/late.h"

#include <stdlib.h>
#include <string.h>

enum { RANKS = 3, STEPS = 6 };

static const cod_backend *late;

static cod_status compare(cod_comm *comm, step_average average)
{
    device_steps *host = calloc(2, sizeof *host), *device = host + 1;
    COD_REQUIRE_MEMORY(host);
    host->backend = &cod_ref_backend;
    device->backend = late;
    device->holds = cod_comm_rank(comm) == 1;
    host->average = device->average = average;
    host->steps = device->steps = STEPS;
    COD_TRY(device_steps_run(comm, host));
    COD_TRY(device_steps_run(comm, device));
    CHECK(memcmp(host->gradients, device->gradients, sizeof host->gradients) == 0);
    CHECK(memcmp(host->sums, device->sums, sizeof host->sums) == 0);
    CHECK(memcmp(host->statistics, device->statistics, sizeof host->statistics) == 0);
    CHECK(!device->early && device->crossings == 0 && device->creations == 0 && device->allocations == 0);
    free(host);
    return COD_OK;
}

static cod_status average_all_ways(cod_comm *comm, void *context)
{
    (void)context;
    for (int average = STEP_PLAIN; average <= STEP_DIRECT; average++)
        COD_TRY(compare(comm, (step_average)average));
    return COD_OK;
}

TEST(averages_on_devices_race_with_nothing)
{
    late = device_steps_late();
    cod_late_set_delay(200);
    run_ranks(RANKS, average_all_ways, NULL);
    cod_test_assert_none(cod_late_violations, "on late");
}
