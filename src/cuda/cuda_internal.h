/**
 * @file
 * What the files of the CUDA backend share: its objects, and how plans are made and launch kernels.
 *
 * Each kind of op has a *maker*, which examines a plan's op, chooses kernels, and sets what the plan runs. Fused
 * sequences of ops have makers, too (fused.cu). Each plan has its own memory for intermediate results of its kernels,
 * so plans of two queues never share it.
 */
#ifndef COD_CUDA_CUDA_INTERNAL_H
#define COD_CUDA_CUDA_INTERNAL_H

extern "C" {
#include "cuda/cuda.h"
}

#include <cuda_runtime.h>

/** A call of CUDA's runtime as a cod_status. */
#define COD_CUDA(call) cuda_status((call), #call, __FILE__, __LINE__)

struct cuda_tuner;
struct cuda_rounded;
struct cuda_scratch;
struct rounded_list;

struct cod_device {
    int ordinal, multiprocessors;
    int capability;      /**< 10·major + minor */
    size_t shared_bytes; /**< largest shared memory of a block */
    size_t allocated;    /**< bytes of existing buffers and of plans' memory */
    cudaStream_t stream; /**< the default queue */
    bool chains;         /**< whether launches may have programmatic edges */
    bool alone;          /**< the host waits for each plan, and nothing is recorded: an error has its plan's name */
    /** stream whose last work is a kernel to which the next kernel may have such an edge; NULL = none */
    cudaStream_t chain;
    bool no_autotune;
    cuda_tuner *tuner; /**< NULL until the first plan is tuned (tuner.cuh) */
    char gpu[448];     /**< name of the GPU, and its driver */
    /**
     * First bytes of the GPU's UUID, as in `nvidia-smi -L`, because processes that see only some GPUs number them
     * differently.
     */
    unsigned char id[4];
    char description[1280];
    cuda_rounded *rounded; /**< weights in bf16 that plans share (rounded.cuh) */
    /** list, in the device's memory, of the copies that updates write; NULL until one is needed */
    rounded_list *updated_copies;
    cuda_scratch *scratches; /**< scratch memory that weight gradients share (scratch.cuh) */
    uint64_t preparations;   /**< number of calls of plans_prepare() */
};

struct cod_queue {
    cod_device *device;
    cudaStream_t stream;
};

struct cod_event {
    cod_device *device;
    cudaEvent_t event;
};

struct cod_recording {
    cod_device *device;
    cudaGraphExec_t graph;
};

/** A buffer; callers see `base`, whose `host` is NULL except in pinned memory. */
struct cuda_buffer {
    cod_buffer base;
    void *memory;
};

struct cuda_pack_list;
typedef void cuda_pack_kernel(cuda_pack_list list);

/**
 * How plans_prepare() packs a plan's weights, in one launch with those of other plans by the same kernel (pack.cuh).
 */
struct cuda_packing {
    const void *how; /**< arguments of the kernels, in the device's memory; NULL = nothing to pack */
    cuda_pack_kernel *kernel;
    unsigned blocks;          /**< number of blocks of `kernel`, with CUDA_THREADS threads each */
    cuda_pack_kernel *scales; /**< kernel that runs before `kernel`, in blocks of a warp; NULL = none */
    unsigned scale_blocks;
};

struct cod_plan {
    cod_device *device;
    cod_op *ops; /**< [count] consecutive ops; one if nothing is fused */
    size_t count;
    char label[96]; /**< the op's kind and name, or the first one's of a fused sequence, for profilers and messages */
    cuda_packing packing;
    cod_status (*run)(const cod_plan *plan, cudaStream_t stream);
    void (*clear)(const cod_plan *plan); /**< releases members of `state` before it is freed; NULL = nothing to do */
    void *state;                         /**< host memory of the maker; free() */
    void *memory;                        /**< device memory, zeroed when the plan is made; NULL = none */
    size_t bytes;                        /**< of `memory` */
    cuda_rounded *rounded[2];            /**< weights and a bias that plans_prepare() rounds for it; NULL = none */
};

/** a / b, rounded up; of positive integers. */
template <typename A, typename B> static constexpr auto cuda_divide_up(A a, B b) -> decltype(a + b)
{
    return (a + b - 1) / b;
}

cod_status cuda_status(cudaError_t error, const char *call, const char *file, int line);

/**
 * Makes the device the calling thread's. Until a thread says otherwise that is GPU 0, and CUDA's runtime allocates on
 * the thread's device and launches into streams of that device alone. Functions of the backend that do either call it,
 * most of them by cuda_stream().
 */
void cuda_use(const cod_device *device);

/** The stream of a queue, or of the default queue, for work that the calling thread is about to queue. */
static inline cudaStream_t cuda_stream(const cod_device *device, const cod_queue *queue)
{
    cuda_use(device);
    return queue != nullptr ? queue->stream : device->stream;
}

/**
 * describe.cu: sets the device's `gpu` and `id`.
 *
 * @param driver_file  file with the version of the driver's kernel module, which is left out if it cannot be read.
 *                     cudaDriverGetVersion() gives only the CUDA version, which several drivers share
 */
void cuda_describe_gpu(cod_device *device, const cudaDeviceProp *properties, const char *driver_file);

/* queue.cu: the backend's functions of queues, events and captures. */
cod_status cuda_queue_create(cod_device *device, cod_queue **out);
void cuda_queue_destroy(cod_queue *queue);
cod_status cuda_event_create(cod_device *device, cod_event **out);
void cuda_event_destroy(cod_event *event);
cod_status cuda_event_record(cod_event *event, cod_queue *queue);
cod_status cuda_event_query(cod_event *event, bool *reached);
cod_status cuda_event_wait(cod_event *event);
cod_status cuda_queue_wait(cod_queue *queue, cod_event *event);
cod_status cuda_capture_begin(cod_device *device, cod_queue *queue);
cod_status cuda_capture_end(cod_device *device, cod_queue *queue, cod_recording **out);
cod_status cuda_recording_run(cod_recording *recording, cod_queue *queue);
void cuda_recording_destroy(cod_recording *recording);

/** Zeroed memory of the host for the maker's choices. */
COD_MUST_CHECK cod_status cuda_plan_state(cod_plan *plan, size_t bytes);
/** Allocates device memory for intermediate results of the plan's kernels; to be called once, by the maker. */
COD_MUST_CHECK cod_status cuda_plan_memory(cod_plan *plan, size_t bytes);
/** Undoes the work of a maker, so that another maker can be tried. Waits for queued work of the plan. */
void cuda_plan_clear(cod_plan *plan);
/** Zeroed memory of the device; cudaFree(). */
COD_MUST_CHECK cod_status cuda_memory_create(cod_device *device, size_t bytes, void **out);
/** The same, counted as the device's; cuda_memory_give() ends it, and waits for work that uses it. */
COD_MUST_CHECK cod_status cuda_memory_take(cod_device *device, size_t bytes, void **out);
void cuda_memory_give(cod_device *device, void *memory, size_t bytes);
/** Waits until it is written. */
COD_MUST_CHECK cod_status cuda_memory_write(cod_device *device, void *target, const void *source, size_t bytes);
/** Writes a part of the plan's memory, which kernels then only read; by the maker. Waits until it is written. */
COD_MUST_CHECK cod_status cuda_plan_write(const cod_plan *plan, void *target, const void *source, size_t bytes);

/**
 * pack.cu: implements plans_prepare(). Queues the packing of all plans that need it, with one launch for each packing
 * kernel, and the rounding of weights.
 *
 * @param updated  see plans_prepare_updated()
 */
COD_MUST_CHECK cod_status cuda_pack_plans(cod_plan *const *plans, size_t count, bool updated, cudaStream_t stream);
/**
 * rounded.cu: rounds the weights that the plans read in bf16, once for all plans that share them, except those that an
 * update has written.
 */
COD_MUST_CHECK cod_status cuda_rounded_prepare(cod_plan *const *plans, size_t count, bool updated, cudaStream_t stream);
/** rounded.cu: frees the copies that no other plan uses. */
void cuda_rounded_release(cod_plan *plan);

typedef cod_status cuda_maker(cod_plan *plan);
cuda_maker cuda_make_convolution;
/** Makes a plan of the weight gradients of several layers that cuda_gradients_fuse() combines, or of one layer. */
cuda_maker cuda_make_gradients;
/**
 * 2 if the first two ops are a product and a following activation, or an activation's gradient, that can be one plan;
 * else 1.
 */
size_t cuda_joined_fuses(const cod_device *device, const cod_op *ops, size_t count);
cuda_maker cuda_make_joined;
/** Number of ops, from the first on, that are weight gradients and can be one plan; see op_fuses(). */
size_t cuda_gradients_fuse(const cod_device *device, const cod_op *ops, size_t count);
cuda_maker cuda_make_norm_train, cuda_make_norm_inference, cuda_make_norm_backward, cuda_make_norm_inference_backward,
    cuda_make_fold_norm;
cuda_maker cuda_make_norm_statistics, cuda_make_norm_apply, cuda_make_norm_backward_reduce,
    cuda_make_norm_backward_apply;
cuda_maker cuda_make_activation, cuda_make_activation_backward, cuda_make_add, cuda_make_fill, cuda_make_mean;
cuda_maker cuda_make_spectral_norm, cuda_make_spectral_norm_backward;
cuda_maker cuda_make_turn, cuda_make_mix, cuda_make_pixel_shuffle, cuda_make_pixel_unshuffle, cuda_make_resize,
    cuda_make_resize_backward, cuda_make_pool, cuda_make_pool_backward;
cuda_maker cuda_make_quantise, cuda_make_dequantise, cuda_make_magnitudes, cuda_make_ranges;
cuda_maker cuda_make_loss, cuda_make_grad_norm, cuda_make_optimiser, cuda_make_ema;

/** Fails with a message for users unless the kernels support the types of all views that are present. */
COD_MUST_CHECK cod_status cuda_types_check(const cod_op *op);
/** Makes a plan of `count` ops; `what` names the plan in messages. */
COD_MUST_CHECK cod_status cuda_plan_create(cod_device *device, const cod_op *ops, size_t count, cuda_maker *make,
                                           const char *what, cod_plan **out);

/* plan.cu: the backend's functions of plans. */
cod_status cuda_plan_create_single(cod_device *device, const cod_op *op, cod_plan **out);
cod_status cuda_plans_prepare(cod_device *device, cod_plan *const *plans, size_t count, cod_queue *queue);
cod_status cuda_plans_prepare_updated(cod_device *device, cod_plan *const *plans, size_t count, cod_queue *queue);
cod_status cuda_plan_run(cod_plan *plan, cod_queue *queue);
void cuda_plan_destroy(cod_plan *plan);

/**
 * Number of ops, from the first on, that a kernel can run as one; 1 = it cannot combine any. Reads no buffer: only
 * kinds, attributes, shapes, types, strides and which views are equal or present count.
 */
typedef size_t cuda_recogniser(const cod_device *device, const cod_op *ops, size_t count);
/* conv3.cu */
cuda_recogniser cuda_conv3_fuses;
cuda_maker cuda_make_conv3;

/* fused.cu: the backend's functions of fused plans. */
size_t cuda_op_fuses(cod_device *device, const cod_op *ops, size_t count);
cod_status cuda_plan_create_fused(cod_device *device, const cod_op *ops, size_t count, cod_plan **out);

/**
 * Allows a kernel this much dynamic shared memory; without this call the limit is 48 KiB. The last limit applies to all
 * plans that run the kernel; if their sizes differ, set the device's limit.
 */
template <typename... P> COD_MUST_CHECK cod_status cuda_allow_shared(void (*kernel)(P...), size_t bytes)
{
    return COD_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
}

/**
 * Queues a kernel. It starts when all earlier work of the stream is done.
 *
 * @param threads       of a block, a multiple of 32
 * @param shared_bytes  of dynamic shared memory; above 48 KiB only after cuda_allow_shared()
 */
template <typename... P, typename... A>
COD_MUST_CHECK cod_status cuda_launch(cudaStream_t stream, void (*kernel)(P...), dim3 blocks, unsigned threads,
                                      size_t shared_bytes, const A &...arguments)
{
    cudaLaunchConfig_t config = {};
    config.gridDim = blocks;
    config.blockDim = dim3(threads, 1, 1);
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    return COD_CUDA(cudaLaunchKernelEx(&config, kernel, P(arguments)...));
}

/**
 * The same with a programmatic edge, for a kernel that calls chain_wait(): it may start as soon as the kernel before it
 * in the stream releases it. The first kernel after a cuda_chain_end() gets no such edge, and starts when all earlier
 * work is done. So cuda_chain_end() is called whenever work other than a kernel is queued, and at packing: kernels may
 * read packed weights before chain_wait().
 */
template <typename... P, typename... A>
COD_MUST_CHECK cod_status cuda_launch_chained(cod_device *device, cudaStream_t stream, void (*kernel)(P...),
                                              dim3 blocks, unsigned threads, size_t shared_bytes, const A &...arguments)
{
    cudaLaunchAttribute edge = {};
    edge.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    edge.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = blocks;
    config.blockDim = dim3(threads, 1, 1);
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    config.attrs = &edge;
    config.numAttrs = device->chain == stream && stream != nullptr ? 1 : 0;
    device->chain = device->chains ? stream : nullptr;
    return COD_CUDA(cudaLaunchKernelEx(&config, kernel, P(arguments)...));
}

/** Makes the next kernel of any stream wait for all earlier work. */
static inline void cuda_chain_end(cod_device *device)
{
    device->chain = nullptr;
}

#endif
