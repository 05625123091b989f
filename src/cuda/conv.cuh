/**
 * @file
 * Convolutions and linear layers as matrix products: what their kernels and the choice of kernels (conv_plan.cu) share.
 *
 * A *product* gives an image's channels at each of its pixels: y of CONV2D from x, dx of CONV2D_BACKWARD_DATA from dy.
 * Its rows are pixels of the target, its columns the target's channels, its depth the taps of the kernel times the
 * channels of the source. A *gradient* gives dw: its rows are the channels of dy, its columns taps times channels of x,
 * its depth the pixels of dy. A linear layer is a convolution of N images of one pixel.
 *
 * Products on tensor cores read the depth in *pieces* of 16 bytes: 8 channels in bf16 or 16 in s8. CONV_PIECES pieces
 * are a *chunk*.
 */
#ifndef COD_CUDA_CONV_CUH
#define COD_CUDA_CONV_CUH

#include "cuda/activation.cuh"
#include "cuda/slopes.cuh"

enum { CONV_PIECE = 16, CONV_PIECES = 8, CONV_CHUNK = CONV_PIECE * CONV_PIECES };

/**
 * Places of views in an op that two ops were joined to (conv_tune.cu). A data gradient with an activation's gradient:
 * input CONV_GATE is the activation's x or y, input CONV_SLOPE its slope, output CONV_DSLOPE the slope's gradient. A
 * CONV2D with an activation: output CONV_ACTIVATED is the activation's output.
 */
enum { CONV_SLOPE = 3, CONV_GATE = 4, CONV_DSLOPE = 1, CONV_ACTIVATED = 1 };
/** Which input of a CONV2D on 8-bit integers is its range. */
enum { CONV_RANGE = 5 };

/** Whether the op is a product with an activation, or an activation's gradient, joined to it (cuda_make_joined()). */
static inline bool conv_is_joined(const cod_op *op)
{
    const bool data = op->kind == COD_OP_CONV2D_BACKWARD_DATA || op->kind == COD_OP_LINEAR_BACKWARD_DATA;
    return op->kind == COD_OP_CONV2D ? op->outputs[CONV_ACTIVATED].buffer != nullptr
                                     : data && op->inputs[CONV_GATE].buffer != nullptr;
}

/**
 * A tensor as a convolution sees it: h x w pixels of factor² *cells* with `channels` channels each. Where the
 * convolution shuffles its pixels, cells are the pixels of the tensor; else a pixel is one cell. A convolution's
 * channels are numbered cell by cell here.
 */
struct conv_image {
    unsigned char *data; /**< NULL = no tensor */
    int64_t stride;      /**< elements from cell to cell */
    int h, w, factor, channels;
    cod_dtype dtype;
    bool wide; /**< eight channels from a multiple of eight on can be read at once: they lie at 16-byte boundaries */
};

/** Height or width of a convolution. */
struct conv_side {
    int outputs; /**< of the target, or of dy where weight gradients are computed */
    int kernel, stride, pad;
    bool backward; /**< the target is the convolution's input: it has `stride` phases, each with taps of its own */
    bool folded;   /**< the kernel's taps are channels of the source already (conv_staging) */
};

/**
 * One phase of a side: output i of it is at i·target_step + target_origin of the target, and tap t of the kernel meets
 * there i·step + origin + direction·t of the source. That tap is position kernel_first + kernel_step·t of the kernel.
 */
struct conv_axis {
    int outputs, taps;
    int step, origin, direction;
    int target_step, target_origin;
    int kernel_first, kernel_step;
};

static __host__ __device__ __forceinline__ int conv_phases(const conv_side &side)
{
    return side.backward && !side.folded ? side.stride : 1;
}

/** dx at h = phase + i·stride meets dy at (h + pad - k) / stride for those k that leave no remainder. */
static __host__ __device__ __forceinline__ conv_axis conv_axis_of(const conv_side &side, int phase)
{
    const int stride = side.stride;
    if (side.folded)
        return {side.outputs, 1, 1, 0, 1, 1, 0, 0, 1};
    if (!side.backward)
        return {side.outputs, side.kernel, stride, -side.pad, 1, 1, 0, 0, 1};
    const int outputs = phase < side.outputs ? (side.outputs - phase + stride - 1) / stride : 0;
    const int first = (phase + side.pad) % stride;
    const int taps = first < side.kernel ? (side.kernel - first + stride - 1) / stride : 0;
    return {outputs, taps, 1, (phase + side.pad - first) / stride, -1, stride, phase, first, stride};
}

/** Taps of the phase that has most. */
static __host__ __device__ __forceinline__ int conv_most_taps(const conv_side &side)
{
    const int phases = conv_phases(side);
    return side.folded ? 1 : (side.kernel + phases - 1) / phases;
}

/** w {outputs, KH, KW, inputs} and how the elements of a product's second factor follow from it. */
struct conv_filter {
    float *w;
    int64_t stride; /**< elements from position to position of the kernel */
    int outputs, inputs, kernel_h, kernel_w, factor;
    bool backward;
};

/** The convolution's own number of output channel `channel`, which is numbered cell by cell; see PIXEL_SHUFFLE. */
static __device__ __forceinline__ int conv_output_of(int channel, int outputs, int factor)
{
    if (factor == 1)
        return channel;
    const int cells = factor * factor, channels = outputs / cells;
    return channel % channels * cells + channel / channels;
}

/**
 * What a product does with its sums: target = activation(sum·factor + bias) [+ added]. Two things may be otherwise:
 * - with `activated`, the target gets what goes into the activation, and `activated` what comes out;
 * - with `gate`, the activation is one of the ReLU family, and the target gets the gradient of what went into it.
 * Neither is there with `added`.
 */
struct conv_store {
    conv_image target, added; /**< `added`: residual, or the target itself where it accumulates */
    conv_image activated;     /**< data NULL = none, here and below */
    conv_image gate;          /**< the activation's x, or ReLU's y: the gradient passes where it is positive */
    cuda_slopes slopes;       /**< what is gathered beside the gate */
    const float *bias;        /**< by conv_output_of() */
    const float *factors;     /**< by column */
    cuda_activation activation;
    int columns;
};

/** Operands of a product's kernel. */
struct conv_product {
    conv_image source;
    conv_side h, w;
    int images, groups; /**< groups: pieces of a source's cell; its channels in f32 */
    const unsigned char *packed;
    int64_t phase_bytes; /**< of `packed` from phase to phase */
    int column_tiles;
    conv_store store;
};

/**
 * How a product's weights are packed: {phase}{column tile}{chunk}{column}{piece} in bf16 and s8, {phase}{depth}{column}
 * in f32.
 */
struct conv_packing {
    conv_filter filter;
    conv_product product;
    int tile_columns;
    int64_t count;           /**< of pieces; of elements in f32 */
    const float *int8_range; /**< in the device's memory, and what follows from it: */
    float *scales;           /**< of each column in s8: what its weights are multiplied with before they are rounded */
    float *factors;          /**< what its sums are multiplied with */
};

/**
 * A layer of a gradient's plan, as kernels read it from a table in the device's memory. `x` and `dy` may be dense
 * copies.
 */
struct conv_layer {
    unsigned char *x, *dy;
    float *dw, *db; /**< db NULL = not wanted */
};

/**
 * Operands of a gradient's kernel, for layers that differ in their addresses alone: blockIdx.z is the layer, blockIdx.y
 * the split. Each split of each layer has partial sums of its own: dw by rows and columns, then db.
 */
struct conv_gradient {
    const conv_layer *layers;
    conv_image x, dy; /**< of each layer, with its own addresses */
    conv_side h, w;
    int images, groups;       /**< groups: pieces of a pixel of x; its channels in f32 */
    int rows, columns;        /**< channels of dy; taps·groups·channels of a piece */
    int chunks, split_chunks; /**< of pixels: all, and those of a split */
    int column_tiles;
    bool bias; /**< of this layer */
    float *partials;
    int64_t partial_count; /**< floats from split to split */
};

/** How dw and db of each layer follow from the partial sums of its splits. */
struct conv_join {
    const conv_layer *layers;
    conv_filter filter; /**< of dw, whose addresses the layers have */
    const float *partials;
    int64_t partial_count;
    int splits, columns,
        tap_columns; /**< tap_columns: of a kernel's position; of a kernel's row where its width is folded */
    bool folded, accumulate;
    bool wide; /**< four inputs from a multiple of four on can be read and written at once, in dw and in partial sums */
};

/**
 * A dense copy of an image in bf16 or s8 whose channels fill whole pieces, made where the image itself cannot be read
 * in pieces, or where its few channels would leave most of a piece empty. In the second case a row of the kernel is
 * folded into the copy's channels: those of position k at column j are the source's at column j·step + origin +
 * direction·k.
 */
struct conv_staging {
    conv_image from, to; /**< data NULL = none */
    int64_t pieces;
    conv_axis folded;        /**< taps 0 = not folded */
    const float *int8_range; /**< in the device's memory; of s8 alone */
};

/** A kernel, and the part of the result that one of its blocks computes. */
template <typename P> struct conv_kernel {
    int rows, columns; /**< of a block's tile */
    int depth;         /**< of a chunk: pixels of a gradient's, bytes of a product's */
    unsigned threads;
    size_t shared_bytes;
    float speed; /**< operations a time unit of a full multiprocessor, relative to the others */
    void (*run)(P);
};

typedef conv_kernel<conv_product> conv_product_kernel;
typedef conv_kernel<conv_gradient> conv_gradient_kernel;

/** Kernels to choose from, ended by one without rows. `dtype`: what is multiplied, bf16, f32, or s8 (products only). */
const conv_product_kernel *conv_product_kernels(cod_dtype dtype);
const conv_gradient_kernel *conv_gradient_kernels(cod_dtype dtype);
/* conv_f32.cu */
conv_product_kernel conv_product_in_f32();
conv_gradient_kernel conv_gradient_in_f32();

/* conv_pack.cu */
COD_MUST_CHECK cod_status conv_stage(cod_device *device, const conv_staging &staging, cudaStream_t stream);
/** Of a plan that packs as `packing` says, which lies at `how` in the device's memory. */
cuda_packing conv_packing_of(const conv_packing *how, const conv_packing &packing, cod_dtype dtype);
/** Adds partial sums in the order of their splits; `bias`: some layer has db. */
COD_MUST_CHECK cod_status conv_join_partials(cod_device *device, const conv_join &join, int layers, bool bias,
                                             cudaStream_t stream);

#endif
