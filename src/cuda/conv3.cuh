/**
 * @file
 * 3x3 convolutions of stride 1 and padding 1 in bf16 with a normalisation folded into what they load and one into what
 * they store.
 *
 * A block keeps the packed weights of COLUMNS output channels in shared memory. Its warps form *groups*, which share
 * the weights and otherwise work by themselves, so that one group multiplies while another one loads or stores. A group
 * goes over *tiles* of tile_h x tile_w pixels of one image: it loads a tile with its *halo* of one pixel on each side,
 * transforms each element once, keeps it in shared memory for all nine taps, and writes the transformed tile without
 * the halo to global memory. Pixels outside the image are zero after the transformation. Sums over pixels stay in the
 * block until its last tile; the block that finishes last joins those of all blocks, in the order of their numbers.
 */
#ifndef COD_CUDA_CONV3_CUH
#define COD_CUDA_CONV3_CUH

#include "cuda/activation.cuh"
#include "cuda/statistics.cuh"

enum conv3_load_kind {
    CONV3_AS_IS,
    CONV3_NORMALISE,         /**< activation(scale·x + shift) [+ residual] */
    CONV3_NORMALISE_BACKWARD /**< the gradient at a normalisation's input: a·g + b·x + c */
};

/**
 * What a convolution reads. `first`: x, or g of a normalisation's gradient; `second`: the residual, or x of that
 * gradient.
 */
struct conv3_load {
    conv3_load_kind kind;
    const unsigned char *first, *second;
    unsigned char *kept; /**< where the transformed tensor goes; NULL = nowhere */
    const float *gamma, *beta, *mean, *inv_std, *sums;
    cuda_activation activation;
    float pixels; /**< N·H·W */
};

enum conv3_store_kind {
    CONV3_STORE,      /**< y + bias, or the sum with what is there */
    CONV3_STATISTICS, /**< y + bias, and its mean and inv_std */
    CONV3_REDUCE,     /**< a gradient dy, g = dy·activation'(z), and the sums of a normalisation's gradient */
    CONV3_SHUFFLE,    /**< y + bias with its pixels shuffled, what an activation makes of that, or both */
    CONV3_STORE_KINDS
};

/** Sums of a channel: the mean, the squared distances and the count, or those of g, g·d and of dy·z where z <= 0. */
enum { CONV3_SUMS = 3 };

/** How many of them a kind of store has. */
static __host__ __device__ __forceinline__ constexpr int conv3_sums_of(int store)
{
    return store == CONV3_STATISTICS || store == CONV3_REDUCE ? CONV3_SUMS : 0;
}

/** What it does with its results. Absent pointers are NULL. */
struct conv3_store {
    unsigned char *target;       /**< y; of CONV3_REDUCE dy, and of CONV3_SHUFFLE y, NULL where nobody reads it */
    const unsigned char *before; /**< what is added to each result */
    const float *bias;
    cuda_statistics statistics;
    const unsigned char *x; /**< CONV3_REDUCE: the normalisation's input */
    unsigned char *g;
    const float *gamma, *beta, *mean, *inv_std;
    cuda_activation activation; /**< of the ReLU family, or none */
    unsigned char *activated;   /**< CONV3_SHUFFLE: the activation's output */
    int factor, across; /**< CONV3_SHUFFLE: of the picture; elements of it from one result's pixels to the next's */
    float *sums, *dgamma, *dbeta, *dslope;
    bool accumulate, dslope_by_channel; /**< accumulate: dgamma, dbeta and dslope */
};

/** Places in a block's dynamic shared memory, in bytes; the weights come first. */
struct conv3_places {
    int tiles, tile_bytes; /**< of all groups; of one group */
    int load_vectors;      /**< f32 [CONV3_VECTORS][channels] */
    int store_vectors;     /**< f32 [CONV3_VECTORS][COLUMNS] */
    int sums, counts;      /**< f32 [warps along pixels of all groups][conv3_sums_of()][COLUMNS], and [those warps] */
    int pixels;            /**< int [rows]: the row and the column of a tile's pixels */
    int end;
};

/**
 * Vectors by channel: of a load scale, shift, slope and the second tensor's factor; of a store those of
 * store_vectors_share().
 */
enum { CONV3_VECTORS = 4 };

struct conv3_work {
    conv3_load load;
    conv3_store store;
    conv3_places places;
    int images, h, w, channels, outputs; /**< channels: of what is read */
    int tile_h, tile_w, tiles_down, tiles_across, tiles;
    int pitch, weight_pitch;     /**< bytes from pixel to pixel of a tile, and from column to column of the weights */
    int step_rows, step_columns; /**< of the halo, from a thread's pixel to its next one */
    /**
     * {output channels in conv3_channel()'s order}{tap}{channel}, rows of weight_pitch; for products of warpgroups, of
     * each block's columns {tap}{channel / 8}{output channel}{channel % 8}. Channels that are shuffled are numbered by
     * pixel of the result's factor² and then by its channel
     */
    const unsigned char *packed;
    unsigned *ticket;
    /** [block][kinds][outputs]; of statistics mean, squared distances and, in a third row, the count */
    float *partials;
    int lists; /**< floats from block to block */
};

/** Which output channel stands in column `column` of the packed weights: so a lane has four neighbouring channels. */
static __host__ __device__ __forceinline__ int conv3_channel(int column)
{
    return column / 16 * 16 + column % 8 / 2 * 4 + column % 16 / 8 * 2 + column % 2;
}

/** Shared and packed memory is given out by 128 bytes. */
static inline int conv3_align(int64_t bytes)
{
    return static_cast<int>(cuda_divide_up(bytes, 128)) * 128;
}

/** A kernel and the tiles that it takes. */
struct conv3_kernel {
    int rows, columns;                  /**< pixels and channels of a tile */
    int channels;                       /**< that it was compiled for; 0 = any */
    int threads;                        /**< of a group */
    int warps_m;                        /**< of a group, along pixels */
    int most_groups[CONV3_STORE_KINDS]; /**< that registers suffice for; 0 = it has no such store */
    float speed; /**< products a time unit relative to the others, where the multiprocessor is full */
    bool wgmma;  /**< products are of warpgroups (wgmma.cuh) */
    void (*run[CONV3_STORE_KINDS])(conv3_work);
};

/** Kernels to choose from, ended by one without rows. */
const conv3_kernel *conv3_kernels_of_64();
const conv3_kernel *conv3_kernels_of_any();
/** For GPUs of compute capability 9.0 alone; none where the build has no code for sm_90a. */
const conv3_kernel *conv3_kernels_of_wgmma();

#endif
