/**
 * @file
 * The backend contract: what a device must offer so that compiled programs run on it. Device-neutral.
 *
 * A backend turns op descriptors into plans once, and then only runs plans. Running is asynchronous: plans_prepare(),
 * plan_run(), copy() and recording_run() return as soon as the work is queued. Work of one queue runs in order; work of
 * two queues is ordered by events alone, even if one of them is the default queue. A plan may not allocate, and may not
 * depend on the host's state when it runs, so that a list of plans can be captured once and replayed. (CPU backends run
 * at once; they leave out queues, events and captures, and core/queue.h makes that invisible to callers.)
 *
 * The host blocks in event_wait(), upload() and download(), and when a queue, a plan or a buffer is destroyed before
 * its work is done. After queued work has failed, every later event_query(), event_wait(), upload() and download() of
 * its device fails with the same reason. One thread at a time may use a device; event_query() and event_wait() may be
 * called from any thread.
 *
 * Gradients of an op are separate ops. An op with `accumulate` set adds to its gradient outputs instead of overwriting
 * them; the table below marks these outputs.
 */
#ifndef COD_CORE_BACKEND_H
#define COD_CORE_BACKEND_H

#include "core/tensor.h"

/**
 * x, y: forward input and output; dx, dy, …: gradients of the loss with respect to x, y, …; [name] may be absent
 * (view.buffer == NULL). Parameters (w, b, gamma, …), statistics and their gradients have the *parameter type* (f32;
 * f64 in f64 programs); activations and their gradients each have the view's own dtype, so a plan converts as it reads
 * and writes. A view marked + is read and written. Outputs in bold print (*) obey `accumulate`.
 *
 * kind                     inputs                                      outputs
 * CONV2D                   x, w, [b], [slope], [residual], [range f32 {1}]  y = activation(conv(x, w) + b) [+ residual]
 * CONV2D_BACKWARD_DATA     dy, w                                       dx*
 * CONV2D_BACKWARD_WEIGHTS  x, dy                                       dw*, [db*]
 * LINEAR                   x {N,1,1,I}, w {O,1,1,I}, [b], [slope]      y {N,1,1,O} = activation(x wᵀ + b)
 * LINEAR_BACKWARD_DATA     dy, w                                       dx*
 * LINEAR_BACKWARD_WEIGHTS  x, dy                                       dw*, [db*]
 * NORM_TRAIN               x, gamma, beta, [slope], [residual]         y, mean, inv_std, [running_mean+, running_var+]
 * NORM_INFERENCE           x, gamma, beta, mean, var, [slope], [residual]  y
 * NORM_BACKWARD            x, dy, gamma, beta, mean, inv_std, [slope]  dx*, dgamma*, dbeta*, [dslope*]
 * NORM_INFERENCE_BACKWARD  x, dy, gamma, beta, mean, var, [slope]      dx*
 * NORM_STATISTICS          x                                           mean, inv_std, [running_mean+, running_var+]
 * NORM_APPLY               x, gamma, beta, mean, inv_std, [slope], [residual]  y
 * NORM_BACKWARD_REDUCE     x, dy, gamma, beta, mean, inv_std, [slope]  [g], sums {1,1,2,C}, dgamma*, dbeta*, [dslope*]
 * NORM_BACKWARD_APPLY      x, g, gamma, mean, inv_std, sums            dx*
 * FOLD_NORM                w, [b], gamma, beta, mean, var              w', b'
 * ACTIVATION               x, [slope]                                  y
 * ACTIVATION_BACKWARD      x (PRELU) or y (the others), dy, [slope]    dx*, [dslope*]
 * ADD                      a, [b]                                      y* = alpha·a + beta·b     (without b: scale, copy, cast)
 * MEAN                     x                                           y* {x's shape}: at each pixel its channel's mean over N, H, W
 * PIXEL_SHUFFLE            x {N,H,W,C·r²}                              y {N,rH,rW,C}, y[ry+i, rx+j, c] = x[y, x, c·r² + i·r + j]
 * PIXEL_UNSHUFFLE          dy                                          dx*
 * RESIZE                   x                                           y {N,fH,fW,C}
 * RESIZE_BACKWARD          dy                                          dx*
 * POOL                     x                                           y, [index i32 {y's shape}: position in the window, max only]
 * POOL_BACKWARD            dy, [index]                                 dx*
 * LOSS                     prediction, target, [weight f32 {1}]        value f32 {1}, [dprediction*], [dtarget*]
 * GRAD_NORM                grad                                        norm {1}, the Euclidean norm
 * OPTIMISER                grad, scalars f32 {4}, [norm], [state]      param+, [m+], [v+], [ema+], [ema_state] = state
 * EMA                      param, scalars f32 {1}: decay               ema+ = decay·ema + (1-decay)·param
 * FILL                                                                 y = alpha
 * TURN                     x {N,H,W,C}, turns i32 [N], [table f32 {1,1,256,C}]  y {x's shape}: picture n of x, turned by turns[n]
 * MIX                      x {N,1,1,K}, share f32 {1}                  y+ {x's shape}, logits of a mean of two predictions
 * SPECTRAL_NORM            w {O,KH,KW,I}, u {O}                        y {w's shape}, sigma {1}, u' {O}, v {1,KH,KW,I}
 * SPECTRAL_NORM_BACKWARD   dy, y, sigma, u', v                         dw*
 * QUANTISE                 x f32 {1,1,1,V}, plan u8 {1,1,K,32}, [reference f32 {1,1,1,V}]  heads u8 {1,1,K,32}, payloads u8 {1,1,K,R}, y f32 {1,1,1,V}
 * DEQUANTISE               heads u8 {1,1,K,32}, payloads u8 {1,1,1,B}, [reference f32 {1,1,1,V}]  y f32 {1,1,1,V}, prints u8 {1,1,K,8}
 * MAGNITUDES               x                                           counts i32 {1,1,1,32768}*
 * RANGES                   counts i32 {1,L,1,32768}                    ranges f32 {1,1,1,L}
 *
 * CONV2D with attr.int8_range = r > 0 rounds x and w to integers in -127 … 127 (to nearest even, in f32, clamped; NaN
 * in x counts as 0) and sums them exactly: y = activation(f·Σ round(127/r·x)·round(127/a·w) + b) [+ residual] with f =
 * r/127·a/127, a the output channel's largest |w|; if f < 1e-30, the channel's w count as zeros; if one of its w is not
 * finite, its y is NaN. If `range` is present, r is the value in it (> 0), which may change between runs; if that value
 * is NaN, all sums are NaN. Backends with supports(device, COD_S8) have this.
 *
 * CONV2D and its gradients with attr.factor = r > 1 have the output's pixels shuffled, as PIXEL_SHUFFLE does it: w
 * {C·r²,KH,KW,I}, b {C·r²}, y {N,rP,rQ,C}, slope 1 or C.
 *
 * NORM_* normalise each channel over N, H, W: y = activation(gamma·(x-mean)·inv_std + beta) [+ residual], inv_std =
 * 1/sqrt(var + epsilon) with the biased variance; running statistics, if both are given, move by `momentum` toward the
 * batch's, with the unbiased variance (as in PyTorch). NORM_INFERENCE takes the running statistics as mean and var, and
 * its gradient treats them as constants. The gradient of a fused activation recomputes the pre-activation from x, mean,
 * inv_std, gamma and beta; the residual's gradient is dy. Slopes (PReLU) have 1 or C elements. Gradients at zero: the
 * ReLU family passes only x > 0, L1 gives zero, and max pooling passes to the first maximum.
 *
 * NORM_STATISTICS followed by NORM_APPLY equals NORM_TRAIN, and NORM_BACKWARD_REDUCE followed by NORM_BACKWARD_APPLY
 * equals NORM_BACKWARD. They are separate ops so that each half can be fused with a neighbouring convolution.
 * NORM_APPLY with the statistics that NORM_TRAIN stored gives the same bits of y, so that the backward pass can compute
 * y again. Every backend has NORM_APPLY; backends with op_fuses() have the other halves, too. With x^ =
 * (x-mean)·inv_std and M = N·H·W: g is the gradient at gamma·x^ + beta, which is dy times the activation's derivative;
 * sums has the batch's sum of g in row 0 and of g·x^ in row 1 (whatever `accumulate` says, which concerns dgamma, dbeta
 * and dslope alone); dx = gamma·inv_std·(g - sums[0]/M - x^·sums[1]/M). Without an activation g equals dy and may be
 * absent. g may also be the view dy: the op then works in place.
 *
 * MEAN is a symmetric map: its gradient is dx = MEAN(dy).
 *
 * These ops may work in place: ADD may have the view a as y, ACTIVATION the view x as y, and ACTIVATION_BACKWARD the
 * view dy as dx.
 *
 * LOSS targets have the prediction's shape. For CROSS_ENTROPY the prediction is logits {N,1,1,K}, the target t
 * probabilities, such as one-hot rows, and the value is the mean over N of the sum over K of -t'·log
 * softmax(prediction), t' = (1-s)·t + s/K with s = attr.smoothing (Szegedy et al. 2016). For KL both are logits
 * {N,1,1,K}, and the value is T²·mean over N of sum over K of p_target·(log p_target - log p_prediction), p =
 * softmax(logits / T) (Hinton et al. 2015).
 *
 * CHARBONNIER is mean of sqrt(d² + epsilon²). BCE is the binary cross entropy of logits x and probabilities t in 0 … 1:
 * max(x, 0) - x·t + log(1 + e^-|x|), as PyTorch's BCEWithLogitsLoss. HINGE is max(0, 1 - t·x) with labels t = -1 or 1;
 * its gradients are 0 where t·x = 1. TV is the anisotropic total variation (Rudin, Osher & Fatemi 1992) of a prediction
 * {N,H,W,C}, without a target: the mean of |x[h+1] - x[h]| over N·(H-1)·W·C elements plus the mean of |x[w+1] - x[w]|
 * over N·H·(W-1)·C, as in BasicSR's WeightedTVLoss. If H or W is 1, the mean over no elements counts as 0. The gradient
 * of |0| is 0. All losses are means (over all elements, or over N for CROSS_ENTROPY and KL). `value` is the loss
 * without weights; dprediction and dtarget are scaled by alpha and `weight`. dtarget is the derivative with respect to
 * the target as given (CROSS_ENTROPY: t, not t'; KL: logits). dprediction and dtarget must be different tensors.
 *
 * TURN takes the bits of cod_turn and ignores all others; x and y must be different tensors. With a table, x holds
 * bytes (u8), and each byte b of channel c counts as table[b, c]; only backends with supports(device, COD_U8) have
 * tables.
 *
 * QUANTISE and DEQUANTISE, which a backend may lack, turn ranges of values into plain chunks and back; the chunks'
 * headers name the ranges. All views are dense. Results are equal to the bit on every backend, and equal to the codec's
 * (codec/codec.h). Each header of `plan` has the chunk's first value, its count, and how to code it; attr.quality_db
 * and rounding are of coding STEP. R is 4 times the largest count + 16 at least; payload k of QUANTISE begins at byte
 * k·R, that of DEQUANTISE at the byte, divisible by 16, that header k has in the place of its checksum. y holds the
 * values that the chunks decode to. STEP may code the difference to `reference`, which may be the same view as y. A
 * header of `heads`, or the 8 bytes of `prints`, is COD_FINGERPRINT_NONE if a value of y is not finite. DEQUANTISE
 * trusts its headers and payloads, which cod_codec_open() has checked. Only these views may have the type u8.
 *
 * MAGNITUDES counts, as unsigned numbers, how many elements of x have each magnitude: element m of `counts` counts the
 * elements whose |x|, rounded to the nearest bf16 (ties to even), has the bits m. Zeros are not counted; NaN and values
 * that round to infinity count as infinite (0x7F80). RANGES gives the range for CONV2D of each row of counts, by the
 * rule of core/int8_range.h: NaN if an element was not finite, 1 if all were zeros, otherwise above 0. Backends with
 * supports(device, COD_S8) have both ops, with equal bits.
 *
 * MIX replaces logits y by the logits of a mixture: y = T·log((1 - share)·softmax(y / T) + share·softmax(x / T)), T =
 * attr.temperature, so that softmax(y / T), which KL compares with, is the weighted mean of both predictions.
 *
 * SPECTRAL_NORM divides a weight by its largest singular value, as one step of the power iteration estimates it (Miyato
 * et al. 2018, algorithm 1): with W the matrix {O, KH·KW·I}, v = Wᵀu / |Wᵀu|, sigma = |W v|, u' = W v / sigma, y = w /
 * sigma; lengths below 1e-12 count as 1e-12. u' may be the view u: the op then updates it. The gradient treats u' and v
 * as constants, as PyTorch's spectral_norm does: dw = (dy - sum(dy·y)·u' vᵀ) / sigma.
 *
 * OPTIMISER scalars: learning rate, 1 - beta1^t, 1 - beta2^t, decay; where `norm` is given and attr.max_norm > 0,
 * gradients are first scaled by min(1, max_norm / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_. ema = decay·ema +
 * (1-decay)·param is of the updated parameter and has the bits that EMA gives. `state` holds running statistics, which
 * are averages already and are copied to ema_state; both are given or neither.
 */
typedef enum cod_op_kind {
    COD_OP_CONV2D,
    COD_OP_CONV2D_BACKWARD_DATA,
    COD_OP_CONV2D_BACKWARD_WEIGHTS,
    COD_OP_LINEAR,
    COD_OP_LINEAR_BACKWARD_DATA,
    COD_OP_LINEAR_BACKWARD_WEIGHTS,
    COD_OP_NORM_TRAIN,
    COD_OP_NORM_INFERENCE,
    COD_OP_NORM_BACKWARD,
    COD_OP_NORM_INFERENCE_BACKWARD,
    COD_OP_NORM_STATISTICS,
    COD_OP_NORM_APPLY,
    COD_OP_NORM_BACKWARD_REDUCE,
    COD_OP_NORM_BACKWARD_APPLY,
    COD_OP_FOLD_NORM,
    COD_OP_ACTIVATION,
    COD_OP_ACTIVATION_BACKWARD,
    COD_OP_ADD,
    COD_OP_MEAN,
    COD_OP_PIXEL_SHUFFLE,
    COD_OP_PIXEL_UNSHUFFLE,
    COD_OP_RESIZE,
    COD_OP_RESIZE_BACKWARD,
    COD_OP_POOL,
    COD_OP_POOL_BACKWARD,
    COD_OP_LOSS,
    COD_OP_GRAD_NORM,
    COD_OP_OPTIMISER,
    COD_OP_EMA,
    COD_OP_FILL,
    COD_OP_TURN,
    COD_OP_MIX,
    COD_OP_SPECTRAL_NORM,
    COD_OP_SPECTRAL_NORM_BACKWARD,
    COD_OP_QUANTISE,
    COD_OP_DEQUANTISE,
    COD_OP_MAGNITUDES,
    COD_OP_RANGES,
    COD_OP_KIND_COUNT
} cod_op_kind;

const char *cod_op_kind_name(cod_op_kind kind);

typedef enum cod_activation {
    COD_ACT_NONE,
    COD_ACT_RELU,       /**< where y is 0, dx is 0; if dy is not finite there, a backend may give NaN */
    COD_ACT_LEAKY_RELU, /**< slope = attr.leak */
    COD_ACT_PRELU,      /**< learnt slope: an input */
    COD_ACT_SIGMOID,
    COD_ACT_TANH
} cod_activation;

typedef enum cod_resize_mode {
    COD_RESIZE_NEAREST,
    /** half-pixel centres, replicated borders: F.interpolate(align_corners=False), ONNX Resize linear */
    COD_RESIZE_BILINEAR,
    COD_RESIZE_BICUBIC /**< the same with Keys' kernel, a = -0.75: F.interpolate(mode="bicubic"), ONNX Resize cubic */
} cod_resize_mode;

typedef enum cod_pool_kind { COD_POOL_MAX, COD_POOL_AVERAGE, COD_POOL_GLOBAL_AVERAGE } cod_pool_kind;

typedef enum cod_loss_kind {
    COD_LOSS_L1,
    COD_LOSS_MSE,
    COD_LOSS_CHARBONNIER,
    COD_LOSS_KL,
    COD_LOSS_CROSS_ENTROPY,
    COD_LOSS_BCE, /**< binary cross entropy with logits */
    COD_LOSS_HINGE,
    COD_LOSS_TV /**< total variation; has no target */
} cod_loss_kind;

typedef enum cod_optimiser_kind {
    /**
     * PyTorch's SGD: g += decay·θ; m = momentum·m + g; θ -= lr·(nesterov ? g + momentum·m : m). No m where momentum =
     * 0.
     */
    COD_OPT_SGD,
    COD_OPT_ADAM, /**< Kingma & Ba 2015, decay added to the gradient (L2), as torch.optim.Adam */
    COD_OPT_ADAMW /**< Loshchilov & Hutter 2019: θ -= lr·decay·θ, decoupled, as torch.optim.AdamW */
} cod_optimiser_kind;

/** What TURN does with a picture. If several bits are set, it does them in this order. */
typedef enum cod_turn {
    COD_TURN_TRANSPOSE = 4, /**< rows become columns; does nothing to a picture that is not square */
    COD_TURN_MIRROR_X = 1,  /**< left and right change places */
    COD_TURN_MIRROR_Y = 2,  /**< top and bottom change places */
    COD_TURN_INVERT = 8     /**< y = 1 - x */
} cod_turn;

/** Everything about an op but its tensors; only the fields its kind uses are read. */
typedef struct cod_op_attr {
    /** CONV2D*, POOL*; padding is symmetric, zeros (excluded from max; counted in averages). */
    int stride_h, stride_w, pad_h, pad_w;
    int kernel_h, kernel_w;    /**< POOL*; convolutions take theirs from the weight */
    cod_activation activation; /**< ACTIVATION*, CONV2D, LINEAR, NORM_* */
    float int8_range; /**< CONV2D: > 0 = on 8-bit integers, which stand for -int8_range … int8_range of x; see above */
    float leak;       /**< slope of LEAKY_RELU */
    float epsilon;    /**< NORM_*, FOLD_NORM, Charbonnier's epsilon, Adam's epsilon */
    float momentum;   /**< NORM_TRAIN, NORM_STATISTICS: weight of the new batch (PyTorch's 0.1); SGD's momentum */
    float alpha, beta; /**< ADD, FILL; LOSS: constant factor of the gradient (alpha) */
    int factor;        /**< PIXEL_*, RESIZE* */
    cod_resize_mode resize;
    cod_pool_kind pool;
    bool pool_ceil; /**< POOL* of COD_POOL_MAX: a last window may stand over the edge; see cod_pool_outputs() */
    cod_loss_kind loss;
    float temperature; /**< KL, MIX; 0 means 1 */
    float smoothing;   /**< CROSS_ENTROPY: share of each target that is spread over all classes */
    cod_optimiser_kind optimiser;
    float beta1, beta2, weight_decay, max_norm; /**< OPTIMISER */
    bool nesterov;
    double quality_db; /**< QUANTISE, coding STEP: signal-to-noise ratio of the values in dB */
    float rounding;    /**< QUANTISE, coding STEP: rounding of deltas, above 0 and at most 0.5 (to the nearest) */
} cod_op_attr;

enum { COD_OP_MAX_INPUTS = 7, COD_OP_MAX_OUTPUTS = 5 };

typedef struct cod_op {
    cod_op_kind kind;
    bool accumulate;
    bool deterministic; /**< the result may not depend on timing or on the number of threads */
    cod_op_attr attr;
    cod_view inputs[COD_OP_MAX_INPUTS];
    cod_view outputs[COD_OP_MAX_OUTPUTS];
    const char *name; /**< for traces and messages; borrowed for the life of the plan */
} cod_op;

/** Checks that an op's views have the shapes its kind demands; every backend calls it first in plan_create(). */
COD_MUST_CHECK cod_status cod_op_check(const cod_op *op);

/**
 * Number of outputs of a pooling along one side; 0 = the window does not fit. With `ceil` there are enough outputs to
 * cover every element, but no window begins beyond the last element, as with PyTorch's ceil_mode.
 */
int64_t cod_pool_outputs(int64_t size, int kernel, int stride, int padding, bool ceil);

/** How much a convolution's shuffle enlarges its output. */
static inline int64_t cod_op_shuffle(const cod_op_attr *attr)
{
    return attr->factor > 1 ? attr->factor : 1;
}

/** What a kind does with one of its outputs: the marks of the table above. */
typedef enum cod_output_role {
    COD_OUTPUT_WRITTEN,     /**< only ever overwritten */
    COD_OUTPUT_ACCUMULATED, /**< *: added to where the op's `accumulate` is set, else overwritten */
    COD_OUTPUT_UPDATED      /**< +: read and written */
} cod_output_role;

/** What holds for all ops of a kind. Places of inputs and of outputs are bits: bit i stands for the i-th. */
typedef struct cod_op_traits {
    const char *name;
    unsigned accumulated; /**< outputs of COD_OUTPUT_ACCUMULATED */
    unsigned updated;     /**< outputs of COD_OUTPUT_UPDATED */
    unsigned in_place;    /**< the input whose view the first output may be */
    /** inputs with a part for each item of the batch, where no item's results depend on other items */
    unsigned item_inputs;
    unsigned item_outputs; /**< outputs with such parts; others are sums over the items */
    bool is_cheap;         /**< takes no longer than reading its inputs and writing its outputs */
} cod_op_traits;

/** Static; `kind` is below COD_OP_KIND_COUNT. */
const cod_op_traits *cod_op_traits_of(cod_op_kind kind);

cod_output_role cod_op_output_role(cod_op_kind kind, size_t output);

/** Multiplications and additions of the op, for GFLOP/s; 0 for ops without arithmetic worth counting. */
double cod_op_flops(const cod_op *op);

typedef struct cod_device cod_device; /**< an opened backend; each backend defines its own */
typedef struct cod_queue cod_queue;   /**< an order of execution; NULL = the device's default queue */
typedef struct cod_plan cod_plan;
typedef struct cod_event cod_event;
typedef struct cod_recording cod_recording;
typedef struct cod_collective cod_collective; /**< core/collective.h */

typedef struct cod_device_options {
    int threads;      /**< host threads for computing; 0 = one */
    int ordinal;      /**< which of several devices, counted modulo how many there are */
    bool no_autotune; /**< use fixed implementations instead of the fastest ones */
} cod_device_options;

/** COD_BACKEND_VERSION is the version of this struct; raise it whenever one of its functions changes its meaning. */
enum { COD_BACKEND_VERSION = 12, COD_COLLECTIVE_NAME_BYTES = 128, COD_PUT_BYTES = 1024 };

typedef struct cod_backend {
    int version;      /**< COD_BACKEND_VERSION of the headers that the backend was compiled with */
    const char *name; /**< "ref", "cpu", "cuda" */

    cod_status (*open)(const cod_device_options *options, cod_device **out); /**< NULL = defaults */
    void (*close)(cod_device *device);
    /** One line: library and version, processor, instruction set. Valid while the device lives. */
    const char *(*describe)(cod_device *device);
    /**
     * Whether activations may have this type, at a useful speed. COD_S8: whether attr.int8_range may be set. COD_U8:
     * whether TURN may have a table.
     */
    bool (*supports)(cod_device *device, cod_dtype activation);

    /** Free and total bytes of the device's memory. NULL = plans and buffers lie in host memory. */
    cod_status (*memory)(cod_device *device, size_t *free_bytes, size_t *total_bytes);
    /**
     * Bytes of the device's memory that buffers and plans of this cod_device use now. NULL if memory() is NULL or the
     * backend does not count them.
     */
    size_t (*allocated)(cod_device *device);

    /** Zeroed memory at a 64-byte boundary or better. */
    cod_status (*buffer_create)(cod_device *device, size_t bytes, cod_buffer **out);
    /** Waits for queued work that uses the buffer. Not to be called while a recording that uses the buffer exists. */
    void (*buffer_destroy)(cod_device *device, cod_buffer *buffer);
    /**
     * Zeroed, pinned memory of the host, which copy() reads and writes without the host's help; `host` is set. Outputs
     * of plans may not lie there; inputs may if `maps_host_buffers` is set.
     */
    cod_status (*host_buffer_create)(cod_device *device, size_t bytes, cod_buffer **out);
    void (*host_buffer_destroy)(cod_device *device, cod_buffer *buffer);
    /**
     * Whether plans may have inputs in memory of host_buffer_create(): the device maps it, and plan_run() reads there
     * what the host wrote before it called. Neither the host nor a copy() may write such an input until the host has
     * seen an event that was recorded after the plan. A plan may read what a copy() wrote there once the host has seen
     * an event that was recorded after that copy.
     */
    bool maps_host_buffers;
    /**
     * Where the memory of a buffer of buffer_create() lies, for libraries that move it themselves, such as an MPI that
     * takes a device's memory. Also makes the device current in the calling thread, which such libraries need. May be
     * called from any thread. NULL = the backend has no such addresses.
     *
     * A library's reads and writes belong to no queue. Before they start, the host must have seen an event recorded
     * after all conflicting work; until they are done, no conflicting work may be queued.
     */
    void *(*buffer_address)(cod_device *device, cod_buffer *buffer);
    /**
     * Host to device, in the queue's order; blocks until `source` may be reused. The target may be written after the
     * call returns, so other queues need an event. For set-up and other rare transfers; a step uses copy().
     */
    cod_status (*upload)(cod_device *device, cod_queue *queue, cod_buffer *target, size_t offset, const void *source,
                         size_t bytes);
    /**
     * As upload(), but never blocks, for the few numbers that a step needs: at most COD_PUT_BYTES, which are taken
     * before it returns and travel with the work itself, such as among a kernel's parameters. `offset` and `bytes` are
     * multiples of 4.
     */
    cod_status (*put)(cod_device *device, cod_queue *queue, cod_buffer *target, size_t offset, const void *source,
                      size_t bytes);
    /**
     * Device to host, after all earlier work of the queue; blocks until the data is there. Also for rare transfers
     * only.
     */
    cod_status (*download)(cod_device *device, cod_queue *queue, void *target, cod_buffer *source, size_t offset,
                           size_t bytes);
    /**
     * Copies between two buffers, each of buffer_create() or of host_buffer_create(), in the queue's order. Returns
     * before it is done: until the host has seen an event that was recorded after the copy, the host may neither write
     * the source nor touch the target. Two ranges of one buffer may not overlap. A backend that runs at once copies
     * before it returns.
     *
     * @return COD_ERR_ARGUMENT where a range lies outside its buffer or the ranges overlap; asynchronous backends also
     *         where a buffer is neither (pageable memory)
     */
    cod_status (*copy)(cod_device *device, cod_queue *queue, cod_buffer *target, size_t target_offset,
                       cod_buffer *source, size_t source_offset, size_t bytes);

    /**
     * Fails with COD_ERR_UNSUPPORTED and names the op when the backend lacks it. The op is copied, its buffers are
     * borrowed.
     */
    cod_status (*plan_create)(cod_device *device, const cod_op *op, cod_plan **out);
    /**
     * Fused ops: several consecutive ops as one plan, which gives what the ops give one after another, up to the
     * rounding of what passes between them. All their outputs are written, with one exception: where a
     * NORM_BACKWARD_REDUCE or an ACTIVATION_BACKWARD works in place, only its g or dx is. An op may read the output of
     * an earlier op of the sequence through the same view. Apart from that, no output of an op may overlap an input or
     * output of another op, not even an input of an earlier op. Both functions may be NULL: the backend then fuses
     * nothing. The sequences that compilers offer, with [op] optional; cod_fused_sequence() (core/fused.h) is this list
     * as code:
     *
     *   [NORM_APPLY] CONV2D [NORM_STATISTICS]                              y of the first is x of the second, and so on
     *   [NORM_BACKWARD_APPLY] CONV2D_BACKWARD_DATA [NORM_BACKWARD_REDUCE]  likewise, with dx and dy
     *   CONV2D ACTIVATION                                                  y of the first is x of the second, which has a y of its own
     *   CONV2D_BACKWARD_DATA ACTIVATION_BACKWARD                           the second in place; neither accumulates
     *   LINEAR_BACKWARD_DATA ACTIVATION_BACKWARD                           likewise
     *   CONV2D_BACKWARD_WEIGHTS …  several with equal shapes, types, strides, attributes and `accumulate`; some may
     *   lack db
     *
     * op_fuses() says how many of the ops, from the first on, plan_create_fused() would take as one plan; 1 = the first
     * alone. It looks at kinds, attributes, shapes, types, strides and which views are equal or present, and reads no
     * buffer: a compiler asks before memory is planned, with buffers that stand for the real ones, and with offsets
     * that say which views are equal and are the real ones modulo COD_ALIGNMENT.
     */
    size_t (*op_fuses)(cod_device *device, const cod_op *ops, size_t count);
    /** As plan_create(), for a count that op_fuses() gave. */
    cod_status (*plan_create_fused)(cod_device *device, const cod_op *ops, size_t count, cod_plan **out);
    /**
     * Does the work that depends on parameters alone (packing `w` and `b` of CONV2D and LINEAR and `w` of their
     * BACKWARD_DATA; with attr.int8_range, `slope` and `range` too) for plans of the device, in no particular order, as
     * work of the queue. Callers prepare a plan once after creation and again whenever these values may have changed,
     * as many plans in one call as they can, because a device then needs few launches; other inputs are read by
     * plan_run() itself. A backend need not pack, so plan_run() counts as a reader of all inputs. Fails with the first
     * plan that fails; the other plans may or may not be prepared then.
     */
    cod_status (*plans_prepare)(cod_device *device, cod_plan *const *plans, size_t count, cod_queue *queue);
    /**
     * As plans_prepare(), for plans whose `w` and `b` were last written by OPTIMISER plans, recorded or not. What the
     * OPTIMISER plans already wrote for these plans, such as weights in the plans' format, need not be made again. NULL
     * = callers call plans_prepare().
     */
    cod_status (*plans_prepare_updated)(cod_device *device, cod_plan *const *plans, size_t count, cod_queue *queue);
    /**
     * Gradients of weights (CONV2D_BACKWARD_WEIGHTS, LINEAR_BACKWARD_WEIGHTS) with dy in one buffer, and CONV2D with a
     * shuffle and y there, are ordered, by one queue or by events, whatever else they use: their plans may share
     * scratch memory, so two of them may not run at the same time.
     */
    cod_status (*plan_run)(cod_plan *plan, cod_queue *queue);
    /** Waits for queued work of the plan. Not to be called while a recording that contains the plan exists. */
    void (*plan_destroy)(cod_plan *plan);

    /**
     * All functions of queues and events may be NULL together: work is then done when its call returns. Callers go
     * through core/queue.h. An event that was never recorded counts as reached. Recording it again replaces the earlier
     * mark, except for a queue_wait() that was called before.
     */
    cod_status (*queue_create)(cod_device *device, cod_queue **out);
    void (*queue_destroy)(cod_queue *queue); /**< waits for its work; its events stay valid */
    cod_status (*event_create)(cod_device *device, cod_event **out);
    /** The event is reached when all work queued before this call is done. Not within a capture. */
    cod_status (*event_record)(cod_event *event, cod_queue *queue);
    cod_status (*event_query)(cod_event *event, bool *reached); /**< never blocks; from any thread */
    cod_status (*event_wait)(cod_event *event);                 /**< blocks the host; from any thread */
    /** Work of the queue that is queued later waits until the event is reached. Not within a capture. */
    cod_status (*queue_wait)(cod_queue *queue, cod_event *event);
    void (*event_destroy)(
        cod_event *event); /**< queued waits for the event stay valid; no other call may be using it */

    /**
     * All functions of captures may be NULL together. Only a backend with queues has them.
     *
     * Records plan_run(), plans_prepare(), plans_prepare_updated() and copy() of the queue instead of doing them, until
     * capture_end(). From then on the recorded buffers, and what the plans keep for themselves (scratch, packed
     * weights), stay where they are: plans made later, and plans_prepare(), may not move them. What
     * plans_prepare_updated() asks for must hold in each replay. No upload(), put(), download() or recording_run() of
     * that queue within a capture.
     */
    cod_status (*capture_begin)(cod_device *device, cod_queue *queue); /**< COD_ERR_UNSUPPORTED: this device has none */
    cod_status (*capture_end)(cod_device *device, cod_queue *queue, cod_recording **out);
    /** Does the recorded work in its order, as work of any queue, on what the buffers hold then. */
    cod_status (*recording_run)(cod_recording *recording, cod_queue *queue);
    void (*recording_destroy)(cod_recording *recording); /**< replays that are queued still run */

    /**
     * Averages between the devices of several processes without their hosts (core/collective.h). Each process has one
     * device; the averages run in a separate queue. All of these functions may be NULL together. Every process first
     * calls collective_name(), which fails if the process cannot average; this is checked first because
     * collective_create() returns only when all processes have called it. One process asks for a name, which all use.
     *
     * @param[out] name  of collective_name(); NULL = make no name, only check whether this process can average
     *
     * @return COD_ERR_UNSUPPORTED with the reason if this process cannot average, for example because a library is
     *         missing
     */
    cod_status (*collective_name)(cod_device *device, unsigned char name[COD_COLLECTIVE_NAME_BYTES]);
    cod_status (*collective_create)(cod_device *device, const unsigned char name[COD_COLLECTIVE_NAME_BYTES], int rank,
                                    int size, cod_collective **out);
    /** Not to be called while a reduction is outstanding, except after a failure. */
    void (*collective_destroy)(cod_device *device, cod_collective *collective);
} cod_backend;

/** Fails, as copy() must, if a range lies outside its buffer or two ranges of one buffer overlap. */
COD_MUST_CHECK cod_status cod_copy_check(const cod_buffer *target, size_t target_offset, const cod_buffer *source,
                                         size_t source_offset, size_t bytes);

/**
 * Registers a backend under its name; called by `tools` and tests before anything is compiled. The struct is borrowed
 * for the life of the process.
 *
 * @return COD_ERR_UNSUPPORTED where it was compiled for another COD_BACKEND_VERSION; COD_ERR_ARGUMENT where there are
 *         too many
 */
COD_MUST_CHECK cod_status cod_backend_register(const cod_backend *backend);
/** The backend of this name, or NULL. */
const cod_backend *cod_backend_find(const char *name);
/** Name of the i-th registered backend, NULL past the last. */
const char *cod_backend_name_at(size_t index);

enum { COD_BACKEND_NAMES = 256 };
/** The names of all registered backends, such as "ref, cpu, cuda", for messages. */
void cod_backend_names(char text[COD_BACKEND_NAMES]);

#endif
