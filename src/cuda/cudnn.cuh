/**
 * @file
 * Convolutions by cuDNN's graph API: an op as cuDNN's descriptors (cudnn_graph.cu), the engines that can run it
 * (cudnn_engine.cu), and making them ready (cudnn_build.cu). Only where COD_HAVE_CUDNN is set.
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
    char *built;                   /**< the plan as text, of cudnn_engines_build_ahead(); NULL = there is none */
    size_t built_bytes;
};

/** What became of an engine that the heuristics named: taken, or the first rule that speaks against it. */
enum cudnn_rule {
    CUDNN_TAKEN,
    CUDNN_LISTED_BEFORE,
    CUDNN_UNREADABLE,
    CUDNN_NOT_DETERMINISTIC,
    CUDNN_SHORT_SUMS, /**< of less than f32 */
    CUDNN_TRANSFORMS, /**< FFT, Winograd */
    CUDNN_ROUNDS_F32, /**< to TF32 or less */
    CUDNN_RULES
};

/** The engines for an op; equal ops share one. */
struct cudnn_shape {
    cudnn_shape *next;
    char key[CUDA_KEY_BYTES];
    cudnn_bag bag;
    cudnn_engine engines[CUDNN_MOST_ENGINES];
    int count;
    int offered[CUDNN_RULES]; /**< how many, by what became of them */
};

/**
 * Lists the engines that the heuristics name and that may be used: such as give the same bits in each run, and whose
 * sums differ from ours in their order alone (no TF32, no transforms, no sums of less than f32). Without engines the
 * list is empty.
 *
 * @param wanted    name of the engine that will be taken: it is made from its name and alone in the list, since
 *                  heuristics take time in each process; where this cuDNN cannot make it, all are listed. NULL = all are
 * @param[out] out  new; cudnn_shape_destroy()
 */
COD_MUST_CHECK cod_status cudnn_shape_create(const cudnn_calls *calls, const cudnn_target *target, const cod_op *op,
                                             const char *key, const char *wanted, cudnn_shape **out);
void cudnn_shape_destroy(cudnn_shape *shape);

/** "12 engines: 5 taken, 4 listed before, 3 not deterministic": what the heuristics offered. */
void cudnn_shape_describe(const cudnn_shape *shape, char *text, size_t bytes);

/** Sets one of the two attributes, whichever the target has. */
void cudnn_set_target(cudnn_bag *bag, cudnnBackendDescriptor_t descriptor, const cudnn_target *target,
                      cudnnBackendAttributeName_t handle, cudnnBackendAttributeName_t properties);

/** Makes the engine ready to run, which may take seconds. */
COD_MUST_CHECK cod_status cudnn_engine_build(cudnn_shape *shape, const cudnn_target *target, int number);
/**
 * Builds the shape's engines on several threads, so that cudnn_engine_build() has little left to do. Each thread has a
 * handle of its own, because cuDNN's may not be shared, and leaves the plan as text, from which one for another handle
 * is made. Engines that cannot be built or written so are left as they are.
 *
 * @param op       the shape's
 * @param ordinal  the GPU; -1 = there is none, only `target->properties`
 * @param seconds  no further engine is begun after them
 */
void cudnn_engines_build_ahead(cudnn_shape *shape, const cod_op *op, const cudnn_target *target, int ordinal,
                               double seconds);

/** What a device keeps of cuDNN. */
struct cuda_cudnn {
    const cudnn_calls *calls;
    cudnn_target target;
    cudnn_shape *shapes;
};

#endif
