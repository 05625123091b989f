#include "comm/job.h"

#include "comm/device_steps.h"
#include "comm/group.h"
#include "ref/ref.h"
#include "support/late.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 12 };

static const cod_backend *late;

/** The delays of each rank's device are its own. */
static int setup(void **state)
{
    char seed[16];
    const int status = job_setup(state);
    if (status != 0)
        return status;
    snprintf(seed, sizeof seed, "%d", cod_comm_rank(job) + 1);
    setenv("COD_LATE_SEED", seed, 0);
    late = device_steps_late();
    return 0;
}

static void check_no_violation(void)
{
    char message[512];
    const size_t violations = cod_late_violations(message, sizeof message);
    check_ok(violations == 0 ? COD_OK : cod_fail(COD_ERR_NUMERIC, "%s", message));
}

/** The devices of late ranks end with the same bits as host memory, whichever rank's is held. */
static void compare_with_host(step_average average, bool mixed)
{
    static const unsigned delays_us[] = {0, 50, 1000};
    const int rank = cod_comm_rank(job);
    device_steps *host = device_steps_create(&cod_ref_backend, average, STEP_RIGHT, STEPS);
    check_all(host != NULL);
    check_ok(device_steps_run(job, host));
    for (int k = 0; k < 3; k++) {
        const bool is_late = !mixed || rank % 2 == k % 2;
        device_steps *device = device_steps_create(is_late ? late : &cod_ref_backend, average, STEP_RIGHT, STEPS);
        check_all(device != NULL);
        device->holds = is_late && rank % 3 == k % 3;
        cod_late_set_delay(delays_us[k]);
        check_ok(device_steps_run(job, device));
        check_no_violation();
        check_all(device_steps_are_equal(host, device));
        check_all(device->crossings == 0 && device->creations == 0 && device->allocations == 0);
        const int holder = mixed ? -1 : k; /* of mixed ranks, maybe none is held */
        check_all(holder < 0 || holder >= cod_comm_size(job) || !device->early);
        free(device);
    }
    free(host);
}

TEST(averages_on_a_device_have_the_bits_of_host_memory)
{
    compare_with_host(STEP_PLAIN, false);
}

TEST(averages_by_node_have_the_bits_of_host_memory)
{
    compare_with_host(STEP_BY_NODE, false);
}

TEST(coded_averages_have_the_bits_of_host_memory)
{
    compare_with_host(STEP_CODED, false);
}

TEST(averages_without_the_host_have_the_bits_of_ordered_sums)
{
    compare_with_host(STEP_DIRECT, false);
    if (device_steps_nodes_are_equal(cod_comm_size(job)))
        compare_with_host(STEP_DIRECT_BY_NODE, false);
}

TEST(ranks_may_have_different_backends)
{
    compare_with_host(STEP_PLAIN, true);
    compare_with_host(STEP_CODED, true);
}

TEST(a_missing_wait_is_found)
{
    cod_late_set_delay(50);
    for (int average = STEP_PLAIN; average <= STEP_CODED; average++)
        for (int mistake = STEP_NO_READY; mistake <= STEP_OTHER_QUEUE; mistake++) {
            char message[512];
            device_steps *steps = device_steps_create(late, (step_average)average, (step_mistake)mistake, STEPS);
            check_all(steps != NULL);
            check_ok(device_steps_run(job, steps));
            check_all(cod_late_violations(message, sizeof message) > 0 && strstr(message, "a missing event wait"));
            free(steps);
        }
}

/** A message sent before its event, and an average that is used before its messages are through. */
TEST(a_message_out_of_order_is_found)
{
    static const step_mistake mistakes[] = {STEP_NO_READY, STEP_TOO_EARLY};
    cod_late_set_delay(50);
    for (int k = 0; k < 2; k++) {
        char message[512];
        device_steps *steps = device_steps_create(late, STEP_DIRECT, mistakes[k], STEPS);
        check_all(steps != NULL);
        check_ok(device_steps_run(job, steps));
        check_all(cod_late_violations(message, sizeof message) > 0 && strstr(message, "a missing"));
        const bool of_mpi = strstr(message, "MPI reads") != NULL;
        check_all(mistakes[k] != STEP_NO_READY || cod_comm_size(job) == 1 || of_mpi);
        free(steps);
    }
}

/** A device on which all plans fail, and a group that uses it. */
typedef struct failing {
    const cod_backend *backend;
    cod_device *device;
    cod_group *group;
    cod_collective *collective;
} failing;

static cod_status fail_run(cod_plan *plan, cod_queue *queue)
{
    (void)plan;
    (void)queue;
    return cod_fail(COD_ERR_NUMERIC, "planted failure");
}

static void check_failure(bool direct)
{
    enum { BYTES = 4 * sizeof(float) };
    static cod_backend bad;
    const int size = cod_comm_size(job);
    failing f;
    cod_op op = {.kind = COD_OP_FILL, .attr.alpha = 1, .name = "fill"};
    cod_buffer *buffer;
    cod_plan *plan;
    cod_event *ready;
    cod_reduction *reduction = NULL;
    bad = cod_ref_backend;
    bad.plan_run = fail_run;
    f.backend = cod_late_wrap(&bad);
    check_ok(f.backend->open(NULL, &f.device));
    check_ok(cod_group_create(job, &size, 1, &f.group));
    check_ok(cod_group_use_device(f.group, f.backend, f.device));
    f.collective = cod_group_collective(f.group);
    if (direct)
        check_ok(cod_group_average_direct(f.group, f.backend, f.device, NULL, &f.collective));
    check_ok(f.backend->buffer_create(f.device, BYTES, &buffer));
    op.outputs[0] = cod_view_dense(buffer, 0, COD_F32, (cod_shape){1, 1, 1, 4});
    check_ok(f.backend->plan_create(f.device, &op, &plan));
    check_ok(f.backend->event_create(f.device, &ready));
    cod_late_hold(f.device, true);
    check_ok(f.backend->plan_run(plan, NULL));
    check_ok(f.backend->event_record(ready, NULL));
    const cod_collective *c = f.collective;
    check_ok(c->ops->average_start(f.collective, buffer, 0, 4, ready, &reduction));
    cod_late_hold(f.device, false);
    check_all(job_failed(c->ops->wait(reduction, NULL), COD_ERR_NUMERIC, "planted failure"));
    cod_group_leave_device(f.group);
    f.backend->event_destroy(ready);
    f.backend->plan_destroy(plan);
    f.backend->buffer_destroy(f.device, buffer);
    f.backend->close(f.device);
    cod_group_destroy(f.group);
    late = device_steps_late();
}

TEST(queued_work_that_fails_ends_the_average)
{
    check_failure(false);
    check_failure(true);
}

TEST(the_order_of_set_up_is_checked)
{
    const int size = cod_comm_size(job);
    cod_device *device;
    cod_group *group;
    check_ok(late->open(NULL, &device));
    check_ok(cod_group_create(job, &size, 1, &group));
    check_ok(cod_group_use_device(group, late, device));
    check_all(job_failed(cod_group_use_device(group, late, device), COD_ERR_ARGUMENT, "a device already"));
    check_all(job_failed(cod_group_average_by_node(group, NULL), COD_ERR_ARGUMENT, "given a device before"));
    cod_group_destroy(group); /* leaves the device by itself */
    late->close(device);
    check_no_violation();
}

TEST(what_cannot_go_without_the_host_is_refused)
{
    static const int unlike[] = {0, 0, 1, 1};
    const int size = cod_comm_size(job);
    cod_device *device, *other;
    cod_group *group;
    cod_collective *collective;
    cod_reduction *reduction;
    float value = 1;
    cod_buffer host = {.host = &value, .bytes = sizeof value};
    check_ok(late->open(NULL, &device));
    check_ok(cod_ref_backend.open(NULL, &other));
    check_ok(cod_group_create(job, &size, 1, &group));
    check_all(job_failed(cod_group_average_direct(group, &cod_ref_backend, other, NULL, &collective),
                         COD_ERR_UNSUPPORTED, "backend 'ref' gives MPI no addresses"));
    if (size == 3)
        check_all(job_failed(cod_group_average_direct(group, late, device, unlike, &collective), COD_ERR_UNSUPPORTED,
                             "its nodes have unlike numbers of its ranks"));
    check_ok(cod_group_average_direct(group, late, device, NULL, &collective));
    check_all(job_failed(cod_group_average_direct(group, late, device, NULL, &collective), COD_ERR_ARGUMENT,
                         "averages its devices' memory already"));
    check_all(job_failed(collective->ops->average_start(collective, &host, 0, 1, NULL, &reduction), COD_ERR_ARGUMENT,
                         "not of the host"));
    cod_group_destroy(group);
    late->close(device);
    cod_ref_backend.close(other);
    check_no_violation();
}

TEST_GROUP(setup, job_teardown)
