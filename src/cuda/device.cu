#include "cuda/library.cuh"
#include "cuda/nccl.cuh"
#include "cuda/tuner.cuh"
#include "cuda/view.cuh"

extern "C" {
#include "core/memory.h"
#include "core/trace.h"
}

#include <nvtx3/nvToolsExt.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

/**
 * The driver must know the runtime's major version: within one, CUDA promises that older drivers run newer runtimes.
 */
enum { LEAST_CAPABILITY = 70, LEAST_DRIVER = CUDART_VERSION / 1000 * 1000 };

#ifndef COD_CUDA_ARCHITECTURES
#define COD_CUDA_ARCHITECTURES "unknown architectures"
#endif

/** COD_CUDA_SYNC=1: the host waits for each plan. */
static bool waits_for_plans()
{
    const char *wanted = getenv("COD_CUDA_SYNC");
    return wanted != nullptr && strcmp(wanted, "1") == 0;
}

/** What a kernel made. Every later call has the error, too, and none may have caused it. */
static bool is_of_a_kernel(cudaError_t error)
{
    switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
        return true;
    default:
        return false;
    }
}

cod_status cuda_status(cudaError_t error, const char *call, const char *file, int line)
{
    const char *what = cudaGetErrorString(error);
    if (error == cudaSuccess)
        return COD_OK;
    cudaGetLastError(); /* said here, and not again by the next call */
    if (is_of_a_kernel(error))
        return cod_fail_at(COD_ERR_BACKEND, file, line, "cuda",
                           "CUDA: a kernel failed, and this process can do nothing more on the GPU: %s%s", what,
                           waits_for_plans() ? "" : "; COD_CUDA_SYNC=1 names the layer");
    return cod_fail_at(error == cudaErrorMemoryAllocation ? COD_ERR_MEMORY : COD_ERR_BACKEND, file, line, "cuda",
                       "CUDA: %s: %s", call, what);
}

/* Ranges that profilers show beside kernels. Without one a call of NVTX tests a pointer. */
static void cuda_range_begin(const char *name)
{
    nvtxRangePushA(name);
}

static void cuda_range_end(void)
{
    nvtxRangePop();
}

static cod_status driver_too_old(int driver)
{
    return cod_fail(
        COD_ERR_UNSUPPORTED,
        "the NVIDIA driver is too old: it supports CUDA up to %d.%d, and this build needs %d.%d; update the "
        "driver, or build with an older CUDA",
        driver / 1000, driver % 1000 / 10, LEAST_DRIVER / 1000, LEAST_DRIVER % 1000 / 10);
}

/** Fails with words for a user: no driver, one too old, or no GPU. */
static cod_status count_gpus(int *count)
{
    int driver = 0;
    if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0)
        return cod_fail(COD_ERR_UNSUPPORTED, "there is no NVIDIA driver on this machine");
    if (driver < LEAST_DRIVER)
        return driver_too_old(driver);
    const cudaError_t error = cudaGetDeviceCount(count);
    if (error == cudaErrorInsufficientDriver)
        return driver_too_old(driver);
    if (error == cudaErrorNoDevice || (error == cudaSuccess && *count == 0))
        return cod_fail(COD_ERR_UNSUPPORTED,
                        "there is no NVIDIA GPU that this process may use; CUDA_VISIBLE_DEVICES may hide it");
    return COD_CUDA(error);
}

/** Stands for all kernels: they are compiled for the same architectures. */
__global__ void probe() {}

/** Fails where this build has no code for the GPU. */
static cod_status check_architecture(int ordinal, const cudaDeviceProp *properties)
{
    cudaFuncAttributes attributes;
    const int capability = 10 * properties->major + properties->minor;
    if (capability < LEAST_CAPABILITY)
        return cod_fail(COD_ERR_UNSUPPORTED, "GPU %d, %s, has compute capability %d.%d; %d.%d or above is needed",
                        ordinal, properties->name, properties->major, properties->minor, LEAST_CAPABILITY / 10,
                        LEAST_CAPABILITY % 10);
    const cudaError_t error = cudaFuncGetAttributes(&attributes, probe);
    if (error != cudaErrorNoKernelImageForDevice && error != cudaErrorInvalidDeviceFunction &&
        error != cudaErrorUnsupportedPtxVersion)
        return COD_CUDA(error);
    cudaGetLastError();
    return cod_fail(COD_ERR_UNSUPPORTED,
                    "GPU %d, %s, has compute capability %d.%d, and this build has code for %s; build anew with "
                    "-DCMAKE_CUDA_ARCHITECTURES=%d%s",
                    ordinal, properties->name, properties->major, properties->minor, COD_CUDA_ARCHITECTURES, capability,
                    capability < 75 ? " and a CUDA 12 toolkit" : "");
}

/**
 * Programmatic edges: from compute capability 9.0 on, and in captures from CUDA 12.3 on. Kernels that were compiled for
 * less have no instruction to wait for those before them, whatever GPU runs them.
 */
static bool can_chain(const cudaDeviceProp *properties)
{
    enum { LEAST_CHAINED_CAPABILITY = 90, LEAST_CHAINED_CUDA = 12030 };
    const char *wanted = getenv("COD_CUDA_CHAIN");
    cudaFuncAttributes attributes;
    int driver = 0, runtime = 0;
    return (wanted == nullptr || strcmp(wanted, "0") != 0) &&
           10 * properties->major + properties->minor >= LEAST_CHAINED_CAPABILITY &&
           cudaFuncGetAttributes(&attributes, probe) == cudaSuccess &&
           attributes.ptxVersion >= LEAST_CHAINED_CAPABILITY && cudaDriverGetVersion(&driver) == cudaSuccess &&
           driver >= LEAST_CHAINED_CUDA && cudaRuntimeGetVersion(&runtime) == cudaSuccess &&
           runtime >= LEAST_CHAINED_CUDA;
}

/** GPU that cuda_use() or device_open() made the thread's. */
static thread_local int used_ordinal;

void cuda_use(const cod_device *device)
{
    if (used_ordinal != device->ordinal && cudaSetDevice(device->ordinal) == cudaSuccess)
        used_ordinal = device->ordinal;
}

static cod_status device_open(const cod_device_options *options, cod_device **out)
{
    int count = 0;
    cudaDeviceProp properties;
    COD_TRY(cuda_tuner_check_mode());
    COD_TRY(count_gpus(&count));
    const int ordinal = options != nullptr ? options->ordinal % count : 0;
    COD_TRY(COD_CUDA(cudaGetDeviceProperties(&properties, ordinal)));
    COD_TRY(COD_CUDA(cudaSetDevice(ordinal)));
    used_ordinal = ordinal;
    COD_TRY(check_architecture(ordinal, &properties));
    cod_device *device = static_cast<cod_device *>(calloc(1, sizeof *device));
    COD_REQUIRE_MEMORY(device);
    device->ordinal = ordinal;
    device->no_autotune = options != nullptr && options->no_autotune;
    device->capability = 10 * properties.major + properties.minor;
    device->multiprocessors = properties.multiProcessorCount;
    device->shared_bytes = properties.sharedMemPerBlockOptin;
    device->chains = can_chain(&properties);
    device->alone = waits_for_plans();
    cuda_describe_gpu(device, &properties, "/proc/driver/nvidia/version");
    const cod_status status = COD_CUDA(cudaStreamCreateWithFlags(&device->stream, cudaStreamNonBlocking));
    if (status != COD_OK) {
        free(device);
        return status;
    }
    cod_trace_set_ranges(cuda_range_begin, cuda_range_end);
    *out = device;
    return COD_OK;
}

static void device_close(cod_device *device)
{
    if (device == nullptr)
        return;
    cudaStreamSynchronize(device->stream);
    cuda_tuner_destroy(device->tuner);
    cudaStreamDestroy(device->stream);
    cudaFree(device->updated_copies);
    free(device);
}

static const char *device_describe(cod_device *device)
{
    char libraries[640];
    cuda_libraries_describe(libraries, sizeof libraries);
    const unsigned char *id = device->id;
    snprintf(device->description, sizeof device->description, "GPU %d (GPU-%02x%02x%02x%02x): %s; %s", device->ordinal,
             id[0], id[1], id[2], id[3], device->gpu, libraries);
    return device->description;
}

static bool device_supports(cod_device *, cod_dtype activation)
{
    return activation == COD_F32 || activation == COD_BF16 || activation == COD_S8 || activation == COD_U8;
}

static cod_status device_memory(cod_device *device, size_t *free_bytes, size_t *total_bytes)
{
    cuda_use(device);
    return COD_CUDA(cudaMemGetInfo(free_bytes, total_bytes));
}

static size_t device_allocated(cod_device *device)
{
    return device->allocated;
}

/** Says how much there was, beside what was asked for. */
static cod_status memory_allocate(size_t bytes, void **out)
{
    size_t free_bytes = 0, total_bytes = 0;
    const cudaError_t error = cudaMalloc(out, bytes > 0 ? bytes : 1);
    if (error != cudaErrorMemoryAllocation)
        return COD_CUDA(error);
    cudaGetLastError();
    cudaMemGetInfo(&free_bytes, &total_bytes);
    return cod_fail(COD_ERR_MEMORY, "the GPU is out of memory: %.1f MB are needed, %.1f of %.1f MB are free",
                    1e-6 * static_cast<double>(bytes), 1e-6 * static_cast<double>(free_bytes),
                    1e-6 * static_cast<double>(total_bytes));
}

cod_status cuda_memory_create(cod_device *device, size_t bytes, void **out)
{
    void *memory = nullptr;
    cuda_use(device);
    cuda_chain_end(device);
    COD_TRY(memory_allocate(bytes, &memory));
    cod_status status = COD_CUDA(cudaMemsetAsync(memory, 0, bytes, device->stream));
    COD_THEN(status, COD_CUDA(cudaStreamSynchronize(device->stream))); /* other queues may be the first to use it */
    if (status != COD_OK)
        cudaFree(memory);
    else
        *out = memory;
    return status;
}

cod_status cuda_memory_take(cod_device *device, size_t bytes, void **out)
{
    COD_TRY(cuda_memory_create(device, bytes, out));
    device->allocated += bytes;
    return COD_OK;
}

void cuda_memory_give(cod_device *device, void *memory, size_t bytes)
{
    device->allocated -= memory != nullptr ? bytes : 0;
    cudaFree(memory);
}

static cod_status buffer_create(cod_device *device, size_t bytes, cod_buffer **out)
{
    cuda_buffer *buffer = static_cast<cuda_buffer *>(calloc(1, sizeof *buffer));
    COD_REQUIRE_MEMORY(buffer);
    const cod_status status = cuda_memory_take(device, bytes, &buffer->memory);
    if (status != COD_OK) {
        free(buffer);
        return status;
    }
    buffer->base.bytes = bytes;
    *out = &buffer->base;
    return COD_OK;
}

static void buffer_destroy(cod_device *device, cod_buffer *base)
{
    cuda_buffer *buffer = reinterpret_cast<cuda_buffer *>(base);
    if (buffer == nullptr)
        return;
    cuda_memory_give(device, buffer->memory, base->bytes);
    free(buffer);
}

static void *buffer_address(cod_device *device, cod_buffer *base)
{
    if (cudaSetDevice(device->ordinal) == cudaSuccess) /* whatever a library made the thread's meanwhile */
        used_ordinal = device->ordinal;
    return reinterpret_cast<cuda_buffer *>(base)->memory;
}

static cod_status host_buffer_create(cod_device *device, size_t bytes, cod_buffer **out)
{
    cuda_buffer *buffer = static_cast<cuda_buffer *>(calloc(1, sizeof *buffer));
    COD_REQUIRE_MEMORY(buffer);
    cuda_use(device);
    const cod_status status = COD_CUDA(cudaHostAlloc(&buffer->memory, bytes > 0 ? bytes : 1, cudaHostAllocDefault));
    if (status != COD_OK) {
        free(buffer);
        return cod_fail_prefix(status, "%.1f MB of pinned memory", 1e-6 * static_cast<double>(bytes));
    }
    memset(buffer->memory, 0, bytes);
    buffer->base.host = buffer->memory;
    buffer->base.bytes = bytes;
    *out = &buffer->base;
    return COD_OK;
}

static void host_buffer_destroy(cod_device *, cod_buffer *base)
{
    cuda_buffer *buffer = reinterpret_cast<cuda_buffer *>(base);
    if (buffer == nullptr)
        return;
    cudaFreeHost(buffer->memory);
    free(buffer);
}

static cod_status range_of(const cod_buffer *base, size_t offset, size_t bytes, unsigned char **out)
{
    COD_REQUIRE(offset <= base->bytes && bytes <= base->bytes - offset,
                "%zu bytes from offset %zu on reach past a buffer of %zu", bytes, offset, base->bytes);
    *out = static_cast<unsigned char *>(reinterpret_cast<const cuda_buffer *>(base)->memory) + offset;
    return COD_OK;
}

static cod_status upload(cod_device *device, cod_queue *queue, cod_buffer *target, size_t offset, const void *source,
                         size_t bytes)
{
    unsigned char *memory = nullptr;
    cuda_chain_end(device);
    COD_TRY(range_of(target, offset, bytes, &memory));
    COD_TRY(COD_CUDA(cudaMemcpyAsync(memory, source, bytes, cudaMemcpyHostToDevice, cuda_stream(device, queue))));
    return COD_CUDA(cudaStreamSynchronize(cuda_stream(device, queue)));
}

/** What put() writes, among the kernel's parameters. */
struct put_words {
    uint32_t words[COD_PUT_BYTES / sizeof(uint32_t)];
};

__global__ void put_kernel(uint32_t *target, const put_words source, int count)
{
    for (int i = (int)threadIdx.x; i < count; i += (int)blockDim.x)
        target[i] = source.words[i];
}

static cod_status put(cod_device *device, cod_queue *queue, cod_buffer *target, size_t offset, const void *source,
                      size_t bytes)
{
    unsigned char *memory = nullptr;
    put_words words = {};
    COD_REQUIRE(bytes <= sizeof words && bytes % 4 == 0 && offset % 4 == 0, "put() of %zu bytes at offset %zu", bytes,
                offset);
    cuda_chain_end(device);
    COD_TRY(range_of(target, offset, bytes, &memory));
    memcpy(&words, source, bytes);
    return bytes == 0 ? COD_OK
                      : cuda_launch(cuda_stream(device, queue), put_kernel, 1, CUDA_THREADS, 0,
                                    reinterpret_cast<uint32_t *>(memory), words, static_cast<int>(bytes / 4));
}

static cod_status download(cod_device *device, cod_queue *queue, void *target, cod_buffer *source, size_t offset,
                           size_t bytes)
{
    unsigned char *memory = nullptr;
    cuda_chain_end(device);
    COD_TRY(range_of(source, offset, bytes, &memory));
    COD_TRY(COD_CUDA(cudaMemcpyAsync(target, memory, bytes, cudaMemcpyDeviceToHost, cuda_stream(device, queue))));
    return COD_CUDA(cudaStreamSynchronize(cuda_stream(device, queue)));
}

static cod_status copy(cod_device *device, cod_queue *queue, cod_buffer *target, size_t target_offset,
                       cod_buffer *source, size_t source_offset, size_t bytes)
{
    unsigned char *to = nullptr, *from = nullptr;
    cuda_chain_end(device);
    COD_TRY(cod_copy_check(target, target_offset, source, source_offset, bytes));
    COD_TRY(range_of(target, target_offset, bytes, &to));
    COD_TRY(range_of(source, source_offset, bytes, &from));
    return bytes == 0 ? COD_OK
                      : COD_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, cuda_stream(device, queue)));
}

cod_status cuda_memory_write(cod_device *device, void *target, const void *source, size_t bytes)
{
    cuda_use(device);
    cuda_chain_end(device);
    COD_TRY(COD_CUDA(cudaMemcpyAsync(target, source, bytes, cudaMemcpyHostToDevice, device->stream)));
    return COD_CUDA(cudaStreamSynchronize(device->stream));
}

const cod_backend cod_cuda_backend = {
    .version = COD_BACKEND_VERSION,
    .name = "cuda",
    .open = device_open,
    .close = device_close,
    .describe = device_describe,
    .supports = device_supports,
    .memory = device_memory,
    .allocated = device_allocated,
    .buffer_create = buffer_create,
    .buffer_destroy = buffer_destroy,
    .host_buffer_create = host_buffer_create,
    .host_buffer_destroy = host_buffer_destroy,
    .maps_host_buffers =
        true, /* with unified addresses, which every GPU here has, pinned memory is mapped where it is */
    .buffer_address = buffer_address,
    .upload = upload,
    .put = put,
    .download = download,
    .copy = copy,
    .plan_create = cuda_plan_create_single,
    .op_fuses = cuda_op_fuses,
    .plan_create_fused = cuda_plan_create_fused,
    .plans_prepare = cuda_plans_prepare,
    .plans_prepare_updated = cuda_plans_prepare_updated,
    .plan_run = cuda_plan_run,
    .plan_destroy = cuda_plan_destroy,
    .queue_create = cuda_queue_create,
    .queue_destroy = cuda_queue_destroy,
    .event_create = cuda_event_create,
    .event_record = cuda_event_record,
    .event_query = cuda_event_query,
    .event_wait = cuda_event_wait,
    .queue_wait = cuda_queue_wait,
    .event_destroy = cuda_event_destroy,
    .capture_begin = cuda_capture_begin,
    .capture_end = cuda_capture_end,
    .recording_run = cuda_recording_run,
    .recording_destroy = cuda_recording_destroy,
    .collective_name = nccl_name,
    .collective_create = nccl_create,
    .collective_destroy = nccl_destroy,
};
