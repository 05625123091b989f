/*
 * What the CUDA backend says of machines that cannot run it, counts of its memory, tells profilers, and cannot record.
 */
#include "support/test.h"

#include "core/device.h"
#include "core/queue.h"
#include "core/trace.h"
#include "cuda/cuda.h"
#include "emulated/emulated.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static cod_status open_on(cod_emulated_machine machine)
{
    cod_device *device = NULL;
    cod_emulated_set_machine(&machine);
    const cod_status status = cod_cuda_backend.open(NULL, &device);
    cod_emulated_set_machine(NULL);
    if (status == COD_OK)
        cod_cuda_backend.close(device);
    return status;
}

TEST(machines_that_cannot_are_named)
{
    assert_fails(COD_ERR_UNSUPPORTED, "there is no NVIDIA driver on this machine", open_on((cod_emulated_machine){0}));
    assert_fails(COD_ERR_UNSUPPORTED, "driver is too old: it supports CUDA up to 12.8, and this build needs 13.0",
                 open_on((cod_emulated_machine){12080, 1, 90, 1, 0}));
    assert_fails(COD_ERR_UNSUPPORTED, "no NVIDIA GPU that this process may use; CUDA_VISIBLE_DEVICES may hide it",
                 open_on((cod_emulated_machine){13000, 0, 90, 1, 0}));
    assert_fails(COD_ERR_UNSUPPORTED, "GPU 0, emulated GPU, has compute capability 6.1; 7.0 or above is needed",
                 open_on((cod_emulated_machine){13000, 1, 61, 1, 0}));
    assert_fails(COD_ERR_UNSUPPORTED, "has compute capability 12.0, and this build has code for ",
                 open_on((cod_emulated_machine){13000, 1, 120, 0, 0}));
    cod_test_assert_contains(cod_error_message(), "build anew with -DCMAKE_CUDA_ARCHITECTURES=120");
    assert_ok(open_on((cod_emulated_machine){13000, 1, 120, 1, 0}));
    assert_fails(COD_ERR_UNSUPPORTED, "build anew with -DCMAKE_CUDA_ARCHITECTURES=70 and a CUDA 12 toolkit",
                 open_on((cod_emulated_machine){13000, 1, 70, 0, 0}));
    assert_ok(open_on((cod_emulated_machine){13000, 1, 70, 1, 0}));
}

TEST(an_ordinal_counts_modulo_the_gpus)
{
    static const char *const ids[] = {"GPU 0 (GPU-00000000): emulated GPU", "GPU 1 (GPU-01000000): emulated GPU",
                                      "GPU 2 (GPU-02000000): emulated GPU"};
    cod_emulated_set_machine(&(cod_emulated_machine){13000, 3, 90, 1, 0});
    for (int ordinal = 0; ordinal < 7; ordinal++) {
        cod_device *device = NULL;
        assert_ok(cod_cuda_backend.open(&(cod_device_options){.ordinal = ordinal}, &device));
        cod_test_assert_contains(cod_cuda_backend.describe(device), ids[ordinal % 3]);
        cod_cuda_backend.close(device);
    }
    cod_emulated_set_machine(NULL);
}

/** An op that needs memory between its kernels, such as a convolution its packed weights. */
static cod_op convolution(cod_buffer *buffer)
{
    const cod_shape x = {1, 4, 4, 16}, w = {16, 3, 3, 16};
    return (cod_op){.kind = COD_OP_CONV2D,
                    .attr = {.stride_h = 1, .stride_w = 1, .pad_h = 1, .pad_w = 1},
                    .inputs = {cod_view_dense(buffer, 0, COD_BF16, x), cod_view_dense(buffer, 1024, COD_F32, w)},
                    .outputs = {cod_view_dense(buffer, 512, COD_BF16, x)},
                    .name = "first"};
}

TEST(memory_is_counted)
{
    const cod_backend *backend = &cod_cuda_backend;
    cod_device *device = NULL;
    cod_buffer *buffer = NULL, *pinned = NULL, *more = NULL;
    cod_plan *plan = NULL;
    assert_ok(backend->open(NULL, &device));
    assert_int_equal(backend->allocated(device), 0);
    assert_ok(backend->buffer_create(device, 65536, &buffer));
    assert_ok(backend->host_buffer_create(device, 4096, &pinned));
    assert_int_equal(backend->allocated(device), 65536);
    const cod_op op = convolution(buffer);
    assert_ok(backend->plan_create(device, &op, &plan));
    const size_t with_plan = backend->allocated(device);
    assert_true(with_plan >= 65536 + 2 * 16 * 9 * 16); /* the weights in bf16 */
    cod_emulated_set_memory(with_plan + 1000);
    assert_fails(COD_ERR_MEMORY, "the GPU is out of memory: 0.1 MB are needed, 0.0 of 0.1 MB are free",
                 backend->buffer_create(device, 80000, &more));
    assert_int_equal(backend->allocated(device), with_plan);
    cod_emulated_set_memory(0);
    backend->plan_destroy(plan);
    assert_int_equal(backend->allocated(device), 65536);
    backend->host_buffer_destroy(device, pinned);
    backend->buffer_destroy(device, buffer);
    assert_int_equal(backend->allocated(device), 0);
    backend->close(device);
}

TEST(profilers_see_ops_by_name)
{
    const cod_backend *backend = &cod_cuda_backend;
    cod_device *device = NULL;
    cod_buffer *buffer = NULL;
    cod_plan *plan = NULL;
    char ranges[256];
    assert_ok(backend->open(NULL, &device));
    assert_ok(backend->buffer_create(device, 65536, &buffer));
    const cod_op op = convolution(buffer);
    assert_ok(backend->plan_create(device, &op, &plan));
    assert_ok(backend->plans_prepare(device, &plan, 1, NULL));
    cod_emulated_ranges(ranges, sizeof ranges);
    cod_trace_range_begin("train");
    assert_ok(backend->plan_run(plan, NULL));
    assert_int_equal(cod_emulated_ranges(ranges, sizeof ranges), 1);
    cod_trace_range_end();
    assert_string_equal(ranges, "<train<conv2d first>");
    assert_int_equal(cod_emulated_ranges(ranges, sizeof ranges), 0);
    assert_string_equal(ranges, ">");
    backend->plan_destroy(plan);
    backend->buffer_destroy(device, buffer);
    backend->close(device);
}

/** Work of which the first `refused` runs ask for memory, as a library's first call does. */
typedef struct lazy_work {
    cod_device *device;
    cod_plan *plan;
    int refused, runs;
} lazy_work;

static cod_status run_lazily(void *context)
{
    lazy_work *work = context;
    cod_buffer *buffer = NULL;
    if (work->runs++ < work->refused) {
        COD_TRY(cod_cuda_backend.buffer_create(work->device, 4096, &buffer));
        cod_cuda_backend.buffer_destroy(work->device, buffer);
    }
    return cod_cuda_backend.plan_run(work->plan, NULL);
}

/** Replays such work. @param[out] queued  what ran by itself, and recordings */
static cod_status replay_lazily(lazy_work *work, int turns, cod_emulated_queued *queued)
{
    cod_replay replay = {0};
    cod_status status = COD_OK;
    cod_emulated_take_queued();
    for (int i = 0; i < turns && status == COD_OK; i++)
        status = cod_queue_replay(&cod_cuda_backend, work->device, NULL, run_lazily, work, &replay);
    *queued = cod_emulated_take_queued();
    cod_replay_clear(&cod_cuda_backend, &replay);
    return status;
}

TEST(a_first_call_that_spoils_a_recording_runs_by_itself)
{
    const cod_backend *backend = &cod_cuda_backend;
    lazy_work work = {0};
    cod_buffer *buffer = NULL;
    cod_emulated_queued queued;
    assert_ok(backend->open(NULL, &work.device));
    assert_ok(backend->buffer_create(work.device, 65536, &buffer));
    const cod_op op = convolution(buffer);
    assert_ok(backend->plan_create(work.device, &op, &work.plan));
    assert_ok(backend->plans_prepare(work.device, &work.plan, 1, NULL));

    work.refused = 1;
    assert_ok(replay_lazily(&work, 3, &queued));
    assert_int_equal(work.runs, 3); /* spoilt, by itself, recorded */
    assert_int_equal(queued.kernels, 1);
    assert_int_equal(queued.graphs, 2);

    work = (lazy_work){work.device, work.plan, .refused = 100};
    assert_fails(COD_ERR_BACKEND, "not permitted when stream is capturing", replay_lazily(&work, 100, &queued));
    assert_int_equal(work.runs, 5); /* three recordings failed */
    assert_int_equal(queued.kernels, 2);
    assert_int_equal(queued.graphs, 0);
    backend->plan_destroy(work.plan);
    backend->buffer_destroy(work.device, buffer);
    backend->close(work.device);
}

/** Runs a convolution twice on such a device; @return of its kernels how many had a programmatic edge */
static size_t chained_on(cod_emulated_machine machine)
{
    const cod_backend *backend = &cod_cuda_backend;
    cod_device *device = NULL;
    cod_buffer *buffer = NULL;
    cod_plan *plan = NULL;
    size_t chained = 0;
    cod_emulated_set_machine(&machine);
    assert_ok(backend->open(NULL, &device));
    assert_ok(backend->buffer_create(device, 65536, &buffer));
    const cod_op op = convolution(buffer);
    assert_ok(backend->plan_create(device, &op, &plan));
    assert_ok(backend->plans_prepare(device, &plan, 1, NULL));
    for (int i = 0; i < 2; i++)
        assert_ok(backend->plan_run(plan, NULL));
    assert_true(cod_emulated_launches(&chained) > 2);
    backend->plan_destroy(plan);
    backend->buffer_destroy(device, buffer);
    backend->close(device);
    cod_emulated_set_machine(NULL);
    return chained;
}

TEST(kernels_without_the_instruction_to_wait_have_no_edges)
{
    cod_emulated_launches(NULL);
    assert_true(chained_on((cod_emulated_machine){13000, 1, 90, 1, 0}) > 0);
    assert_int_equal(chained_on((cod_emulated_machine){13000, 1, 90, 1, 80}), 0); /* compiled for less, by the driver */
    setenv("COD_CUDA_CHAIN", "0", 1);
    assert_int_equal(chained_on((cod_emulated_machine){13000, 1, 90, 1, 0}), 0);
    unsetenv("COD_CUDA_CHAIN");
}

TEST(plans_can_be_waited_for_one_by_one)
{
    const cod_backend *backend = &cod_cuda_backend;
    lazy_work work = {0};
    cod_buffer *buffer = NULL;
    cod_emulated_queued queued;
    setenv("COD_CUDA_SYNC", "1", 1);
    assert_ok(backend->open(NULL, &work.device));
    unsetenv("COD_CUDA_SYNC");
    assert_ok(backend->buffer_create(work.device, 65536, &buffer));
    const cod_op op = convolution(buffer);
    assert_ok(backend->plan_create(work.device, &op, &work.plan));
    assert_ok(backend->plans_prepare(work.device, &work.plan, 1, NULL));
    assert_ok(replay_lazily(&work, 3, &queued));
    assert_int_equal(queued.kernels, 3);
    assert_int_equal(queued.graphs, 0);
    backend->plan_destroy(work.plan);
    backend->buffer_destroy(work.device, buffer);
    backend->close(work.device);
}

/** Runs a plan that reads behind its memory, and then a sound one. @return the status of the first */
static cod_status run_broken(const char *sync)
{
    const cod_backend *backend = &cod_cuda_backend;
    cod_device *device = NULL;
    cod_buffer *buffer = NULL, *more = NULL;
    cod_event *event = NULL;
    cod_plan *plans[2] = {NULL, NULL};
    char fault[256], message[512];
    bool reached = false;
    setenv("COD_CUDA_SYNC", sync, 1);
    assert_ok(backend->open(NULL, &device));
    assert_ok(backend->buffer_create(device, 65536, &buffer));
    assert_ok(backend->event_create(device, &event));
    cod_op ops[2] = {convolution(buffer), convolution(buffer)};
    ops[0].inputs[0].offset = 65536 - 32;
    ops[0].name = "beyond";
    buffer->bytes *= 2; /* so that the plan is made */
    for (int i = 0; i < 2; i++)
        assert_ok(backend->plan_create(device, &ops[i], &plans[i]));
    assert_ok(backend->plans_prepare(device, plans, 2, NULL));
    const cod_status first = backend->plan_run(plans[0], NULL);
    snprintf(message, sizeof message, "%s", cod_error_message());
    const cod_status second = backend->plan_run(plans[1], NULL); /* may be queued before the first kernel has run */
    assert_true(second == COD_OK || second == COD_ERR_BACKEND);
    assert_fails(COD_ERR_BACKEND,
                 "conv2d 'first': CUDA: a kernel failed, and this process can do nothing more on the "
                 "GPU: a read beside 65536 bytes",
                 backend->plan_run(plans[1], NULL));
    const char *advice = strstr(cod_error_message(), "; COD_CUDA_SYNC=1 names the layer");
    assert_true((advice == NULL) == (strcmp(sync, "1") == 0));
    assert_fails(COD_ERR_BACKEND, "a kernel failed", backend->buffer_create(device, 64, &more));
    assert_fails(COD_ERR_BACKEND, "a kernel failed", backend->event_record(event, NULL));
    assert_fails(COD_ERR_BACKEND, "a kernel failed", backend->event_query(event, &reached));
    assert_fails(COD_ERR_BACKEND, "a kernel failed", backend->event_wait(event));
    assert_true(cod_emulated_faults(fault, sizeof fault) > 0);
    assert_ok(backend->plan_run(plans[1], NULL)); /* as in a new process */
    for (int i = 0; i < 2; i++)
        backend->plan_destroy(plans[i]);
    backend->event_destroy(event);
    backend->buffer_destroy(device, buffer);
    backend->close(device);
    unsetenv("COD_CUDA_SYNC");
    if (first != COD_OK)
        cod_test_assert_contains(message, "conv2d 'beyond': CUDA: a kernel failed");
    return first;
}

/** The call that queued it does not know yet, unless each plan is waited for. */
TEST(a_kernels_error_is_every_later_calls)
{
    assert_int_equal(run_broken("0"), COD_OK);
    assert_int_equal(run_broken("1"), COD_ERR_BACKEND);
}
