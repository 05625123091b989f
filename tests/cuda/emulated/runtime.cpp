/** CUDA's runtime without a GPU: memory between guards, and the machine that is played. */
#include "cuda_runtime.h"

#include "emulated_internal.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <signal.h>
#include <sys/mman.h>

enum { GUARD = 512, POISON = 0xFF, PAGE = 4096, SHARED_AT_FIRST = 48 << 10, MOST_SHARED = 227 << 10 };

static const size_t default_memory = static_cast<size_t>(4) << 30;

struct allocation {
    size_t bytes;
    bool pinned;
};

std::recursive_mutex cod_emulated_lock;
typedef std::lock_guard<std::recursive_mutex> locked;

static std::map<unsigned char *, allocation> allocations;
static cod_emulated_machine default_machine()
{
    const char *text = getenv("COD_CUDA_CAPABILITY");
    return {13000, 1, text != nullptr ? atoi(text) : 90, 1};
}

static cod_emulated_machine machine = default_machine();
static size_t memory_bytes, used_bytes, faults, seed_value;
static std::map<const void *, size_t> allowed_shared; /**< by kernel */
static bool seed_known, forbidden;
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
    if (faults++ == 0)
        vsnprintf(first_fault, sizeof first_fault, format, arguments);
    va_end(arguments);
}

/** Of a block, as a launch may ask for it: V100, T4, H100. */
static int most_shared()
{
    return machine.capability >= 80 ? MOST_SHARED : machine.capability >= 75 ? 65536 : 98304;
}

cudaError_t cod_emulated_allow_shared(const void *kernel, int bytes)
{
    const locked held(cod_emulated_lock);
    if (bytes < 0 || bytes > most_shared())
        return cod_emulated_give(cudaErrorInvalidValue);
    allowed_shared[kernel] = static_cast<size_t>(bytes);
    return cudaSuccess;
}

bool cod_emulated_may_share(const void *kernel, size_t bytes)
{
    const locked held(cod_emulated_lock);
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
    const locked hold(cod_emulated_lock);
    cod_emulated_check_memory();
    const size_t count = faults;
    snprintf(first, bytes, "%s", first_fault);
    faults = 0;
    first_fault[0] = '\0';
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

void cod_emulated_set_memory(size_t bytes)
{
    const char *text = getenv("COD_CUDA_MEMORY_MB");
    if (bytes == 0)
        bytes = text != nullptr ? 1000000 * strtoull(text, nullptr, 10) : default_memory;
    memory_bytes = bytes;
}

static size_t whole_memory()
{
    if (memory_bytes == 0)
        cod_emulated_set_memory(0);
    return memory_bytes;
}

void cod_emulated_set_machine(const cod_emulated_machine *wanted)
{
    machine = wanted != nullptr ? *wanted : default_machine();
}

bool cod_emulated_is_older()
{
    return machine.capability < 80;
}

/* Memory. */

static bool guard_whole(const unsigned char *guard)
{
    for (size_t i = 0; i < GUARD; i++)
        if (guard[i] != POISON)
            return false;
    return true;
}

static void check(unsigned char *memory, size_t bytes)
{
    if (guard_whole(memory - GUARD) && guard_whole(memory + bytes))
        return;
    cod_emulated_fault("a write beside %zu bytes of memory", bytes);
    memset(memory - GUARD, POISON, GUARD);
    memset(memory + bytes, POISON, GUARD);
}

void cod_emulated_check_memory()
{
    for (const auto &[memory, allocation] : allocations)
        check(memory, allocation.bytes);
}

/** Of an allocation with its guards: pages of its own, so that they can be forbidden. */
static size_t whole_pages(size_t bytes)
{
    return (bytes + 2 * GUARD + PAGE - 1) / PAGE * PAGE;
}

static void protect_memory(int protection)
{
    for (const auto &[memory, allocation] : allocations)
        if (!allocation.pinned && mprotect(memory - GUARD, whole_pages(allocation.bytes), protection) != 0)
            abort();
}

static struct sigaction earlier;

/** A use of forbidden memory: it is told, and allowed. Anything else goes to whoever was there before. */
static void used_forbidden(int, siginfo_t *info, void *)
{
    const unsigned char *at = static_cast<const unsigned char *>(info->si_addr);
    for (const auto &[memory, allocation] : allocations) {
        if (!forbidden || at < memory - GUARD || at >= memory - GUARD + whole_pages(allocation.bytes))
            continue;
        cod_emulated_fault("memory is used before chain_wait() in a kernel with a programmatic edge: byte %td of %zu",
                           at - memory, allocation.bytes);
        cod_emulated_forbid_memory(false);
        return;
    }
    sigaction(SIGSEGV, &earlier, nullptr);
}

void cod_emulated_forbid_memory(bool forbid)
{
    if (forbid == forbidden)
        return;
    struct sigaction action = {};
    action.sa_sigaction = used_forbidden;
    action.sa_flags = SA_SIGINFO;
    if (forbid)
        sigaction(SIGSEGV, &action,
                  &earlier); /* each time: a test's framework has a handler of its own for each test */
    protect_memory(forbid ? PROT_NONE : PROT_READ | PROT_WRITE);
    if (!forbid)
        sigaction(SIGSEGV, &earlier, nullptr);
    forbidden = forbid;
}

bool cod_emulated_memory_forbidden()
{
    return forbidden;
}

static cudaError_t allocate(void **memory, size_t bytes, bool pinned)
{
    const locked hold(cod_emulated_lock);
    if (!pinned && bytes > whole_memory() - used_bytes)
        return cod_emulated_give(cudaErrorMemoryAllocation);
    const size_t whole = whole_pages(bytes);
    unsigned char *base = static_cast<unsigned char *>(aligned_alloc(PAGE, whole));
    if (base == nullptr)
        return cod_emulated_give(cudaErrorMemoryAllocation);
    memset(base, POISON, whole);
    *memory = base + GUARD;
    allocations[base + GUARD] = {bytes, pinned};
    used_bytes += pinned ? 0 : bytes;
    return cudaSuccess;
}

static cudaError_t release(void *pointer, bool pinned)
{
    const locked hold(cod_emulated_lock);
    cod_emulated_finish();
    unsigned char *memory = static_cast<unsigned char *>(pointer);
    if (memory == nullptr)
        return cudaSuccess;
    const auto found = allocations.find(memory);
    if (found == allocations.end() || found->second.pinned != pinned) {
        cod_emulated_fault("memory is freed that was not allocated so");
        return cod_emulated_give(cudaErrorInvalidValue);
    }
    check(memory, found->second.bytes);
    used_bytes -= pinned ? 0 : found->second.bytes;
    allocations.erase(found);
    free(memory - GUARD);
    return cudaSuccess;
}

/** Whether the range does not leave the allocation that it begins in; memory of the host that CUDA does not know is any. */
static bool range_inside(const void *pointer, size_t bytes)
{
    unsigned char *at = const_cast<unsigned char *>(static_cast<const unsigned char *>(pointer));
    auto after = allocations.upper_bound(at);
    if (after == allocations.begin())
        return true;
    const auto &[memory, allocation] = *--after;
    return at >= memory + allocation.bytes + GUARD || at + bytes <= memory + allocation.bytes;
}

cudaError_t cudaMalloc(void **memory, size_t bytes)
{
    return allocate(memory, bytes, false);
}

cudaError_t cudaFree(void *memory)
{
    return release(memory, false);
}

cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned)
{
    return allocate(memory, bytes, true);
}

cudaError_t cudaFreeHost(void *memory)
{
    return release(memory, true);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    const locked hold(cod_emulated_lock);
    *free_bytes = whole_memory() - used_bytes;
    *total_bytes = whole_memory();
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *target, int value, size_t bytes, cudaStream_t stream)
{
    return cod_emulated_queue(stream, nullptr, [=]() {
        if (!range_inside(target, bytes))
            return cudaErrorInvalidValue;
        memset(target, value, bytes);
        return cudaSuccess;
    });
}

cudaError_t cudaMemcpyAsync(void *target, const void *source, size_t bytes, cudaMemcpyKind, cudaStream_t stream)
{
    return cod_emulated_queue(stream, nullptr, [=]() {
        if (!range_inside(target, bytes) || !range_inside(source, bytes))
            return cudaErrorInvalidValue;
        memcpy(target, source, bytes);
        return cudaSuccess;
    });
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
    properties->totalGlobalMem = whole_memory();
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
