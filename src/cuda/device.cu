#include "cuda/library.cuh"
#include "cuda/tuner.cuh"

extern "C" {
#include "core/memory.h"
}

#include <cstdio>
#include <cstdlib>
#include <cstring>

enum { LEAST_CAPABILITY = 80, LEAST_DRIVER = 12000 };

cod_status cuda_status(cudaError_t error, const char *call, const char *file, int line)
{
    if (error == cudaSuccess)
        return COD_OK;
    cudaGetLastError(); /* said here, and not again by the next call */
    return cod_fail_at(error == cudaErrorMemoryAllocation ? COD_ERR_MEMORY : COD_ERR_BACKEND, file, line, "cuda",
                       "CUDA: %s: %s", call, cudaGetErrorString(error));
}

/** Fails with words for a user: no driver, one too old, no GPU, or one that this build has no code for. */
static cod_status find_gpu(int ordinal, int *out, cudaDeviceProp *properties)
{
    int driver = 0, count = 0;
    if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0)
        return cod_fail(COD_ERR_UNSUPPORTED, "there is no NVIDIA driver on this machine");
    if (driver < LEAST_DRIVER)
        return cod_fail(COD_ERR_UNSUPPORTED, "the NVIDIA driver is too old: it knows CUDA %d.%d, and %d.%d is needed",
                        driver / 1000, driver % 1000 / 10, LEAST_DRIVER / 1000, LEAST_DRIVER % 1000 / 10);
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error == cudaErrorNoDevice || (error == cudaSuccess && count == 0))
        return cod_fail(COD_ERR_UNSUPPORTED,
                        "there is no NVIDIA GPU that this process may use; CUDA_VISIBLE_DEVICES may hide it");
    COD_TRY(COD_CUDA(error));
    *out = ordinal % count;
    COD_TRY(COD_CUDA(cudaGetDeviceProperties(properties, *out)));
    const int capability = 10 * properties->major + properties->minor;
    if (capability < LEAST_CAPABILITY)
        return cod_fail(COD_ERR_UNSUPPORTED, "GPU %d, %s, has compute capability %d.%d; %d.%d or above is needed", *out,
                        properties->name, properties->major, properties->minor, LEAST_CAPABILITY / 10,
                        LEAST_CAPABILITY % 10);
    return COD_OK;
}

static void describe_gpu(cod_device *device, const cudaDeviceProp *properties)
{
    int driver = 0, runtime = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    snprintf(device->gpu, sizeof device->gpu,
             "%s, compute capability %d.%d, %d multiprocessors, %.1f GB; CUDA %d.%d, driver for %d.%d",
             properties->name, properties->major, properties->minor, properties->multiProcessorCount,
             1e-9 * static_cast<double>(properties->totalGlobalMem), runtime / 1000, runtime % 1000 / 10, driver / 1000,
             driver % 1000 / 10);
}

/** Programmatic edges: from compute capability 9.0 on, and in captures from CUDA 12.3 on. */
static bool can_chain(const cudaDeviceProp *properties)
{
    enum { LEAST_CHAINED_CAPABILITY = 90, LEAST_CHAINED_CUDA = 12030 };
    int driver = 0, runtime = 0;
    return 10 * properties->major + properties->minor >= LEAST_CHAINED_CAPABILITY &&
           cudaDriverGetVersion(&driver) == cudaSuccess && driver >= LEAST_CHAINED_CUDA &&
           cudaRuntimeGetVersion(&runtime) == cudaSuccess && runtime >= LEAST_CHAINED_CUDA;
}

static cod_status device_open(const cod_device_options *options, cod_device **out)
{
    int ordinal = 0;
    cudaDeviceProp properties;
    COD_TRY(cuda_tuner_check_mode());
    COD_TRY(find_gpu(options != nullptr ? options->ordinal : 0, &ordinal, &properties));
    COD_TRY(COD_CUDA(cudaSetDevice(ordinal)));
    cod_device *device = static_cast<cod_device *>(calloc(1, sizeof *device));
    COD_REQUIRE_MEMORY(device);
    device->ordinal = ordinal;
    device->no_autotune = options != nullptr && options->no_autotune;
    device->multiprocessors = properties.multiProcessorCount;
    device->shared_bytes = properties.sharedMemPerBlockOptin;
    device->chains = can_chain(&properties);
    describe_gpu(device, &properties);
    const cod_status status = COD_CUDA(cudaStreamCreateWithFlags(&device->stream, cudaStreamNonBlocking));
    if (status != COD_OK) {
        free(device);
        return status;
    }
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
    free(device);
}

static const char *device_describe(cod_device *device)
{
    char libraries[640];
    cuda_libraries_describe(libraries, sizeof libraries);
    snprintf(device->description, sizeof device->description, "GPU %d: %s; %s", device->ordinal, device->gpu,
             libraries);
    return device->description;
}

static bool device_supports(cod_device *, cod_dtype activation)
{
    return activation == COD_F32 || activation == COD_BF16 || activation == COD_S8;
}

static cod_status device_memory(cod_device *, size_t *free_bytes, size_t *total_bytes)
{
    return COD_CUDA(cudaMemGetInfo(free_bytes, total_bytes));
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
    cuda_chain_end(device);
    COD_TRY(memory_allocate(bytes, &memory));
    cod_status status = COD_CUDA(cudaMemsetAsync(memory, 0, bytes, device->stream));
    if (status == COD_OK) /* other queues may be the first to use it */
        status = COD_CUDA(cudaStreamSynchronize(device->stream));
    if (status != COD_OK)
        cudaFree(memory);
    else
        *out = memory;
    return status;
}

static cod_status buffer_create(cod_device *device, size_t bytes, cod_buffer **out)
{
    cuda_buffer *buffer = static_cast<cuda_buffer *>(calloc(1, sizeof *buffer));
    COD_REQUIRE_MEMORY(buffer);
    const cod_status status = cuda_memory_create(device, bytes, &buffer->memory);
    if (status != COD_OK) {
        free(buffer);
        return status;
    }
    buffer->base.bytes = bytes;
    *out = &buffer->base;
    return COD_OK;
}

static void buffer_destroy(cod_device *, cod_buffer *base)
{
    cuda_buffer *buffer = reinterpret_cast<cuda_buffer *>(base);
    if (buffer == nullptr)
        return;
    cudaFree(buffer->memory); /* waits for work that uses it */
    free(buffer);
}

static cod_status host_buffer_create(cod_device *, size_t bytes, cod_buffer **out)
{
    cuda_buffer *buffer = static_cast<cuda_buffer *>(calloc(1, sizeof *buffer));
    COD_REQUIRE_MEMORY(buffer);
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

cod_status cuda_plan_state(cod_plan *plan, size_t bytes)
{
    plan->state = calloc(1, bytes);
    COD_REQUIRE_MEMORY(plan->state);
    return COD_OK;
}

cod_status cuda_plan_memory(cod_plan *plan, size_t bytes)
{
    plan->bytes = bytes;
    return bytes > 0 ? cuda_memory_create(plan->device, bytes, &plan->memory) : COD_OK;
}

cod_status cuda_plan_write(const cod_plan *plan, void *target, const void *source, size_t bytes)
{
    const cudaStream_t stream = plan->device->stream;
    cuda_chain_end(plan->device);
    COD_TRY(COD_CUDA(cudaMemcpyAsync(target, source, bytes, cudaMemcpyHostToDevice, stream)));
    return COD_CUDA(cudaStreamSynchronize(stream));
}

static cuda_maker *maker_of(cod_op_kind kind)
{
    switch (kind) {
    case COD_OP_CONV2D:
    case COD_OP_CONV2D_BACKWARD_DATA:
    case COD_OP_CONV2D_BACKWARD_WEIGHTS:
    case COD_OP_LINEAR:
    case COD_OP_LINEAR_BACKWARD_DATA:
    case COD_OP_LINEAR_BACKWARD_WEIGHTS:
        return cuda_make_convolution;
    case COD_OP_NORM_TRAIN:
        return cuda_make_norm_train;
    case COD_OP_NORM_INFERENCE:
        return cuda_make_norm_inference;
    case COD_OP_NORM_BACKWARD:
        return cuda_make_norm_backward;
    case COD_OP_NORM_INFERENCE_BACKWARD:
        return cuda_make_norm_inference_backward;
    case COD_OP_FOLD_NORM:
        return cuda_make_fold_norm;
    case COD_OP_ACTIVATION:
        return cuda_make_activation;
    case COD_OP_ACTIVATION_BACKWARD:
        return cuda_make_activation_backward;
    case COD_OP_ADD:
        return cuda_make_add;
    case COD_OP_MEAN:
        return cuda_make_mean;
    case COD_OP_PIXEL_SHUFFLE:
        return cuda_make_pixel_shuffle;
    case COD_OP_PIXEL_UNSHUFFLE:
        return cuda_make_pixel_unshuffle;
    case COD_OP_RESIZE:
        return cuda_make_resize;
    case COD_OP_RESIZE_BACKWARD:
        return cuda_make_resize_backward;
    case COD_OP_POOL:
        return cuda_make_pool;
    case COD_OP_POOL_BACKWARD:
        return cuda_make_pool_backward;
    case COD_OP_LOSS:
        return cuda_make_loss;
    case COD_OP_GRAD_NORM:
        return cuda_make_grad_norm;
    case COD_OP_OPTIMISER:
        return cuda_make_optimiser;
    case COD_OP_EMA:
        return cuda_make_ema;
    case COD_OP_FILL:
        return cuda_make_fill;
    case COD_OP_TURN:
        return cuda_make_turn;
    default:
        return nullptr;
    }
}

static cod_status types_check(const cod_op *op)
{
    for (size_t i = 0; i < COD_OP_MAX_INPUTS + COD_OP_MAX_OUTPUTS; i++) {
        const cod_view *view = i < COD_OP_MAX_INPUTS ? &op->inputs[i] : &op->outputs[i - COD_OP_MAX_INPUTS];
        if (view->buffer != nullptr && view->dtype != COD_F32 && view->dtype != COD_BF16 && view->dtype != COD_I32)
            return cod_fail(COD_ERR_UNSUPPORTED, "no support for %s", cod_dtype_name(view->dtype));
    }
    return COD_OK;
}

void cuda_plan_clear(cod_plan *plan)
{
    cudaFree(plan->memory); /* waits for work that uses it */
    if (plan->clear != nullptr)
        plan->clear(plan);
    free(plan->state);
    plan->prepare = nullptr;
    plan->run = nullptr;
    plan->clear = nullptr;
    plan->state = plan->memory = nullptr;
    plan->bytes = 0;
    plan->packing = {};
}

static void plan_destroy(cod_plan *plan)
{
    if (plan == nullptr)
        return;
    cuda_plan_clear(plan);
    free(plan);
}

/** A plan of `count` ops by their maker. */
static cod_status plan_make(cod_device *device, const cod_op *op, size_t count, cuda_maker *make, cod_plan **out)
{
    cod_status status = COD_OK;
    for (size_t i = 0; i < count; i++)
        COD_TRY(cod_op_check(&op[i]));
    cod_plan *plan = static_cast<cod_plan *>(calloc(1, sizeof *plan + count * sizeof *op));
    COD_REQUIRE_MEMORY(plan);
    plan->device = device;
    plan->op = *op;
    plan->ops = reinterpret_cast<const cod_op *>(plan + 1);
    plan->op_count = count;
    memcpy(plan + 1, op, count * sizeof *op);
    for (size_t i = 0; i < count && status == COD_OK; i++)
        status = types_check(&op[i]);
    if (status == COD_OK)
        status = make != nullptr ? make(plan) : cod_fail(COD_ERR_UNSUPPORTED, "there is no kernel for it");
    if (status != COD_OK) {
        plan_destroy(plan);
        return cod_fail_prefix(status, "cuda: %s '%s'", cod_op_kind_name(op->kind),
                               op->name != nullptr ? op->name : "");
    }
    *out = plan;
    return COD_OK;
}

static cod_status plan_create(cod_device *device, const cod_op *op, cod_plan **out)
{
    return plan_make(device, op, 1, maker_of(op->kind), out);
}

static size_t op_fuses(cod_device *device, const cod_op *ops, size_t count)
{
    return cuda_gradients_fuse(device, ops, count);
}

static cod_status plan_create_fused(cod_device *device, const cod_op *ops, size_t count, cod_plan **out)
{
    if (count == 1)
        return plan_create(device, ops, out);
    COD_REQUIRE(count > 0 && cuda_gradients_fuse(device, ops, count) == count,
                "cuda: %zu ops from %s '%s' on are no fused plan; op_fuses() says how many are", count,
                count > 0 ? cod_op_kind_name(ops->kind) : "none", count > 0 && ops->name != nullptr ? ops->name : "");
    return plan_make(device, ops, count, cuda_make_gradients, out);
}

cod_status cuda_prepare_plans(cod_plan *const *plans, size_t count, cudaStream_t stream)
{
    if (count > 0)
        cuda_chain_end(plans[0]->device);
    for (size_t i = 0; i < count; i++)
        if (plans[i]->prepare != nullptr)
            COD_TRY(plans[i]->prepare(plans[i], stream));
    return cuda_pack_plans(plans, count, stream);
}

static cod_status plans_prepare(cod_device *device, cod_plan *const *plans, size_t count, cod_queue *queue)
{
    return cuda_prepare_plans(plans, count, cuda_stream(device, queue));
}

static cod_status plan_run(cod_plan *plan, cod_queue *queue)
{
    const cod_status status = plan->run(plan, cuda_stream(plan->device, queue));
    return status == COD_OK ? COD_OK
                            : cod_fail_prefix(status, "%s '%s'", cod_op_kind_name(plan->op.kind),
                                              plan->op.name != nullptr ? plan->op.name : "");
}

const cod_backend cod_cuda_backend = {
    .version = COD_BACKEND_VERSION,
    .name = "cuda",
    .open = device_open,
    .close = device_close,
    .describe = device_describe,
    .supports = device_supports,
    .memory = device_memory,
    .buffer_create = buffer_create,
    .buffer_destroy = buffer_destroy,
    .host_buffer_create = host_buffer_create,
    .host_buffer_destroy = host_buffer_destroy,
    .upload = upload,
    .download = download,
    .copy = copy,
    .plan_create = plan_create,
    .op_fuses = op_fuses,
    .plan_create_fused = plan_create_fused,
    .plans_prepare = plans_prepare,
    .plan_run = plan_run,
    .plan_destroy = plan_destroy,
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
};
