/** Streams, events and graphs without a GPU. Work is done at once or, late, when the host waits for it. */
#include "emulated_internal.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <thread>
#include <vector>

typedef std::function<cudaError_t()> work_done;

/** How often an event was recorded so far, as the host asked for it and as streams have come to it. */
struct progress {
    uint64_t asked = 0, reached = 0;
    std::chrono::steady_clock::time_point at;
};

struct cod_emulated_event {
    bool timed = false;
    std::shared_ptr<progress> records = std::make_shared<progress>();
};

struct cod_emulated_graph {
    std::vector<work_done> work;
    size_t kernels = 0; /**< of the work */
};

/** Work of a stream, which may begin once the event has come so far. */
struct queued {
    work_done work;
    std::shared_ptr<progress> awaited;
    uint64_t record;
};

struct cod_emulated_stream {
    cod_emulated_graph *capture = nullptr;
    std::thread::id captured_by;
    bool spoilt = false;        /**< the capture */
    bool behind_kernel = false; /**< its last work is a kernel */
    std::deque<queued> pending;
};

static std::vector<cod_emulated_stream *>
    streams; /**< in the order in which they were made: chance is the same in each run */
static size_t launches, chained_launches;
static cod_emulated_queued queued_since;
static bool late;
static std::mt19937_64 chance;

size_t cod_emulated_launches(size_t *chained)
{
    const cod_emulated_locked hold(cod_emulated_lock);
    const size_t count = launches;
    if (chained != nullptr)
        *chained = chained_launches;
    launches = chained_launches = 0;
    return count;
}

cod_emulated_queued cod_emulated_take_queued(void)
{
    const cod_emulated_locked hold(cod_emulated_lock);
    const cod_emulated_queued seen = queued_since;
    queued_since = {};
    return seen;
}

/** Does work, unless a kernel has ended all work. */
static cudaError_t perform(const work_done &work)
{
    return cod_emulated_broken() != cudaSuccess ? cudaSuccess : cod_emulated_give(work());
}

/** Does the first work of a stream that may begin, which one is chance. @return false where there is none */
static bool do_some(cudaError_t *error)
{
    std::vector<cod_emulated_stream *> able;
    for (cod_emulated_stream *stream : streams)
        if (!stream->pending.empty() && (stream->pending.front().awaited == nullptr ||
                                         stream->pending.front().awaited->reached >= stream->pending.front().record))
            able.push_back(stream);
    if (able.empty())
        return false;
    cod_emulated_stream *stream = able[chance() % able.size()];
    const queued first = std::move(stream->pending.front());
    stream->pending.pop_front();
    const cudaError_t status = perform(first.work);
    if (*error == cudaSuccess)
        *error = status;
    return true;
}

/** Does work until `reached()`. */
template <typename R> static cudaError_t do_until(R reached)
{
    cudaError_t error = cudaSuccess;
    while (!reached())
        if (!do_some(&error)) {
            if (cod_emulated_broken() != cudaSuccess)
                break;
            cod_emulated_fault("streams wait for each other for ever");
            return cod_emulated_give(cudaErrorLaunchFailure);
        }
    cod_emulated_settle();
    return cod_emulated_broken() != cudaSuccess ? cod_emulated_broken() : error;
}

void cod_emulated_finish()
{
    cod_emulated_settle();
    for (cod_emulated_stream *stream : streams)
        do_until([=]() { return stream->pending.empty(); });
}

void cod_emulated_set_late(bool wanted)
{
    const cod_emulated_locked hold(cod_emulated_lock);
    cod_emulated_finish();
    late = wanted;
    chance.seed(cod_emulated_seed());
}

/** Work other than a kernel's, which begins when the kernel that is held has ended. */
static work_done settled(work_done work)
{
    return [work = std::move(work)]() {
        const cudaError_t before = cod_emulated_settle();
        return before != cudaSuccess ? before : work();
    };
}

/** Work of a stream that is not captured. */
static cudaError_t put(cudaStream_t stream, work_done work, std::shared_ptr<progress> awaited = nullptr)
{
    if (!late || stream == nullptr)
        return perform(work);
    const uint64_t record = awaited != nullptr ? awaited->asked : 0;
    stream->pending.push_back({std::move(work), std::move(awaited), record});
    return cudaSuccess;
}

/** Queues work, a kernel's where `launch` is given: it is done at once, or recorded where the stream is captured. */
static cudaError_t queue_work(cudaStream_t stream, const cod_emulated_launch *launch, work_done work)
{
    const cod_emulated_locked hold(cod_emulated_lock);
    if (cod_emulated_broken() != cudaSuccess)
        return cod_emulated_broken();
    if (launch != nullptr) {
        launches++;
        chained_launches += launch->chained;
        if (launch->chained && (stream == nullptr || !stream->behind_kernel))
            cod_emulated_fault("a programmatic edge from what is no kernel");
    }
    if (launch == nullptr)
        work = settled(std::move(work));
    if (stream != nullptr)
        stream->behind_kernel = launch != nullptr;
    if (stream == nullptr || stream->capture == nullptr) {
        (launch != nullptr ? queued_since.kernels : queued_since.others)++;
        return put(stream, std::move(work));
    }
    stream->capture->work.push_back(std::move(work));
    stream->capture->kernels += launch != nullptr;
    return cudaSuccess;
}

cudaError_t cod_emulated_queue_kernel(const cod_emulated_launch &launch, const cod_emulated_call *call)
{
    const cod_emulated_shared_call shared(call);
    return queue_work(launch.stream, &launch, [=]() { return cod_emulated_run(launch, shared); });
}

bool cod_emulated_spoils_capture()
{
    bool spoils = false;
    for (cod_emulated_stream *stream : streams)
        if (stream->capture != nullptr && stream->captured_by == std::this_thread::get_id())
            spoils = stream->spoilt = true;
    return spoils;
}

int cod_emulated_later(void *stream, int (*work)(void *argument), void *argument)
{
    static bool loaded; /* the library: its first call allocates memory */
    const cod_emulated_locked hold(cod_emulated_lock);
    const bool spoils = !loaded && cod_emulated_spoils_capture();
    loaded = true;
    if (spoils)
        return cod_emulated_give(cudaErrorStreamCaptureUnsupported);
    return queue_work(static_cast<cudaStream_t>(stream), nullptr,
                      [=]() { return work(argument) == 0 ? cudaSuccess : cudaErrorLaunchFailure; });
}

cudaError_t cudaMemsetAsync(void *target, int value, size_t bytes, cudaStream_t stream)
{
    return queue_work(stream, nullptr, [=]() {
        if (!cod_emulated_range_inside(target, bytes))
            return cudaErrorInvalidValue;
        memset(target, value, bytes);
        return cudaSuccess;
    });
}

cudaError_t cudaMemcpyAsync(void *target, const void *source, size_t bytes, cudaMemcpyKind, cudaStream_t stream)
{
    return queue_work(stream, nullptr, [=]() {
        if (!cod_emulated_range_inside(target, bytes) || !cod_emulated_range_inside(source, bytes))
            return cudaErrorInvalidValue;
        memcpy(target, source, bytes);
        return cudaSuccess;
    });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned)
{
    const cod_emulated_locked hold(cod_emulated_lock);
    if (cod_emulated_broken() != cudaSuccess)
        return cod_emulated_broken();
    *stream = new cod_emulated_stream;
    streams.push_back(*stream);
    return cudaSuccess;
}

/** What a captured stream may not do, without an end to its capture. */
static cudaError_t outside_capture(cudaStream_t stream)
{
    if (stream != nullptr)
        stream->behind_kernel = false;
    if (stream == nullptr || stream->capture == nullptr)
        return cudaSuccess;
    stream->spoilt = true;
    return cod_emulated_give(cudaErrorStreamCaptureUnsupported);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    const cod_emulated_locked hold(cod_emulated_lock);
    if (cod_emulated_broken() != cudaSuccess)
        return cod_emulated_broken();
    if (cod_emulated_spoils_capture() || outside_capture(stream) != cudaSuccess)
        return cudaErrorStreamCaptureUnsupported;
    return do_until([=]() { return stream == nullptr || stream->pending.empty(); });
}

cudaError_t cudaDeviceSynchronize()
{
    const cod_emulated_locked hold(cod_emulated_lock);
    if (cod_emulated_broken() != cudaSuccess)
        return cod_emulated_broken();
    for (cod_emulated_stream *stream : streams)
        if (outside_capture(stream) != cudaSuccess)
            return cudaErrorStreamCaptureUnsupported;
    return do_until([=]() {
        return std::all_of(streams.begin(), streams.end(), [](const auto *stream) { return stream->pending.empty(); });
    });
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    const cod_emulated_locked hold(cod_emulated_lock);
    do_until([=]() { return stream->pending.empty(); });
    std::erase(streams, stream);
    delete stream;
    return cod_emulated_broken();
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned)
{
    const cod_emulated_locked hold(cod_emulated_lock);
    if (cod_emulated_broken() != cudaSuccess)
        return cod_emulated_broken();
    if (outside_capture(stream) != cudaSuccess)
        return cudaErrorStreamCaptureUnsupported;
    return put(stream, settled([]() { return cudaSuccess; }), event->records);
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode)
{
    const cod_emulated_locked hold(cod_emulated_lock);
    if (cod_emulated_broken() != cudaSuccess)
        return cod_emulated_broken();
    if (outside_capture(stream) != cudaSuccess)
        return cudaErrorStreamCaptureUnsupported;
    stream->capture = new cod_emulated_graph;
    stream->captured_by = std::this_thread::get_id();
    stream->spoilt = false;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    const cod_emulated_locked hold(cod_emulated_lock);
    *graph = stream->capture;
    stream->capture = nullptr;
    stream->behind_kernel = false;
    if (*graph == nullptr)
        return cod_emulated_give(cudaErrorInvalidValue);
    if (!stream->spoilt)
        return cod_emulated_broken();
    delete *graph;
    *graph = nullptr;
    return cod_emulated_give(cudaErrorStreamCaptureInvalidated);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long)
{
    if (cod_emulated_broken() != cudaSuccess)
        return cod_emulated_broken();
    if (getenv("COD_CUDA_GRAPHS_FAIL") != nullptr)
        return cod_emulated_give(cudaErrorMemoryAllocation);
    *exec = new cod_emulated_graph(*graph);
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    delete graph;
    return cod_emulated_broken();
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    delete exec;
    return cod_emulated_broken();
}

static cudaError_t do_all(const std::vector<work_done> &list)
{
    for (const auto &work : list) {
        const cudaError_t error = perform(work);
        if (error != cudaSuccess && cod_emulated_broken() == cudaSuccess)
            return error;
    }
    cod_emulated_settle();
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    if (cod_emulated_broken() != cudaSuccess)
        return cod_emulated_broken();
    if (outside_capture(stream) != cudaSuccess)
        return cudaErrorStreamCaptureUnsupported;
    const cod_emulated_locked hold(cod_emulated_lock);
    queued_since.graphs++;
    queued_since.nodes += exec->kernels;
    queued_since.others += exec->work.size() - exec->kernels;
    if (!late)
        return cod_emulated_give(do_all(exec->work));
    return put(stream, [list = exec->work]() { return do_all(list); });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    if (cod_emulated_broken() != cudaSuccess)
        return cod_emulated_broken();
    *event = new cod_emulated_event;
    (*event)->timed = (flags & cudaEventDisableTiming) == 0;
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    delete event;
    return cod_emulated_broken();
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    const cod_emulated_locked hold(cod_emulated_lock);
    if (cod_emulated_broken() != cudaSuccess)
        return cod_emulated_broken();
    if (outside_capture(stream) != cudaSuccess)
        return cudaErrorStreamCaptureUnsupported;
    const uint64_t record = ++event->records->asked;
    return put(stream, settled([records = event->records, record]() {
                   records->reached = records->reached > record ? records->reached : record;
                   records->at = std::chrono::steady_clock::now();
                   return cudaSuccess;
               }));
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    const cod_emulated_locked hold(cod_emulated_lock);
    if (cod_emulated_broken() != cudaSuccess)
        return cod_emulated_broken();
    if (cod_emulated_spoils_capture())
        return cod_emulated_give(cudaErrorStreamCaptureUnsupported);
    return event->records->reached >= event->records->asked ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    const cod_emulated_locked hold(cod_emulated_lock);
    if (cod_emulated_broken() != cudaSuccess)
        return cod_emulated_broken();
    if (cod_emulated_spoils_capture())
        return cod_emulated_give(cudaErrorStreamCaptureUnsupported);
    const uint64_t record = event->records->asked;
    return do_until([=]() { return event->records->reached >= record; });
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end)
{
    if (cod_emulated_broken() != cudaSuccess)
        return cod_emulated_broken();
    if (!begin->timed || begin->records->reached == 0 || !end->timed || end->records->reached == 0)
        return cod_emulated_give(cudaErrorInvalidValue);
    *ms = std::chrono::duration<float, std::milli>(end->records->at - begin->records->at).count();
    return cudaSuccess;
}
