/**
 * @file
 * What the files of the CPU backend share: the device, the plan, and how work is divided among threads.
 */
#ifndef COD_CPU_INTERNAL_H
#define COD_CPU_INTERNAL_H

#include "core/backend.h"
#include "cpu/kernels_internal.h"
#include "cpu/onednn_internal.h"

/** Looks at plan->op, which is checked and copied already, and sets the plan's functions, state and scratch. */
typedef cod_status cpu_plan_constructor(cod_plan *plan);

/** One way to do a convolution. */
typedef struct cpu_candidate {
    const char *name;
    bool (*fits)(const cod_device *device, const cod_op *op);
    /** Where it fits: whether it is taken untimed; NULL = always. */
    bool (*preferred)(const cod_device *device, const cod_op *op);
    cpu_plan_constructor *create;
    bool adds_residual; /**< as it stores; others need a pass more */
} cpu_candidate;

typedef struct cpu_tuned cpu_tuned;

/** How long a plan's runs take, against what was expected when it was chosen. Zeroed = nobody looks. */
typedef struct cpu_watch {
    cpu_tuned *tuned; /**< borrowed from the device */
    int64_t runs;
    int timed;                    /**< runs in the window that goes on */
    double least_s;               /**< of its runs */
    double expected_s, counted_s; /**< what the device's sums have of this plan */
} cpu_watch;

struct cod_device {
    int threads;
    bool amx; /**< AMX may be used, because oneDNN has requested it from the kernel */
    bool native_bf16, native_int8;
    const cpu_kernels *kernels;
    cpu_onednn *onednn;
    char *scratch; /**< shared by all plans; grown by cpu_plan_need_scratch() only */
    size_t scratch_bytes;
    /** What passes between parts of a plan while it runs; shared by all plans, grown by cpu_device_need_between(). */
    cod_buffer between;
    const cpu_candidate *forced; /**< candidate forced for every convolution that it fits; NULL = none */
    bool no_autotune, tune_read, retimes_doubtful;
    cpu_tuned *tuned; /**< timings, of this run and of earlier ones */
    double tune_spent_s;
    void *trial_memory; /**< of the device's trials, until a plan runs in earnest */
    size_t trial_bytes;
    double watched_expected_s, watched_s; /**< sums over plans that are watched */
    cpu_pack *packs;                      /**< of its plans */
    char description[160];
};

struct cod_plan {
    cod_device *device;
    cod_op op;
    cod_status (*prepare)(cod_plan *plan); /**< NULL = nothing to do */
    cpu_pack *pack;                        /**< what prepare() renews where that is all it does; owned by `state` */
    cod_status (*run)(cod_plan *plan);
    void (*destroy)(void *state); /**< frees `state`; NULL = it is one block for cod_aligned_free() */
    void *state;
    cpu_watch watch;
};

/** @param[out] out  new; cpu_plan_destroy() */
COD_MUST_CHECK cod_status cpu_plan_create(cod_device *device, const cod_op *op, cpu_plan_constructor *construct,
                                          cod_plan **out);
/** NULL is fine. */
void cpu_plan_destroy(cod_plan *plan);

/** Makes the device's scratch at least this large; for constructors only. */
COD_MUST_CHECK cod_status cpu_device_need_scratch(cod_device *device, size_t bytes);
/** Makes the device's buffer `between` at least this large; for constructors only. */
COD_MUST_CHECK cod_status cpu_device_need_between(cod_device *device, size_t bytes);
COD_MUST_CHECK cod_status cpu_plan_need_scratch(cod_plan *plan, size_t bytes);

/** Allocates the plan's zeroed state. */
COD_MUST_CHECK cod_status cpu_plan_alloc_state(cod_plan *plan, size_t bytes);

/** A thread's part of the scratch memory, which follows the shared part. */
static inline char *cpu_thread_scratch(const cod_plan *plan, size_t shared_bytes, size_t thread_bytes, int thread)
{
    return plan->device->scratch + shared_bytes + (size_t)thread * thread_bytes;
}

/* Constructors. */
cod_status cpu_plan_convolution(cod_plan *plan); /**< chooses among the next ones, without a residual */
cod_status cpu_plan_conv(cod_plan *plan);        /**< by oneDNN; linear layers too */
cod_status cpu_plan_linear(cod_plan *plan);      /**< large layers on few rows by itself, others by cpu_plan_conv() */
cod_status cpu_plan_narrow(cod_plan *plan);
cod_status cpu_plan_winograd(cod_plan *plan);
cod_status cpu_plan_winograd4(cod_plan *plan); /**< of f32, in tiles of 4x4 outputs */
cod_status cpu_plan_strided(cod_plan *plan);   /**< of f32, with stride 2 */
cod_status cpu_plan_phased(cod_plan *plan);    /**< on AMX, with stride 2: forward and backward data */
cod_status cpu_plan_tiles(cod_plan *plan);     /**< weight gradients on AMX */
cod_status cpu_plan_columns(cod_plan *plan);   /**< weight gradients as one product; of linear layers, too */
/** By a plan that `construct` makes for the convolution without the shuffle, and a pass over its output. */
cod_status cpu_plan_shuffled(cod_plan *plan, cpu_plan_constructor *construct);
/** By a plan that `construct` makes for the convolution without the residual, and a pass that adds the residual. */
cod_status cpu_plan_added(cod_plan *plan, cpu_plan_constructor *construct);
bool cpu_shuffled_fits(const cod_device *device, const cod_op *op);
/** Whether cpu_plan_tiles() can do it. */
bool cpu_tiles_fits(const cod_device *device, const cod_op *op);
/** Whether cpu_plan_columns() can do it. */
bool cpu_columns_fits(const cod_device *device, const cod_op *op);
/** Whether cpu_plan_winograd() can do it. */
bool cpu_winograd_fits(const cod_device *device, const cod_op *op);
bool cpu_winograd4_fits(const cod_device *device, const cod_op *op);
/** Whether cpu_plan_strided() can do it. */
bool cpu_strided_fits(const cod_device *device, const cod_op *op);
/** Whether cpu_plan_phased() can do it. */
bool cpu_phased_fits(const cod_device *device, const cod_op *op);
/**
 * Number of columns of the second operand that cpu_kernels.product() computes at a time; store these columns side by
 * side.
 */
int64_t cpu_product_panel(const cod_device *device);
/** Whether cpu_plan_narrow() can compute it and should, because it has few channels on one side. */
bool cpu_narrow_fits(const cod_device *device, const cod_op *op);
cod_status cpu_plan_norm_train(cod_plan *plan);
cod_status cpu_plan_norm_apply(cod_plan *plan);
cod_status cpu_plan_norm_backward(cod_plan *plan);
cod_status cpu_plan_norm_inference_backward(cod_plan *plan);
cod_status cpu_plan_fold_norm(cod_plan *plan);
cod_status cpu_plan_activation(cod_plan *plan);
cod_status cpu_plan_activation_backward(cod_plan *plan);
cod_status cpu_plan_add(cod_plan *plan);
cod_status cpu_plan_mean(cod_plan *plan);
cod_status cpu_plan_shuffle(cod_plan *plan);
cod_status cpu_plan_turn(cod_plan *plan);
cod_status cpu_plan_resize(cod_plan *plan);
cod_status cpu_plan_pool(cod_plan *plan);
cod_status cpu_plan_pool_backward(cod_plan *plan);
cod_status cpu_plan_loss(cod_plan *plan);
cod_status cpu_plan_mix(cod_plan *plan);
cod_status cpu_plan_spectral_norm(cod_plan *plan);
cod_status cpu_plan_spectral_norm_backward(cod_plan *plan);
cod_status cpu_plan_grad_norm(cod_plan *plan);
cod_status cpu_plan_optimiser(cod_plan *plan);
cod_status cpu_plan_ema(cod_plan *plan);
cod_status cpu_plan_fill(cod_plan *plan);
cod_status cpu_plan_magnitudes(cod_plan *plan);
cod_status cpu_plan_ranges(cod_plan *plan);

/** Values that a CONV2D with attr.int8_range computes from its parameters when it is prepared. */
typedef struct cpu_int8 {
    float *factors; /**< [O] factors of the sums; not 0, so that the bias can be divided by them */
    float *bias;    /**< [O] the bias, divided by them */
    float slope;    /**< PReLU's, where it has one */
} cpu_int8;

/**
 * Fails with COD_ERR_UNSUPPORTED where the processor lacks the instructions.
 *
 * @param[out] out  new; cod_aligned_free()
 */
COD_MUST_CHECK cod_status cpu_int8_create(const cod_plan *plan, cpu_int8 **out);
/** Rounds the weights to whole numbers, OHWI; false where neither factors nor slope changed. */
bool cpu_int8_round(const cod_plan *plan, cpu_int8 *int8, float *integers);
/** The factor of x before rounding. */
float cpu_int8_input_factor(const cod_op *op);

/** Reads COD_CPU_CONVOLUTION; see cpu.h. */
COD_MUST_CHECK cod_status cpu_convolution_force(cod_device *device);

/**
 * The candidates for a convolution without a residual: `fitting` has room for CANDIDATES.
 *
 * @param[out] rule  the index of what is taken untimed
 */
size_t cpu_candidates_of(const cod_device *device, const cod_op *op, const cpu_candidate **fitting, size_t *rule);

/**
 * The fastest of the candidates, as known or timed.
 * @param[in,out] chosen  in: the choice by rule, which stays where timing has no evidence for another one, or no time
 */
COD_MUST_CHECK cod_status cpu_tune(cod_device *device, const cod_op *op, const cpu_candidate *const *candidates,
                                   size_t count, size_t *chosen);
void cpu_tune_clear(cod_device *device);

/**
 * Sums dy of a CONV2D_BACKWARD_WEIGHTS or LINEAR_BACKWARD_WEIGHTS over its pixels into db; uses 3 padded vectors at the
 * start of the scratch memory.
 */
void cpu_bias_gradient(const cod_plan *plan);

/** Chooses the instruction sets of the kernels and of oneDNN: the processor's, or that of COD_CPU_ISA; see cpu.h. */
COD_MUST_CHECK cod_status cpu_isa_choose(cpu_isa *kernels, cpu_isa *library);

/** Number of threads that OpenMP gives when asked for `wanted`; warns if it is fewer. */
int cpu_grant_threads(int wanted);

/**
 * Makes oneDNN take this many threads from now on; OpenMP's count belongs to the calling thread, so each entry sets it
 * anew.
 *
 * A primitive divides its work among the threads for which it was made; with fewer threads it would omit parts or wait
 * for ever. This function therefore fails with COD_ERR_ARGUMENT if the next team would be smaller.
 */
COD_MUST_CHECK cod_status cpu_use_threads(int threads);

/** Runs function(context, i, thread) for i = 0 … count-1 on the device's threads; each i exactly once. */
void cpu_parallel_for(const cod_device *device, int64_t count, void (*function)(void *context, int64_t i, int thread),
                      void *context);
/**
 * Pixels cut into chunks of a size that depends on the shape alone, so that sums over chunks, added in order, do not
 * depend on the number of threads. A chunk fits the second-level cache and is short enough for f32 partial sums.
 */
typedef struct cpu_chunks {
    int64_t pixels, size, count;
} cpu_chunks;

cpu_chunks cpu_chunks_of(int64_t pixels, int64_t channels);

static inline int64_t cpu_chunk_length(const cpu_chunks *chunks, int64_t i)
{
    const int64_t left = chunks->pixels - i * chunks->size;
    return left < chunks->size ? left : chunks->size;
}

/** Elements of a vector of C channels, padded so that kernels may read and write whole vectors. */
static inline int64_t cpu_padded(int64_t channels)
{
    return (channels + CPU_PAD - 1) / CPU_PAD * CPU_PAD;
}

static inline int64_t cpu_least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t cpu_greatest(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static inline bool cpu_present(const cod_view *view)
{
    return view->buffer != NULL;
}

/** Whether products can read this type directly. */
static inline bool cpu_multiplies(const cod_device *device, cod_dtype dtype)
{
    return dtype == COD_F32 || (dtype == COD_BF16 && device->kernels->dots_bf16);
}

static inline int64_t cpu_pixels(const cod_view *view)
{
    return view->shape.n * view->shape.h * view->shape.w;
}

static inline cpu_rows cpu_rows_of(const cod_view *view)
{
    if (!cpu_present(view))
        return (cpu_rows){0};
    return (cpu_rows){cod_view_host(view), view->pixel_stride, view->dtype == COD_BF16};
}

/** The rows from pixel `first` on. */
static inline cpu_rows cpu_rows_from(cpu_rows rows, int64_t first)
{
    if (rows.data != NULL)
        rows.data += first * rows.stride * (rows.bf16 ? 2 : 4);
    return rows;
}

/**
 * Several views of one shape as pixels × channels. If all are dense and channels do not matter, rows have 64 elements
 * (the last row may be shorter), which suits vectors better than 3 channels.
 */
typedef struct cpu_grid {
    int64_t pixels, channels;
    int64_t rest; /**< elements after the last whole row; 0 where rows are pixels */
} cpu_grid;

cpu_grid cpu_grid_of(const cod_view *const *views, size_t count, bool by_channel);

/** The views of a grid as rows: the view's own pixel stride, or the grid's row length where rows are not pixels. */
static inline cpu_rows cpu_grid_rows(const cpu_grid *grid, const cod_view *view)
{
    cpu_rows rows = cpu_rows_of(view);
    if (cpu_present(view) && view->shape.c != grid->channels)
        rows.stride = grid->channels;
    return rows;
}

/** The activation in the form that the kernels use. */
cpu_activation cpu_activation_of(const cod_op_attr *attr);

/** Fills slope[padded C] for the kernels: 1 for no activation, 0 for ReLU, the leak, or the learnt values. */
void cpu_fill_slope(float *slope, int64_t channels, const cod_op_attr *attr, const cod_view *learnt);

/** The activation alone, in the form that kernels use after a normalisation: fills vectors[3·padded C]. */
cpu_affine cpu_fill_activation(float *vectors, int64_t channels, const cod_op_attr *attr, const cod_view *learnt);

/** A CONV2D's bias (zeros where it has none) and activation, for cpu_biased_from(): fills vectors[4·padded C]. */
void cpu_fill_biased(float *vectors, int64_t channels, const cod_op *op);
/** Both as kernels take them, for the channels from `first` on. */
cpu_affine cpu_biased_from(const float *vectors, int64_t channels, int64_t first);

/** Copies a parameter vector into target[padded C]. */
void cpu_fill_vector(float *target, int64_t channels, const cod_view *source);

#endif
