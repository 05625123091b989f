/** What the host does around the GPU's work: which thread has which GPU, and how it waits. */
#include "cuda/cuda_internal.h"

#include <chrono>
#include <functional>
#include <thread>

extern "C" {
#include "emulated/emulated.h"
#include "support/test.h" /* last: cmocka defines `fail` */
}

/*
 * The linker gives the backend's calls of three functions to these (CMakeLists.txt). A thread of a program with several
 * GPUs has the first one until it says otherwise.
 */
static thread_local int current, times_set;
static int not_ready, queries, waits;
static cudaError_t broken;

extern cudaError_t real_set(int) asm("__real__Z13cudaSetDevicei");
extern cudaError_t real_query(cudaEvent_t) asm("__real__Z14cudaEventQueryP18cod_emulated_event");
extern cudaError_t planted_set(int) asm("__wrap__Z13cudaSetDevicei");
extern cudaError_t planted_query(cudaEvent_t) asm("__wrap__Z14cudaEventQueryP18cod_emulated_event");
extern cudaError_t planted_wait(cudaEvent_t) asm("__wrap__Z20cudaEventSynchronizeP18cod_emulated_event");

cudaError_t planted_set(int device)
{
    current = device;
    times_set++;
    return real_set(device);
}

cudaError_t planted_query(cudaEvent_t event)
{
    queries++;
    if (broken != cudaSuccess)
        return broken;
    return queries <= not_ready ? cudaErrorNotReady : real_query(event);
}

cudaError_t planted_wait(cudaEvent_t)
{
    waits++;
    return cudaSuccess;
}

static cod_device *open_second()
{
    static const cod_emulated_machine machine = {13000, 3, 90, 1, 0};
    cod_device *device = nullptr;
    cod_device_options options = {};
    cod_emulated_set_machine(&machine);
    options.ordinal = 1;
    assert_ok(cod_cuda_backend.open(&options, &device));
    assert_int_equal(current, 1);
    return device;
}

/** Whether a new thread that calls the function has GPU 1 then. */
static bool moves_thread(const std::function<cod_status()> &call)
{
    int found = -1;
    cod_status status = COD_ERR_BACKEND;
    std::thread thread([&]() {
        status = call();
        found = current;
    });
    thread.join();
    return status == COD_OK && found == 1;
}

TEST(every_thread_works_on_its_devices_gpu)
{
    const cod_backend *backend = &cod_cuda_backend;
    cod_device *device = open_second();
    cod_buffer *buffer = nullptr, *more = nullptr, *pinned = nullptr;
    cod_queue *queue = nullptr;
    cod_event *event = nullptr;
    cod_plan *plan = nullptr;
    cod_recording *recording = nullptr;
    float values[16] = {};
    size_t free_bytes = 0, total_bytes = 0;
    assert_ok(backend->buffer_create(device, sizeof values, &buffer));
    cod_op fill = {};
    fill.kind = COD_OP_FILL;
    fill.outputs[0] = cod_view_dense(buffer, 0, COD_F32, {1, 1, 1, 16});
    const std::function<cod_status()> calls[] = {
        [&]() { return backend->memory(device, &free_bytes, &total_bytes); },
        [&]() { return backend->buffer_create(device, sizeof values, &more); },
        [&]() { return backend->host_buffer_create(device, sizeof values, &pinned); },
        [&]() { return backend->queue_create(device, &queue); },
        [&]() { return backend->event_create(device, &event); },
        [&]() { return backend->plan_create(device, &fill, &plan); },
        [&]() { return backend->upload(device, queue, buffer, 0, values, sizeof values); },
        [&]() { return backend->put(device, queue, buffer, 0, values, sizeof values); },
        [&]() { return backend->plans_prepare(device, &plan, 1, queue); },
        [&]() { return backend->plan_run(plan, queue); },
        [&]() { return backend->copy(device, queue, pinned, 0, buffer, 0, sizeof values); },
        [&]() { return backend->download(device, queue, values, buffer, 0, sizeof values); },
        [&]() { return backend->event_record(event, queue); },
        [&]() { return backend->queue_wait(queue, event); },
        [&]() { return backend->capture_begin(device, queue); },
        [&]() { return backend->capture_end(device, queue, &recording); },
        [&]() { return backend->recording_run(recording, queue); },
        [&]() { return backend->buffer_address(device, buffer) != nullptr ? COD_OK : COD_ERR_BACKEND; },
    };
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++)
        if (!moves_thread(calls[i]))
            fail_msg("call %zu leaves its thread to another GPU: %s", i, cod_error_message());
    backend->recording_destroy(recording);
    backend->plan_destroy(plan);
    backend->event_destroy(event);
    backend->queue_destroy(queue);
    backend->host_buffer_destroy(device, pinned);
    backend->buffer_destroy(device, more);
    backend->buffer_destroy(device, buffer);
    backend->close(device);
    cod_emulated_set_machine(nullptr);
}

/** Setting it costs a little, so it is done once, and again for a thread that alternates between two. */
TEST(a_thread_is_told_once)
{
    const cod_backend *backend = &cod_cuda_backend;
    cod_device *second = open_second(), *first = nullptr;
    size_t free_bytes = 0, total_bytes = 0;
    const int before = times_set;
    for (int i = 0; i < 3; i++)
        assert_ok(backend->memory(second, &free_bytes, &total_bytes));
    assert_int_equal(times_set, before);
    assert_ok(backend->open(nullptr, &first));
    assert_int_equal(current, 0);
    assert_ok(backend->memory(second, &free_bytes, &total_bytes));
    assert_int_equal(current, 1);
    backend->close(first);
    backend->close(second);
    cod_emulated_set_machine(nullptr);
}

/** How the host waits for an event that is not reached for so many questions. */
static cod_status wait_for(int questions)
{
    cod_device *device = nullptr;
    cod_event *event = nullptr;
    assert_ok(cod_cuda_backend.open(nullptr, &device));
    assert_ok(cod_cuda_backend.event_create(device, &event));
    assert_ok(cod_cuda_backend.event_record(event, nullptr));
    not_ready = questions;
    queries = waits = 0;
    const cod_status status = cod_cuda_backend.event_wait(event);
    not_ready = 0;
    cod_cuda_backend.event_destroy(event);
    cod_cuda_backend.close(device);
    return status;
}

TEST(a_short_wait_does_not_sleep)
{
    assert_ok(wait_for(0));
    assert_true(queries == 1 && waits == 0);
    assert_ok(wait_for(2));
    assert_true(waits + (queries == 3) == 1); /* a busy machine may let 100 us pass between two questions */
}

TEST(a_long_wait_sleeps)
{
    const auto begin = std::chrono::steady_clock::now();
    assert_ok(wait_for(1 << 30));
    assert_true(queries >= 1 && waits == 1);
    assert_true(std::chrono::steady_clock::now() - begin >= std::chrono::microseconds(100));
}

TEST(a_wait_fails_at_once)
{
    broken = cudaErrorStreamCaptureUnsupported;
    const cod_status status = wait_for(0);
    broken = cudaSuccess;
    assert_int_equal(status, COD_ERR_BACKEND);
    assert_true(queries == 1 && waits == 0);
}

TEST_GROUP(NULL, NULL)
