/**
 * @file
 * Weight gradients of 3x3 convolutions with stride 1, in bf16: a tile of x lies in shared memory once, with its halo,
 * for all nine taps.
 */
#ifndef COD_CUDA_CONV_GRADIENT3_CUH
#define COD_CUDA_CONV_GRADIENT3_CUH

#include "cuda/conv.cuh"

/** Pixels of dy that are multiplied at a time: rows x columns, a multiple of 32, in rows of whole groups of eight. */
struct gradient3_tile {
    int rows, columns;
};

/** The pixels of a tile, as a thread goes over every 32nd: that many rows and columns further on. */
struct gradient3_walk {
    int rows, columns, step_rows, step_columns;
};

static inline gradient3_walk gradient3_walk_of(int rows, int columns)
{
    return {rows, columns, 32 / columns, 32 % columns};
}

/**
 * Operands of the kernel, for layers that differ in their addresses alone: blockIdx.z is the layer, blockIdx.y the
 * split.
 */
struct conv_gradient3 {
    const conv_layer *layers;
    conv_image x, dy; /**< of each layer, with its own addresses */
    int pad_h, pad_w;
    int rows, column_tiles; /**< channels of dy; tiles of channels of x */
    gradient3_tile tile;
    gradient3_walk walk_x, walk_y; /**< of x with the pixels around the tile */
    int stage_bytes;
    int tiles_h, tiles_w, tiles; /**< of a picture; of all */
    float *partials;             /**< by rows, and columns (tap, channel of x); then db */
    int64_t partial_count;       /**< floats from split to split */
};

/** A kernel whose block has CHANNELS of dy and as many of x, at all nine taps. */
struct gradient3_kernel {
    int channels, stages;
    unsigned threads;
    int blocks;  /**< that a multiprocessor has registers for */
    float speed; /**< operations a time unit of a full multiprocessor, relative to the others */
    void (*run)(conv_gradient3);
};

/** Kernels to choose from, ended by one without channels. */
const gradient3_kernel *gradient3_kernels();

/** Bytes of shared memory that a tile of dy and of x takes. */
static inline int gradient3_stage_bytes(const gradient3_kernel &kernel, gradient3_tile tile)
{
    const int pixels = (tile.rows + 2) * (tile.columns + 2) + tile.rows * tile.columns;
    return pixels * (kernel.channels + 8) * 2;
}

/** What was chosen for some layers: all of `operands` but its addresses. */
struct gradient3_choice {
    gradient3_kernel kernel; /**< channels 0 = none fits these layers */
    conv_gradient3 operands;
    dim3 blocks; /**< channels; splits; layers */
    size_t shared_bytes;
};

/**
 * Chooses a kernel, tiles and splits for `layers` layers whose images and kernel `g` describes. The splits are those
 * that end soonest where all layers' blocks share the device.
 */
gradient3_choice gradient3_choose(const cod_device *device, const conv_gradient &g, int layers);

#endif
