/**
 * @file
 * Convolutions by cuDNN's graph API: an op as cuDNN's descriptors (cudnn_graph.cu), and the engines that can run it
 * (cudnn_engine.cu). Only where COD_HAVE_CUDNN is set.
 */
#ifndef COD_CUDA_CUDNN_CUH
#define COD_CUDA_CUDNN_CUH

#include "cuda/library.cuh"
#include "cuda/tuner.cuh"

/** Descriptors with one owner. The first call that fails is kept in `status`; those after it do nothing. */
struct cudnn_bag {
    const cudnn_calls *calls;
    cudnnBackendDescriptor_t *items;
    size_t count, room;
    cod_status status;
};

void cudnn_bag_clear(cudnn_bag *bag);
/** A new descriptor of the bag; NULL when that fails. */
cudnnBackendDescriptor_t cudnn_create(cudnn_bag *bag, cudnnBackendDescriptorType_t type);
void cudnn_set(cudnn_bag *bag, cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
               cudnnBackendAttributeType_t type, int64_t count, const void *values);
void cudnn_finalize(cudnn_bag *bag, cudnnBackendDescriptor_t descriptor, const char *what);

/**
 * What names tensors in a graph and in a plan's list of addresses. W: of a convolution's weights, and of their
 * gradient.
 */
enum cudnn_uid { CUDNN_X = 1, CUDNN_W, CUDNN_Y, CUDNN_BIAS, CUDNN_RESIDUAL, CUDNN_INNER };

/** Whether cuDNN can be asked for the op at all: types, activation and attributes; fails with COD_ERR_UNSUPPORTED. */
COD_MUST_CHECK cod_status cudnn_fits(const cod_op *op);

enum { CUDNN_MOST_OPERATIONS = 4 };

/**
 * The op's operations, without a device. Weights of CONV2D and CONV2D_BACKWARD_DATA are dense, in the type of the
 * activations.
 *
 * @param rounded_bias  the bias is in bf16, too: some engines take no other
 * @param[out] operations  borrowed from the bag
 * @return how many; less than 1 where the bag's status says why not
 */
int cudnn_describe(cudnn_bag *bag, const cod_op *op, bool rounded_bias,
                   cudnnBackendDescriptor_t operations[CUDNN_MOST_OPERATIONS]);

/** Where engines are to run: a handle, or the properties of a device that need not be there. */
struct cudnn_target {
    cudnnHandle_t handle;
    cudnnBackendDescriptor_t properties; /**< where `handle` is NULL */
};

enum { CUDNN_MOST_ENGINES = 48, CUDNN_ENGINES_PER_MODE = 8 };

/** An engine with its settings. */
struct cudnn_engine {
    /** "cudnn-eENGINE-kKNOB:VALUE…", the same in every process with this version; with a rounded bias "cudnn-b16-…" */
    char name[CUDA_NAME_BYTES];
    bool rounded_bias;
    cudnnBackendDescriptor_t config;
    cudnnBackendDescriptor_t plan; /**< NULL until cudnn_engine_build() */
    int64_t workspace_bytes;       /**< once built */
};

/** The engines for an op; equal ops share one. */
struct cudnn_shape {
    cudnn_shape *next;
    char key[CUDA_KEY_BYTES];
    cudnn_bag bag;
    cudnn_engine engines[CUDNN_MOST_ENGINES];
    int count;
};

/**
 * Lists the engines that the heuristics name and that may be used: such as give the same bits in each run, and whose
 * sums differ from ours in their order alone (no TF32, no transforms, no sums of less than f32). Without engines the
 * list is empty.
 *
 * @param wanted    name of the engine that will be taken: no further heuristics are asked once it is listed, as that
 *                  takes time in each process; NULL = all are
 * @param[out] out  new; cudnn_shape_destroy()
 */
COD_MUST_CHECK cod_status cudnn_shape_create(const cudnn_calls *calls, const cudnn_target *target, const cod_op *op,
                                             const char *key, const char *wanted, cudnn_shape **out);
void cudnn_shape_destroy(cudnn_shape *shape);

/** Makes the engine ready to run, which may take seconds. */
COD_MUST_CHECK cod_status cudnn_engine_build(cudnn_shape *shape, const cudnn_target *target, int number);

/** What a device keeps of cuDNN. */
struct cuda_cudnn {
    const cudnn_calls *calls;
    cudnn_target target;
    cudnn_shape *shapes;
};

#endif
