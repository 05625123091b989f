/** CUDA's runtime without a GPU: faults, and the machine that is played. */
#include "emulated_internal.h"

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <unistd.h>

enum { SHARED_AT_FIRST = 48 << 10, MOST_SHARED = 227 << 10, MOST_THREADS = 1024 };

std::recursive_mutex cod_emulated_lock;

static cod_emulated_machine default_machine()
{
    const char *text = getenv("COD_CUDA_CAPABILITY");
    return {13000, 1, text != nullptr ? atoi(text) : 90, 1, 0};
}

static cod_emulated_machine machine = default_machine();
static size_t faults, seed_value;
static std::map<const void *, size_t> allowed_shared; /**< by kernel */
static bool seed_known;
static char first_fault[512];
static cudaError_t last_error;
static std::atomic<bool> broken; /**< a kernel has failed */

cudaError_t cod_emulated_give(cudaError_t error)
{
    if (error != cudaSuccess)
        last_error = error;
    return error;
}

void cod_emulated_break()
{
    broken = true;
}

cudaError_t cod_emulated_broken()
{
    return broken ? cudaErrorLaunchFailure : cudaSuccess;
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

/** A fault that no test asks for is a failure, too. */
static struct last_question {
    ~last_question()
    {
        if (faults == 0)
            return;
        fprintf(stderr, "the emulated GPU: %zu faults that nobody asked for; the first: %s\n", faults, first_fault);
        _exit(1);
    }
} question;

/** Of a block, as a launch may ask for it: V100, T4, H100. */
static int most_shared()
{
    return machine.capability >= 80 ? MOST_SHARED : machine.capability >= 75 ? 65536 : 98304;
}

cudaError_t cod_emulated_allow_shared(const void *kernel, int bytes)
{
    const cod_emulated_locked held(cod_emulated_lock);
    if (cod_emulated_broken() != cudaSuccess)
        return cod_emulated_broken();
    if (bytes < 0 || bytes > most_shared())
        return cod_emulated_give(cudaErrorInvalidValue);
    allowed_shared[kernel] = static_cast<size_t>(bytes);
    return cudaSuccess;
}

static bool may_share(const void *kernel, size_t bytes)
{
    const auto found = allowed_shared.find(kernel);
    size_t most = SHARED_AT_FIRST;
    if (found != allowed_shared.end() && found->second > most)
        most = found->second;
    if (bytes > most)
        cod_emulated_fault("a launch with %zu bytes of shared memory of a kernel that was allowed %zu", bytes, most);
    return bytes <= most;
}

static bool is_within(const dim3 &size, const dim3 &most)
{
    return size.x >= 1 && size.x <= most.x && size.y >= 1 && size.y <= most.y && size.z >= 1 && size.z <= most.z;
}

cudaError_t cod_emulated_may_launch(const cod_emulated_launch &launch)
{
    const cod_emulated_locked held(cod_emulated_lock);
    if (cod_emulated_broken() != cudaSuccess)
        return cod_emulated_broken();
    /* CUDA C++ Programming Guide, technical specifications: the same for all compute capabilities from 5.0 on. */
    const dim3 grid = launch.grid, block = launch.block, most_blocks(0x7FFFFFFF, 65535, 65535),
               most_threads(1024, 1024, 64);
    const uint64_t threads = static_cast<uint64_t>(block.x) * block.y * block.z;
    if (!is_within(grid, most_blocks) || !is_within(block, most_threads) || threads > MOST_THREADS) {
        cod_emulated_fault("a launch of %ux%ux%u blocks of %ux%ux%u threads, which no GPU takes", grid.x, grid.y,
                           grid.z, block.x, block.y, block.z);
        return cudaErrorInvalidValue;
    }
    return may_share(launch.kernel, launch.shared_bytes) ? cudaSuccess : cudaErrorInvalidValue;
}

size_t cod_emulated_fault_count()
{
    return faults;
}

size_t cod_emulated_faults(char *first, size_t bytes)
{
    const cod_emulated_locked held(cod_emulated_lock);
    cod_emulated_settle();
    cod_emulated_check_memory();
    if (broken)
        cod_emulated_finish();
    const size_t count = faults;
    snprintf(first, bytes, "%s", first_fault);
    faults = 0;
    broken = false;
    last_error = cudaSuccess;
    first_fault[0] = '\0';
    return count;
}

void cod_emulated_set_seed(uint64_t seed)
{
    const cod_emulated_locked held(cod_emulated_lock);
    cod_emulated_settle();
    seed_value = seed;
    seed_known = true;
}

uint64_t cod_emulated_seed()
{
    if (!seed_known) {
        const char *text = getenv("COD_CUDA_SEED");
        seed_value = text != nullptr ? strtoull(text, nullptr, 10) : 1;
        seed_known = true;
    }
    return seed_value;
}

void cod_emulated_set_machine(const cod_emulated_machine *wanted)
{
    machine = wanted != nullptr ? *wanted : default_machine();
}

int cod_emulated_capability()
{
    return machine.capability;
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
    case cudaErrorStreamCaptureUnsupported:
        return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureInvalidated:
        return "operation failed due to a previous error during capture";
    default:
        return "an error of the emulated GPU";
    }
}

cudaError_t cudaGetLastError()
{
    if (cod_emulated_broken() != cudaSuccess) /* stays */
        return cod_emulated_broken();
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
    if (cod_emulated_broken() != cudaSuccess)
        return cod_emulated_broken();
    return cod_emulated_give(device >= 0 && device < gpu_count() ? cudaSuccess : cudaErrorInvalidDevice);
}

cudaError_t cod_emulated_kernel_image(cudaFuncAttributes *attributes)
{
    if (cod_emulated_broken() != cudaSuccess)
        return cod_emulated_broken();
    attributes->binaryVersion = machine.capability;
    attributes->ptxVersion = machine.ptx > 0 ? machine.ptx : machine.capability;
    return cod_emulated_give(machine.has_code ? cudaSuccess : cudaErrorNoKernelImageForDevice);
}

int cod_emulated_multiprocessors()
{
    const char *text = getenv("COD_CUDA_MULTIPROCESSORS");
    return text != nullptr ? atoi(text) : 4;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int device)
{
    *properties = cudaDeviceProp();
    snprintf(properties->name, sizeof properties->name, "emulated GPU");
    visible_gpus(device, &device);
    properties->uuid.bytes[0] = static_cast<char>(device);
    properties->major = machine.capability / 10;
    properties->minor = machine.capability % 10;
    properties->multiProcessorCount = cod_emulated_multiprocessors();
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
