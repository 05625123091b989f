/** CUDA's runtime without a GPU: faults, devices, streams that work at once, graphs as lists of work. */
#include "emulated_internal.h"

#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <vector>

enum { SHARED_AT_FIRST = 48 << 10, MOST_SHARED = 227 << 10 };

struct cod_emulated_graph {
    std::vector<std::function<cudaError_t()>> work;
};

struct cod_emulated_stream {
    cod_emulated_graph *capture = nullptr;
    bool behind_kernel = false; /**< its last work is a kernel */
};

struct cod_emulated_event {
    bool timed = false, recorded = false;
    std::chrono::steady_clock::time_point at;
};

std::recursive_mutex cod_emulated_lock;

static cod_emulated_machine default_machine()
{
    const char *text = getenv("COD_CUDA_CAPABILITY");
    return {13000, 1, text != nullptr ? atoi(text) : 90, 1};
}

static cod_emulated_machine machine = default_machine();
static size_t faults, seed_value, launches, chained_launches;
static std::map<const void *, size_t> allowed_shared; /**< by kernel */
static bool seed_known;
static char first_fault[512];
static cudaError_t last_error;

cudaError_t cod_emulated_give(cudaError_t error)
{
    if (error != cudaSuccess)
        last_error = error;
    return error;
}

void cod_emulated_fault(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (faults++ == 0) {
        const int length = vsnprintf(first_fault, sizeof first_fault, format, arguments);
        const size_t room = sizeof first_fault, used = length < 0 ? 0 : static_cast<size_t>(length);
        if (used < room)
            cod_emulated_where(first_fault + used, room - used);
    }
    va_end(arguments);
}

/** Of a block, as a launch may ask for it: V100, T4, H100. */
static int most_shared()
{
    return machine.capability >= 80 ? MOST_SHARED : machine.capability >= 75 ? 65536 : 98304;
}

cudaError_t cod_emulated_allow_shared(const void *kernel, int bytes)
{
    const cod_emulated_locked held(cod_emulated_lock);
    if (bytes < 0 || bytes > most_shared())
        return cod_emulated_give(cudaErrorInvalidValue);
    allowed_shared[kernel] = static_cast<size_t>(bytes);
    return cudaSuccess;
}

bool cod_emulated_may_share(const void *kernel, size_t bytes)
{
    const cod_emulated_locked held(cod_emulated_lock);
    const auto found = allowed_shared.find(kernel);
    size_t most = SHARED_AT_FIRST;
    if (found != allowed_shared.end() && found->second > most)
        most = found->second;
    if (bytes > most)
        cod_emulated_fault("a launch with %zu bytes of shared memory of a kernel that was allowed %zu", bytes, most);
    return bytes <= most;
}

size_t cod_emulated_fault_count()
{
    return faults;
}

size_t cod_emulated_faults(char *first, size_t bytes)
{
    const cod_emulated_locked held(cod_emulated_lock);
    cod_emulated_check_memory();
    const size_t count = faults;
    snprintf(first, bytes, "%s", first_fault);
    faults = 0;
    first_fault[0] = '\0';
    return count;
}

size_t cod_emulated_launches(size_t *chained)
{
    const cod_emulated_locked held(cod_emulated_lock);
    const size_t count = launches;
    if (chained != nullptr)
        *chained = chained_launches;
    launches = chained_launches = 0;
    return count;
}

void cod_emulated_set_seed(uint64_t seed)
{
    seed_value = seed;
    seed_known = true;
}

uint64_t cod_emulated_seed()
{
    if (!seed_known) {
        const char *text = getenv("COD_CUDA_SEED");
        cod_emulated_set_seed(text != nullptr ? strtoull(text, nullptr, 10) : 1);
    }
    return seed_value;
}

void cod_emulated_set_machine(const cod_emulated_machine *wanted)
{
    machine = wanted != nullptr ? *wanted : default_machine();
}

bool cod_emulated_is_older()
{
    return machine.capability < 80;
}

/* Devices. */

/** COD_CUDA_GPUS: the numbers of those that this process sees, as CUDA_VISIBLE_DEVICES has them. @return how many; -1 = not said */
static int visible_gpus(int index, int *number)
{
    const char *text = getenv("COD_CUDA_GPUS");
    int count = 0;
    if (text == nullptr)
        return -1;
    for (; *text != '\0'; count++) {
        char *end = nullptr;
        const int value = static_cast<int>(strtol(text, &end, 10));
        if (count == index)
            *number = value;
        text = *end == ',' ? end + 1 : "";
    }
    return count;
}

static int gpu_count()
{
    int number = 0;
    const int visible = visible_gpus(0, &number);
    return visible < 0 ? machine.gpus : visible;
}

const char *cudaGetErrorString(cudaError_t error)
{
    switch (error) {
    case cudaSuccess:
        return "no error";
    case cudaErrorMemoryAllocation:
        return "out of memory";
    case cudaErrorLaunchFailure:
        return first_fault[0] != '\0' ? first_fault : "unspecified launch failure";
    default:
        return "an error of the emulated GPU";
    }
}

cudaError_t cudaGetLastError()
{
    const cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = gpu_count();
    return cod_emulated_give(*count > 0 ? cudaSuccess : cudaErrorNoDevice);
}

cudaError_t cudaSetDevice(int device)
{
    return cod_emulated_give(device >= 0 && device < gpu_count() ? cudaSuccess : cudaErrorInvalidDevice);
}

cudaError_t cod_emulated_kernel_image()
{
    return cod_emulated_give(machine.has_code ? cudaSuccess : cudaErrorNoKernelImageForDevice);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int device)
{
    *properties = cudaDeviceProp();
    snprintf(properties->name, sizeof properties->name, "emulated GPU");
    visible_gpus(device, &device);
    properties->uuid.bytes[0] = static_cast<char>(device);
    properties->major = machine.capability / 10;
    properties->minor = machine.capability % 10;
    properties->multiProcessorCount = 4;
    properties->totalGlobalMem = cod_emulated_whole_memory();
    properties->sharedMemPerBlockOptin = static_cast<size_t>(most_shared());
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = machine.driver;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = 13000;
    return cudaSuccess;
}

/* Streams, events, graphs. */

cudaError_t cod_emulated_queue(cudaStream_t stream, const cod_emulated_launch *launch,
                               std::function<cudaError_t()> work)
{
    const cod_emulated_locked held(cod_emulated_lock);
    if (launch != nullptr) {
        launches++;
        chained_launches += launch->chained;
        if (launch->chained && (stream == nullptr || !stream->behind_kernel))
            cod_emulated_fault("a programmatic edge from what is no kernel");
    }
    if (stream != nullptr)
        stream->behind_kernel = launch != nullptr;
    if (stream == nullptr || stream->capture == nullptr)
        return cod_emulated_give(work());
    stream->capture->work.push_back(std::move(work));
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *target, int value, size_t bytes, cudaStream_t stream)
{
    return cod_emulated_queue(stream, nullptr, [=]() {
        if (!cod_emulated_range_inside(target, bytes))
            return cudaErrorInvalidValue;
        memset(target, value, bytes);
        return cudaSuccess;
    });
}

cudaError_t cudaMemcpyAsync(void *target, const void *source, size_t bytes, cudaMemcpyKind, cudaStream_t stream)
{
    return cod_emulated_queue(stream, nullptr, [=]() {
        if (!cod_emulated_range_inside(target, bytes) || !cod_emulated_range_inside(source, bytes))
            return cudaErrorInvalidValue;
        memcpy(target, source, bytes);
        return cudaSuccess;
    });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned)
{
    *stream = new cod_emulated_stream;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    delete stream;
    return cudaSuccess;
}

/** What a captured stream may not do. */
static cudaError_t outside_capture(cudaStream_t stream)
{
    if (stream != nullptr)
        stream->behind_kernel = false;
    return cod_emulated_give(stream != nullptr && stream->capture != nullptr ? cudaErrorStreamCaptureUnsupported
                                                                             : cudaSuccess);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    return outside_capture(stream);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t, unsigned)
{
    return outside_capture(stream);
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode)
{
    if (outside_capture(stream) != cudaSuccess)
        return cudaErrorStreamCaptureUnsupported;
    stream->capture = new cod_emulated_graph;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    *graph = stream->capture;
    stream->capture = nullptr;
    stream->behind_kernel = false;
    return cod_emulated_give(*graph != nullptr ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long)
{
    if (getenv("COD_CUDA_GRAPHS_FAIL") != nullptr)
        return give(cudaErrorMemoryAllocation);
    *exec = new cod_emulated_graph(*graph);
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    delete graph;
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    delete exec;
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    if (outside_capture(stream) != cudaSuccess)
        return cudaErrorStreamCaptureUnsupported;
    const cod_emulated_locked held(cod_emulated_lock);
    for (const auto &work : exec->work) {
        const cudaError_t error = work();
        if (error != cudaSuccess)
            return cod_emulated_give(error);
    }
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    *event = new cod_emulated_event;
    (*event)->timed = (flags & cudaEventDisableTiming) == 0;
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    delete event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    event->recorded = true;
    event->at = std::chrono::steady_clock::now();
    return outside_capture(stream);
}

cudaError_t cudaEventQuery(cudaEvent_t)
{
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t)
{
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end)
{
    if (!begin->timed || !begin->recorded || !end->timed || !end->recorded)
        return cod_emulated_give(cudaErrorInvalidValue);
    *ms = std::chrono::duration<float, std::milli>(end->at - begin->at).count();
    return cudaSuccess;
}
