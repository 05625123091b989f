/**
 * @file
 * Convolutions between a *wide* tensor, of many channels, and a *narrow* one, of a few: the last layer of a
 * super-resolution network, its first layer, and the gradients of both. What the three kernels and the choice of them
 * (narrow_plan.cu) share.
 *
 * Kernels are F x F with F odd, stride 1, and padding F / 2, so both tensors have the same pixels. There are three
 * computations:
 *
 *   gather    narrow = conv(wide): y of a last layer; dx of a first layer
 *   spread    wide = conv(narrow): y of a first layer; dx of a last layer
 *   gradient  dw of either layer: each channel of `wide` times each channel of `narrow`, at each tap
 *
 * A matrix product needs 8 columns, and a depth of 16. So that a few channels fill them, kernel taps are packed beside
 * the channels: the rows of the kernel in a gather, its columns in a spread and in a gradient.
 *
 * A tap (r, s) of the kernel here means: the pixel of the source that lies r - F / 2 rows below and s - F / 2 columns
 * to the right. For gradients by data, and for the weight gradient of a last layer, the weights therefore are mirrored.
 */
#ifndef COD_CUDA_NARROW_CUH
#define COD_CUDA_NARROW_CUH

#include "cuda/conv.cuh"

/** Channels of the narrow tensor that a gather or a gradient has at a time; all of them are several *groups*. */
enum { NARROW_GROUP = 3 };
/** Channels of the wide tensor that a warp has: a *slice*. */
enum { NARROW_SLICE = 16, NARROW_MOST_SLICES = 8 };

/** How pictures are divided among blocks: into *units* of `columns` columns and `rows` rows, all channels. */
struct narrow_cut {
    int images, h, w;
    int rows, chunks;    /**< of a unit; units below each other */
    int columns, strips; /**< of a unit; units beside each other */
};

static __host__ __device__ __forceinline__ int64_t narrow_units(const narrow_cut &cut)
{
    return (int64_t)cut.images * cut.chunks * cut.strips;
}

/** A unit's picture and place; `rows` is smaller in a picture's last chunk. */
struct narrow_unit {
    int image, row, rows, column;
};

static __device__ __forceinline__ narrow_unit narrow_unit_at(const narrow_cut &cut, int number)
{
    const int line = number / cut.strips, image = line / cut.chunks, row = (line - image * cut.chunks) * cut.rows;
    const int left = cut.h - row;
    return {image, row, left < cut.rows ? left : cut.rows, (number - line * cut.strips) * cut.columns};
}

/** Elements from an image's first to the first of a row. */
static __device__ __forceinline__ int64_t narrow_row(const conv_image &image, int picture, int row)
{
    return ((int64_t)picture * image.h + row) * image.w * image.stride;
}

/**
 * What a gather or a spread does with its sums: target = activation(sum + bias) [+ added]; a spread, the rest of
 * conv_store.
 */
struct narrow_store {
    conv_image target, added; /**< `added`: residual, or the target itself where it accumulates */
    const float *bias;
    cuda_activation activation;
    conv_image activated, gate;
    cuda_slopes slopes;
};

/** Operands of a gather. The grid: units in x, groups in y. */
struct narrow_gather {
    conv_image wide;
    narrow_cut cut;
    const uint16_t *packed; /**< {group}{column}{s}{wide channel} in bf16, column = 3·r + channel of the group */
    int slices, spans;      /**< warps of a block: spans x slices; see narrow_gather.cu */
    narrow_store store;
};

/** Operands of a spread. A block gives several units, one after the other. */
struct narrow_spread {
    conv_image narrow;
    narrow_cut cut;
    const bytes16 *packed; /**< {slice}{r}{step}{lane}: fragments of the weights */
    int line_words;        /**< of a row of the unit in shared memory */
    narrow_store store;
};

/** Whose sums over pixels a gradient gives besides, for db. */
enum narrow_bias { NARROW_NO_BIAS, NARROW_BIAS_OF_NARROW, NARROW_BIAS_OF_WIDE };

/**
 * Operands of a gradient. The grid: splits in x, which share the units; groups times parts of the kernel's rows in y.
 */
struct narrow_gradient {
    conv_image wide, narrow;
    narrow_cut cut;
    narrow_bias bias;
    float *partials; /**< {split}: {group}{r}{column}{wide channel}, column = 3·turned s + channel; then db */
    int64_t partial_count, bias_at;
    int parts;
};

/** The weights of a layer w {outputs, F, F, inputs}, or their gradient. */
struct narrow_filter {
    float *w;
    int64_t stride; /**< elements from position to position of the kernel */
    int kernel, narrow, wide;
    bool narrow_is_output, mirrored;
};

/** How the weights of a gather or a spread are packed. */
struct narrow_packing {
    narrow_filter filter;
    void *packed;  /**< narrow_gather.packed or narrow_spread.packed */
    int64_t count; /**< elements of `packed` */
    int depth;     /**< steps of a spread; 0 = a gather's */
};

/** How dw and db follow from the partial sums. */
struct narrow_sum {
    narrow_filter filter;
    const float *partials;
    int64_t partial_count, bias_at;
    int splits;
    bool accumulate;
    float *db; /**< NULL = none */
    int db_count;
};

/**
 * Columns of the kernel lie in partial sums so that the middle one comes first: there sums over pixels can be had as
 * well.
 */
static __host__ __device__ __forceinline__ int narrow_turned(int s, int kernel)
{
    return (s + kernel - kernel / 2) % kernel;
}

/** A kernel for one F. */
template <typename P> struct narrow_kernel {
    void (*run)(P); /**< NULL = there is none */
    int columns;    /**< of a unit; of a span of a gather's unit */
    int depth;      /**< spread: steps of 16 of a kernel's row; gradient: rows of the kernel that a block has */
};

narrow_kernel<narrow_gather> narrow_gather_kernel(int kernel);
narrow_kernel<narrow_spread> narrow_spread_kernel(int kernel, int channels);
narrow_kernel<narrow_gradient> narrow_gradient_kernel(int kernel);

/** Shared memory of a block, in bytes; of a spread and a gradient with `rows` rows in a unit. */
size_t narrow_gather_shared(int kernel, int slices, int spans);
size_t narrow_spread_shared(int kernel, int rows, int line_words);
size_t narrow_gradient_shared(int depth, int rows, int slices);
/** Words of a row of a spread's unit: those that its lanes read, in banks that do not meet. */
int narrow_spread_words(int columns, int channels, int depth);

/* narrow_pack.cu */
/** For plans whose `packing` lies at `how`, in the device's memory. */
cuda_packing narrow_packing_of(const narrow_packing *how, const narrow_packing &packing);
COD_MUST_CHECK cod_status narrow_sum_partials(cod_device *device, cudaStream_t stream, const narrow_sum &sum);

enum narrow_computation { NARROW_GATHER, NARROW_SPREAD, NARROW_GRADIENT };

/** A layer as the choice sees it. */
struct narrow_shape {
    narrow_computation what;
    int kernel, narrow, wide; /**< channels of both tensors */
    int images, h, w;
};

/** How a layer is computed. */
struct narrow_choice {
    narrow_cut cut; /**< strips 0 = not by these kernels */
    int slices, groups, spans, parts;
    unsigned blocks; /**< in x */
    size_t shared_bytes;
};

/** Chooses for a GPU with so many multiprocessors, whose blocks may have so many bytes of shared memory. */
narrow_choice narrow_choose(const narrow_shape &shape, int multiprocessors, size_t shared_bytes);

/* narrow_plan.cu */
/** Whether these kernels can do what the plan's op asks for. The op's views have been checked. */
bool narrow_fits(const cod_plan *plan, cod_dtype multiplied);
/**
 * Makes the plan where these kernels can do what its op asks for; else `made` becomes false. The op's views have been
 * checked.
 */
COD_MUST_CHECK cod_status narrow_make(cod_plan *plan, cod_dtype multiplied, bool *made);

/* conv_plan.cu */
conv_image conv_image_of(const cod_view *view, int64_t factor);

#endif
