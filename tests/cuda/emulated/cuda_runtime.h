/**
 * @file
 * The part of CUDA's runtime that src/cuda uses, on the host: a GPU that is not there. Kernels run when they are
 * launched or shortly after (schedule.cpp), or later where the stream is captured or late (emulated.h); each thread of
 * a block is a fibre (emulated_warp.h).
 *
 * Memory lies between guards, and is poisoned (0xFF: NaN) where CUDA leaves it undefined. What a real device would not
 * forgive is a *fault*: cod_emulated_faults().
 */
#ifndef COD_TESTS_CUDA_RUNTIME_H
#define COD_TESTS_CUDA_RUNTIME_H

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <tuple>

#define CUDART_VERSION 13000

#define __global__ static
#define __device__ inline
#define __host__
#define __forceinline__ __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(bytes) alignas(bytes)
#define __restrict__ __restrict

struct dim3 {
    unsigned x = 1, y = 1, z = 1;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

/** Of the fibre that runs. */
extern dim3 threadIdx, blockIdx, blockDim, gridDim;

typedef enum cudaError {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInsufficientDriver = 35,
    cudaErrorInvalidDeviceFunction = 98,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidDevice = 101,
    cudaErrorNoKernelImageForDevice = 209,
    cudaErrorUnsupportedPtxVersion = 222,
    cudaErrorNotReady = 600,
    cudaErrorIllegalAddress = 700,
    cudaErrorLaunchTimeout = 702,
    cudaErrorAssert = 710,
    cudaErrorHardwareStackError = 714,
    cudaErrorIllegalInstruction = 715,
    cudaErrorMisalignedAddress = 716,
    cudaErrorInvalidAddressSpace = 717,
    cudaErrorInvalidPc = 718,
    cudaErrorLaunchFailure = 719,
    cudaErrorStreamCaptureUnsupported = 900,
    cudaErrorStreamCaptureInvalidated = 901
} cudaError_t;

typedef struct cod_emulated_stream *cudaStream_t;
typedef struct cod_emulated_event *cudaEvent_t;
typedef struct cod_emulated_graph *cudaGraph_t;
typedef struct cod_emulated_graph *cudaGraphExec_t;

enum cudaMemcpyKind {
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost = 2,
    cudaMemcpyDeviceToDevice = 3,
    cudaMemcpyDefault = 4
};
enum cudaStreamCaptureMode {
    cudaStreamCaptureModeGlobal,
    cudaStreamCaptureModeThreadLocal,
    cudaStreamCaptureModeRelaxed
};
enum { cudaStreamNonBlocking = 1, cudaEventDisableTiming = 2, cudaEventBlockingSync = 1, cudaHostAllocDefault = 0 };
enum cudaLaunchAttributeID { cudaLaunchAttributeProgrammaticStreamSerialization = 6 };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };

struct cudaLaunchAttribute {
    cudaLaunchAttributeID id;
    struct {
        int programmaticStreamSerializationAllowed;
    } val;
};

struct cudaLaunchConfig_t {
    dim3 gridDim, blockDim;
    size_t dynamicSmemBytes;
    cudaStream_t stream;
    cudaLaunchAttribute *attrs;
    unsigned numAttrs;
};

struct cudaUUID_t {
    char bytes[16];
};

struct cudaFuncAttributes {
    int binaryVersion, ptxVersion;
};

struct cudaDeviceProp {
    char name[256];
    cudaUUID_t uuid;
    int major, minor, multiProcessorCount;
    size_t totalGlobalMem, sharedMemPerBlockOptin;
};

const char *cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError();
cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int device);
cudaError_t cudaDriverGetVersion(int *version);
cudaError_t cudaRuntimeGetVersion(int *version);
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes);
cudaError_t cudaMalloc(void **memory, size_t bytes);
cudaError_t cudaFree(void *memory);
cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void *memory);
cudaError_t cudaMemsetAsync(void *target, int value, size_t bytes, cudaStream_t stream);
cudaError_t cudaMemcpyAsync(void *target, const void *source, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaDeviceSynchronize(void);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
/** By the host's clock: of events without cudaEventDisableTiming. */
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);

/** A kernel's launch; `chained`: with a programmatic edge from the kernel before it in its stream. */
struct cod_emulated_launch {
    dim3 grid, block;
    size_t shared_bytes;
    bool chained;
    const void *kernel;
    cudaStream_t stream;
};

/** A kernel with its arguments: not std::function, whose header and code each file with kernels would compile. */
struct cod_emulated_call {
    virtual ~cod_emulated_call() {}
    /** Of one thread. */
    virtual void run() const = 0;
};

template <typename... P> struct cod_emulated_call_of final : cod_emulated_call {
    void (*kernel)(P...);
    std::tuple<P...> arguments;
    template <typename... A>
    cod_emulated_call_of(void (*kernel_)(P...), const A &...arguments_) : kernel(kernel_), arguments(arguments_...)
    {
    }
    void run() const override { std::apply(kernel, arguments); }
};

/** Lets launches of a kernel have so much dynamic shared memory; without, 48 KiB are the most. */
cudaError_t cod_emulated_allow_shared(const void *kernel, int bytes);
/** Whether a GPU takes the launch, its grid, its blocks and their shared memory; else a fault. */
cudaError_t cod_emulated_may_launch(const cod_emulated_launch &launch);
/** Queues a kernel: it runs at once, or is recorded where the stream is captured. @param call  taken */
cudaError_t cod_emulated_queue_kernel(const cod_emulated_launch &launch, const cod_emulated_call *call);

template <typename... P, typename... A>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config, void (*kernel)(P...), A &&...arguments)
{
    cod_emulated_launch launch = {
        config->gridDim, config->blockDim, config->dynamicSmemBytes, false, reinterpret_cast<const void *>(kernel),
        config->stream};
    for (unsigned i = 0; i < config->numAttrs; i++)
        if (config->attrs[i].id == cudaLaunchAttributeProgrammaticStreamSerialization)
            launch.chained = config->attrs[i].val.programmaticStreamSerializationAllowed != 0;
    const cudaError_t error = cod_emulated_may_launch(launch);
    if (error != cudaSuccess)
        return error;
    return cod_emulated_queue_kernel(launch, new cod_emulated_call_of<P...>(kernel, arguments...));
}

/** What the kernels were compiled for: of all the same. */
cudaError_t cod_emulated_kernel_image(cudaFuncAttributes *attributes);

template <typename T> cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, T *)
{
    return cod_emulated_kernel_image(attributes);
}

template <typename T> cudaError_t cudaFuncSetAttribute(T *kernel, cudaFuncAttribute, int bytes)
{
    return cod_emulated_allow_shared(reinterpret_cast<const void *>(kernel), bytes);
}

#endif
